"""`GET /events`: the stream of events, as server-sent events.

The head of the answer is sent as soon as the listener has its place in the stream: from the head on, it misses nothing.
A browser's `EventSource` tells its page of the head and of no comment. Each event has its id, and a listener that comes
back with it (`Last-Event-ID`) misses nothing. A comment every 15 seconds keeps the connection known. `event: reset`
says that the stream does not reach back so far.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from functools import lru_cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from noonbell.api.endpoint import Given, call
from noonbell.api.request_origin import is_same_origin
from noonbell.clock import rfc3339
from noonbell.engine.event_hub import Hub, Listener
from noonbell.errors import Forbidden
from noonbell.model.access import Role, TokenScope
from noonbell.model.event import Event, Filter, Position
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store
from noonbell.service import scope as request_scope
from noonbell.service.filters import EventList, event_json, read_filter
from noonbell.service.scope import ScopeRule

KEEP_ALIVE: Final = 15.0
HEAD: Final = b"retry: 1000\n: noonbell events\n\n"
_ALIVE: Final = b": still here\n\n"
_CUT: Final = b": cut; come back with Last-Event-ID\n\n"
_PIECE: Final = 256 * 1024
"""Bytes that are written at once: a slow reader is waited for between two of them."""


_EXAMPLE: Final = (
    "id: 17.0\nevent: run.failed\n"
    'data: {"id":"17.0","time":"2026-11-15T12:00:00.5Z","type":"run.failed","topic":"sync_stats","subject":8123,'
    '"task_id":1,"run_id":8123,"queue":"http","data":{"status":"FAILED"}}\n\n'
)


class EventCalls:
    def __init__(self, hub: Hub, store: Store, keep_alive: float = KEEP_ALIVE) -> None:
        self._hub, self._store, self._keep_alive = hub, store, keep_alive

    @call(
        "GET", "/events", "events", "A stream of events", Role.VIEWER, scope=ScopeRule.LIST,
        query=EventList, answer_example=_EXAMPLE,
    )  # fmt: skip
    async def stream(self, request: Request, query: Given) -> object:
        """Server-sent events (`text/event-stream`). A client that reconnects with `Last-Event-ID` misses nothing,
        for up to a day and across restarts. `event: reset` means that the stream does not reach back that far. A
        token with a scope gets the events of the tasks and runs in it.
        """
        _check_origin(request)
        wanted = read_filter(query)
        last = request.headers.get("last-event-id") or request.query_params.get("after")
        after = None if last is None else Position.read(last)
        scope = request_scope.current()
        body = _nothing()
        if request.method != "HEAD":
            body = await _begun(self._body(wanted, after, None if scope is None else _Held(self._store, scope)))
        headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
        return StreamingResponse(body, headers=headers, media_type="text/event-stream")

    async def _body(self, wanted: Filter, after: Position | None, held: _Held | None) -> AsyncGenerator[bytes]:
        async with self._hub.listen(wanted, after) as listener:
            yield HEAD
            while not listener.is_cut:
                async for piece in self._next(listener, held):
                    yield piece
            yield _CUT

    async def _next(self, listener: Listener, held: _Held | None) -> AsyncIterator[bytes]:
        batch = await listener.next(self._keep_alive)
        if batch is None:
            if not listener.is_cut:
                yield _ALIVE
            return
        if batch.has_gap:
            yield b'event: reset\ndata: {"message": "the stream does not reach back so far; read the state anew"}\n\n'
        if held is None:
            chunk = batch.rendered(listener.wanted, render)
        else:
            chunk = render(await held.of(batch.chosen(listener.wanted)))
        listener.sent(len(chunk))
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]


class _Held:
    """Which events a scope holds: those of its tasks and of their runs. Events of anything else are not told."""

    def __init__(self, store: Store, scope: TokenScope) -> None:
        self._store, self._scope = store, scope

    async def of(self, events: Iterable[Event]) -> list[Event]:
        wanted = [event for event in events if event.task_id is not None]
        ids = sorted({event.task_id for event in wanted if event.task_id is not None})
        # Looked up for each batch: labels change, and a task that has left the scope is not told of any more.
        tasks = {task.id: task for task in await self._store.tasks_by_id(ids)} if ids else {}
        return [event for event in wanted if self._holds(tasks.get(event.task_id or TaskId(0)), event)]

    def _holds(self, task: Task | None, event: Event) -> bool:
        if task is None:
            return False
        return self._scope.holds_run(task, event.queue) if event.run_id is not None else self._scope.holds_task(task)


async def _begun(body: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """`body`, of which the first piece is there already."""
    first = await anext(body)

    async def pieces() -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(body):
            yield first
            async for piece in body:
                yield piece

    return pieces()


async def _nothing() -> AsyncGenerator[bytes]:
    return
    yield b""


_encode = msgspec.json.Encoder().encode
_written = lru_cache(maxsize=256)(rfc3339)


def render(events: Iterable[Event]) -> bytes:
    """Each as one message: its id, its type, and itself as JSON."""
    return b"".join([message(event) for event in events])


_PLAIN = frozenset({"status"})


def message(event: Event) -> bytes:
    """What `event_json` says. The usual event, of which thousands come together, is put together by hand."""
    data = event.data
    if event.run_id is None or event.topic is None or event.queue is None or data.keys() != _PLAIN:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), event.type.encode(), _encode(event_json(event)))
    names = _names(event.topic, event.queue)
    return (
        f"id: {event.seq}.{event.index}\nevent: {event.type}\n"
        f'data: {{"id":"{event.seq}.{event.index}","time":"{_written(event.at)}","type":"{event.type}",'
        f'{names[0]},"subject":{event.run_id},"task_id":{event.task_id},"run_id":{event.run_id},'
        f'{names[1]},"data":{{"status":"{data["status"]}"}}}}\n\n'
    ).encode()


@lru_cache(maxsize=1024)
def _names(topic: str, queue: str) -> tuple[str, str]:
    return f'"topic":{_encode(topic).decode()}', f'"queue":{_encode(queue).decode()}'


def _check_origin(request: Request) -> None:
    """A page of another site may not listen in."""
    if "origin" in request.headers and not is_same_origin(request.headers):
        raise Forbidden("a page of another site may not read this stream")
