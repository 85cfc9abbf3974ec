"""The planner: what is due becomes runs, those who wait are told, and it sleeps exactly until more is due."""

from __future__ import annotations

import pytest

from conformance.store.builders import after_each, at, born_at, every, job, publish, reread, run_of, runs_of
from noonbell.clock import SECOND, ManualClock
from noonbell.engine.loop_runner import StoreClock
from noonbell.engine.planner import Planner
from noonbell.model.run import RunStatus
from noonbell.model.task import MisfirePolicy, OverlapAction, RetryPolicy, RetryStrategy
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from unit.engine.make import Moody, Patient, Scripted, broken, spin, worker_on


class Still:
    """A monotonic clock that moves only with the store's: then waits can be told exactly."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.skew = 0.0

    def __call__(self) -> float:
        return self._clock.now() / SECOND - 1_700_000_000 + self.skew


@pytest.fixture
def still(clock: ManualClock) -> Still:
    return Still(clock)


async def test_it_sleeps_until_the_next_slot_and_never_less(store: MemoryStore, clock: ManualClock, wakeup, still):
    await store.create_task(job(schedule=every(30)))
    planner = Planner(store, wakeup, poll=3600, monotonic=still)
    assert await planner.tick() == pytest.approx(30.001)
    clock.advance(29.25)
    assert await planner.tick() == pytest.approx(0.751)
    clock.advance(0.75)
    assert await planner.tick() == pytest.approx(30.001)


async def test_the_poll_is_the_net(store: MemoryStore, wakeup, still):
    assert await Planner(store, wakeup, poll=1.0, monotonic=still).tick() == 1.0


async def test_it_sleeps_until_a_delayed_run_is_due_and_then_wakes_the_workers(
    store: MemoryStore, clock: ManualClock, wakeup: LocalWakeup, still
):
    run_id = await publish(store, await store.create_task(job()), delay_seconds=12)
    planner = Planner(store, wakeup, poll=3600, monotonic=still)
    assert await planner.tick() == pytest.approx(12.001)
    clock.advance(12)
    await planner.tick()
    assert await wakeup.wait(["queue:*"], 0)
    await worker_on(store, Scripted()).run_until_idle()
    assert (await run_of(store, run_id)).status is RunStatus.SUCCESS


async def test_the_queues_that_got_work_are_signalled_and_no_others(
    store: MemoryStore, clock: ManualClock, wakeup: LocalWakeup
):
    await store.create_task(job("a", schedule=every(1), queue="left"))
    await store.create_task(job("b", schedule=every(60), queue="right"))
    clock.advance(1)
    await Planner(store, wakeup).tick()
    assert await wakeup.wait(["queue:left"], 0)
    assert not await wakeup.wait(["queue:right", "queue:*", "orders"], 0)


async def test_a_full_batch_is_followed_by_the_next_in_the_same_tick(store: MemoryStore, clock: ManualClock, wakeup):
    tasks = [await store.create_task(job(f"t{n}", schedule=every(10))) for n in range(7)]
    clock.advance(10)
    moody = Moody(store)
    await Planner(moody, wakeup, batch=3).tick()  # type: ignore[arg-type]
    assert [await born_at(store, task) for task in tasks] == [[10.0]] * 7
    assert moody.calls.count("plan") == 3


async def test_a_pass_that_catches_up_says_how_much_and_one_in_time_says_nothing(
    store: MemoryStore, clock: ManualClock, wakeup, still, caplog
):
    caplog.set_level("INFO", "noonbell.engine")
    late = {"misfire_policy": MisfirePolicy.FIRE_NOW, "overlap_action": OverlapAction.PARALLEL}
    await store.create_task(job("a", schedule=every(10), **late))
    await store.create_task(job("b", schedule=every(10), misfire_policy=MisfirePolicy.SKIP))
    planner = Planner(store, wakeup, monotonic=still)
    clock.advance(10)
    await planner.tick()
    clock.advance(20)
    await planner.tick()
    assert not caplog.messages
    clock.advance(200)
    await planner.tick()
    assert caplog.messages == ["catching up on late slots of 2 tasks: 21 runs created, 0 slots skipped, 19 dropped"]


async def test_many_delayed_runs_are_all_made_ready_in_one_tick(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job())
    for _ in range(7):
        await publish(store, task, delay_seconds=5)
    clock.advance(5)
    await Planner(store, wakeup, batch=2).tick()
    target = Scripted()
    await worker_on(store, target).run_until_idle()
    assert len(target.seen) == 7


async def test_a_round_that_is_replaced_is_told_to_its_worker(store: MemoryStore, clock: ManualClock, wakeup):
    await store.create_task(job(schedule=every(10), overlap_action=OverlapAction.CANCEL_PREV))
    planner = Planner(store, wakeup)
    worker = worker_on(store, target := Patient())
    clock.advance(10)
    await planner.tick()
    await worker.tick()
    await spin()
    clock.advance(10)
    await planner.tick()
    assert await wakeup.wait(["orders"], 0)
    await worker.beat()
    await spin()
    assert len(target.interrupted) == 1
    target.finish()
    await worker.run_until_idle()


async def test_the_end_of_a_fixed_delay_run_wakes_the_planner(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job(schedule=after_each(30)))
    clock.advance(30)
    await Planner(store, wakeup).tick()
    worker = worker_on(store, Scripted(), wakeup)
    clock.advance(7)
    await worker.run_until_idle()
    assert await wakeup.wait(["plan"], 0)
    assert (await reread(store, task)).next_fire_at == at(67)


async def test_a_retry_wakes_the_planner_so_that_it_knows_when(store: MemoryStore, wakeup, still):
    policy = RetryPolicy(max_retries=1, strategy=RetryStrategy.FIXED, initial_delay=4)
    await publish(store, await store.create_task(job(retry_policy=policy)))
    await worker_on(store, Scripted(broken()), wakeup).run_until_idle()
    assert await wakeup.wait(["plan"], 0)
    assert await Planner(store, wakeup, poll=60, monotonic=still).tick() == pytest.approx(4.001)


async def test_it_says_how_late_it_was(store: MemoryStore, clock: ManualClock, wakeup, still):
    await store.create_task(job(schedule=every(10)))
    seen = []
    planner = Planner(store, wakeup, monotonic=still, observe=lambda planned, _: seen.append(planned.born))
    await planner.tick()
    clock.advance(10.25)
    await planner.tick()
    assert planner.lag_seconds == pytest.approx(0.25)
    assert planner.last_at == at(10.25)
    assert seen == [0, 1]


async def test_a_clock_that_was_set_is_measured_again(store: MemoryStore, clock: ManualClock, wakeup, still):
    await store.create_task(job(schedule=every(3600)))
    planner = Planner(store, wakeup, poll=9999, monotonic=still)
    assert await planner.tick() == pytest.approx(3600.001)
    clock.advance(1000)  # the store's clock jumps; this process's does not
    still.skew -= 1000
    await planner.tick()
    assert await planner.tick() == pytest.approx(2600.001)


async def test_the_store_time_is_not_asked_again_and_again(store: MemoryStore, still):
    moody = Moody(store)
    time = StoreClock(moody, still)  # type: ignore[arg-type]
    assert time.until(at(5)) == 0
    for _ in range(10):
        await time.refresh()
    assert time.until(at(5)) == pytest.approx(5)
    assert moody.calls == ["now"] * 3


# ---- restart under each misfire policy


@pytest.mark.parametrize(
    ("policy", "more", "slots", "dropped"),
    [
        (MisfirePolicy.FIRE_NOW, {}, [60.0, 120.0, 180.0, 240.0], 0),
        (MisfirePolicy.FIRE_ONCE, {}, [240.0], 3),
        (MisfirePolicy.SKIP, {}, [], 4),
        (MisfirePolicy.SKIP, {"misfire_grace_seconds": 60}, [240.0], 3),
        (MisfirePolicy.CATCH_UP_LIMITED, {"catchup_limit": 2}, [180.0, 240.0], 2),
    ],
)
async def test_after_downtime_the_misfire_policy_decides(
    store: MemoryStore, clock: ManualClock, wakeup, policy, more, slots, dropped
):
    task = await store.create_task(job(schedule=every(60), misfire_policy=policy, **more))
    clock.advance(280)  # nobody was there
    await Planner(store, wakeup).tick()
    target = Scripted()
    await worker_on(store, target).run_until_idle()
    assert sorted((one.lease.scheduled_time - at(0)) / SECOND for one in target.seen) == slots
    assert sum(gone.count for gone in await store.dropped(task.id, at(0), at(9999))) == dropped
    assert {run.status for run in await runs_of(store, task)} <= {RunStatus.SUCCESS}


async def test_catching_up_is_held_to_the_cap(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job(schedule=every(1)))
    clock.advance(500)
    await Planner(store, wakeup, cap=7).tick()
    assert await born_at(store, task) == [float(second) for second in range(494, 501)]


async def test_a_clock_that_goes_back_makes_nothing_twice(store: MemoryStore, clock: ManualClock, wakeup):
    task = await store.create_task(job(schedule=every(10)))
    planner = Planner(store, wakeup)
    clock.advance(20)
    await planner.tick()
    clock.advance(-15)
    await planner.tick()
    clock.advance(15)
    await planner.tick()
    assert await born_at(store, task) == [10.0, 20.0]
