"""The account through steps of the clock: nothing is accounted for twice, and what nobody accounted for still counts."""

from __future__ import annotations

from conformance.store.builders import (
    after_each,
    at,
    born_at,
    claim_one,
    disable,
    done,
    dropped,
    edit,
    enable,
    every,
    finish,
    job,
    reread,
)
from noonbell.clock import ManualClock, slot_of
from noonbell.ports import Store
from noonbell.service.account import SlotOutcome, entries, task_history
from noonbell.service.consistency import audit


async def outcomes(store: Store, task, until: float) -> list[tuple[float, str, int]]:
    life = await task_history(store, task)
    found = [entry async for entry in entries(store, life, slot_of(at(0)), slot_of(at(until)))]
    return [(entry.first - slot_of(at(0)), str(entry.outcome), entry.count) for entry in found]


async def test_a_slot_that_passed_while_off_and_comes_round_again_counts(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    await disable(store, task)
    clock.set(at(12))
    clock.set(at(8))  # somebody set the clock back
    await enable(store, task)
    clock.set(at(15))
    await store.plan(10)
    assert await born_at(store, task) == [10]
    assert (await audit(store)).flaws == []


async def test_a_slot_that_is_accounted_for_does_not_come_round_again(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(12))
    await store.plan(10)
    clock.set(at(8))
    await disable(store, task)
    await enable(store, task)
    clock.set(at(15))
    await store.plan(10)
    assert await born_at(store, task) == [10]
    assert (await reread(store, task)).next_fire_at == at(20)
    assert (await audit(store)).flaws == []


async def test_a_step_forward_counts_as_downtime_and_a_step_back_makes_the_cursor_wait(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(1000))
    await store.plan(10, cap=2)
    clock.set(at(50))
    await store.plan(10)
    assert await born_at(store, task) == [990, 1000]
    assert [one.count for one in await dropped(store, task)] == [98]
    assert (await reread(store, task)).next_fire_at == at(1010)
    assert (await audit(store)).flaws == []


async def test_a_new_schedule_after_a_step_back_has_the_slots_that_nobody_accounted_for(
    store: Store, clock: ManualClock
):
    task = await store.create_task(job(schedule=every(10)))
    clock.set(at(19))
    await store.plan(10)
    clock.set(at(12))
    task = await edit(store, task, schedule=every(7))
    clock.set(at(22))
    await store.plan(10)
    assert await born_at(store, task) == [10, 14, 21]
    assert await outcomes(store, task, 22) == [
        (10, SlotOutcome.WAITING, 1),
        (14, SlotOutcome.WAITING, 1),
        (21, SlotOutcome.WAITING, 1),
    ]
    assert (await audit(store)).flaws == []


async def test_a_fixed_delay_goes_on_after_its_last_slot_when_the_clock_was_set_back(store: Store, clock: ManualClock):
    """Else its next slot could be one that has its run already, and the task would wait for ever."""
    task = await store.create_task(job(schedule=after_each(10)))
    for seconds in (10, 20):
        clock.set(at(seconds))
        await store.plan(10)
        lease = await claim_one(store)
        if seconds == 10:
            await done(store, finish(lease))
    clock.set(at(0))
    await done(store, finish(lease))
    assert (await reread(store, task)).next_fire_at == at(30)
    clock.set(at(30))
    await store.plan(10)
    assert await born_at(store, task) == [10, 20, 30]
    assert (await audit(store)).flaws == []
