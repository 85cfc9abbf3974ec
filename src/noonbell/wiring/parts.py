"""The parts of a node, put together from the settings."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from noonbell.app import App
from noonbell.clock import SystemClock
from noonbell.engine import callback
from noonbell.engine.door import Door
from noonbell.engine.know import Tasks
from noonbell.engine.listen import Hub
from noonbell.engine.node import Node, node_name
from noonbell.engine.plan import Planner
from noonbell.engine.protocol import Protocol as WorkerDesk
from noonbell.engine.pulse import Pulse
from noonbell.engine.sweep import Sweeper
from noonbell.engine.watchman import Watchman
from noonbell.engine.work import Worker
from noonbell.errors import SettingsError
from noonbell.model.request import CallbackIn
from noonbell.ports import Store, Wakeup
from noonbell.service import Rules, Services, build
from noonbell.service.access import Access
from noonbell.service.alerts import Alerts
from noonbell.service.callbacks import Receive, Received, Said
from noonbell.settings import Settings
from noonbell.sinks.metrics import Metrics, Readings
from noonbell.sinks.watch import watch_beside, watch_store
from noonbell.stores import store_of
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.wakeups import wakeup_of
from noonbell.targets import template
from noonbell.wiring.judging import Judge
from noonbell.wiring.watching import hear_events, watch
from noonbell.wiring.workers import Ground, built_in_job_worker, http_worker, open_part

_DRIVERS = {"asyncpg": "postgres", "asyncmy": "mysql", "redis": "redis"}


@dataclass(frozen=True, slots=True)
class Parts:
    node: Node
    services: Services
    readings: Readings | None
    """What `/metrics` shows; None where it is switched off."""
    stalled: Callable[[float], None] | None
    """Counts a stall of the event loop, in seconds; None where metrics are switched off."""
    hub: Hub
    alerts: Alerts
    access: Access
    door: Door
    """Where workers that come by the API wait; closed before the node stops, so that none is in the way."""


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings,
    port: int | None = None,
    *,
    scheduler: bool = True,
    worker: bool = True,
    app: App | None = None,
    new: bool = False,
) -> AsyncIterator[Parts]:
    """All parts, opened, the node not started; closed again in the opposite order. `app`: whose jobs it executes too.

    `new`: the store may be made beside another of the same database.
    """
    async with contextlib.AsyncExitStack() as open_parts:
        metrics = _metrics(settings) if settings.metrics.enabled else None
        unwatched = make_store(settings, new=new)
        await open_part(unwatched, open_parts)
        counted: Store = unwatched if metrics is None else watch_store(unwatched, metrics)
        wakeup = wakeup_of(settings)
        await open_part(wakeup, open_parts)
        store, hub = hear_events(counted, wakeup, metrics, open_parts)
        watchman, alerts = await watch(settings, store, metrics, open_parts, port)
        tasks = Tasks(store)
        door = Door(store, wakeup)
        open_parts.push_async_callback(door.close)
        pulse = await open_pulse(settings, open_parts, counted) if worker else None
        ground = Ground(settings, store, wakeup, tasks, open_parts, pulse)
        workers = await _workers(ground, app, metrics, port) if worker else []
        node = _node(settings, store, wakeup, tasks, workers, watchman, scheduler=scheduler)
        yield Parts(
            node=node,
            services=build(
                store,
                wakeup,
                Rules.of(settings, template.check),
                _receive(store, wakeup, tasks, settings),
                WorkerDesk(store, wakeup, tasks, door),
            ),
            readings=None if metrics is None else Readings(metrics, unwatched, stalled=node.watch.stalled_kinds),
            stalled=None if metrics is None else metrics.loop_stalls.observe,
            hub=hub,
            alerts=alerts,
            access=Access(unwatched),
            door=door,
        )


async def _workers(ground: Ground, app: App | None, metrics: Metrics | None, port: int | None) -> list[Worker]:
    jobs = await built_in_job_worker(ground, app)
    return [await http_worker(ground, metrics, port), *([] if jobs is None else [jobs])]


async def open_pulse(
    settings: Settings, open_parts: contextlib.AsyncExitStack, counted: Store | None = None
) -> Pulse | None:
    """The thread that renews leases, opened, with a connection of its own to the store; `counted`: counts with that one.

    None for the store in memory, which has one connection and no other process that could take a run away.
    """
    if settings.store.url.startswith("memory:"):
        return None
    own: Store = make_store(settings, connections=1)
    pulse = Pulse(own if counted is None else watch_beside(counted, own))
    await open_part(pulse, open_parts)
    return pulse


def make_store(settings: Settings, *, new: bool = False, connections: int | None = None) -> SqlStore:
    """The store of the settings, not opened yet. A missing driver is named, with what brings it.

    `new`: it may be made beside another Noonbell store of the same database. `connections`: instead of `store.pool_size`.
    """
    try:
        return store_of(settings, new=new, connections=connections)
    except ModuleNotFoundError as missing:
        extra = _DRIVERS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise SettingsError.field(
            "store.url", f"needs the driver {missing.name}, which is not installed: pip install 'noonbell[{extra}]'"
        ) from None


def _metrics(settings: Settings) -> Metrics:
    pooled = not settings.store.url.startswith(("sqlite:", "memory:"))
    return Metrics(
        task_id_label=settings.metrics.task_id_label,
        task_id_limit=settings.metrics.task_id_limit,
        pool_size=settings.store.pool_size if pooled else 0,
    )


def _receive(store: Store, wakeup: Wakeup, tasks: Tasks, settings: Settings) -> Receive:
    """What the service reads, as the engine wants to hear it."""
    token_ttl, judge = settings.callback.token_ttl, Judge.of(settings)

    async def receive(given: CallbackIn, said: Said) -> Received:
        message = callback.Message(
            status=callback.CallbackStatus(said.status),
            data=said.data,
            error_message=said.error_message,
            progress=said.progress,
        )
        doubt = partial(judge.objection, said.proof)
        return await callback.receive(store, wakeup, tasks, given, message, token_ttl=token_ttl, objection=doubt)

    return receive


def _node(
    settings: Settings,
    store: Store,
    wakeup: Wakeup,
    tasks: Tasks,
    workers: Sequence[Worker],
    watchman: Watchman,
    *,
    scheduler: bool,
) -> Node:
    planner = None
    if scheduler and settings.scheduler.enabled:
        planner = Planner(
            store,
            wakeup,
            batch=settings.scheduler.batch_limit,
            cap=settings.scheduler.max_catchup,
            poll=settings.scheduler.poll_interval,
        )
    return Node(
        planner=planner,
        sweeper=Sweeper(store, wakeup, tasks=tasks),
        workers=workers,
        others={"watchman": watchman},
        clock=SystemClock(),
        note_outage=lambda seconds, reason: store.note_outage(seconds, node_name(), reason),
        waits_for=store.waits_for,
    )
