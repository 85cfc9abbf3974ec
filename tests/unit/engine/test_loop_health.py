"""Progress: a loop whose ticks fail or hang makes its node unready, and nothing else does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from conformance.store.builders import START, job, publish
from integration.support import until
from noonbell.clock import SECOND, ManualClock
from noonbell.engine.loop_runner import (
    STALLED_AFTER,
    LoopHealth,
    LoopRunner,
    batch_done,
    note_not_ready_periods,
    reporting,
)
from noonbell.engine.node import Node
from noonbell.errors import StoreUnavailable
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Patient, worker_on


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def watch(clock: ManualClock) -> LoopHealth:
    return LoopHealth(clock, monotonic=lambda: clock.now() / SECOND)


def test_a_loop_that_sleeps_until_something_is_due_is_healthy(watch: LoopHealth, clock: ManualClock):
    watch.tick_began("planner", "planner")
    watch.tick_succeeded("planner")
    clock.advance(3600)
    assert watch.is_ok
    assert watch.stalls() == []
    assert watch.stalled_kinds() == {"planner": False}


def test_a_tick_that_has_run_for_five_seconds_stalls_its_loop(watch: LoopHealth, clock: ManualClock):
    watch.tick_began("planner", "planner")
    clock.advance(STALLED_AFTER)
    assert watch.is_ok
    clock.advance(0.5)
    (stall,) = watch.stalls()
    assert (stall.loop, stall.kind, stall.since, stall.error) == ("planner", "planner", START, None)
    assert watch.reason == "the planner loop has made no progress for 6 s: its tick has not ended"
    assert watch.stalled_kinds() == {"planner": True}
    watch.tick_succeeded("planner")
    assert watch.is_ok
    assert watch.reason is None


def test_what_it_waits_for_is_said_where_the_store_knows_it(clock: ManualClock):
    watch = LoopHealth(clock, monotonic=lambda: clock.now() / SECOND, waits_for=lambda: "session 7")
    watch.tick_began("planner", "planner")
    clock.advance(6)
    assert watch.stalls()[0].error == "it waits for a lock that is held by session 7"


def test_each_batch_of_a_long_tick_is_progress(watch: LoopHealth, clock: ManualClock):
    with reporting(lambda: watch.progressed("planner")):
        watch.tick_began("planner", "planner")
        for _ in range(10):
            clock.advance(4)
            assert watch.is_ok
            batch_done()
    batch_done()  # outside of a loop it means nothing
    clock.advance(6)
    assert not watch.is_ok


def test_any_error_stalls_a_loop_once_no_tick_has_succeeded_for_five_seconds(watch: LoopHealth, clock: ManualClock):
    for _ in range(6):
        assert watch.is_ok
        watch.tick_began("sweeper", "sweeper")
        watch.tick_failed("sweeper", ValueError("a column is gone"))
        clock.advance(1)
    (stall,) = watch.stalls()
    assert (stall.since, stall.error) == (START, "ValueError: a column is gone")
    watch.tick_began("sweeper", "sweeper")
    watch.tick_succeeded("sweeper")
    assert watch.is_ok


def test_a_store_that_is_away_counts_at_once(watch: LoopHealth):
    watch.tick_began("planner", "planner")
    watch.store_unavailable("planner", StoreUnavailable("connection refused"))
    assert not watch.is_ok
    assert watch.reason == "the store is not responding: connection refused"


def test_loops_that_readiness_does_not_need_never_stall_a_node(watch: LoopHealth, clock: ManualClock):
    watch.tick_began("alerts")
    clock.advance(60)
    assert watch.is_ok
    assert watch.stalled_kinds() == {}


def test_a_loop_that_was_stopped_does_not_count(watch: LoopHealth, clock: ManualClock):
    watch.tick_began("claim 0 of w", "claim")
    clock.advance(60)
    watch.loop_ended("claim 0 of w")
    assert watch.is_ok


def test_the_log_has_one_line_when_trouble_begins_and_one_when_it_ends(watch: LoopHealth, clock: ManualClock, caplog):
    with caplog.at_level(logging.INFO):
        for second in range(30):
            for name in ("planner", "sweeper"):
                watch.tick_began(name, name)
                if second % 2:
                    watch.store_unavailable(name, StoreUnavailable("gone"))
                else:
                    watch.tick_failed(name, ValueError("broken"))
            watch.check()
            clock.advance(1)
        for name in ("planner", "sweeper"):
            watch.tick_began(name, name)
            watch.tick_succeeded(name)
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "ready" in line] == [
        "not ready: the store is not responding: gone",
        "ready again after 30.0 s: the store is back",
    ]
    assert [record.message for record in caplog.records if record.exc_info] == [
        f"the {name} loop failed; it continues, and the same error is not logged again"
        for name in ("planner", "sweeper")
    ]
    assert "the planner loop failed 14 more times: ValueError: broken" in said
    assert len(said) == 6


def test_an_error_that_changes_is_logged_again(watch: LoopHealth, caplog):
    for text in ("one", "one", "one", "two"):
        watch.tick_began("planner", "planner")
        watch.tick_failed("planner", ValueError(text))
    said = [record.getMessage() for record in caplog.records]
    assert said[1] == "the planner loop failed 2 more times: ValueError: one"
    assert len(said) == 3


async def test_a_stretch_is_noted_when_it_is_over_and_kept_while_it_cannot_be(watch: LoopHealth, clock: ManualClock):
    noted: list[tuple[float, str]] = []
    refuses = True

    async def note(seconds: float, reason: str) -> None:
        if refuses:
            raise StoreUnavailable("not yet")
        noted.append((seconds, reason))

    async def tell() -> None:
        await note_not_ready_periods(watch, note, clock.now() / SECOND)

    watch.tick_began("planner", "planner")
    clock.advance(7)
    watch.check()
    watch.store_unavailable("planner", StoreUnavailable("a lock"))
    clock.advance(3)
    watch.tick_began("planner", "planner")
    watch.tick_succeeded("planner")
    with pytest.raises(StoreUnavailable):
        await tell()
    refuses = False
    clock.advance(2)
    await tell()
    assert noted == [(12.0, "a lock")]
    await tell()
    assert len(noted) == 1


async def test_a_node_whose_tick_hangs_is_not_ready_and_says_which_loop(caplog, monkeypatch):
    monkeypatch.setattr("noonbell.engine.loop_runner.STALLED_AFTER", 0.05)
    release = asyncio.Event()

    class Hanging:
        async def tick(self) -> float:
            await release.wait()
            return 3600.0

        async def wait(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    noted: list[str] = []

    async def note(_seconds: float, reason: str) -> None:
        noted.append(reason)

    node = Node(note_outage=note)
    await node.start()
    runner = LoopRunner("planner", Hanging(), node.loops, kind="planner")
    runner.start()
    with caplog.at_level(logging.INFO):
        await until(lambda: not node.health()["ok"], 60, "the stall to be seen")
        (stalled,) = node.health()["stalled"]
        assert (stalled["loop"], stalled["kind"], stalled["error"]) == ("planner", "planner", None)
        await until(lambda: "not ready: the planner loop" in caplog.text, 60, "the line of the log")
        await asyncio.sleep(1.0)  # a stretch that is worth noting
        release.set()
        await until(lambda: bool(node.health()["ok"]), 60, "the node to be ready")
        await until(lambda: len(noted) == 1, 60, "the outage to be noted")
    assert caplog.text.count("ready again after") == 1
    await runner.stop()
    await node.stop(0)


async def test_an_idle_node_and_a_full_worker_stay_ready(store: MemoryStore, wakeup: LocalWakeup, monkeypatch):
    monkeypatch.setattr("noonbell.engine.loop_runner.STALLED_AFTER", 0.3)
    task = await store.create_task(job())
    worker = worker_on(store, target := Patient(), wakeup, concurrency=1, poll=0.01)
    node = Node(workers=[worker])
    await node.start()
    await publish(store, task)
    await publish(store, task)
    wakeup.signal("queue:default")
    await until(lambda: len(target.started) == 1, 60, "the only place to be taken")
    await asyncio.sleep(1.0)
    # A tick that a busy machine holds up for a moment is over soon; one that waits for the place is not.
    await until(lambda: bool(node.health()["ok"]), 60, "the node to be ready with its only place taken")
    assert len(target.started) == 1
    target.finish()
    await node.stop(1)
