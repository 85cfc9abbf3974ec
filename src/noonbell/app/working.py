"""Library mode: an application that carries out its own jobs.

It is a node like any other: it plans, sweeps and works on the store that it shares with the rest. Killed, it leaves
nothing behind but leases, and those run out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from noonbell.clock import SystemClock
from noonbell.engine.know import Tasks
from noonbell.engine.node import Node, node_name
from noonbell.engine.plan import Planner
from noonbell.engine.pulse import Pulse
from noonbell.engine.schema_watch import SchemaWatch
from noonbell.engine.stray import Strays
from noonbell.engine.sweep import Sweeper
from noonbell.engine.work import Worker
from noonbell.errors import InvalidArgument
from noonbell.model.task import HTTP_QUEUE, ExecType
from noonbell.service import Services
from noonbell.settings import Settings
from noonbell.sinks.run_log import RunLog
from noonbell.sinks.traces import traced
from noonbell.stores import store_of
from noonbell.targets.jobs.handler import Handlers
from noonbell.targets.jobs.target import JobTarget


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker of an application does."""

    handlers: Handlers
    queues: Sequence[str] | None
    """None: those of the handlers."""
    concurrency: int
    worker_id: str | None
    version: int
    graceful_timeout: float


@contextlib.asynccontextmanager
async def working(settings: Settings, services: Services, work: Work, *, scheduler: bool) -> AsyncIterator[None]:
    """A node in this event loop. Left, it stops gracefully: running work may take a while, the rest is handed back."""
    store, wakeup = services.store, services.wakeup
    tasks, strays = Tasks(store), Strays()
    target = JobTarget(work.handlers, store, strays=strays)
    run_log = RunLog()
    queues = work.handlers.queues() if work.queues is None else work.queues
    if HTTP_QUEUE in queues:
        raise InvalidArgument.field("queues", "has 'http'; HTTP targets are carried out by `noonbell serve`")
    # The store in memory has one connection, and no other process that could take a run away.
    is_shared = not settings.store.url.startswith("memory:")
    pulse = Pulse(store_of(settings, connections=1)) if is_shared else None
    worker = Worker(
        store,
        wakeup,
        {ExecType.JOB: run_log.watch(traced(target))},
        worker_id=work.worker_id,
        queues=queues or ("default",),
        concurrency=work.concurrency,
        job_types=work.handlers.names(),
        version=work.version,
        poll=settings.scheduler.poll_interval,
        observe=run_log.settled,
        tasks=tasks,
        strays=strays,
        pulse=pulse,
    )
    planner = Planner(
        store,
        wakeup,
        batch=settings.scheduler.batch_limit,
        cap=settings.scheduler.max_catchup,
        poll=settings.scheduler.poll_interval,
    )
    sweeper = Sweeper(store, wakeup, tasks=tasks)
    node = Node(
        planner=planner if scheduler else None,
        sweeper=sweeper,
        workers=[worker],
        clock=SystemClock(),
        note_outage=lambda seconds, reason: store.note_outage(seconds, node_name(), reason),
        waits_for=store.waits_for,
    )
    async with contextlib.AsyncExitStack() as going:
        if pulse is not None:
            going.push_async_callback(pulse.close)
            await pulse.open()
        going.push_async_callback(target.close)
        await target.open()
        await node.start(work.graceful_timeout)
        going.push_async_callback(node.stop, work.graceful_timeout)
        moved = asyncio.Event()
        await going.enter_async_context(SchemaWatch(store, moved.set).looking())
        stopping = asyncio.create_task(_stop_after(moved, node, work.graceful_timeout))
        going.callback(stopping.cancel)
        yield


async def _stop_after(moved: asyncio.Event, node: Node, graceful_timeout: float) -> None:
    """The application goes on; its node plans and works no more."""
    await moved.wait()
    await node.stop(graceful_timeout)
