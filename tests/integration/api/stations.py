"""Plans under a clock that stands still: the API over HTTP, the planner and the stations' workers, each called by hand."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from integration.api.serving import Api, running
from noonbell.api.app import all_endpoints, create_app
from noonbell.clock import ManualClock, rfc3339
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.fields.kinds import read_moment
from noonbell.model.event import Event
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.service import Rules, Services
from noonbell.settings import Settings
from noonbell.stores import open_store
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.wakeups import LocalWakeup

NOON = "2026-11-15T12:00:00Z"
"""A Sunday."""

PLAN = {"station": "billing", "messages": ["settle", {"open": True}]}


@dataclass
class Handler:
    """A station's own code: it notes what it is given, and answers as it is told."""

    name: str
    seen: list[Assignment] = field(default_factory=list)
    answers: list[Outcome] = field(default_factory=list)
    """What it says next; nothing more to say means success."""
    meanwhile: Callable[[], Awaitable[Any]] | None = None
    """What happens while it works."""

    async def execute(self, assignment: Assignment) -> Outcome:
        self.seen.append(assignment)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.answers.pop(0) if self.answers else Outcome(kind=OutcomeKind.SUCCESS, result=f"by {self.name}")

    @property
    def slots(self) -> list[str]:
        return [rfc3339(each.lease.scheduled_time) for each in self.seen]


def failing(kind: str) -> Outcome:
    """`error` is tried again, `fail` is final."""
    return Outcome(kind=OutcomeKind.FAILURE, failure=kind, error_message=f"a made {kind}")


@dataclass
class Bureau:
    """Everything that a plan meets."""

    api: Api
    clock: ManualClock
    store: SqlStore
    planner: Planner
    wakeup: LocalWakeup
    workers: list[tuple[Worker, Handler]] = field(default_factory=list)

    async def station(self, name: str = "billing", worker: str = "b1") -> Handler:
        """One more worker of a station."""
        handler = Handler(worker)
        engine = Worker(self.store, self.wakeup, {ExecType.JOB: handler}, worker_id=worker, queues=(name,))
        await engine.register()
        self.workers.append((engine, handler))
        return handler

    async def publish(self, **fields: Any) -> Any:
        return await self.api.good("POST", "/plans", {**PLAN, **fields}, 201)

    async def plan(self, plan_id: str) -> Any:
        return await self.api.good("GET", f"/plans/{plan_id}")

    async def act(self, plan_id: str, verb: str, **body: Any) -> Any:
        return await self.api.good("POST", f"/plans/{plan_id}/{verb}", body or None)

    async def work(self) -> None:
        """One pass of the planner, and whatever the stations find to do."""
        await self.planner.tick()
        for worker, _ in self.workers:
            await worker.beat()
            await worker.run_until_idle()

    async def at(self, moment: str) -> None:
        """It is that time now, and everybody does what is to be done."""
        self.clock.set(read_moment(moment))
        await self.work()

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.work()

    async def told(self, type_: str) -> list[Event]:
        return [event for event in await self.store.events(0, 10_000) if event.type == type_]


@contextlib.asynccontextmanager
async def bureau(url: str = "memory://", *, now: str = NOON, settings: Settings | None = None) -> AsyncIterator[Bureau]:
    settings = settings or Settings()
    clock = ManualClock(read_moment(now))
    store = open_store(url, clock=clock)
    wakeup = LocalWakeup()
    async with contextlib.AsyncExitStack() as going:
        await store.open()
        going.push_async_callback(store.close)
        services = Services(store, wakeup, Rules.of(settings))
        listener = socket.create_server(("127.0.0.1", 0))
        going.callback(listener.close)
        app = create_app(all_endpoints(services, health=lambda: {"ok": True, "workers": []}), services.store, settings)
        await going.enter_async_context(running(app, listener))
        session = await going.enter_async_context(aiohttp.ClientSession())
        api = Api(session, _OnlyServices(services), listener.getsockname()[1])  # type: ignore[arg-type]
        yield Bureau(api, clock, store, Planner(store, wakeup), wakeup)


async def swept(bureau: Bureau) -> None:
    await Sweeper(bureau.store, bureau.wakeup).tick()


@dataclass
class _OnlyServices:
    services: Services
