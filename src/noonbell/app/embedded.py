"""One composition of workers and nodes, for library mode and for the commands; and library mode itself.

An application that carries out its own jobs is a node like any other: it plans, sweeps and works on the store that it shares
with the rest. Killed, it leaves nothing behind but leases, and those run out. `noonbell serve` and `noonbell worker` make
their job workers and nodes with the same functions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from noonbell import sealing
from noonbell.clock import SystemClock
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.heartbeat import HeartbeatThread
from noonbell.engine.in_flight import AbandonedThreads
from noonbell.engine.loop_runner import Loop
from noonbell.engine.node import Node, PauseWatch, PulseLoop, SchedulerWatch, SchemaWatch, node_name
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.errors import InvalidArgument
from noonbell.model.target_kind import COMMAND_TYPE, COMMANDS, JOBS, OWN_QUEUES, ExecType
from noonbell.ports import Store, Target, Wakeup
from noonbell.service import Services
from noonbell.settings import Settings
from noonbell.stores import lanes_of, store_of
from noonbell.targets import TargetParts, allowed_commands, make_target
from noonbell.targets.jobs.handler import Handlers
from noonbell.telemetry.logs import RunLogger
from noonbell.telemetry.traces import traced

DEFAULT_QUEUE = "default"
_BATCH = 500
"""Jobs that one trip to the store carries, at most: more would keep the others waiting, fewer cost more trips."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What all workers of a process share."""

    settings: Settings
    store: Store
    wakeup: Wakeup
    tasks: TaskCache
    open_parts: contextlib.AsyncExitStack
    heartbeat_thread: HeartbeatThread | None = None
    """None where the store cannot be opened twice."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a caller may say of a job worker."""

    worker_id: str | None = None
    version: int = 0
    queues: Sequence[str] = ()
    """None named: those of its handlers."""
    concurrency: int | None = None
    """None: `jobs.worker_concurrency`."""
    poll: float | None = None
    """The longest that it waits while no wake-up comes, in seconds. None: `jobs.poll_interval`."""
    part_of: str | None = None
    """The command that it cannot be stopped without."""
    labels: Mapping[str, str] | None = None
    """What it says of itself. None: `jobs.worker_labels`."""
    commands: str | None = None
    """The file of the programs that it may run; None: it runs no command."""


async def job_worker(parts: WorkerParts, handlers: Handlers, options: WorkerOptions) -> Worker:
    """It claims the job types that it has handlers for, and no other, so that queues can be shared; commands, where a
    file allows some.
    """
    jobs, abandoned, lanes = parts.settings.jobs, AbandonedThreads(), lanes_of(parts.settings)
    commands = None if options.commands is None else allowed_commands(options.commands)
    given = TargetParts(parts.settings, parts.store, handlers=handlers, abandoned=abandoned, commands=commands)
    targets: dict[ExecType, Target] = {}
    for kind in (JOBS,) if commands is None else (JOBS, COMMANDS):
        target = make_target(kind, given)
        await open_part(target, parts.open_parts)
        targets |= dict.fromkeys(kind.exec_types, traced(target))
    return Worker(
        parts.store,
        parts.wakeup,
        targets,
        worker_id=options.worker_id,
        version=options.version,
        queues=tuple(options.queues) or handlers.queues() or (DEFAULT_QUEUE,),
        job_types=(*handlers.names(), *(() if commands is None else (COMMAND_TYPE,))),
        concurrency=jobs.worker_concurrency if options.concurrency is None else options.concurrency,
        batch=_BATCH,
        ahead=lanes * _BATCH,
        claim_loops=lanes,
        poll=jobs.poll_interval if options.poll is None else options.poll,
        observe=RunLogger(parts.tasks.get).settled,
        tasks=parts.tasks,
        abandoned=abandoned,
        heartbeat_thread=parts.heartbeat_thread,
        part_of=options.part_of,
        labels=jobs.worker_labels if options.labels is None else options.labels,
    )


def planning_node(
    parts: WorkerParts, workers: Sequence[Worker], *, scheduler: bool, others: Mapping[str, Loop] | None = None
) -> Node:
    """A node that sweeps and works; with `scheduler`, it plans too."""
    settings, store, wakeup = parts.settings.scheduler, parts.store, parts.wakeup
    planner = Planner(
        store,
        wakeup,
        batch=settings.batch_limit,
        cap=settings.max_catchup,
        poll=settings.poll_interval,
        node=node_name(),
    )
    watches: dict[str, Loop] = {} if scheduler or not workers else {"scheduler watch": SchedulerWatch(store)}
    if not parts.settings.store.url.startswith(("sqlite:", "memory:")):  # a file that was replaced is seen as such
        watches["pulse"] = PulseLoop(store, node_name(), writes=scheduler)
    # A worker alone may be without the key that the audit log is signed with.
    sign = sealing.from_file(parts.settings.secrets.key_file).sign if scheduler else None
    return Node(
        planner=planner if scheduler else None,
        sweeper=Sweeper(store, wakeup, tasks=parts.tasks, sign=sign),
        workers=workers,
        others={**(others or {}), **watches, "pause watch": PauseWatch(store, wakeup)},
        clock=SystemClock(),
        note_outage=lambda seconds, reason: store.note_outage(seconds, node_name(), reason),
        waits_for=store.waits_for,
    )


async def open_heartbeat_thread(
    settings: Settings, open_parts: contextlib.AsyncExitStack, new_store: Callable[[], Store]
) -> HeartbeatThread | None:
    """The thread that renews leases, opened, with a connection of its own to the store: `new_store` makes one, not opened.

    None for the store in memory, which has one connection and no other process that could take a run away.
    """
    if settings.store.url.startswith("memory:"):
        return None
    thread = HeartbeatThread(new_store())
    await open_part(thread, open_parts)
    return thread


class _Opened(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def open_part(part: _Opened, open_parts: contextlib.AsyncExitStack) -> None:
    open_parts.push_async_callback(part.close)
    await part.open()


@contextlib.asynccontextmanager
async def working(
    settings: Settings,
    services: Services,
    handlers: Handlers,
    options: WorkerOptions,
    *,
    scheduler: bool,
    graceful_timeout: float,
) -> AsyncIterator[None]:
    """A node in this event loop. Left, it stops gracefully: running work may take a while, the rest is handed back."""
    store = services.store
    for name in OWN_QUEUES.keys() & set(options.queues or handlers.queues()):
        kind = OWN_QUEUES[name].name
        raise InvalidArgument.field("queues", f"has {name!r}; {kind} targets are executed by `noonbell serve`")
    async with contextlib.AsyncExitStack() as open_parts:
        thread = await open_heartbeat_thread(settings, open_parts, lambda: store_of(settings, connections=1))
        parts = WorkerParts(settings, store, services.wakeup, TaskCache(store), open_parts, thread)
        node = planning_node(parts, [await job_worker(parts, handlers, options)], scheduler=scheduler)
        await node.start(graceful_timeout)
        open_parts.push_async_callback(node.stop, graceful_timeout)
        moved = asyncio.Event()
        await open_parts.enter_async_context(SchemaWatch(store, moved.set).looking())
        stopping = asyncio.create_task(_stop_after(moved, node, graceful_timeout))
        open_parts.callback(stopping.cancel)
        yield


async def _stop_after(moved: asyncio.Event, node: Node, graceful_timeout: float) -> None:
    """The application goes on; its node plans and works no more."""
    await moved.wait()
    await node.stop(graceful_timeout)
