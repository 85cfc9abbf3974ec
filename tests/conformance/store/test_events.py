"""Events: every change has one, in the order of commit, and nothing is added behind what was read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

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
from noonbell.model.request import IncomingCallback
from noonbell.model.run import Settlement, Transition
from noonbell.model.task import OverlapAction
from noonbell.model.worker import Queue, WorkerInfo, WorkerState
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
            IncomingCallback(token=lease.callback_token),
            lambda subject: Settlement(
                run_id=subject.run_id, token=subject.token, transition=Transition.FINISH, status=S.CALLBACK_SUCCESS
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


async def test_what_one_node_publishes_and_another_runs_is_told_in_that_order(
    store: Store, another_node: Node, clock: ManualClock
):
    """Each node has ids in reserve, so that by its id the later event may be the first."""
    nodes = [store, await another_node()]
    task = await store.create_task(job())
    for publisher, runner in (nodes, nodes[::-1]):
        before = await newest(store)
        run_id = await publish(publisher, task)
        clock.advance(0.001)
        lease = await claim_one(runner)
        clock.advance(0.001)
        await publisher.settle([finish(lease)])
        events = await news(store, before)
        assert [event.type for event in events if event.run_id == run_id] == [
            "run.scheduled",
            "run.started",
            "run.succeeded",
        ]


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


async def test_a_callback_that_is_refused_is_told_with_its_reason_and_one_that_is_heard_is_not(store: Store):
    lease = await started(store, await store.create_task(asynchronous()))
    await done(store, park(lease))
    given = IncomingCallback(token=lease.callback_token)
    (refused,) = await told(store, lambda: store.callback(given, lambda _: "it is not signed"))
    assert (refused.type, refused.run_id) == ("run.ignored", lease.run_id)
    assert refused.data == {"move": "callback", "reason": "it is not signed"}
    assert await told(store, lambda: store.callback(given, lambda _: "")) == []
    await store.cancel([lease.run_id])
    (late,) = await told(store, lambda: store.callback(given, lambda _: ""))
    assert (late.type, late.data["reason"]) == ("run.ignored", "the run is CANCELED already")


async def test_an_events_moment_is_the_stores_now(store: Store, clock: ManualClock):
    clock.advance(12.5)
    task = await store.create_task(job())
    await publish(store, task)
    assert {event.at for event in await store.events(0)} == {at(12.5)}


# ---- going along with the stream


async def types_of(store: Store, step: Callable[[], Awaitable[object]]) -> list[str]:
    return [event.type for event in await told(store, step)]


async def test_an_event_names_its_task_and_queue(store: Store):
    task = await store.create_task(job("named", queue="lane"))
    run_id = await publish(store, task)
    await store.delete_task(task.id, purge=True)
    events = await store.events(0)
    assert [event.topic for event in events if event.type.startswith("task.")] == ["named", "named"], "purged, too"
    assert {event.queue for event in events if event.run_id == run_id} <= {"lane", None}
    second = await store.create_task(job("second", queue="lane"))
    page = await store.event_page(events[-1].seq)
    assert [(event.topic, event.queue, event.task_id) for event in page.events] == [("second", "lane", second.id)]


async def test_pages_follow_each_other_without_a_gap(store: Store):
    task = await store.create_task(job())
    for size in (3, 1, 2):
        await publish_many(store, task, size)
    pages = [await store.event_page(0, 2)]
    while pages[-1].is_full:
        pages.append(await store.event_page(pages[-1].upto, 2))
    assert [event for page in pages for event in page.events] == await store.events(0)
    assert not any(page.has_gap for page in pages)
    end = await store.event_page(pages[-1].upto)
    assert (end.events, end.upto, end.has_gap) == ([], pages[-1].upto, False)
    assert await store.last_event() == end.upto


async def test_a_page_of_some_types_passes_over_the_others(store: Store):
    task = await store.create_task(job())
    await publish(store, task)
    await store.settle([finish(lease) for lease in await claim(store)])
    page = await store.event_page(0, 100, {"run.started", "task.deleted"})
    assert [event.type for event in page.events] == ["run.started"]
    assert page.upto == await store.last_event()


async def test_the_end_of_the_stream_is_after_all_that_is_committed(store: Store):
    assert await store.last_event() == 0
    await store.create_task(job())
    last = await store.last_event()
    assert last == 1
    assert (await store.event_page(last)).events == []


async def test_old_events_are_removed_in_batches_and_the_gap_is_seen(store: Store, clock: ManualClock):
    for name in ("a", "b", "c", "d"):
        await store.create_task(job(name))
        clock.advance(10)
    assert await store.forget_events(at(25), 100) == 0, "what nobody has numbered is nobody's to remove"
    assert await store.last_event() == 4
    assert [await store.forget_events(at(25), 2) for _ in range(3)] == [2, 1, 0]
    kept = await store.event_page(0)
    assert [event.topic for event in kept.events] == ["d"]
    assert kept.has_gap
    assert (await store.event_page(1)).has_gap
    assert not (await store.event_page(3)).has_gap
    assert await store.forget_events(at(1000), 100) == 1
    gone = await store.event_page(2)
    assert (gone.events, gone.upto, gone.has_gap) == ([], 4, True)
    assert not (await store.event_page(4)).has_gap
    await store.create_task(job("e"))
    assert [event.seq for event in (await store.event_page(4)).events] == [5], "numbers are never given twice"


async def test_a_number_that_was_never_given_is_a_gap(store: Store):
    await store.create_task(job())
    page = await store.event_page(99)
    assert (page.events, page.upto, page.has_gap) == ([], 1, True)


async def test_what_becomes_of_a_queue_is_told(store: Store):
    async def set_queue(**fields: object) -> None:
        await store.set_queue("lane", lambda queue: msgspec.structs.replace(queue, **fields))

    assert await types_of(store, lambda: set_queue(paused=True)) == ["queue.paused"]
    assert await types_of(store, lambda: set_queue(paused=True)) == []
    assert await types_of(store, lambda: set_queue(paused=False, concurrency=3)) == ["queue.resumed", "queue.limited"]
    page = await store.event_page(0)
    assert {event.queue for event in page.events} == {"lane"}
    assert isinstance((await store.queues())[0], Queue)


async def test_what_becomes_of_a_worker_is_told(store: Store, clock: ManualClock):
    worker = WorkerInfo(id="w", incarnation="1")
    assert await types_of(store, lambda: store.register_worker(worker)) == ["worker.started"]
    assert await types_of(store, lambda: store.set_worker("w", concurrency=3)) == ["worker.changed"]
    assert await types_of(store, lambda: store.set_worker("w", state=WorkerState.DRAINING)) == ["worker.draining"]
    assert await types_of(store, store.notice_workers) == []
    clock.advance(16)
    assert await types_of(store, store.notice_workers) == ["worker.lost"]
    assert await types_of(store, store.notice_workers) == [], "once"
    await store.heartbeat("w", [], incarnation="1")
    assert await types_of(store, store.notice_workers) == ["worker.returned"]
    clock.advance(16)
    assert await types_of(store, store.notice_workers) == ["worker.lost"], "another silence is told again"
    assert await types_of(store, lambda: store.remove_worker("w", "1")) == ["worker.stopped"]
    assert await types_of(store, store.notice_workers) == [], "it is gone, not back"
