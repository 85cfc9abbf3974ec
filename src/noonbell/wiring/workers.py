"""The workers of a process, from the settings: one for HTTP targets, one for jobs.

They are two because their settings are: `executor.worker_pool_size` calls and `jobs.worker_concurrency` handlers go on
side by side, and a backlog of one kind does not stand in the way of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from noonbell import sealing
from noonbell.app import App
from noonbell.engine.know import Tasks
from noonbell.engine.pulse import Pulse
from noonbell.engine.stray import Strays
from noonbell.engine.work import Worker
from noonbell.model.task import HTTP_QUEUE, ExecType
from noonbell.model.worker import SERVE
from noonbell.ports import Store, Wakeup
from noonbell.settings import Settings
from noonbell.sinks.metrics import Metrics
from noonbell.sinks.run_log import RunLog
from noonbell.sinks.traces import traced
from noonbell.sinks.watch import WatchedTarget
from noonbell.targets.guard import Guard
from noonbell.targets.http import HttpTarget
from noonbell.targets.jobs import builtin
from noonbell.targets.jobs.handler import Handlers
from noonbell.targets.jobs.target import JobTarget

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True)
class Ground:
    """What all workers of a process stand on."""

    settings: Settings
    store: Store
    wakeup: Wakeup
    tasks: Tasks
    open_parts: AsyncExitStack
    pulse: Pulse | None = None
    """The thread that renews their leases; None where the store cannot be opened twice."""


@dataclass(frozen=True, slots=True)
class Badge:
    """Who a worker says that it is, where somebody has said so."""

    worker_id: str | None = None
    version: int = 0
    queues: Sequence[str] = ()
    """None named: those of its handlers."""
    part_of: str | None = None
    """The command that it cannot be stopped without."""


async def http_worker(ground: Ground, metrics: Metrics | None, port: int | None) -> Worker:
    executor = ground.settings.executor
    http = HttpTarget(
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        global_headers=executor.global_headers,
        guard=Guard(executor.allow_networks, executor.deny_networks),
        sealer=sealing.from_file(ground.settings.secrets.key_file),
        own_ports=() if port is None else (port,),
    )
    await open_part(http, ground.open_parts)
    run_log = RunLog()
    target = run_log.watch(traced(http if metrics is None else WatchedTarget(http, metrics)))
    base = ground.settings.callback_url(port)
    return Worker(
        ground.store,
        ground.wakeup,
        {ExecType.SYNC: target, ExecType.ASYNC: target},
        queues=(HTTP_QUEUE,),
        concurrency=executor.worker_pool_size,
        poll=ground.settings.scheduler.poll_interval,
        callback_url=lambda token: f"{base}/{token}",
        observe=run_log.settled,
        tasks=ground.tasks,
        pulse=ground.pulse,
        part_of=SERVE,
    )


async def built_in_job_worker(ground: Ground, app: App | None) -> Worker | None:
    """For the job types that are built in, and those of an App. None where `jobs.worker_concurrency` is 0."""
    if ground.settings.jobs.worker_concurrency == 0:
        return None
    handlers = Handlers(builtin.handlers(ground.store, ground.settings))
    for handler in app.handlers if app is not None else ():
        handlers.add(handler)
    return await job_worker(ground, handlers, Badge(queues=sorted({DEFAULT_QUEUE, *handlers.queues()}), part_of=SERVE))


_BATCH = 500
"""Jobs that one trip to the store carries, at most: more would keep the others waiting, fewer cost more trips."""


async def job_worker(ground: Ground, handlers: Handlers, badge: Badge) -> Worker:
    """It claims the job types that it has handlers for, and no other, so that queues can be shared."""
    jobs, strays, run_log = ground.settings.jobs, Strays(), RunLog()
    target = JobTarget(handlers, ground.store, strays=strays)
    await open_part(target, ground.open_parts)
    return Worker(
        ground.store,
        ground.wakeup,
        {ExecType.JOB: run_log.watch(traced(target))},
        worker_id=badge.worker_id,
        version=badge.version,
        queues=tuple(badge.queues) or handlers.queues(),
        job_types=handlers.names(),
        concurrency=jobs.worker_concurrency,
        batch=_BATCH,
        ahead=2 * _BATCH,
        poll=jobs.poll_interval,
        observe=run_log.settled,
        tasks=ground.tasks,
        strays=strays,
        pulse=ground.pulse,
        part_of=badge.part_of,
    )


class _Opened(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def open_part(part: _Opened, open_parts: AsyncExitStack) -> None:
    open_parts.push_async_callback(part.close)
    await part.open()
