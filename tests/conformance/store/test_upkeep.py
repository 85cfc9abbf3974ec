"""Clean and recount: what goes, what stays, and that the counters were right all along."""

from __future__ import annotations

import pytest

from conformance.store.builders import (
    FAR,
    S,
    Sizes,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    done,
    edit,
    every,
    fail,
    finish,
    finished,
    http,
    job,
    left_over,
    lose,
    park,
    publish,
    publish_many,
    release,
    retry,
    runs_of,
    started,
)
from noonbell.clock import ManualClock
from noonbell.model.account import CleanedSlots
from noonbell.model.request import IncomingCallback, KeptReason
from noonbell.model.run import RunBodies, RunId, Settlement, Transition
from noonbell.model.task import ConcurrencyPolicy, OverlapAction, RateLimit
from noonbell.ports import Store

# ---- clean


async def test_a_run_that_is_not_final_is_never_removed(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous(max_concurrency=None))
    await done(store, retry(await started(store, task), delay=3600))
    await done(store, park(await started(store, task)))
    await started(store, task)
    gone = await finished(store, task)
    await publish(store, task)
    await publish(store, task, delay_seconds=3600)
    clock.advance(1000)
    assert await store.clean(FAR, 100) == 1
    assert await store.run(gone) is None
    assert len(await runs_of(store, task)) == 5
    assert await store.clean(FAR, 100) == 0


async def test_only_runs_that_ended_before_are_removed(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    old = await finished(store, task)
    clock.advance(10)
    young = await finished(store, task)
    assert await store.clean(at(10), 100) == 1
    assert [run.id for run in await runs_of(store, task)] == [young]
    assert await store.run(old) is None


async def test_every_final_status_is_removed(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    for status in (S.SUCCESS, S.FAILED, S.TIMEOUT, S.CALLBACK_SUCCESS):
        await finished(store, task, status)
    await store.cancel([await publish(store, task)])
    await started(store, task, origin="trigger")
    clock.advance(1)
    await store.plan(10)
    assert await store.clean(FAR, 100) == 6
    assert [run.status for run in await runs_of(store, task)] == [S.RUNNING]


async def test_no_more_than_the_limit_is_removed_the_rest_next_time(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 7)
    await store.settle([finish(lease) for lease in await claim(store)])
    assert [await store.clean(FAR, 3) for _ in range(4)] == [3, 3, 1, 0]


async def test_the_newest_of_each_task_may_be_kept(store: Store, clock: ManualClock):
    tasks = [await store.create_task(job(f"t{n}")) for n in range(2)]
    kept = {}
    for task in tasks:
        run_ids = [await finished(store, task) for _ in range(5)]
        kept[task.id] = run_ids[-2:]
    clock.advance(1)
    assert await store.clean(FAR, 100, keep=2) == 6
    for task in tasks:
        assert [run.id for run in await runs_of(store, task)] == kept[task.id]
    assert await store.clean(FAR, 100, keep=2) == 0


async def test_the_newest_of_a_queue_may_be_kept_whichever_task_they_are_of(store: Store, clock: ManualClock):
    tasks = [await store.create_task(job(f"t{n}")) for n in range(2)]
    other = await store.create_task(http("other"))
    run_ids = [await finished(store, tasks[n % 2]) for n in range(6)]
    await finished(store, other)
    clock.advance(1)
    assert [await store.clean(FAR, 2, queue="default", keep=3) for _ in range(3)] == [2, 1, 0]
    left = [*await runs_of(store, tasks[0]), *await runs_of(store, tasks[1])]
    assert sorted(run.id for run in left) == run_ids[3:]
    assert len(await runs_of(store, other)) == 1


async def test_runs_are_removed_by_their_ids_and_what_stays_has_its_reason(store: Store, clock: ManualClock):
    task = await store.create_task(job(max_concurrency=None))
    before = await store.counts()
    gone = [await finished(store, task, payload={"n": n}, key=f"k{n}") for n in range(3)]
    waiting, running = await publish(store, task, delay_seconds=60), (await started(store, task)).run_id
    stays = await finished(store, task)
    clock.advance(1)
    asked = [gone[2], waiting, gone[0], running, RunId(12345), gone[1]]
    kept = {waiting: KeptReason.NOT_FINAL, running: KeptReason.NOT_FINAL, RunId(12345): KeptReason.NOT_FOUND}
    assert await store.clean_runs(asked) == kept
    assert {run.id for run in await runs_of(store, task)} == {waiting, running, stays}
    assert await store.clean_runs(gone) == dict.fromkeys(gone, KeptReason.NOT_FOUND)
    await store.cancel([waiting, running])
    assert await store.clean_runs([waiting, running, stays]) == {}
    assert left_over(before, await store.counts(), "events") == {}
    again = await finished(store, task, key="k0")
    assert again not in gone, "the key of a run that was removed is free"


async def test_a_slot_whose_run_was_removed_by_its_id_is_counted_and_not_planned_again(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job(schedule=every(10)))
    for seconds in (10, 20, 30):
        clock.set(at(seconds))
        await store.plan(10)
        await done(store, finish(await claim_one(store)))
    runs = await runs_of(store, task)
    assert await store.clean_runs([runs[1].id]) == {}
    assert await store.cleaned(task.id) == CleanedSlots(at(20), 1)
    await store.plan(10)
    assert [run.id for run in await runs_of(store, task)] == [runs[0].id, runs[2].id]
    assert await claim_due(store) == []


async def test_one_task_may_be_cleaned_alone(store: Store, clock: ManualClock):
    one, two = await store.create_task(job("one")), await store.create_task(job("two"))
    for task in (one, two):
        await finished(store, task)
    clock.advance(1)
    assert await store.clean(FAR, 100, task_id=one.id) == 1
    assert await runs_of(store, one) == []
    assert len(await runs_of(store, two)) == 1


async def test_all_that_belongs_to_a_run_goes_with_it(store: Store, table_sizes: Sizes, clock: ManualClock):
    task = await store.create_task(asynchronous())
    before = await table_sizes()
    lease = await started(store, task, key="k", payload={"x": 1}, specific_worker_ids=("w1",))
    await store.log(lease.run_id, lease.token, [("info", "x")])
    await store.progress(lease.run_id, lease.token, {"current": 1})
    await done(store, retry(lease, delay=0, bodies=RunBodies(response_body="one")))
    (again,) = await claim_due(store)
    await done(store, park(again, bodies=RunBodies(response_body="two")))
    await store.callback(
        IncomingCallback(token=again.callback_token),
        lambda subject: Settlement(
            run_id=subject.run_id, token=subject.token, transition=Transition.FINISH, status=S.CALLBACK_SUCCESS
        ),
    )
    run_id = lease.run_id
    clock.advance(1)
    assert await store.clean(FAR, 10) == 1
    assert await store.run(run_id) is None
    assert await store.attempts(run_id) == []
    assert await store.log_lines(run_id) == []
    assert await store.callbacks(run_id) == []
    assert await store.payload(run_id) is None
    for attempt in (None, 1, 2):
        assert await store.bodies(run_id, attempt) is None
    subject, recorded = await store.callback(IncomingCallback(token=again.callback_token), lambda _: "no")
    assert (subject, recorded.status) == (None, "IGNORED")
    assert left_over(before, await table_sizes(), "callbacks") == {}


async def test_cleaning_an_empty_store_removes_nothing(store: Store):
    assert await store.clean(FAR, 10) == 0


# ---- recount


async def test_a_sound_store_answers_0(store: Store):
    assert await store.recount() == 0
    task = await store.create_task(http(max_concurrency=2))
    await publish_many(store, task, 5)
    await claim(store)
    assert await store.recount() == 0


@pytest.mark.parametrize("limit", [1, 2, None])
@pytest.mark.parametrize("policy", list(ConcurrencyPolicy))
async def test_the_counters_are_right_after_everything(
    store: Store, clock: ManualClock, limit: int | None, policy: ConcurrencyPolicy
):
    task = await store.create_task(
        asynchronous(
            schedule=every(5),
            max_concurrency=limit,
            concurrency_policy=policy,
            rate_limit=RateLimit(max=50, per_seconds=1),
        )
    )

    async def sound() -> None:
        assert await store.recount() == 0

    for step, move in enumerate((finish, fail, retry, park, release, lose, retry, lose)):
        clock.advance(20)
        await store.plan(10)
        await sound()
        await store.promote(10)
        await sound()
        leases = await claim(store, count=3)
        await sound()
        for number, lease in enumerate(leases):
            if move is lose:
                clock.advance(60)
            if number % 2:
                await store.cancel([lease.run_id])
            else:
                await store.settle([move(lease)])
            await store.settle([finish(lease)])
            await sound()
        waiting = await runs_of(store, task, S.SCHEDULED)
        if waiting and step % 2:
            await store.cancel([waiting[0].id])
            await sound()
        if step == 4:
            task = await edit(store, task, max_concurrency=3)
            await sound()
        if step == 6:
            task = await edit(store, task, max_concurrency=None, rate_limit=None)
            await sound()
    task = await edit(store, task, max_concurrency=1)
    await sound()
    await store.delete_task(task.id)
    await sound()
    await store.clean(FAR, 1000)
    await sound()


async def test_switching_a_limit_off_and_on_keeps_the_counters(store: Store):
    task = await store.create_task(http(max_concurrency=1))
    await publish_many(store, task, 4)
    first = await claim_one(store)
    task = await edit(store, task, max_concurrency=None)
    rest = await claim(store)
    assert len(rest) == 3
    task = await edit(store, task, max_concurrency=2)
    assert await store.recount() == 0
    await publish_many(store, task, 2)
    for lease in (first, *rest[:1]):
        await done(store, finish(lease))
        assert await claim(store) == []
    await done(store, finish(rest[1]))
    assert len(await claim(store)) == 1


async def test_moving_a_task_to_another_queue_keeps_what_waits_reachable(store: Store):
    task = await store.create_task(job(queue="a", max_concurrency=1))
    run_ids = await publish_many(store, task, 2)
    task = await edit(store, task, queue="b")
    run_ids.append(await publish(store, task))
    seen = []
    for _ in range(3):
        (lease,) = await claim(store, queues=("a", "b"))
        seen.append(lease.run_id)
        await done(store, finish(lease))
    assert sorted(seen) == run_ids
