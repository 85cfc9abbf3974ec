"""A keyed rate limit under load: how far apart the starts of each key are, by the store's clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from statistics import median

from bench import databases, ours
from bench.app import app, limited, noop
from bench.http import serving
from bench.jobs import DATA
from bench.rounds import Failed, progress
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.tables import NONE
from bench.workers import address, working

GAP = 3.0
LATEST = 3.5
"""Seconds between two starts of a key: at least the first, and at most the second."""
KEYS = 10
PATIENCE = 60.0
LOAD = 500
"""No-op jobs in each batch that is published beside the limited ones, one batch after the other."""


def keyed_rate(scale: Scale, _rounds: int) -> Found:
    starts = scale.of(6, 2)
    rows = []
    for store in ("postgres", "sqlite"):
        progress(f"a keyed rate limit under load, {databases.TITLES[store]}")
        with (
            databases.fresh(store) as database,
            serving(store, database, "--no-worker", "--no-api"),
            working(store, database),
        ):
            gaps, beside = ours.run(gaps_under_load(store, database, starts))
        rows.append(
            Row(
                f"keyed rate limit of 1 in {GAP:g} s under load, {databases.TITLES[store]}: gaps, p50 (least–most), s",
                f"{median(gaps):.2f} ({min(gaps):.2f}–{max(gaps):.2f})",
                f"{beside:,.0f} other jobs a second meanwhile",
                NONE,
                f"{GAP:g} to {LATEST:g}",
                min(gaps) >= GAP and max(gaps) <= LATEST,
            )
        )
    return Found(rows, [f"{KEYS} keys of {starts} starts each, one worker, a publisher that never pauses."], rounds=1)


async def gaps_under_load(store: str, database: str, starts: int) -> tuple[Sequence[float], float]:
    """Seconds between neighbouring starts of each key; and how many other jobs a second ended meanwhile."""
    async with app.connected(address(store, database), declare=False):
        accounts = [f"account-{key}" for key in range(KEYS)] * starts
        published = await app.publish_many([limited.request(account=account) for account in accounts])
        began = time.monotonic()
        deadline = began + PATIENCE
        done = 0
        while done < len(accounts):
            if time.monotonic() > deadline:
                raise Failed(f"{done} of {len(accounts)} limited jobs ended in {PATIENCE:g} s")
            for _ in range(10):
                await app.publish_many([noop.request(data=DATA) for _ in range(LOAD)])
            done = await ours.scalar(store, database, f"select count(*) {LIMITED} and runs.status = 'SUCCESS'")
    took = time.monotonic() - began
    others = await ours.scalar(store, database, "select count(*) from runs where status = 'SUCCESS'") - done
    found = await ours.execute(store, database, [f"select runs.id, runs.start_time {LIMITED}"])
    started: dict[int, int] = {row[0]: row[1] for row in found}
    by_account: dict[str, list[int]] = {}
    for account, each in zip(accounts, published, strict=True):
        by_account.setdefault(account, []).append(started[each.run_id])
    gaps = [
        (after - before) / 1_000_000
        for instants in by_account.values()
        for before, after in itertools.pairwise(sorted(instants))
    ]
    return gaps, others / took


LIMITED = "from runs join tasks on tasks.id = runs.task_id where tasks.job_type = 'limited'"
