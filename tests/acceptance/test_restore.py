"""A store that is restored from a backup runs again what it has forgotten, and targets can tell."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest

from acceptance.harness import Target, until

pytestmark = pytest.mark.acceptance


def copy(source: Path, to: Path) -> None:
    """As `sqlite3 noonbell.db ".backup …"` does it, while a node works."""
    with contextlib.closing(sqlite3.connect(source)) as there, contextlib.closing(sqlite3.connect(to)) as here:
        there.backup(here)


def keys_by_slot(target: Target, path: str) -> dict[str, list[tuple[int, str]]]:
    """(run, Idempotency-Key) of each delivery, by the slot it was for."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for arrival in target.at(path):
        found[arrival.slot].append((arrival.run_id, arrival.headers["Idempotency-Key"]))
    return found


def test_a_slot_that_runs_again_after_a_restore_has_the_same_idempotency_key(nodes, sqlite_url, tmp_path, target):
    file, backup = Path(sqlite_url.removeprefix("sqlite:///")), tmp_path / "backup.db"
    node = nodes.start(sqlite_url)
    schedule = {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}
    node.create(
        name="each second",
        schedule=schedule,
        target_url=target.url("/slot"),
        misfire_policy="CATCH_UP_LIMITED",
        catchup_limit=100,
    )
    copy(file, backup)
    target.wait_for("/slot", 2)
    assert node.stop() == 0
    before = keys_by_slot(target, "/slot")

    for part in ("", "-wal", "-shm"):
        file.with_name(file.name + part).unlink(missing_ok=True)
    copy(backup, file)
    nodes.start(sqlite_url)
    until(
        lambda: all(len(keys_by_slot(target, "/slot")[slot]) > 1 for slot in before),
        "the slots since the backup to be run again",
    )
    after = keys_by_slot(target, "/slot")
    for slot in before:
        assert len({run for run, _ in after[slot]}) == 2, "the runs are other ones"
        assert len({key for _, key in after[slot]}) == 1, after[slot]
    assert len({key for deliveries in after.values() for _, key in deliveries}) == len(after)
