"""The demo: fill an empty store with a week of history, serve it, and remove it again.

The week is lived through by the store's own transitions, on a clock that is moved by hand. So every chart, list and account
shows what a real week would have left: policies have decided, retries have waited, a callback has been missed, and for an
hour and a half no node planned.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from noonbell import yaml_text
from noonbell.app.connection import opened
from noonbell.clock import SECOND, Instant, ManualClock, SystemClock, rfc3339, slot_of
from noonbell.engine import callback
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.settle import settlement_of
from noonbell.engine.sweeper import Sweeper
from noonbell.errors import AlreadyExists, InvalidState
from noonbell.fields import counted
from noonbell.model.failure_text import failure_text, said_by
from noonbell.model.request import ClaimRequest, IncomingCallback, TaskQuery
from noonbell.model.run import Assignment, Lease, Outcome, OutcomeKind, RunBodies, Transition
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import Task
from noonbell.model.worker import WorkerState
from noonbell.ports import Store
from noonbell.service import Rules, Services
from noonbell.service.filters import every
from noonbell.service.task_files import reconcile
from noonbell.service.tasks import Removal
from noonbell.settings import Settings
from noonbell.settings.kinds import sqlite_file
from noonbell.stores import store_of
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets.http import template
from noonbell.telemetry import logs
from noonbell.version import __version__
from noonbell.wiring.application import Listening, listen
from noonbell.wiring.assemble import NodeParts, store_in_words
from noonbell.wiring.dev import STOPPED, CallbackSender, answer, body_of, commands_line
from noonbell.wiring.process import Stop, loop_factory
from noonbell.wiring.serving import Beside, serve

DAYS: Final = 7
_DAY: Final = 86_400 * SECOND
_OUTAGE: Final = (round(3.4 * _DAY), round(3.4 * _DAY) + 5400 * SECOND)
"""When no node planned, counted from the beginning."""
_PAUSED_AT: Final = round(4.3 * _DAY)
_WORKER: Final = "demo"
_AT_ONCE: Final = 100
"""Runs that a claim takes, at most."""
_LEASE: Final = 10.0
"""Seconds; what takes longer gets its lease extended, as heartbeats would."""

Deed = Callable[[], Awaitable[None]]


class DemoHistory:
    def __init__(self, store: Store, clock: ManualClock, url: str) -> None:
        """`store` is open, empty, and goes by `clock`. `url` is where the targets will be."""
        self._store, self._clock, self._url = store, clock, url
        self._wakeup = LocalWakeup()
        self._tasks = TaskCache(store)
        self._services = Services(store, self._wakeup, Rules(check_template=template.check))
        self._sweeper = Sweeper(
            store, self._wakeup, tasks=self._tasks, draw=lambda: 0.5, upkeep=float("inf"), look=float("inf")
        )
        self._later: list[tuple[int, int, Deed]] = []
        self._count = 0
        self._work_at = 0
        """When there is something to plan, promote or claim: between two such moments runs only end."""

    async def live(self, until: Instant, tell: Callable[[float], None] = lambda _: None) -> None:
        """From the clock's present to `until`. `tell` hears which part of it has passed, 0 to 1."""
        began = self._clock.now()
        outage = range(began + _OUTAGE[0], began + _OUTAGE[1])
        await reconcile(self._services, OWNER, declared(self._url), by=OWNER)
        self._at(began + _PAUSED_AT, self._pause)
        while (now := self._clock.now()) < until:
            await self._do_what_is_due()
            if now in outage:
                self._work_at = outage.stop
            elif now >= self._work_at:
                self._work_at = await self._work()
            following = min(self._work_at, *(later[0] for later in self._later[:1]), until)
            self._clock.set(Instant(max(following, now + 1)))
            tell((self._clock.now() - began) / (until - began))
            await asyncio.sleep(0)  # the store is in memory, so nothing else lets Ctrl-C in
        while self._later:  # what was under way at the end has just ended, but callbacks may still be missed
            deed = heapq.heappop(self._later)[2]
            if deed != self._sweep:
                await deed()

    async def _pause(self) -> None:
        await self._services.tasks.disable(PAUSED, by="ann")

    async def _sweep(self) -> None:
        await self._sweeper.tick()

    def _at(self, moment: int, deed: Deed) -> None:
        self._count += 1
        heapq.heappush(self._later, (moment, self._count, deed))

    async def _do_what_is_due(self) -> None:
        while self._later and self._later[0][0] <= self._clock.now():
            await heapq.heappop(self._later)[2]()

    async def _work(self) -> int:
        """Plan, promote and claim what is due; the next moment at which something will be."""
        planned, promoted = await self._store.plan(500), await self._store.promote(500)
        while True:
            claimed = await self._store.claim(ClaimRequest(worker_id=_WORKER, queues=(HTTP_QUEUE,), max=_AT_ONCE))
            await self._tasks.load(claimed.leases)
            for lease in claimed.leases:
                await self._start(lease)
            if len(claimed.leases) < _AT_ONCE:
                break
        moments = [planned.next_at, promoted.next_at]
        return min((moment for moment in moments if moment is not None), default=self._clock.now() + 3600 * SECOND)

    async def _start(self, lease: Lease) -> None:
        task = self._tasks.get(lease)
        if task is None:
            return
        does = act(task.name, slot_of(lease.scheduled_time), lease.attempt)
        if does.seconds > _LEASE:
            await self._store.extend(lease.run_id, lease.token, does.seconds + _LEASE)

        async def end() -> None:
            await self._end(lease, task, does)

        self._at(self._clock.now() + round(does.seconds * SECOND), end)

    async def _end(self, lease: Lease, task: Task, does: Act) -> None:
        now = self._clock.now()
        outcome = _outcome(task, lease, does)
        settlement = settlement_of(Assignment(lease=lease, task=task), outcome, 0.5)
        await self._store.settle([settlement])
        if settlement.transition is Transition.RETRY:
            self._work_at = now
        if outcome.kind is not OutcomeKind.ACCEPTED:
            return
        if does.calls_back_after is None:
            self._at(now + round((task.spec.callback_timeout_sec + 0.5) * SECOND), self._sweep)
            return
        message = callback.CallbackMessage(status=callback.CallbackStatus.SUCCESS, data={"rows": slot_of(now) % 997})

        async def call_back() -> None:
            body = json.dumps({"status": message.status, "data": message.data})
            given = IncomingCallback(
                token=lease.callback_token, body=body, headers={"content-type": "application/json"}
            )
            await callback.receive(self._store, self._wakeup, self._tasks, given, message, draw=lambda: 0.5)

        self._at(now + round(does.calls_back_after * SECOND), call_back)


def _outcome(task: Task, lease: Lease, does: Act) -> Outcome:
    answer = {"task": task.name, "slot": rfc3339(lease.scheduled_time), "took": round(does.seconds, 3)}
    bodies = RunBodies(
        request_headers={"X-Noonbell-Run": str(lease.run_id), "X-Noonbell-Attempt": str(lease.attempt)},
        response_headers={"content-type": "application/json"},
        response_body=json.dumps(answer),
    )
    if does.status < 300:
        kind = OutcomeKind.ACCEPTED if does.status == 202 else OutcomeKind.SUCCESS
        return Outcome(kind=kind, response_code=does.status, bodies=bodies)
    answered = failure_text("answered", status=f"{does.status} {HTTPStatus(does.status).phrase}")
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure="http_5xx",
        response_code=does.status,
        error_message=answered,
        error_details={"kind": "http_5xx", **said_by(answered)},
        bodies=bodies,
    )


Say = Callable[[str], None]
Progress = Callable[[float], None]


def show(settings: Settings, *, yes: bool, serves: bool, any_port: bool, say: Say, progress: Progress) -> int:
    """Fill the store unless it is filled, and serve until a signal comes.

    `yes`: beside the tasks of others. `any_port`: where the port is taken, another one will do.
    """
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    with contextlib.ExitStack() as listening:
        # Before anything is filled: a port that is taken is refused at once.
        listener = listening.enter_context(_listener(settings, say, any_port=any_port)) if serves else None
        port = settings.server.port if listener is None else listener.getsockname()[1]
        called = listening.enter_context(place(port + 1 if settings.server.port else 0))
        url = address(called)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_fill(settings, url, yes=yes, say=say, progress=progress))
            if listener is not None:
                runner.run(serve(settings, beside=_targets_beside(settings, called, say), listener=listener))
                say(STOPPED)
    return 0


def _listener(settings: Settings, say: Say, *, any_port: bool) -> socket.socket:
    try:
        return listen(settings)
    except AlreadyExists:
        if not any_port:
            raise
    server = settings.server
    listener = listen(replace(settings, server=replace(server, port=0)))
    say(f"port {server.port} is in use: the demo listens on {listener.getsockname()[1]}")
    return listener


def _targets_beside(settings: Settings, called: socket.socket, say: Say) -> Beside:
    @contextlib.asynccontextmanager
    async def beside(parts: NodeParts, own_address: str) -> AsyncIterator[None]:
        async with answering(called):
            await reconcile(parts.services, OWNER, declared(address(called)), by=OWNER)
            for line in _where(settings, own_address):
                say(line)
            yield

    return beside


async def clean(settings: Settings) -> int:
    """Delete every task that has the demo's label, with its history; how many."""
    if _fresh_file(settings.store.url) is not None:
        return 0
    async with opened(settings) as services:
        found = await _tasks(services.store, label=LABEL)
        for task in found:
            await services.tasks.delete(task.id, Removal(cancel_running=True, purge=True), by=OWNER)
    return len(found)


async def _fill(settings: Settings, url: str, *, yes: bool, say: Say, progress: Progress) -> None:
    path = _fresh_file(settings.store.url)
    if path is None:
        async with opened(settings) as services:
            if await _tasks(services.store, label=LABEL):
                return
            problem = await _in_the_way(services)
            if problem is not None and not yes:
                raise InvalidState(f"{problem}; use another store, or add the tasks without history: --yes")
            if problem is not None:
                await reconcile(services, OWNER, declared(url), by=OWNER)
                await services.tasks.disable(PAUSED, by=OWNER)
                say("added the tasks, without history: the past of a store that is in use is not changed")
                return
    say(f"filling {path or 'the store'} with {DAYS} days of history")
    memory = MemoryStore(clock := _week_ago())
    async with _open(memory):
        await DemoHistory(memory, clock, url).live(SystemClock().now(), progress)
        async with _open(store := store_of(settings)):
            if await store.copy_from(memory):
                return
    # It was in use once: what it holds stays, and the week is lived through beside it.
    clock = _week_ago()
    async with _open(store := store_of(settings, clock=clock)):
        await DemoHistory(store, clock, url).live(SystemClock().now(), progress)


@contextlib.asynccontextmanager
async def _open(store: Store) -> AsyncIterator[None]:
    await store.open()
    try:
        yield
    finally:
        await store.close()


async def _in_the_way(services: Services) -> str | None:
    """Why no past may be told in this store."""
    others = [task for task in await _tasks(services.store) if task.spec.labels.get(LABEL[0]) != LABEL[1]]
    if others:
        return f"the store has {counted(len(others), 'task')} that the demo did not create"
    if any(worker.state is not WorkerState.LOST for worker in await services.store.workers()):
        return "a server or a worker is running on the store"
    return None


async def _tasks(store: Store, label: tuple[str, str] | None = None) -> list[Task]:
    return [task async for task in every(store.tasks, TaskQuery(label=label))]


def _fresh_file(url: str) -> str | None:
    """The path of a SQLite store that is not there yet."""
    file = sqlite_file(url)
    return None if file is None or (Path(file).exists() and Path(file).stat().st_size) else str(Path(file))


def _week_ago() -> ManualClock:
    return ManualClock(Instant(SystemClock().now() - DAYS * 86_400 * SECOND))


def _where(settings: Settings, address: str) -> list[str]:
    return [
        f"Noonbell {__version__} is running its demo. Ctrl-C stops it.",
        f"  dashboard  {address}/",
        f"  API        {address}/api/v1/tasks?label={LABEL[0]}={LABEL[1]}, described at {address}/docs",
        f"  store      {store_in_words(settings.store.url)}",
        *commands_line(address),
        "  remove it  noonbell demo --clean, with the same --store",
    ]


LABEL: Final = ("demo", "true")
"""What every task of the demo has, and what cleaning up goes by."""
OWNER: Final = "code:noonbell-demo"
PAUSED: Final = "demo-paused"
"""The task that is paused."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a target does with one request."""

    seconds: float
    """Until it answers."""
    status: int = 200
    calls_back_after: float | None = None
    """Seconds after its answer; None: never."""


def act(name: str, slot: int, attempt: int) -> Act:
    """`slot` in seconds. The same question always has the same answer."""
    luck, pace = _unit(name, slot, attempt, "luck"), _unit(name, slot, attempt, "pace")
    match name:
        case "demo-flaky":
            return Act(0.1 + 0.9 * pace, 200 if luck > 0.3 else 503)
        case "demo-slow":
            return Act(4 + 8 * pace)
        case "demo-overlapping":
            return Act(200 + 250 * pace)
        case "demo-callback":
            return Act(0.05 + 0.1 * pace, 202, calls_back_after=3 + 9 * luck)
        case "demo-callback-lost":
            return Act(0.05 + 0.1 * pace, 202)
        case "demo-circuit":
            # Ill for some hours, well for some: days of one colour would show nothing.
            is_ill = _unit(name, slot // 21_600, 0, "health") < 0.4
            return Act(0.2 + 0.3 * pace, 500 if is_ill else 200)
        case "demo-backup":
            return Act(35 + 30 * pace)
        case "demo-report":
            return Act(15 + 20 * pace, 200 if luck > 0.1 else 504)
        case _:
            return Act(0.02 + 0.1 * pace)


def declared(url: str) -> Sequence[Mapping[str, Any]]:
    """Their declarations, on targets at that address."""
    text = files(__name__).joinpath("tasks.yaml").read_text(encoding="utf-8")
    tasks: list[dict[str, Any]] = yaml_text.read(text.replace("$URL", url))["tasks"]
    return [{"labels": dict([LABEL]), **task} for task in tasks]


def _unit(name: str, slot: int, attempt: int, what: str) -> float:
    """From [0, 1), and always the same."""
    digest = hashlib.sha256(f"{name} {slot} {attempt} {what}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def place(wanted: int) -> socket.socket:
    """A socket on that port of loopback, so that tasks keep their address from one time to the next; else on a free one."""
    try:
        return socket.create_server(("127.0.0.1", wanted))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def answering(listener: socket.socket) -> AsyncIterator[None]:
    targets = _Targets()
    async with Listening(targets).listening(listener, Stop()):
        try:
            yield
        finally:
            await targets.close()


class _Targets:
    """As ASGI has it. The path names the task; its slot and attempt are in the headers that every request has."""

    def __init__(self) -> None:
        self._callbacks = CallbackSender()
        self._is_over = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await body_of(receive)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        name, slot = scope["path"].strip("/"), _slot(headers.get("x-noonbell-scheduled-time", ""))
        does = act(name, slot, _number(headers.get("x-noonbell-attempt", "")))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), does.seconds)
            await answer(send, 503, {"error": "the demo has ended"})
            return
        await answer(send, does.status, {"task": name, "took": round(does.seconds, 3)})
        callback = headers.get("x-callback-url")
        if callback is not None and does.calls_back_after is not None:
            self._callbacks.start(callback, does.calls_back_after)

    async def close(self) -> None:
        """Answers the calls that still wait."""
        self._is_over.set()
        await self._callbacks.close()


def _slot(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 1
