"""The stream of events over HTTP: its head comes at once, it filters, it goes on where a listener left, and it ends cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from starlette.applications import Starlette

from integration.api.serving import Api, running, serving
from integration.support import until
from integration.test_lock_waits import held_on_postgres
from noonbell.api.endpoint import endpoints_of, routes
from noonbell.api.events import EventCalls, message
from noonbell.clock import Instant
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.event import Event
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.service.filters import check_type, event_json

PATIENCE = 60


class Stream:
    """A listener: messages as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def block(self) -> list[str] | None:
        """The lines up to the next empty one; None at the end."""
        lines: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while line := await self.response.content.readline():
                text = line.decode().rstrip("\n")
                if not text:
                    return lines
                lines.append(text)
        return None

    async def message(self) -> dict[str, Any] | None:
        """The next event, past all comments."""
        while (lines := await self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if "event" in fields:
                told = json.loads(fields["data"])
                if fields["event"] != "reset":
                    assert (told["id"], told["type"]) == (fields["id"], fields["event"])
                return {"event": fields["event"], **told}
        return None

    async def until(self, type_: str) -> list[dict[str, Any]]:
        """Every event up to and with the first of that type."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["event"] != type_:
            told = await self.message()
            assert told is not None, "the stream has ended"
            found.append(told)
        return found


@contextlib.asynccontextmanager
async def listening(api: Api, query: str = "", last: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE)
    url = f"{api.root}/api/v1/events{query}"
    async with api.session.get(url, headers=headers, timeout=timeout) as response:
        assert response.status == 200
        stream = Stream(response)
        assert await stream.block() == ["retry: 1000", ": noonbell events"]
        yield stream


async def run_one(api: Api, task: Any) -> int:
    run_id = await api.trigger(task)
    lease = await api.claim()
    await api.finish(lease, RunStatus.SUCCESS)
    return run_id


async def test_the_head_comes_before_anything_happens(quick_api: Api):
    async with listening(quick_api) as stream:
        head = stream.response.headers
        assert head["Content-Type"].startswith("text/event-stream")
        assert (head["Cache-Control"], head["X-Accel-Buffering"]) == ("no-store", "no")


async def test_the_head_comes_when_the_listener_has_its_place_in_the_stream(postgres_url: str):
    """A page reads its state when the head is there: what happens after that must come, or the page stays as it is."""
    async with serving(postgres_url) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        async with held_on_postgres(postgres_url, "lock table counters in access exclusive mode"):
            writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await _a_lock_is_waited_for(postgres_url)
            head = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            await api.good("GET", "/version")  # the loop has gone round: what was sent before is here
            assert not head.done(), "the head came before the listener had its place"
        async with asyncio.timeout(PATIENCE):
            assert (await head).startswith(b"HTTP/1.1 200 ")
        task_id = await api.create(name="a")
        async with asyncio.timeout(PATIENCE):
            assert (
                b'"task_id":%d' % task_id in await reader.readuntil(b"event: task.created\n") + await reader.readline()
            )
        writer.close()


async def _a_lock_is_waited_for(url: str) -> None:
    looking = await asyncpg.connect(url)
    waiting = (
        "select exists(select from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and not l.granted)"
    )
    try:
        await until(lambda: looking.fetchval(waiting), PATIENCE, "the listener to wait for the lock")
    finally:
        await looking.close()


async def test_a_listener_hears_of_a_run_from_birth_to_end(api_everywhere: Api):
    api = api_everywhere
    async with listening(api) as stream:
        task_id = await api.create(name="nightly")
        run_id = await run_one(api, task_id)
        told = await stream.until("run.succeeded")
    assert [event["type"] for event in told] == ["task.created", "run.scheduled", "run.started", "run.succeeded"]
    assert {event["topic"] for event in told} == {"nightly"}
    assert [event["subject"] for event in told] == [task_id, run_id, run_id, run_id]
    assert told[-1]["data"] == {"status": "SUCCESS"}


async def test_listeners_are_told_only_what_they_asked_for(quick_api: Api):
    api = quick_api
    first, second = await api.create(name="first"), await api.create(name="second")
    async with contextlib.AsyncExitStack() as open_streams:
        by_type, by_word, by_task, by_id, by_queue = [
            await open_streams.enter_async_context(listening(api, query))
            for query in ("?type=run.succeeded", "?type=task,queue", "?task=second", f"?task={first}", "?queue=other")
        ]
        one, two = await run_one(api, first), await run_one(api, second)
        by_run = await open_streams.enter_async_context(listening(api, f"?run={two}&after=0"))
        await api.store.set_queue("other", lambda queue: queue)
        await api.good("PATCH", f"/tasks/{first}/disable")
        await api.good("PATCH", f"/tasks/{second}/disable")

        assert [(await by_type.message() or {})["run_id"] for _ in range(2)] == [one, two]
        assert [(await by_word.message() or {})["type"] for _ in range(2)] == ["task.disabled", "task.disabled"]
        assert {event["topic"] for event in await by_task.until("task.disabled")} == {"second"}
        assert {event["task_id"] for event in await by_id.until("task.disabled")} == {first}
        assert {event["run_id"] for event in await by_run.until("run.succeeded")} == {two}
        from noonbell.model.worker import Queue

        await api.store.set_queue("other", lambda queue: Queue(name=queue.name, paused=True))
        assert (await by_queue.message() or {})["type"] == "queue.paused"


@pytest.mark.parametrize(
    ("query", "field"),
    [("type=nonsense", "type"), ("type=run.FAILED", "type"), ("run=x", "run"), ("after=x", "Last-Event-ID")],
)
async def test_a_wrong_filter_is_refused_by_name(quick_api: Api, query: str, field: str):
    told = await quick_api.call("GET", f"/events?{query}")
    assert (told.status, list(told.body["details"])) == (400, [field])


async def test_a_page_of_another_site_may_not_listen(quick_api: Api):
    for foreign in (
        "http://evil.example",
        "null",
        "http://[::1",
        f"{quick_api.root}/",
        "http://" + quick_api.root[7:].upper() + "x",
    ):
        assert await quick_api.bad("GET", "/events", headers={"Origin": foreign}) == (403, "FORBIDDEN"), foreign


async def test_a_listener_that_comes_back_has_missed_nothing(api_everywhere: Api):
    api = api_everywhere
    task_id = await api.create(name="a", max_concurrency=None)
    async with listening(api) as stream:
        await api.good("POST", "/runs/batch", {"runs": [{"task": task_id}] * 5})
        seen = [await stream.message() for _ in range(3)]
    missed = [await api.trigger(task_id) for _ in range(3)]
    last = (seen[-1] or {})["id"]
    assert last.endswith(".2"), "the cut is in the middle of a batch"
    async with listening(api, last=last) as stream:
        rest = [await stream.message() for _ in range(5)]
        live = await api.trigger(task_id)
        rest.append(await stream.message())
    got = [(event or {})["run_id"] for event in (*seen, *rest)]
    assert len(set(got)) == 9
    assert got[5:] == [*missed, live]


async def test_a_stream_goes_on_after_a_restart(sqlite_url: str):
    async with serving(sqlite_url) as api:
        task_id = await api.create(name="a")
        async with listening(api, "?after=0") as stream:
            last = (await stream.message() or {})["id"]
        run_id = await run_one(api, task_id)
    async with serving(sqlite_url) as api, listening(api, "?type=run", last) as stream:
        told = await stream.until("run.succeeded")
        assert [event["run_id"] for event in told] == [run_id] * 3


async def test_an_id_that_is_too_old_is_answered_with_reset(quick_api: Api):
    task_id = await quick_api.create(name="a")
    for _ in range(3):
        await quick_api.trigger(task_id)
    store: Any = quick_api.store
    assert await store.last_event() == 4
    assert await store.forget_events(Instant(1 << 60), 2) == 2
    async with listening(quick_api, last="1.0") as stream:
        told = await stream.message()
        assert told is not None
        assert told["event"] == "reset"
        assert [(await stream.message() or {})["id"] for _ in range(2)] == ["3.0", "4.0"]
    async with listening(quick_api, last="2.0") as stream:
        assert (await stream.message() or {})["id"] == "3.0", "nothing after this id is missing"


async def test_an_id_from_elsewhere_is_answered_with_reset(quick_api: Api):
    async with listening(quick_api, last="999.0") as stream:
        assert (await stream.message() or {})["event"] == "reset"
        await quick_api.create(name="a")
        assert (await stream.message() or {})["type"] == "task.created"


async def test_streams_end_when_the_hub_is_closed(quick_api: Api):
    async with listening(quick_api) as one, listening(quick_api, "?type=run") as two:
        await quick_api.parts.hub.close()
        assert await one.message() is None
        assert await two.message() is None


async def test_silence_is_broken_by_comments(quick_api: Api):
    app = Starlette(
        routes=routes(endpoints_of(EventCalls(quick_api.parts.hub, quick_api.store, keep_alive=0.01), "events"))
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}/api/v1/events"
        async with running(app, listener), quick_api.session.get(url) as response:
            stream = Stream(response)
            await stream.block()
            assert await stream.block() == [": still here"]
            assert await stream.block() == [": still here"]
            await quick_api.parts.hub.close()


async def test_metrics_count_the_listeners(quick_api: Api):
    async with listening(quick_api), listening(quick_api):
        assert "noonbell_event_listeners 2.0" in str(await quick_api.good("GET", "//metrics"))


def test_every_type_that_the_page_lists_can_be_asked_for():
    page = (Path(__file__).parents[3] / "docs/how-to/events.md").read_text(encoding="utf-8")
    rows = page.partition("\n## Every type\n")[2].partition("\n## ")[0].splitlines()
    types = {
        type_ for row in rows for type_ in re.findall(r"`([a-z]+\.[a-z_]+)`", row.split("|")[1] if "|" in row else "")
    }
    assert {"run.failed", "store.went_back"} <= types
    at = ReadContext(Problems())
    for type_ in types:
        check_type(type_, at, type_)
        check_type(type_.partition(".")[0], at, type_)
    assert at.problems.found == {}


def test_moments_in_the_data_of_an_event_are_written_as_all_times_are():
    at = Instant(1_700_000_000_500_000)
    for type_, name in (
        ("installation.paused", "since"),
        ("installation.resumed", "until"),
        ("task.misfired", "first"),
        ("task.misfired", "last"),
        ("run.retrying", "next_retry_time"),
    ):
        event = Event(seq=3, index=1, at=at, type=type_, data={name: at, "count": 3, "retry_count": 1})
        assert event_json(event)["data"] == {name: "2023-11-14T22:13:20.5Z", "count": 3, "retry_count": 1}
    paused = Event(seq=3, index=1, at=at, type="task.disabled", data={"until": "2026-11-15T02:30:00Z"})
    assert event_json(paused)["data"] == paused.data


@pytest.mark.parametrize("name", ["plain", 'quo"te', "zeile\nzwei", "北京"])
@pytest.mark.parametrize("run_id", [None, RunId(7)])
def test_the_short_way_writes_what_the_long_way_says(name: str, run_id: RunId | None):
    event = Event(
        seq=3,
        index=1,
        at=Instant(1_700_000_000_500_000),
        type="run.started",
        task_id=TaskId(2),
        run_id=run_id,
        data={"status": "RUNNING"},
        topic=name,
        queue="http",
    )
    lines = message(event).decode().split("\n")
    assert lines[:2] == ["id: 3.1", "event: run.started"]
    assert lines[3:] == ["", ""]
    assert json.loads(lines[2].removeprefix("data: ")) == event_json(event)
