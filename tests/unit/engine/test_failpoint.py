"""Failpoints: off unless named; and what kill -9 at each of them leaves behind, on a file that survives.

The process that dies is a real one (`victim`); a node in the test's own process takes over. Times are real here.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.store.builders import details_of
from integration.support import TESTS, until
from noonbell import when
from noonbell.clock import slot_of
from noonbell.engine import failpoint
from noonbell.model.request import Publication, RunQuery
from noonbell.model.run import FINAL, Run, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery, Task, TaskSpec
from noonbell.stores import open_store
from noonbell.stores.sql.store import SqlStore
from unit.engine.victim import Witness, node_on

S = RunStatus


def test_it_strikes_the_time_that_was_named_and_only_once():
    died: list[int] = []
    hit = failpoint.armed(failpoint.parse("K3, K7:2"), died.append)
    hit("K1")
    hit("K7")
    assert died == []
    hit("K3")
    assert died == [137]
    hit("K7")
    assert died == [137, 137]
    hit("K7")
    hit("K3")
    assert died == [137, 137]


def test_nothing_is_armed_by_default():
    assert failpoint.VARIABLE not in os.environ
    assert failpoint.hit is failpoint._nothing


# ---- kill -9, step by step


class Scene:
    def __init__(self, store: SqlStore, url: str, folder: Path) -> None:
        self.store, self._url, self._witness = store, url, folder / "witness"

    async def task(self, *, scheduled: bool = False, **fields: Any) -> Task:
        """A job, or what the fields make of it, with a short lease."""
        now = await self.store.now()
        once = when.normalise({"type": "once", "at": None}, "UTC", slot_of(now)) if scheduled else None
        short = {"worker_timeout_ms": 600, "ping_interval_ms": 100}
        kind = {} if "target_url" in fields else {"job_type": "work"}
        return await self.store.create_task(TaskSpec(name="t", schedule=once, **short, **kind, **fields))

    async def kill_at(self, point: str, role: str = "work", *more: str) -> None:
        """Start the victim and see it die there."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "unit.engine.victim", self._url, str(self._witness), role, *more),
            env=os.environ | {failpoint.VARIABLE: point, "PYTHONPATH": str(TESTS)},
            stderr=subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == failpoint.STATUS, errors.decode()[-2000:]

    async def recover(self, task: Task, ended: frozenset[RunStatus] = FINAL) -> Run:
        """Let another node take over until the run has come to rest."""
        node = node_on(self.store, self._url, Witness(self._witness), "heir")
        await node.start()

        async def is_over() -> bool:
            run = await self.run_of(task)
            return run is not None and run.status in ended

        try:
            await until(is_over, 60, "the run to end")
        finally:
            await node.stop(1)
        run = await self.run_of(task)
        assert run is not None
        return run

    async def run_of(self, task: Task) -> Run | None:
        page = await self.store.runs(RunQuery(task_id=task.id))
        assert len(page.items) <= 1, "a slot became two runs"
        return page.items[0] if page.items else None

    def deliveries(self) -> list[list[str]]:
        return [line.split() for line in self._witness.read_text().splitlines()] if self._witness.exists() else []


@pytest.fixture
async def scene(sqlite_url: str, tmp_path: Path):
    store = open_store(sqlite_url)
    await store.open()
    yield Scene(store, sqlite_url, tmp_path)
    assert await store.recount() == 0
    await store.close()


BOTH = pytest.mark.parametrize("delivery", Delivery)


@BOTH
@pytest.mark.parametrize(("point", "written"), [("K1", 0), ("K2", 1)])
async def test_killed_around_the_commit_of_a_slot(scene: Scene, point: str, written: int, delivery: Delivery):
    task = await scene.task(scheduled=True, delivery=delivery)
    await scene.kill_at(point)
    assert (await scene.run_of(task) is not None) == bool(written)
    run = await scene.recover(task)
    assert (run.status, len(scene.deliveries())) == (S.SUCCESS, 1)
    # After the commit, the worker of the same process may have claimed the run before the planner died.
    assert run.attempt <= 1 + written


@BOTH
async def test_killed_after_the_claim_nothing_was_sent_and_another_worker_sends_it(scene: Scene, delivery: Delivery):
    task = await scene.task(delivery=delivery)
    await scene.store.publish([Publication(task_id=task.id)])
    await scene.kill_at("K3")
    run = await scene.recover(task)
    assert (run.status, run.attempt, run.lost_count, run.worker_id) == (S.SUCCESS, 2, 1, "heir")
    assert len(scene.deliveries()) == 1


@pytest.mark.parametrize(
    ("point", "fields", "before"),
    [
        ("K4", {}, 0),
        ("K6", {"target_url": "http://target.test/"}, 1),
        ("K12", {}, 1),
    ],
)
@BOTH
async def test_killed_between_begin_and_settle(
    scene: Scene, point: str, fields: dict[str, Any], before: int, delivery: Delivery
):
    task = await scene.task(delivery=delivery, **fields)
    await scene.store.publish([Publication(task_id=task.id)])
    await scene.kill_at(point)
    run = await scene.recover(task)
    if delivery is Delivery.AT_LEAST_ONCE:
        assert (run.status, run.attempt, len(scene.deliveries())) == (S.SUCCESS, 2, before + 1)
        assert [one.status for one in await scene.store.attempts(run.id)] == ["LOST", "SUCCESS"]
    else:
        assert (run.status, details_of(run)) == (S.FAILED, {"kind": "unknown"})
        assert len(scene.deliveries()) == before


async def test_killed_after_the_settle_the_run_is_over(scene: Scene):
    task = await scene.task()
    await scene.store.publish([Publication(task_id=task.id)])
    await scene.kill_at("K7")
    run = await scene.run_of(task)
    assert run is not None
    assert run.status is S.SUCCESS
    await scene.recover(task)
    assert len(scene.deliveries()) == 1


ASYNC = {"target_url": "http://target.test/", "exec_type": ExecType.ASYNC}


async def test_killed_with_the_202_in_hand_the_callback_completes_the_run(scene: Scene):
    task = await scene.task(**ASYNC)
    await scene.store.publish([Publication(task_id=task.id)])
    await scene.kill_at("K8")
    ((_, _, token),) = scene.deliveries()
    await scene.kill_at("K10", "callback", token)
    run = await scene.recover(task)
    assert (run.status, len(scene.deliveries())) == (S.CALLBACK_SUCCESS, 1)


@pytest.mark.parametrize(("point", "stands"), [("K9", S.CALLBACK_PENDING), ("K10", S.CALLBACK_SUCCESS)])
async def test_killed_around_the_commit_of_a_callback_its_repeat_is_heard_once(
    scene: Scene, point: str, stands: RunStatus
):
    task = await scene.task(**ASYNC)
    await scene.store.publish([Publication(task_id=task.id)])
    run = await scene.recover(task, frozenset({S.CALLBACK_PENDING}))
    ((_, _, token),) = scene.deliveries()
    await scene.kill_at(point, "callback", token)
    run = await scene.run_of(task) or run
    assert run.status is stands
    await scene.kill_at("K10", "callback", token)
    run = await scene.run_of(task) or run
    assert run.status is S.CALLBACK_SUCCESS
    told = [one.status for one in await scene.store.callbacks(run.id)]
    assert sorted(told) == (["RECEIVED"] if point == "K9" else ["IGNORED", "RECEIVED"])


@pytest.mark.parametrize(("point", "role"), [("K11:3", "hold"), ("K15", "stop")])
@BOTH
async def test_killed_while_a_handler_is_at_work(scene: Scene, point: str, role: str, delivery: Delivery):
    task = await scene.task(delivery=delivery)
    await scene.store.publish([Publication(task_id=task.id)])
    await scene.kill_at(point, role)
    run = await scene.recover(task)
    if delivery is Delivery.AT_LEAST_ONCE:
        assert (run.status, run.attempt, run.lost_count) == (S.SUCCESS, 2, 1)
        assert [attempt for _, attempt, _ in scene.deliveries()] == ["1", "2"]
    else:
        assert (run.status, details_of(run), len(scene.deliveries())) == (S.FAILED, {"kind": "unknown"}, 1)
