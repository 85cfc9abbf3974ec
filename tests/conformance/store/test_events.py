"""Events: every change has one, in the order of commit, and nothing is added behind what was read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from conformance.store.builders import (
    Node,
    S,
    asynchronous,
    at,
    claim,
    claim_due,
    claim_one,
    disable,
    done,
    edit,
    every,
    finish,
    http,
    job,
    lose,
    newest,
    news,
    park,
    publish,
    publish_many,
    release,
    retry,
    started,
)
from noonbell.clock import ManualClock
from noonbell.model.event import Event
from noonbell.model.request import CallbackIn
from noonbell.model.settlement import Move, Settlement
from noonbell.model.task import OverlapAction
from noonbell.ports import Store


async def told(store: Store, step: Callable[[], Awaitable[object]]) -> list[Event]:
    before = await newest(store)
    await step()
    return await news(store, before)


async def test_an_empty_store_has_no_events(store: Store):
    assert await store.events(0) == []


async def test_every_change_of_a_task_is_an_event(store: Store, clock: ManualClock):
    events = await told(store, lambda: store.create_task(job("t", schedule=every(60))))
    task = await store.task_named("t")
    assert task is not None
    assert [event.task_id for event in events if event.type.startswith("task.")] == [task.id]

    for step in (
        lambda: edit(store, task, description="new"),
        lambda: disable(store, task),
        lambda: store.skip_next(task.id, 2),
        lambda: store.delete_task(task.id),
    ):
        clock.advance(1)
        events = [event for event in await told(store, step) if event.type.startswith("task.")]
        assert [event.task_id for event in events] == [task.id]
        assert events[0].at == clock.now()


async def test_the_end_of_a_schedule_is_an_event(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1, repeat=1)))
    clock.advance(1)
    events = await told(store, lambda: store.plan(10))
    assert [event.task_id for event in events if event.type.startswith("task.")] == [task.id]


async def test_every_change_of_a_run_is_an_event(store: Store, clock: ManualClock):
    task = await store.create_task(asynchronous())
    lease = None

    async def take() -> None:
        nonlocal lease
        (lease,) = await claim_due(store)

    def settled(move) -> Callable[[], Awaitable[object]]:
        return lambda: done(store, move(lease))

    async def answer() -> None:
        assert lease is not None
        await store.callback(
            CallbackIn(token=lease.callback_token),
            lambda subject: Settlement(
                run_id=subject.run_id, token=subject.token, move=Move.FINISH, status=S.CALLBACK_SUCCESS
            ),
        )

    for name, step in (
        ("publish", lambda: publish(store, task)),
        ("claim", take),
        ("release", settled(release)),
        ("claim", take),
        ("retry", settled(lambda held: retry(held, delay=0))),
        ("claim", take),
        ("lose", settled(lose)),
        ("claim", take),
        ("park", settled(park)),
        ("callback", answer),
    ):
        clock.advance(60)
        events = [event for event in await told(store, step) if event.type.startswith("run.")]
        assert events, name
        assert {event.task_id for event in events} == {task.id}, name
        assert {event.at for event in events} == {clock.now()}, name
        if lease is not None:
            assert {event.run_id for event in events} == {lease.run_id}, name


async def test_slots_that_become_runs_skips_or_nothing_are_events(store: Store, clock: ManualClock):
    task = await store.create_task(job(schedule=every(1), overlap_action=OverlapAction.SKIP))
    clock.advance(4)
    events = [event for event in await told(store, lambda: store.plan(10, cap=3)) if event.task_id == task.id]
    runs = {event.run_id for event in events if event.run_id is not None}
    assert len(runs) == 3
    assert [event for event in events if event.run_id is None]


async def test_runs_that_changed_together_share_a_number_and_are_told_apart_by_index(store: Store):
    task = await store.create_task(job())
    before = await newest(store)
    run_ids = await publish_many(store, task, 5)
    events = [event for event in await news(store, before) if event.run_id is not None]
    assert sorted(event.run_id or 0 for event in events) == run_ids
    assert len({event.seq for event in events}) == 1
    assert [event.index for event in events] == [0, 1, 2, 3, 4]


async def test_events_come_in_the_order_of_commit(store: Store):
    task = await store.create_task(job())
    before = await newest(store)
    run_ids = [await publish(store, task) for _ in range(5)]
    events = [event for event in await news(store, before) if event.run_id is not None]
    assert [event.run_id for event in events] == run_ids
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def test_reading_in_small_pieces_misses_nothing_and_repeats_nothing(store: Store):
    task = await store.create_task(job())
    for size in (3, 1, 7, 2):
        await publish_many(store, task, size)
        await store.settle([finish(lease) for lease in await claim(store)])
    whole = await store.events(0, limit=10_000)
    assert len({(event.seq, event.index) for event in whole}) == len(whole) >= 39
    for limit in (1, 2, 3):
        pieces: list[Event] = []
        while events := await store.events(pieces[-1].seq if pieces else 0, limit=limit):
            pieces += events
        assert pieces == whole


async def test_reading_again_gives_the_same(store: Store):
    task = await store.create_task(job())
    await publish_many(store, task, 3)
    first = await store.events(0)
    await publish_many(store, task, 3)
    assert (await store.events(0))[: len(first)] == first
    assert await store.events(first[-1].seq + 1000) == []


async def test_nothing_is_ever_added_behind_what_was_read(store: Store, another_node: Node):
    nodes = [store, await another_node()]
    task = await store.create_task(job())
    gated = await store.create_task(http(max_concurrency=None))
    read: list[Event] = []
    written: set[int] = set()
    writing = True

    async def write(number: int) -> None:
        node = nodes[number % 2]
        for _ in range(6):
            written.update(await publish_many(node, gated if number % 3 else task, 2))
            leases = await claim(node, f"w{number}", 2)
            await node.settle([finish(lease) for lease in leases])

    async def listen() -> None:
        while writing:
            read.extend(await nodes[1].events(read[-1].seq if read else 0, limit=4))
            await asyncio.sleep(0)

    listener = asyncio.create_task(listen())
    await asyncio.gather(*(write(number) for number in range(5)))
    writing = False
    await listener
    read.extend(await news(store, read[-1].seq if read else 0))
    assert read == await news(store, 0)
    assert len(written) == 60
    assert written <= {event.run_id for event in read}


async def test_a_refused_settlement_is_told_but_not_as_a_change(store: Store):
    lease = await started(store, await store.create_task(job()))
    done_events = await told(store, lambda: store.settle([finish(lease)]))
    refused = await told(store, lambda: store.settle([finish(lease)]))
    assert {event.type for event in refused}
    assert not {event.type for event in refused} & {e.type for e in done_events}


async def test_what_was_refused_writes_no_event_of_a_change(store: Store, clock: ManualClock):
    task = await store.create_task(job())
    await publish(store, task, key="k")
    lease = await claim_one(store)
    clock.advance(1)

    async def refused() -> None:
        assert await store.log(lease.run_id, lease.token + 1, [("info", "x")]) is False
        assert await store.extend(lease.run_id, lease.token + 1, 5) is False
        assert (await store.overdue(5)) == []
        assert await claim(store) == []
        assert (await store.promote(5)).count == 0
        assert (await store.plan(5)).tasks == 0

    assert await told(store, refused) == []


async def test_an_events_moment_is_the_stores_now(store: Store, clock: ManualClock):
    clock.advance(12.5)
    task = await store.create_task(job())
    await publish(store, task)
    assert {event.at for event in await store.events(0)} == {at(12.5)}
