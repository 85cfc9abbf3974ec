"""`noonbell move` between databases while a node fires: nothing is lost, nothing is delivered twice, and killed it goes on.

The source is compared with the destination row by row: it is closed after the move, so it stands still.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, Target
from noonbell.stores import open_store
from noonbell.stores.sql import copying
from services import forked

pytestmark = [pytest.mark.acceptance, pytest.mark.bare_database]

FRESH = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}
STILL_WRITTEN = frozenset({"counters", "pulses", "workers"})
"""Tables that a node writes after the source is closed; the counters of the destination go on by themselves."""
ENDED = frozenset({"installation_pauses", "events"})
"""The pause of the move ends in the destination, and an event says so."""
PATHS = [f"/slot/{number}" for number in range(4)]


def directions() -> list[Any]:
    """All of them. Three stay in `make test`, so that each database is a source once and a destination once."""
    usual = {("sqlite", "postgres"), ("postgres", "mariadb"), ("mariadb", "sqlite")}
    pairs = [(source, to) for source in FRESH for to in FRESH if source != to]
    return [pytest.param(*pair, marks=() if pair in usual else pytest.mark.full) for pair in pairs]


@pytest.fixture
def url_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    return lambda kind: str(request.getfixturevalue(FRESH[kind]))


def fill(node: ServerNode, target: Target) -> None:
    """Slots each second, from here on; and something in most of the tables."""
    schedule = {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}
    for path in PATHS:
        node.create(
            name=f"fires {path}",
            labels={"team": "bell"},
            schedule=schedule,
            target_url=target.url(path),
            misfire_policy="CATCH_UP_LIMITED",
            catchup_limit=100,
            delivery="at_most_once" if path == PATHS[0] else "at_least_once",
        )
    keyed = node.create(name="keyed", target_url=target.url("/keyed"))
    for number in range(5):
        node.trigger(keyed, key=f"key {number}", override_body=f"Grüße, 早上好, {number}")
    waiting = node.create(name="waits", target_url=target.url("/later"))
    node.ask("POST", f"/tasks/{waiting}/trigger", {"delay_seconds": 86_400})
    node.ask("PUT", "/calendars/holidays", {"timezone": "UTC", "closed": ["2026-12-25"]})
    node.ask(
        "POST", "/subscriptions", {"name": "hook", "url": target.url("/hook"), "types": ["run.failed"]}, expect=201
    )


def move(source: str, to: str, *more: str, folder: Path, point: str = "") -> subprocess.CompletedProcess[str]:
    env = {"NOONBELL_FAILPOINT": point} if point else {}
    return forked.run("move", "--from", source, "--to", to, *more, cwd=folder, env=env, seconds=120)


def rows_of(url: str) -> tuple[str, dict[str, Counter[str]]]:
    async def read() -> tuple[str, dict[str, Counter[str]]]:
        store = open_store(url, connections=2)
        store.is_being_moved = True
        await store.open()
        try:
            found: dict[str, Counter[str]] = {}
            for name, table in copying.tables().items():
                rows = await store.fetch(f"select {', '.join(table.quoted)} from {name}")
                found[name] = Counter(map(str, rows))
            return await store.installation_id() or "", found
        finally:
            await store.close()

    return asyncio.run(read())


def check_copied(source: str, to: str) -> None:
    (old_id, before), (new_id, after) = rows_of(source), rows_of(to)
    assert old_id == new_id
    for name in before.keys() - STILL_WRITTEN - ENDED:
        assert before[name] == after[name], name
    assert before["installation_pauses"].total() == after["installation_pauses"].total() == 1
    assert not before["events"] - after["events"]
    assert {"tasks", "runs", "events", "cursors", "live", "calendars", "subscriptions"} <= {
        n for n in before if before[n]
    }


def check_slots(target: Target) -> None:
    """Every slot from the first to the last was delivered once."""
    for path in PATHS:
        slots = [arrival.slot for arrival in target.at(path)]
        assert len(slots) == len(set(slots)), f"{path}: delivered twice: {Counter(slots).most_common(3)}"
        seconds = sorted({slot[:19] for slot in slots})
        first, last = (datetime.fromisoformat(text) for text in (seconds[0], seconds[-1]))
        assert len(seconds) == (last - first).total_seconds() + 1, f"{path}: a slot is missing in {seconds}"


@pytest.mark.parametrize(("origin", "goal"), directions())
def test_a_store_moves_while_its_node_fires(origin, goal, url_of, nodes: Nodes, target: Target, tmp_path: Path):
    source, to = url_of(origin), url_of(goal)
    node = nodes.start(source)
    fill(node, target)
    for path in PATHS:
        target.wait_for(path, 2)
    done = move(source, to, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit: equal on both sides" in done.stdout
    assert node.wait_ended() == 1
    assert "the store was moved to" in node.log
    check_copied(source, to)

    again = nodes.launch("--store", source, "--port", "0")
    assert again.wait_ended() == 1
    assert "the store was moved to" in again.log
    assert "set store.url" in again.log

    before = {path: len(target.at(path)) for path in PATHS}
    heir = nodes.start(to)
    for path in PATHS:
        target.wait_for(path, before[path] + 3)
    keyed = heir.ask("GET", "/tasks?name=keyed")["items"][0]["id"]
    known = {run["id"] for run in heir.runs_of(keyed)}
    assert heir.trigger(keyed, key="key 3", override_body="Grüße, 早上好, 3") in known
    assert heir.trigger(keyed, key="key 9") > max(known)
    assert heir.stop() == 0
    check_slots(target)
    repeated = move(source, to, folder=tmp_path)
    assert (repeated.returncode, "already moved" in repeated.stdout) == (0, True), repeated.stderr


KILLED = 137


@pytest.mark.parametrize(
    ("origin", "goal"), directions()[:1] + [pytest.param("postgres", "mariadb", marks=pytest.mark.full)]
)
def test_a_move_that_is_killed_in_each_phase_goes_on(
    origin, goal, url_of, nodes: Nodes, target: Target, tmp_path: Path
):
    source, to = url_of(origin), url_of(goal)
    node = nodes.start(source)
    fill(node, target)
    target.wait_for(PATHS[0], 2)
    for point in ("K50", "K50:9", "K51", "K52", "K53", "K54"):
        killed = move(source, to, folder=tmp_path, point=point)
        assert killed.returncode == KILLED, f"{point}: {killed.stdout}{killed.stderr}"
        if point.startswith("K50"):
            count = len(target.at(PATHS[1]))
            target.wait_for(PATHS[1], count + 1)  # the source goes on
        elif point != "K51":
            refused = nodes.launch("--store", source, "--port", "0")
            assert refused.wait_ended() == 1, refused.log
            assert "move" in refused.log
        if point in ("K51", "K52"):
            early = nodes.launch("--store", to, "--port", "0")
            assert early.wait_ended() == 1, early.log
            assert "the store is incomplete" in early.log
    done = move(source, to, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit: equal on both sides" in done.stdout
    assert node.wait_ended() == 1
    check_copied(source, to)
    count = len(target.at(PATHS[0]))
    nodes.start(to)
    target.wait_for(PATHS[0], count + 2)
    check_slots(target)


@pytest.mark.parametrize("origin", ["sqlite", "postgres", "mariadb"])
def test_a_move_that_is_canceled_lets_the_source_go_on(origin, url_of, nodes: Nodes, target: Target, tmp_path: Path):
    source, to = url_of(origin), f"sqlite:///{tmp_path / 'elsewhere.db'}"
    node = nodes.start(source)
    fill(node, target)
    killed = move(source, to, folder=tmp_path, point="K52")
    assert killed.returncode == KILLED, killed.stderr
    assert node.call("POST", "/tasks", {"name": "late", "target_url": target.url("/late")}).status == 503
    canceled = forked.run("move", "--from", source, "--cancel", cwd=tmp_path, env={})
    assert canceled.returncode == 0, canceled.stderr
    count = len(target.at(PATHS[0]))
    target.wait_for(PATHS[0], count + 2)
    node.create(name="late", target_url=target.url("/late"))
    assert node.stop() == 0
    audit = forked.run("audit", "--store", source, cwd=tmp_path, env={})
    assert audit.returncode == 0, audit.stdout
    refused = move(source, to, folder=tmp_path)
    assert refused.returncode == 5
    assert "part of another move" in refused.stderr
    check_slots(target)


def test_a_cancel_that_is_killed_is_finished_by_the_next(sqlite_url: str, nodes: Nodes, target: Target, tmp_path: Path):
    node = nodes.start(sqlite_url)
    fill(node, target)
    to = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    killed = move(sqlite_url, to, folder=tmp_path, point="K52")
    assert killed.returncode == KILLED, killed.stderr
    command = ("move", "--from", sqlite_url, "--cancel")
    assert forked.run(*command, cwd=tmp_path, env={"NOONBELL_FAILPOINT": "K56"}).returncode == KILLED
    refused = move(sqlite_url, to, folder=tmp_path)
    assert (refused.returncode, "part of another move" in refused.stderr) == (5, True), (
        "what changes is not noted any longer"
    )
    repeated = forked.run(*command, cwd=tmp_path, env={})
    assert repeated.returncode == 0, repeated.stderr
    count = len(target.at(PATHS[0]))
    target.wait_for(PATHS[0], count + 2)


def test_what_still_runs_after_the_drain_is_lost_as_by_a_dead_worker(
    sqlite_url: str, nodes: Nodes, target: Target, tmp_path: Path
):
    node = nodes.start(sqlite_url)
    once = node.create(name="once", target_url=target.url("/hold/once"), delivery="at_most_once")
    twice = node.create(name="twice", target_url=target.url("/hold/twice"), retry_policy={"max_retries": 1})
    runs = {task: node.trigger(task) for task in (once, twice)}
    for path in ("/hold/once", "/hold/twice"):
        target.wait_for(path)
    to = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    shown = move(sqlite_url, to, "--dry-run", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "nothing was copied" in shown.stderr
    done = move(sqlite_url, to, "--drain", "0.5", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs had not ended" in done.stdout
    assert " %\n" in done.stderr
    node.kill()
    target.release("twice")
    heir = nodes.start(to)
    assert heir.wait_for_run(runs[twice], "SUCCESS")["lost_count"] == 1
    lost = heir.wait_for_run(runs[once], "FAILED")
    assert lost["error_details"]["kind"] == "unknown"


def test_a_source_of_an_earlier_version_is_left_as_it_is(sqlite_url: str, nodes: Nodes, tmp_path: Path):
    """A step that was taken under them would stop nodes of that version, before anything is copied."""
    assert nodes.start(sqlite_url).stop() == 0
    store = ("--store", sqlite_url)
    earlier = forked.run("migrate", *store, "--to", "46", "--yes", cwd=tmp_path)
    assert earlier.returncode == 0, earlier.stdout + earlier.stderr
    before = forked.run("migrate", *store, "--status", cwd=tmp_path).stdout
    to = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    for more in (["--dry-run"], []):
        refused = move(sqlite_url, to, *more, folder=tmp_path)
        assert refused.returncode == 5, refused.stdout + refused.stderr
        assert "bring it up to date with `noonbell migrate` first" in refused.stderr
    assert forked.run("migrate", *store, "--status", cwd=tmp_path).stdout == before
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_destination_with_rows_is_refused_and_stays_as_it_is(
    sqlite_url: str, nodes: Nodes, target: Target, tmp_path: Path
):
    to = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    for url in (sqlite_url, to):
        node = nodes.start(url)
        node.create(name="mine", target_url=target.url("/mine"))
        assert node.stop() == 0
    before = rows_of(to)
    refused = move(sqlite_url, to, folder=tmp_path)
    assert refused.returncode == 5
    assert "the destination is not empty" in refused.stderr
    assert rows_of(to) == before
    same = move(sqlite_url, sqlite_url, folder=tmp_path)
    assert same.returncode == 5
    assert "the same store" in same.stderr
    nodes.start(sqlite_url)
