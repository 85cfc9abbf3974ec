"""Each reason why a slot ran, ran late or did not run, lived through on every store: `explain` names it, and who and what.

Nothing is made up: real policies, claims, settlements and sweeps, and a clock that only moves when it is told to.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from conformance.store.builders import (
    QUEUES,
    START,
    after_each,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    cron,
    done,
    edit,
    every,
    fail,
    finish,
    http,
    job,
    once,
    park,
    publish,
    retry,
    runs_of,
    trigger,
)
from noonbell.clock import SECOND, Instant, ManualClock, from_datetime, rfc3339
from noonbell.engine.loop_runner import LoopHealth, note_not_ready_periods
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.errors import StoreUnavailable
from noonbell.model.run import RunStatus
from noonbell.model.task import (
    Circuit,
    ConcurrencyPolicy,
    FailureAction,
    MisfirePolicy,
    OnExhausted,
    OnLost,
    OverlapAction,
    RateLimit,
    RetryPolicy,
    Task,
    TaskStatus,
)
from noonbell.model.worker import Queue, WorkerInfo
from noonbell.ports import Store
from noonbell.service.consistency import audit
from noonbell.service.explain import Explain
from noonbell.service.explain_findings import CAUSES
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody

S = RunStatus
Answer = dict[str, Any]


@pytest.fixture(autouse=True)
async def _is_sound(store: Store):
    """Whatever a situation did, the account is whole."""
    yield
    report = await audit(store)
    assert report.flaws == []


async def why(store: Store, task: Task, seconds: float | None) -> Answer:
    moment = None if seconds is None else at(seconds)
    answer = await Explain(store).of_task(task, moment)
    chinese = await Explain(store).of_task(task, moment, "zh")
    assert answer["cause"] in CAUSES
    assert answer["message"].isascii()
    assert not chinese["message"].isascii()
    assert {**answer, "message": ""} == {**chinese, "message": ""}
    if answer["slot"] is not None and seconds is not None:
        assert answer["slot"] == rfc3339(at(seconds))
    return answer


async def plan_at(store: Store, clock: ManualClock, seconds: float) -> None:
    """Time goes on, and a node plans, second by second as far as anything is due."""
    clock.set(at(seconds))
    while (await store.plan(100)).tasks:
        pass


async def worker_there(store: Store, **more: Any) -> None:
    await store.register_worker(WorkerInfo(id="w1", incarnation="i1", queues=QUEUES, **more))


async def turned(store: Store, task: Task, status: TaskStatus, by: str) -> Task:
    from noonbell.model.request import TaskChange

    return await store.change_task(task.id, lambda now: TaskChange(spec=now.spec, status=status), by=by)


# ---- it ran, or it will


async def test_it_ran(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    clock.set(at(12))
    await done(store, finish(lease))
    answer = await why(store, task, 10)
    assert (answer["cause"], answer["run_id"], answer["next_slot"]) == ("ran", lease.run_id, rfc3339(at(20)))
    assert "ended SUCCESS at 2026-01-01 10:00:12+00:00" in answer["message"]


async def test_it_ran_and_failed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    await done(store, fail(await claim_one(store), error_message="no such table"))
    answer = await why(store, task, 10)
    assert answer["cause"] == "ran"
    assert "FAILED" in answer["message"]
    assert "no such table" in answer["message"]


async def test_it_is_running(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    answer = await why(store, task, None)
    assert (answer["cause"], answer["run_id"]) == ("running", lease.run_id)
    assert "on worker w1" in answer["message"]


async def test_it_awaits_its_callback(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(schedule=every(10)))
    await plan_at(store, clock, 10)
    await done(store, park(await claim_one(store), 300))
    answer = await why(store, task, 10)
    assert answer["cause"] == "running"
    assert "waits for its callback until 2026-01-01 10:05:10" in answer["message"]


async def test_it_is_tried_again_later(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)))
    await plan_at(store, clock, 60)
    await done(store, retry(await claim_one(store), 30, error_message="busy"))
    answer = await why(store, task, 60)
    assert answer["cause"] == "running"
    assert "(busy); the next attempt starts at 2026-01-01 10:01:30" in answer["message"]


async def test_it_waits_for_a_worker_to_have_a_hand_free(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await worker_there(store)
    await plan_at(store, clock, 10)
    assert (await why(store, task, 10))["cause"] == "waiting"


async def test_it_waits_for_the_moment_that_jitter_gave_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60), jitter_seconds=50))
    await worker_there(store)
    await plan_at(store, clock, 60)
    (run,) = await runs_of(store, task)
    assert run.run_at > at(60)
    answer = await why(store, task, 60)
    assert answer["cause"] == "waiting"
    assert "is planned and due at" in answer["message"]


async def test_it_is_still_to_come(store: Store):
    task = await store.create_task(job(schedule=every(90)))
    for asked in (90, None):
        answer = await why(store, task, asked)
        assert (answer["cause"], answer["slot"]) == ("waiting", rfc3339(at(90)))
        assert "1 min 30 s away" in answer["message"]


# ---- no slot


async def test_it_is_no_slot(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 30)
    answer = await why(store, task, 15)
    assert (answer["cause"], answer["slot"], answer["run_id"]) == ("not_a_slot", None, None)
    assert "before it is 2026-01-01 10:00:10+00:00, the slot after it is 2026-01-01 10:00:20+00:00" in answer["message"]


async def test_the_task_did_not_exist_yet(store: Store):
    task = await store.create_task(job(schedule=every(10)))
    answer = await why(store, task, -20)
    assert (answer["cause"], answer["since"]) == ("not_a_slot", rfc3339(START))
    assert "did not exist" in answer["message"]


async def test_the_task_runs_on_demand_only(store: Store):
    task = await store.create_task(job())
    answer = await why(store, task, None)
    assert answer["cause"] == "not_a_slot"
    assert "no schedule" in answer["message"]


async def test_a_task_without_a_schedule_says_what_its_runs_wait_for(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await worker_there(store, job_types=("other", "third"))
    later = await publish(store, task, delay_seconds=600)
    first, second = await publish(store, task), await publish(store, task)
    answer = await why(store, task, None)
    assert (answer["cause"], answer["run_id"], answer["slot"]) == ("no_worker", first, None)
    assert f"Run {first} waits: no connected worker of queue default supports job type work." in answer["message"]
    assert "They support other, third." in answer["message"]
    assert "3 runs of the task are waiting." in answer["message"]
    await store.register_worker(WorkerInfo(id="w2", incarnation="i2", queues=QUEUES))
    assert (await why(store, task, None))["cause"] == "waiting"
    leases = await claim(store)
    assert {lease.run_id for lease in leases} == {first, second}
    for lease in leases:
        await done(store, finish(lease))
    answer = await why(store, task, None)
    assert (answer["cause"], answer["run_id"]) == ("waiting", later)
    assert "is planned and due at" in answer["message"]
    clock.advance(600)
    (lease,) = await claim_due(store)
    await done(store, finish(lease))
    answer = await why(store, task, None)
    assert (answer["cause"], answer["run_id"]) == ("ran", second)


async def test_a_triggered_run_of_a_task_whose_slots_are_to_come_is_told_of(store: Store):
    task = await store.create_task(job(schedule=every(3600)))
    run = await trigger(store, task)
    answer = await why(store, task, None)
    assert (answer["cause"], answer["run_id"], answer["slot"]) == ("no_worker", run, None)


async def test_a_retry_that_is_due_waits_for_a_worker_as_any_run_does(store: Store, clock: ManualClock):
    task = await store.create_task(job(retry_policy=RetryPolicy(max_retries=3)))
    await publish(store, task)
    await done(store, retry(await claim_one(store), 5))
    assert "the next attempt starts at" in (await why(store, task, None))["message"]
    clock.advance(6)
    assert (await why(store, task, None))["cause"] == "no_worker"


async def test_its_schedule_was_changed_before(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 15)
    new = job(schedule=every(60)).schedule

    def change(now: Task) -> Any:
        from noonbell.model.request import TaskChange

        return TaskChange(spec=msgspec.structs.replace(now.spec, schedule=new), status=now.status)

    await store.change_task(task.id, change, by="ann")
    await plan_at(store, clock, 100)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["actor"], answer["since"]) == ("not_a_slot", "ann", rfc3339(at(15)))
    assert (await why(store, task, 10))["run_id"] is not None, "under the version that was in force then"
    assert (await why(store, task, 60))["run_id"] is not None


async def test_a_local_time_in_a_gap_ran_right_after_it(store: Store, clock: ManualClock):
    clock.set(datetime(2026, 3, 28, 12, tzinfo=UTC))
    task = await store.create_task(job(schedule=cron("30 2 * * *"), timezone="Europe/Berlin"))
    after_the_gap = from_datetime(datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
    clock.set(after_the_gap)
    await store.plan(10)
    lease = await claim_one(store)
    await done(store, finish(lease))
    answer = await Explain(store).of_task(task, after_the_gap)
    assert (answer["cause"], answer["run_id"]) == ("ran", lease.run_id)
    assert "2026-03-29 03:00:00+02:00" in answer["message"]
    missed = await Explain(store).of_task(task, Instant(after_the_gap + 1800 * SECOND))
    assert missed["cause"] == "not_a_slot"
    assert "before it is 2026-03-29 03:00:00+02:00" in missed["message"]


# ---- a policy decided against it


async def test_overlap_with_a_run_under_way(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await plan_at(store, clock, 20)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["blocking_run_id"]) == ("overlap", lease.run_id)
    assert answer["policy"] == {"overlap_action": "SKIP"}


async def test_overlap_with_a_run_that_waits(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.SKIP))
    await plan_at(store, clock, 25)
    (first, second) = await runs_of(store, task)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["run_id"], answer["blocking_run_id"]) == ("overlap", second.id, first.id)


async def test_the_run_before_it_failed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), failure_action=FailureAction.SKIP))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await done(store, fail(lease))
    await plan_at(store, clock, 20)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["blocking_run_id"]) == ("failure", lease.run_id)


async def test_the_back_off_after_a_failure(store: Store, clock: ManualClock):
    policy = RetryPolicy(initial_delay=30, max_delay=300)
    task = await store.create_task(
        job(schedule=every(10), failure_action=FailureAction.BACKOFF, retry_policy=policy),
    )
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await done(store, fail(lease))
    await plan_at(store, clock, 20)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["blocking_run_id"]) == ("backoff", lease.run_id)
    assert answer["policy"]["failure_action"] == "BACKOFF"


async def test_the_circuit_is_open(store: Store, clock: ManualClock):
    circuit = Circuit(failures=2, cool_down_seconds=100)
    task = await store.create_task(job(schedule=every(10), failure_action=FailureAction.HALF_OPEN, circuit=circuit))
    for seconds in (10, 20):
        await plan_at(store, clock, seconds)
        lease = await claim_one(store)
        await done(store, fail(lease))
    await plan_at(store, clock, 30)
    answer = await why(store, task, 30)
    assert (answer["cause"], answer["blocking_run_id"]) == ("circuit_open", lease.run_id)
    assert "after 2 failures in a row" in answer["message"]
    assert "1 min 40 s" in answer["message"]


async def test_every_place_is_taken_and_it_does_not_queue(store: Store, clock: ManualClock):
    task = await store.create_task(
        job(schedule=every(10), max_concurrency=1, concurrency_policy=ConcurrencyPolicy.SKIP)
    )
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await plan_at(store, clock, 20)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["blocking_run_id"]) == ("concurrency", lease.run_id)
    assert answer["policy"] == {"concurrency_policy": "SKIP", "max_concurrency": 1}


async def test_it_waits_for_a_place(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10)))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await plan_at(store, clock, 20)
    await worker_there(store)
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["blocking_run_id"]) == ("concurrency", lease.run_id)
    assert "at its concurrency limit" in answer["message"]


async def test_a_limit_of_zero_admits_nothing(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10), max_concurrency=0))
    await worker_there(store)
    await plan_at(store, clock, 10)
    answer = await why(store, task, 10)
    assert answer["cause"] == "concurrency"
    assert "max_concurrency is 0" in answer["message"]


async def test_the_line_of_the_task_is_full(store: Store, clock: ManualClock):
    task = await store.create_task(http(schedule=every(10), queue_depth=1))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await plan_at(store, clock, 20)
    await plan_at(store, clock, 30)
    answer = await why(store, task, 30)
    assert (answer["cause"], answer["blocking_run_id"]) == ("queue_full", lease.run_id)


async def test_an_operator_wanted_it_skipped(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await store.skip_next(task.id, 1, by="ann")
    await plan_at(store, clock, 20)
    answer = await why(store, task, 10)
    assert (answer["cause"], answer["actor"]) == ("operator", "ann")
    assert (await why(store, task, 20))["cause"] == "no_worker"


# ---- planned, and something is in the way


async def test_the_rate_limit_of_its_task(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), rate_limit=RateLimit(max=1, per_seconds=60)))
    await worker_there(store)
    await plan_at(store, clock, 10)
    await done(store, finish(await claim_one(store)))
    await worker_there(store)
    await plan_at(store, clock, 20)
    assert await claim(store) == []
    answer = await why(store, task, 20)
    assert answer["cause"] == "rate_limited"
    assert "start at 2026-01-01 10:01:10" in answer["message"]


async def test_the_rate_limit_of_its_key(store: Store, clock: ManualClock):
    limit = RateLimit(max=1, per_seconds=60, key="payload.region")
    task = await store.create_task(job(schedule=every(10), rate_limit=limit, payload={"region": "eu"}))
    await plan_at(store, clock, 10)
    await done(store, finish(await claim_one(store)))
    await worker_there(store)
    await plan_at(store, clock, 20)
    assert await claim(store) == []
    assert (await why(store, task, 20))["cause"] == "rate_limited"


@pytest.mark.parametrize(
    ("limit", "said"),
    [(1, "queue default is at its concurrency limit (1)"), (0, "the concurrency of queue default is 0")],
)
async def test_the_concurrency_of_its_queue(store: Store, clock: ManualClock, limit: int, said: str):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, concurrency=limit))
    await worker_there(store)
    await plan_at(store, clock, 20)
    assert await claim(store) == []
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["policy"]) == ("concurrency", None)
    assert said in answer["message"]
    assert answer["blocking_run_id"] == lease.run_id


async def test_the_rate_limit_of_its_queue(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    limit = RateLimit(max=1, per_seconds=60)
    await store.set_queue("default", lambda queue: msgspec.structs.replace(queue, rate_limit=limit))
    await plan_at(store, clock, 10)
    await done(store, finish(await claim_one(store)))
    await worker_there(store)
    await plan_at(store, clock, 20)
    assert await claim(store) == []
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["policy"]) == ("rate_limited", None)


async def pause(store: Store, by: str, *, paused: bool = True) -> None:
    def change(queue: Queue) -> Queue:
        return msgspec.structs.replace(queue, paused=paused)

    await store.set_queue("default", change, by=by)


async def test_its_queue_is_paused(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)))
    await worker_there(store)
    clock.set(at(55))
    await pause(store, "ann")
    await plan_at(store, clock, 60)
    answer = await why(store, task, 60)
    assert (answer["cause"], answer["actor"], answer["since"]) == ("queue_paused", "ann", rfc3339(at(55)))


async def test_its_queue_is_paused_and_the_reason_is_said(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)))
    await worker_there(store)
    clock.set(at(55))
    await store.set_queue(
        "default", lambda queue: msgspec.structs.replace(queue, paused=True), by="ann", reason="the database moves"
    )
    await plan_at(store, clock, 60)
    assert (await why(store, task, 60))["message"].endswith("Reason given: the database moves.")


async def test_it_started_late_because_its_queue_had_been_paused(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60)))
    await pause(store, "ann")
    await plan_at(store, clock, 60)
    clock.set(at(110))
    await pause(store, "bob", paused=False)
    await done(store, finish(await claim_one(store)))
    answer = await why(store, task, 60)
    assert answer["cause"] == "ran"
    assert "waited 50 s before it started: queue default was paused by ann" in answer["message"]


async def test_no_worker_takes_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await worker_there(store, job_types=("other",))
    await plan_at(store, clock, 10)
    answer = await why(store, task, 10)
    assert answer["cause"] == "no_worker"
    assert "no connected worker of queue default supports job type work" in answer["message"]


async def test_no_worker_listens_to_its_queue(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), queue="lonely"))
    await worker_there(store)
    await plan_at(store, clock, 10)
    answer = await why(store, task, 10)
    assert answer["cause"] == "no_worker"
    assert "no connected worker takes runs from queue lonely" in answer["message"]


async def test_its_workers_are_too_old(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), min_worker_version=7))
    await worker_there(store, version=6)
    await plan_at(store, clock, 10)
    answer = await why(store, task, 10)
    assert answer["cause"] == "no_worker"
    assert "version 7" in answer["message"]


async def test_the_workers_it_names_are_not_there(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), specific_worker_ids=("w7",)))
    await worker_there(store)
    await plan_at(store, clock, 10)
    answer = await why(store, task, 10)
    assert answer["cause"] == "no_worker"
    assert "w7" in answer["message"]


# ---- nobody planned in time


@pytest.mark.parametrize(
    ("policy", "causes"),
    [
        (MisfirePolicy.FIRE_NOW, ["planner_late", "planner_late", "planner_late", "ran"]),
        (MisfirePolicy.FIRE_ONCE, ["misfire", "misfire", "misfire", "ran"]),
        (MisfirePolicy.SKIP, ["misfire", "misfire", "misfire", "ran"]),
        (MisfirePolicy.CATCH_UP_LIMITED, ["misfire", "misfire", "planner_late", "ran"]),
    ],
)
async def test_downtime_under_each_misfire_policy(
    store: Store, clock: ManualClock, policy: MisfirePolicy, causes: list[str]
):
    task = await store.create_task(job(schedule=every(60), misfire_policy=policy, catchup_limit=2))
    await plan_at(store, clock, 245)
    for lease in await claim(store):
        await done(store, finish(lease))
    found = [(await why(store, task, seconds))["cause"] for seconds in (60, 120, 180, 240)]
    assert found == causes


async def test_a_newest_slot_that_is_too_old_is_dropped_as_well(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60), misfire_policy=MisfirePolicy.SKIP))
    await plan_at(store, clock, 75)
    answer = await why(store, task, 60)
    assert (answer["cause"], answer["policy"]["misfire_policy"]) == ("misfire", "SKIP")
    assert answer["since"] == rfc3339(at(75))


async def test_a_moment_that_would_rather_not_run_late(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=once("2026-01-01T10:01:00Z", run_if_late=False)))
    await plan_at(store, clock, 90)
    answer = await why(store, task, 60)
    assert answer["cause"] == "misfire"
    assert "run_if_late is false" in answer["message"]


async def test_the_cap_of_catching_up(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1)))
    clock.set(at(200))
    await store.plan(10, cap=5)
    answer = await why(store, task, 100)
    assert answer["cause"] == "catchup_cap"
    assert "195 were dropped, including this one" in answer["message"]


async def test_no_node_was_planning(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(600)))
    await plan_at(store, clock, 605 + 120)
    await done(store, finish(await claim_one(store)))
    answer = await why(store, task, 600)
    assert answer["cause"] == "planner_late"
    assert "2 min 5 s after its slot" in answer["message"]


async def test_no_node_is_planning(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(600)))
    clock.set(at(605))
    assert (await why(store, task, 600))["cause"] == "waiting"
    clock.set(at(660))
    assert (await why(store, task, None))["cause"] == "planner_late"


class PlanningNode:
    """A planner whose ticks are watched, as a node does it, by the clock of the test."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self._noted_in, self._clock = Moody(store), store, clock
        self._planner = Planner(self.store, LocalWakeup(), monotonic=self._now)  # type: ignore[arg-type]
        self._watch = LoopHealth(clock, monotonic=self._now)

    async def tick(self) -> None:
        self._watch.tick_began("planner", "planner")
        try:
            await self._planner.tick()
        except StoreUnavailable as error:
            self._watch.store_unavailable("planner", error)
            return
        self._watch.tick_succeeded("planner")
        await note_not_ready_periods(self._watch, self._note, self._now())

    def _now(self) -> float:
        return self._clock.now() / SECOND

    async def _note(self, seconds: float, reason: str) -> None:
        await self._noted_in.note_outage(seconds, "n1", reason)


async def test_the_store_was_down(store: Store, clock: ManualClock):
    """A planner meets its absence, as a node does, and tells of it when the store is back."""
    task = await store.create_task(job(schedule=every(600)))
    node = PlanningNode(store, clock)
    clock.set(at(590))
    await node.tick()
    node.store.away = True
    for seconds in (595, 610, 650):
        clock.set(at(seconds))
        await node.tick()
    node.store.away = False
    clock.set(at(700))
    await node.tick()
    await done(store, finish(await claim_one(store)))
    answer = await why(store, task, 600)
    assert (answer["cause"], answer["since"]) == ("store_down", rfc3339(at(595)))
    assert "from 2026-01-01 10:09:55+00:00 to 2026-01-01 10:11:40+00:00" in answer["message"]
    assert answer["message"].endswith(" A node reported: the store is away.")


async def test_the_store_was_down_and_the_misfire_policy_dropped_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60), misfire_policy=MisfirePolicy.SKIP))
    clock.set(at(85))
    await store.note_outage(40, "n1")
    await plan_at(store, clock, 85)
    answer = await why(store, task, 60)
    assert answer["cause"] == "misfire"
    assert "The store could not be reached from 2026-01-01 10:00:45" in answer["message"]


async def test_it_was_planned_in_time_and_nobody_could_claim_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(60), misfire_grace_seconds=5))
    await plan_at(store, clock, 60)
    clock.set(at(90))
    await store.note_outage(28, "n1", "a lock")
    await done(store, finish(await claim_one(store)))
    answer = await why(store, task, 60)
    assert answer["cause"] == "ran"
    assert (
        "It waited 30 s before it started. The store could not be reached from 2026-01-01 10:01:02" in answer["message"]
    )


# ---- the task was not on


async def test_it_was_disabled_then(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 15)
    await turned(store, task, TaskStatus.DISABLED, "ann")
    clock.set(at(35))
    disabled = await why(store, task, None)
    await turned(store, task, TaskStatus.ENABLED, "bob")
    await plan_at(store, clock, 50)
    answer = await why(store, task, 20)
    for one in (disabled, answer):
        assert (one["cause"], one["actor"], one["since"]) == ("disabled", "ann", rfc3339(at(15)))
    assert "resumed by bob at 2026-01-01 10:00:35" in answer["message"]
    assert (await why(store, task, 40))["cause"] == "no_worker"


async def test_an_edit_while_it_was_off_does_not_hide_who_turned_it_off(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(5))
    await turned(store, task, TaskStatus.DISABLED, "ann")
    clock.set(at(15))
    await edit(store, task, description="new")
    clock.set(at(25))
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["actor"], answer["since"]) == ("disabled", "ann", rfc3339(at(5)))


async def test_it_was_past_its_end_date(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), end_at=at(20)))
    await plan_at(store, clock, 10)
    await plan_at(store, clock, 20)
    assert (await why(store, task, 20))["cause"] == "no_worker"
    clock.set(at(45))
    assert (await why(store, task, 30))["cause"] in ("completed", "not_a_slot")
    assert (await why(store, task, None))["cause"] == "completed"


async def test_its_repeat_count_was_used_up(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=2)))
    await plan_at(store, clock, 25)
    clock.set(at(55))
    answer = await why(store, task, 40)
    assert (answer["cause"], answer["since"], answer["next_slot"]) == ("completed", rfc3339(at(25)), None)


async def test_its_repeat_count_was_used_up_before_anybody_noticed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10, repeat=2)))
    await plan_at(store, clock, 55)
    assert (await why(store, task, 40))["cause"] == "completed"
    assert (await why(store, task, 20))["cause"] == "no_worker"


async def test_the_task_was_in_error(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), on_exhausted=OnExhausted.ERROR))
    await plan_at(store, clock, 10)
    clock.set(at(12))
    await done(store, fail(await claim_one(store)))
    clock.set(at(45))
    answer = await why(store, task, 30)
    assert (answer["cause"], answer["since"]) == ("error", rfc3339(at(12)))


async def test_a_run_that_waited_when_its_task_went_into_error(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), on_exhausted=OnExhausted.ERROR))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    await plan_at(store, clock, 20)
    await done(store, fail(lease))
    answer = await why(store, task, 20)
    assert answer["cause"] == "error"
    assert answer["run_id"] is not None


async def test_the_task_was_deleted(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(15))
    await store.delete_task(task.id, by="ann")
    clock.set(at(35))
    answer = await why(store, task, 20)
    assert (answer["cause"], answer["actor"], answer["since"]) == ("deleted", "ann", rfc3339(at(15)))
    waited = await why(store, task, 10)
    assert (waited["cause"], waited["actor"], waited["run_id"] is None) == ("deleted", "ann", False)


# ---- its run was ended


async def test_an_operator_canceled_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    (run,) = await runs_of(store, task)
    clock.set(at(12))
    await store.cancel([run.id], by="ann")
    answer = await why(store, task, 10)
    assert (answer["cause"], answer["actor"], answer["since"]) == ("canceled", "ann", rfc3339(at(12)))


async def test_the_next_round_canceled_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.CANCEL_PREV))
    await plan_at(store, clock, 10)
    await claim_one(store)
    await plan_at(store, clock, 20)
    answer = await why(store, task, 10)
    assert (answer["cause"], answer["policy"]) == ("canceled", {"overlap_action": "CANCEL_PREV"})


async def test_its_worker_was_lost(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(600), on_lost=OnLost.FAIL))
    await plan_at(store, clock, 600)
    lease = await claim_one(store)
    clock.set(Instant(lease.expires_at + SECOND))
    await Sweeper(store, LocalWakeup()).tick()
    answer = await why(store, task, 600)
    assert (answer["cause"], answer["run_id"]) == ("lost", lease.run_id)
    assert answer["policy"]["on_lost"] == "FAIL"


async def test_its_worker_was_lost_and_another_is_to_take_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(600)))
    await plan_at(store, clock, 600)
    lease = await claim_one(store)
    clock.set(Instant(lease.expires_at + SECOND))
    await Sweeper(store, LocalWakeup()).tick()
    await worker_there(store)
    answer = await why(store, task, 600)
    assert answer["cause"] == "lost"
    assert "waits for another one" in answer["message"]


# ---- what is left of the past


async def test_retention_has_removed_it(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    for seconds in (10, 20):
        await plan_at(store, clock, seconds)
        await done(store, finish(await claim_one(store)))
    assert await store.clean(at(15), 100) == 1
    assert (await why(store, task, 10))["cause"] == "cleaned"
    assert (await why(store, task, 20))["cause"] == "ran"


async def test_the_slots_of_a_fixed_delay_follow_from_its_runs(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=after_each(10)))
    await plan_at(store, clock, 10)
    lease = await claim_one(store)
    assert (await why(store, task, None))["cause"] == "running"
    clock.set(at(15))
    await done(store, finish(lease))
    assert (await why(store, task, 10))["cause"] == "ran"
    assert (await why(store, task, 25))["cause"] == "waiting"
    assert (await why(store, task, 20))["cause"] == "not_a_slot"


async def test_a_run_is_explained_as_its_slot_is(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await plan_at(store, clock, 10)
    (run,) = await runs_of(store, task)
    assert await Explain(store).of_run(run.id) == await Explain(store).of_task(task, at(10))


async def test_a_run_of_a_trigger_has_no_slot(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    run_id = await trigger(store, task)
    answer = await Explain(store).of_run(run_id)
    assert (answer["cause"], answer["slot"], answer["run_id"]) == ("no_worker", None, run_id)
    await publish(store, task)
    for lease in await claim_due(store):
        await done(store, finish(lease))
    assert (await Explain(store).of_run(run_id))["cause"] == "ran"


@pytest.mark.parametrize(
    ("step", "words"), [(30.0, "was set forward by 30 s"), (-30.0, "was set back by 30 s")], ids=["forward", "back"]
)
async def test_a_slot_that_a_step_of_the_clock_touched_names_it(
    store: Store, clock: ManualClock, step: float, words: str
):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(60) if step > 0 else at(30))
    await store.note_clock_step(step, "n1")
    clock.set(at(65))
    await store.plan(10, cap=100)
    assert words in (await why(store, task, 40))["message"]
    assert "clock" not in (await why(store, task, 20))["message"]


async def test_an_outage_that_is_too_short_to_matter_is_not_noted(store: Store, clock: ManualClock):
    node = PlanningNode(store, clock)
    for away in (True, False):
        node.store.away = away
        await node.tick()
        clock.advance(0.4)
    assert await store.outages(Instant(0), at(100)) == []
