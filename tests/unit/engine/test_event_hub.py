"""The hub: one reader for all listeners, none for nobody; who is slow is cut and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from conformance.store.builders import job, publish_many
from noonbell.engine.event_hub import DebouncedSignal, EventBatch, Hub, Listener
from noonbell.errors import StoreUnavailable
from noonbell.model.event import Event, Filter, Position
from noonbell.ports import EVENTS
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup

SOON = 60.0


class Counting:
    """The store, with its reads of the stream counted; it can be away for a while."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self.pages, self.away = store, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def event_page(self, *given: Any) -> Any:
        self.pages += 1
        if self.away > 0:
            self.away -= 1
            raise StoreUnavailable("away")
        return await self._store.event_page(*given)


@pytest.fixture
def counting(store: MemoryStore) -> Counting:
    return Counting(store)


@pytest.fixture
async def hub(counting: Counting, wakeup: LocalWakeup) -> AsyncIterator[Hub]:
    hub = Hub(counting, wakeup, poll=0.01, most_behind=20)  # type: ignore[arg-type]
    yield hub
    await hub.close()


async def got(listener: Listener, count: int) -> list[Event]:
    """So many events, no fewer and no more."""
    found: list[Event] = []
    while len(found) < count:
        batch = await listener.next(SOON)
        assert batch is not None, f"{len(found)} of {count} came"
        found += batch.chosen(listener.wanted)
    assert len(found) == count
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - it is not ours to signal
            await asyncio.sleep(0.001)


async def test_any_number_of_listeners_costs_one_reader(skip_time, hub: Hub, counting: Counting, store: MemoryStore):
    task = await store.create_task(job())
    async with contextlib.AsyncExitStack() as listening:
        listeners = [await listening.enter_async_context(hub.listen()) for _ in range(50)]
        run_ids = await publish_many(store, task, 3)
        for listener in listeners:
            assert [event.run_id for event in await got(listener, 3)] == run_ids
    alone = counting.pages
    for _ in range(5):
        await skip_time(1)
    assert counting.pages <= alone + 1, "nobody listens, nobody reads"
    assert alone < 50


async def test_what_is_made_of_a_batch_is_made_once_for_each_filter(hub: Hub, store: MemoryStore):
    made = 0

    def render(events: Any) -> bytes:
        nonlocal made
        made += 1
        return b"x" * len(list(events))

    async with hub.listen() as one, hub.listen() as two, hub.listen(Filter(types=("run",))) as three:
        await publish_many(store, await store.create_task(job()), 2)
        batches = {id(batch): batch for batch in [await each.next(SOON) for each in (one, two, three)]}
        (batch,) = batches.values()
        assert isinstance(batch, EventBatch)
        sizes = [len(batch.rendered(each.wanted, render)) for each in (one, two, three)]
    assert (made, sizes) == (2, [3, 3, 2])


async def test_a_slow_listener_is_cut_and_goes_on_where_it_was(hub: Hub, store: MemoryStore):
    task = await store.create_task(job())
    cuts: list[int] = []
    hub._observe = lambda _, cut: cuts.append(cut)
    async with hub.listen() as slow, hub.listen() as quick:
        seen = await publish_many(store, task, 4)
        assert [event.run_id for event in await got(slow, 4)] == seen
        await got(quick, 4)
        published = []
        for _ in range(4):
            published += await publish_many(store, task, 8)
            assert [event.run_id for event in await got(quick, 8)] == published[-8:]
        await until(lambda: slow.is_cut)
        assert await slow.next(0) is None
    assert sum(cuts) == 1
    async with hub.listen(after=slow.after) as again:
        assert [event.run_id for event in await got(again, 32)] == published


async def test_a_listener_from_the_past_goes_over_to_the_present_without_a_seam(hub: Hub, store: MemoryStore):
    task = await store.create_task(job())
    first = await publish_many(store, task, 15)
    async with hub.listen() as live, hub.listen(after=Position(0)) as past:
        second = await publish_many(store, task, 2)
        told = await got(past, 18)
        third = await publish_many(store, task, 2)
        told += await got(past, 2)
        assert [event.run_id for event in told[1:]] == [*first, *second, *third]
        assert [event.run_id for event in await got(live, 4)] == [*second, *third]


async def test_listeners_that_take_nothing_do_not_keep_others_from_reading_the_past(hub: Hub, store: MemoryStore):
    task = await store.create_task(job())
    published = [run for _ in range(10) for run in await publish_many(store, task, 10)]
    async with (
        hub.listen(after=Position(0)) as idle,
        hub.listen(after=Position(0)) as idle_too,
        hub.listen() as live,
    ):
        await until(lambda: min(idle.behind, idle_too.behind) > hub.most_behind // 2)
        async with hub.listen(after=Position(0)) as resuming:
            assert [event.run_id for event in (await got(resuming, 101))[1:]] == published
        assert not live.is_cut


async def test_a_listener_that_takes_nothing_of_the_past_is_cut_after_a_while(counting: Counting, wakeup: LocalWakeup):
    hub = Hub(counting, wakeup, poll=0.01, most_behind=20, stalled_after=0.05)  # type: ignore[arg-type]
    task = await counting.create_task(job())
    for _ in range(10):
        await publish_many(counting, task, 10)  # type: ignore[arg-type]
    async with hub.listen(after=Position(0)) as idle, hub.listen():
        await until(lambda: idle.is_cut)
    await hub.close()


async def test_an_outage_delays_events_and_loses_none(hub: Hub, counting: Counting, store: MemoryStore):
    task = await store.create_task(job())
    async with hub.listen() as listener:
        counting.away = 3
        run_ids = await publish_many(store, task, 3)
        assert [event.run_id for event in await got(listener, 3)] == run_ids
    assert counting.away == 0


async def test_a_hub_that_is_closed_lets_everybody_go(hub: Hub):
    async with hub.listen() as listener:
        waiting = asyncio.create_task(listener.next(SOON))
        await asyncio.sleep(0)
        await hub.close()
        assert await waiting is None
        assert listener.is_cut
    async with hub.listen() as late:
        assert late.is_cut


# ---- what code inside the process uses


# ---- signalling


async def test_signals_are_spaced_and_the_last_is_never_left_out(wakeup: LocalWakeup, skip_time):
    heard: list[str] = []
    wakeup.signal = heard.append  # type: ignore[method-assign]
    nudge = DebouncedSignal(wakeup, apart=20)
    for _ in range(100):
        nudge()
    assert heard == [EVENTS]
    await skip_time(21)
    assert len(heard) == 2
    await skip_time(30)
    assert len(heard) == 2
    nudge()
    assert len(heard) == 3


async def test_only_what_wrote_an_event_is_told(store: MemoryStore):
    told: list[int] = []
    store.on_events = lambda: told.append(1)
    task = await store.create_task(job())
    assert len(told) == 1
    await store.plan(5)
    await store.promote(5)
    await store.task(task.id)
    await store.settle([])
    assert len(told) == 1
    await publish_many(store, task, 1)
    assert len(told) == 2
