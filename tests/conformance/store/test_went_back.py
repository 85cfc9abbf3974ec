"""A store that went back to an earlier state: a node that remembers more notes it, and skips what must not be delivered twice.

Here the store loses the pulse alone; test_store_went_back.py loses the commits of a real primary.
"""

from __future__ import annotations

from conformance.store.builders import (
    FAR,
    START,
    Node,
    after_each,
    at,
    claim,
    done,
    every,
    job,
    lose,
    publish,
    release,
    reread,
    retry,
    run_of,
    runs_of,
    settle,
)
from noonbell.clock import ManualClock
from noonbell.model.account import StoreReturn
from noonbell.model.failure_text import TEXTS
from noonbell.model.run import RunStatus, SettleResult, SkipReason
from noonbell.model.task import Delivery
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.store import SqlStore

S = RunStatus
ONCE = {"delivery": Delivery.AT_MOST_ONCE, "on_lost": "FAIL"}


async def lose_pulses_after(store: SqlStore, moment: int) -> None:
    def work() -> Work[None]:
        yield Execute("update pulses set at = :moment where at > :moment", {"moment": moment})

    await store._write(lambda _: work())


async def goes_back(store: SqlStore, clock: ManualClock) -> StoreReturn:
    await store.pulse("n1")
    clock.advance(1)
    await store.pulse("n1")
    await lose_pulses_after(store, START)
    noted = await store.pulse("n1")
    assert noted is not None
    return noted


async def test_nothing_is_noted_while_the_store_goes_on(store: SqlStore, another_node: Node, clock: ManualClock):
    other = await another_node()
    for second in range(5):
        clock.set(at(second))
        assert await store.pulse("n1") is None
        assert await other.pulse("w1", writes=False) is None
    clock.set(at(1))  # the clock was set back: that is another matter
    assert await store.pulse("n1") is None
    assert await other.pulse("w1", writes=False) is None
    assert await store.store_returns(START, FAR) == []


async def test_a_node_that_remembers_more_notes_the_stretch_once(
    store: SqlStore, another_node: Node, clock: ManualClock
):
    other = await another_node()
    clock.set(at(10))
    await store.pulse("n1")
    await other.pulse("n2")
    clock.set(at(20))
    await store.pulse("n1")
    await other.pulse("n2")
    await lose_pulses_after(store, at(12))
    clock.set(at(25))
    noted = await store.pulse("n1")
    assert noted == StoreReturn(since=at(12), until=at(25), node="n1", skipped=0)
    assert await other.pulse("n2") is None, "the first has noted it"
    assert await store.store_returns(at(12), at(13)) == await store.store_returns(at(25), FAR) == [noted]
    assert await store.store_returns(START, at(11)) == await store.store_returns(at(26), FAR) == []
    (told,) = [one for one in await store.events(0) if one.type == "store.went_back"]
    assert told.data == {"node": "n1", "since": at(12), "until": at(25), "skipped": 0}
    await store.clean_rest(at(26), 100)
    assert await store.store_returns(START, FAR) == []


async def test_what_may_have_been_delivered_is_skipped_if_it_must_not_be_twice(
    store: SqlStore, another_node: Node, clock: ManualClock
):
    worker = await another_node()
    once = await store.create_task(job("once", schedule=every(10), **ONCE))
    again = await store.create_task(job("again", schedule=every(10)))
    chained = await store.create_task(job("chained", schedule=after_each(10), **ONCE))
    by_hand = await store.create_task(job("by hand", **ONCE))
    waiting, later = await publish(store, by_hand), await publish(store, by_hand, delay_seconds=300)
    await store.pulse("n1")
    clock.set(at(1))
    await store.pulse("n1")
    await worker.pulse("w1", writes=False)
    await lose_pulses_after(store, START)
    clock.set(at(35))
    noted = await worker.pulse("w1", writes=False)
    assert noted is not None
    ended = [run for run in await runs_of(store, once) if run.status is S.SKIPPED]
    assert [run.scheduled_time for run in ended] == [at(10), at(20), at(30)]
    assert {run.skip_reason for run in ended} == {SkipReason.STORE_WENT_BACK}
    found = {run.id: run for run in await runs_of(store, by_hand)}
    assert (found[waiting].status, found[waiting].skip_reason) == (S.SKIPPED, SkipReason.STORE_WENT_BACK)
    assert found[later].status is S.SCHEDULED, "its time is still to come: nobody can have delivered it"
    assert [run.skip_reason for run in await runs_of(store, chained)] == [SkipReason.STORE_WENT_BACK] * 2
    assert (await reread(store, chained)).next_fire_at == at(40), "its chain goes on"
    assert noted.skipped == 3 + 1 + 2
    await store.plan(100)
    assert [run.scheduled_time for run in await runs_of(store, again)] == [at(10), at(20), at(30)], (
        "those may be repeated"
    )
    assert {lease.task_id for lease in await claim(store, count=10)} == {again.id}


async def test_a_run_that_had_started_before_is_left_to_its_worker(store: SqlStore, clock: ManualClock):
    task = await store.create_task(job(**ONCE))
    await publish(store, task)
    (lease,) = await claim(store, count=1)
    await store.pulse("n1")
    clock.set(at(1))
    await store.pulse("n1")
    await lose_pulses_after(store, START)
    noted = await store.pulse("n1")
    assert noted is not None
    assert noted.skipped == 0
    (run,) = await runs_of(store, task)
    assert (run.id, run.status) == (lease.run_id, S.RUNNING)


async def test_a_lease_that_had_not_begun_counts_as_begun(store: SqlStore, clock: ManualClock):
    """Its worker may have begun and settled it in the time that is gone: then it knows nothing of it, and the lease runs out."""
    task = await store.create_task(job(**ONCE))
    again = await store.create_task(job("again"))
    await publish(store, task)
    await publish(store, task)
    await publish(store, again)
    lost, goes_on, other = sorted(await claim(store, count=3), key=lambda lease: lease.run_id)
    assert not any(one.begun for one in await store.overdue(10))
    assert (await goes_back(store, clock)).skipped == 0
    assert await store.begin([goes_on]) == {goes_on.run_id}, "a worker that has it goes on"
    clock.advance(3600)
    assert {one.run_id for one in await store.overdue(10) if one.begun} == {lost.run_id, goes_on.run_id}
    assert await settle(store, lose(lost)) is SettleResult.LOST, "nobody may send it again"
    assert await settle(store, lose(other)) is SettleResult.DONE


async def test_a_run_that_was_handed_back_before_is_skipped_as_well(store: SqlStore, clock: ManualClock):
    """It waits again, and may have been claimed and delivered in the time that is gone."""
    task = await store.create_task(job(**ONCE))
    await publish(store, task)
    (lease,) = await claim(store, count=1)
    await done(store, release(lease))
    assert (await goes_back(store, clock)).skipped == 1
    run = await run_of(store, lease.run_id)
    assert (run.status, run.skip_reason) == (S.SKIPPED, SkipReason.STORE_WENT_BACK)
    assert await claim(store, count=1) == []


async def test_a_retry_of_what_never_began_is_canceled(store: SqlStore, clock: ManualClock):
    task = await store.create_task(job(**ONCE))
    await publish(store, task)
    (lease,) = await claim(store, count=1)
    await done(store, retry(lease, delay=0))
    assert (await goes_back(store, clock)).skipped == 1
    run = await run_of(store, lease.run_id)
    assert (run.status, run.error_details) == (S.CANCELED, {"kind": "canceled", "why": "store_went_back"})
    assert run.error_message == TEXTS["canceled_store_went_back"]
    assert await claim(store, count=1) == []
