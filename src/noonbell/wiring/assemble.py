"""The parts of a node, made from the settings: store, wake-up, services, workers, loops, event hub, alerts, callback
signatures.

A process has two workers, one for the targets that only the server calls (HTTP) and one for jobs, because their
settings are two: a backlog of one kind does not stand in the way of the other (`executor.worker_pool_size` calls,
`jobs.worker_concurrency` handlers).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from noonbell import sealing
from noonbell.alerts.alerting import AlertLoop
from noonbell.alerts.channels import open_senders
from noonbell.alerts.service import Alerts
from noonbell.app import App
from noonbell.app.embedded import (
    DEFAULT_QUEUE,
    WorkerOptions,
    WorkerParts,
    job_worker,
    open_heartbeat_thread,
    open_part,
    planning_node,
)
from noonbell.clock import SECOND, Instant
from noonbell.dialects.plans import forget_finished
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.event_hub import Hub, signal_events
from noonbell.engine.loop_runner import Loop
from noonbell.engine.node import AuditWatch, Node
from noonbell.engine.sweeper import HistoryLoop
from noonbell.engine.worker import CallQueues, Worker
from noonbell.engine.worker_protocol import LongPoll
from noonbell.errors import NoonbellError, SettingsError
from noonbell.model.call import CALL_TYPE
from noonbell.model.callback_refusal import refused
from noonbell.model.subscription import RetryRules
from noonbell.model.target_kind import OWN_QUEUES, ExecType
from noonbell.model.task import TaskSpec
from noonbell.model.worker import SERVE
from noonbell.ports import Store, Target, Wakeup
from noonbell.sealing import Sealer
from noonbell.service import Rules, Services
from noonbell.service.access import Access
from noonbell.service.audit_log import in_words
from noonbell.service.calendars import CalendarRefresh
from noonbell.service.secrets import opened
from noonbell.service.service_levels import read_defaults
from noonbell.service.task_fields import Proof
from noonbell.settings import Settings
from noonbell.settings.kinds import shown_store_address, sqlite_file
from noonbell.stores import store_of, wakeup_of
from noonbell.stores.sql.store import SqlStore
from noonbell.subscriptions.delivery import SubscriptionLoop
from noonbell.subscriptions.sender import WebhookPoster
from noonbell.subscriptions.service import Subscriptions
from noonbell.targets import TargetParts, guard_of, make_target
from noonbell.targets.http import signing, template
from noonbell.targets.http.target import Fetcher
from noonbell.targets.jobs import builtin
from noonbell.targets.jobs.handler import Handlers
from noonbell.telemetry.logs import RunLogger
from noonbell.telemetry.metrics import Metrics, Readings, StoreMetrics, WatchedTarget
from noonbell.telemetry.traces import traced

log = logging.getLogger("noonbell")


async def server_worker(parts: WorkerParts, metrics: Metrics | None, port: int | None) -> Worker:
    """For the kinds of targets that have a queue of their own: no other worker claims from these."""
    executor = parts.settings.executor
    kinds = [kind for kind in OWN_QUEUES.values() if not kind.lacks_client()]
    given = TargetParts(parts.settings, parts.store, own_ports=() if port is None else (port,))
    targets: dict[ExecType, Target] = {}
    for kind in kinds:
        target = make_target(kind, given)
        await open_part(target, parts.open_parts)
        watched = traced(target if metrics is None else WatchedTarget(target, metrics))
        targets |= dict.fromkeys(kind.exec_types, watched)
    base = parts.settings.callback_url(port)
    return Worker(
        parts.store,
        parts.wakeup,
        targets,
        queues=tuple(kind.queue for kind in kinds),
        job_types=(CALL_TYPE,),
        concurrency=executor.worker_pool_size,
        poll=parts.settings.scheduler.poll_interval,
        callback_url=lambda token: f"{base}/{token}",
        observe=RunLogger(parts.tasks.get).settled,
        tasks=parts.tasks,
        heartbeat_thread=parts.heartbeat_thread,
        part_of=SERVE,
        labels=parts.settings.jobs.worker_labels,
    )


async def built_in_job_worker(parts: WorkerParts, app: App | None) -> Worker | None:
    """For the job types that are built in, and those of an App. None where `jobs.worker_concurrency` is 0."""
    if parts.settings.jobs.worker_concurrency == 0:
        return None
    handlers = Handlers(builtin.handlers(parts.store, parts.settings, (forget_finished,)))
    for handler in app.handlers if app is not None else ():
        handlers.add(handler)
    commands = parts.settings.jobs.commands_file
    if commands is not None:
        warn_of_commands(commands)
    queues = sorted({DEFAULT_QUEUE, *handlers.queues()})
    return await job_worker(parts, handlers, WorkerOptions(queues=queues, part_of=SERVE, commands=commands))


def warn_of_commands(path: str) -> None:
    """Once, when a worker starts that runs programs."""
    who = "as root" if os.geteuid() == 0 else f"as user {os.geteuid()}"
    log.warning("this worker runs commands, those that %s allows; a task that names no user runs %s", path, who)


@dataclass(frozen=True, slots=True)
class Judge:
    sealer: Sealer
    must_be_signed: bool
    """Where the task has a secret. Else a signature may be left out, but not be wrong."""

    @classmethod
    def of(cls, settings: Settings) -> Judge:
        return cls(sealing.from_file(settings.secrets.key_file), settings.callback.require_signature)

    def objection(self, proof: Proof | None, spec: TaskSpec, now: Instant) -> str:
        """Why it is not believed; nothing where it is. Without a secret there is nothing to judge by."""
        if not spec.secret:
            return ""
        if proof is None or signing.SIGNATURE not in proof.headers:
            return refused("not_signed") if self.must_be_signed else ""
        try:
            secret = opened(spec, self.sealer).secret or ""
            return signing.objection(secret, proof.headers, proof.body, now // SECOND)
        except NoonbellError as error:
            return refused("unchecked", error=error.message)


def open_hub(store: Store, wakeup: Wakeup, metrics: Metrics | None, open_parts: contextlib.AsyncExitStack) -> Hub:
    """The hub that reads the store's events for all listeners of this process."""
    hub = Hub(store, wakeup, observe=None if metrics is None else metrics.listening)
    open_parts.push_async_callback(hub.close)
    return hub


async def deliver_webhooks(
    settings: Settings,
    store: SqlStore,
    wakeup: Wakeup,
    metrics: Metrics | None,
    open_parts: contextlib.AsyncExitStack,
) -> tuple[SubscriptionLoop, Subscriptions]:
    """The loop that delivers events to webhook subscriptions, not started; and what API and pages do with these."""
    sealer = sealing.from_file(settings.secrets.key_file)
    poster = WebhookPoster.of(settings, sealer)
    open_parts.push_async_callback(poster.close)
    await poster.open()
    given = settings.subscriptions
    loop = SubscriptionLoop(
        store,
        wakeup,
        poster,
        installation_id=store.installation_id,
        rules=RetryRules(window=given.retry_window, first_pause=given.first_pause, longest_pause=given.longest_pause),
        keep=given.keep,
        observe=None if metrics is None else metrics.webhook,
    )
    open_parts.push_async_callback(loop.close)
    return loop, Subscriptions(store, poster, sealer, url_problem=guard_of(settings).url_problem, on_change=loop.soon)


async def watch(
    settings: Settings,
    store: Store,
    metrics: Metrics | None,
    open_parts: contextlib.AsyncExitStack,
    port: int | None = None,
) -> tuple[AlertLoop, Alerts]:
    """The alert loop, not started; and what API and settings do with alerts, those of the settings done already."""
    sealer = sealing.from_file(settings.secrets.key_file)
    sender = await open_senders(settings, sealer, settings.dashboard_url(port), open_parts)
    alerts = Alerts(store, sender, sealer)
    await alerts.declare(settings.alerts)
    observe = None if metrics is None else metrics.delivered
    alert_loop = AlertLoop(store, sender, retention=settings.events.retention, observe=observe)
    open_parts.push_async_callback(alert_loop.close)
    return alert_loop, alerts


_DRIVERS = {"asyncpg": "postgres", "asyncmy": "mysql", "redis": "redis"}


@dataclass(frozen=True, slots=True)
class NodeParts:
    node: Node
    services: Services
    readings: Readings | None
    """What `/metrics` shows; None where it is switched off."""
    stalled: Callable[[float], None] | None
    """Counts a stall of the event loop, in seconds; None where metrics are switched off."""
    hub: Hub
    alerts: Alerts
    webhooks: Subscriptions
    access: Access
    audit_watch: AuditWatch
    """One of the node's loops; asked once more when the last call was answered."""
    long_poll: LongPoll
    """Where workers that come by the API wait; closed before the node stops, so that none is in the way."""
    installation_id: Callable[[], Awaitable[str | None]]


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings,
    port: int | None = None,
    *,
    scheduler: bool = True,
    worker: bool = True,
    app: App | None = None,
    new: bool = False,
) -> AsyncIterator[NodeParts]:
    """All parts, opened, the node not started; closed again in the opposite order. `app`: whose jobs it executes too.

    `new`: the store may be made beside another of the same database.
    """
    async with contextlib.AsyncExitStack() as open_parts:
        metrics = _metrics(settings) if settings.metrics.enabled else None
        is_scheduler = scheduler and settings.scheduler.enabled
        store, wakeup = await _open_store(settings, metrics, open_parts, new=new)
        levels = read_defaults(settings.sla)
        if is_scheduler:  # a worker alone may have other settings
            await store.put_sla_defaults(levels)
        hub = open_hub(store, wakeup, metrics, open_parts)
        alert_loop, alerts = await watch(settings, store, metrics, open_parts, port)
        webhook_loop, webhooks = await deliver_webhooks(settings, store, wakeup, metrics, open_parts)
        tasks = TaskCache(store)
        long_poll = LongPoll(store, wakeup)
        open_parts.push_async_callback(long_poll.close)
        thread = None
        if worker:
            thread = await open_heartbeat_thread(settings, open_parts, partial(_store_beside, settings, store))
        parts = WorkerParts(settings, store, wakeup, tasks, open_parts, thread)
        workers = await _workers(parts, app, metrics, port) if worker else []
        sealer = sealing.from_file(settings.secrets.key_file)
        access = Access(store, sealer, calls_per_minute=settings.auth.calls_per_minute)
        open_parts.push_async_callback(access.close)
        audit_watch = AuditWatch(access.audit_log, in_words)
        services = _services(settings, store, wakeup, tasks, long_poll)
        others: dict[str, Loop] = {"alerts": alert_loop, "subscriptions": webhook_loop, "audit watch": audit_watch}
        if workers:
            others["call queues"] = CallQueues(store, workers[0])
        others["bulk operations"] = services.bulk_loop
        open_parts.push_async_callback(services.bulk_loop.close)
        if is_scheduler:
            others["calendars"] = CalendarRefresh(services.calendars)
            kept = settings.jobs.history_retention_days * 86_400.0
            others["history"] = HistoryLoop(store, kept=kept, events_kept=settings.events.retention)
        node = planning_node(parts, workers, scheduler=is_scheduler, others=others)
        yield NodeParts(
            node=node,
            services=services,
            readings=None if metrics is None else Readings(metrics, store, stalled=node.loops.stalled_kinds),
            stalled=None if metrics is None else metrics.loop_stalls.observe,
            hub=hub,
            alerts=alerts,
            webhooks=webhooks,
            access=access,
            audit_watch=audit_watch,
            long_poll=long_poll,
            installation_id=store.installation_id,
        )


async def _open_store(
    settings: Settings, metrics: Metrics | None, open_parts: contextlib.AsyncExitStack, *, new: bool
) -> tuple[SqlStore, Wakeup]:
    """Open, counted by the metrics, and signalling its events by the wake-up."""
    store = make_store(settings, new=new)
    await open_part(store, open_parts)
    store.observer = None if metrics is None else StoreMetrics(metrics)
    wakeup = wakeup_of(settings)
    await open_part(wakeup, open_parts)
    open_parts.callback(signal_events(store, wakeup))
    return store, wakeup


def _services(settings: Settings, store: SqlStore, wakeup: Wakeup, tasks: TaskCache, long_poll: LongPoll) -> Services:
    guard = guard_of(settings)
    rules = Rules.of(settings, template.check, Judge.of(settings).objection, guard.url_problem)
    fetcher = Fetcher(guard, connect_timeout=settings.executor.connect_timeout)
    return Services(store, wakeup, rules, tasks, long_poll, fetcher.fetch)


async def _workers(parts: WorkerParts, app: App | None, metrics: Metrics | None, port: int | None) -> list[Worker]:
    jobs = await built_in_job_worker(parts, app)
    return [await server_worker(parts, metrics, port), *([] if jobs is None else [jobs])]


def _store_beside(settings: Settings, counted: Store) -> Store:
    """Another store of the same database with one connection; it counts together with that one."""
    store = make_store(settings, connections=1)
    store.observer = counted.observer
    return store


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


def store_in_words(url: str) -> str:
    """Where the store is, without passwords. SQLite's file with its whole path; and whether opening the store makes it.

    A relative path names another file in each folder: a worker that was started elsewhere works on an empty store.
    """
    file = sqlite_file(url)
    is_new = file is not None and not Path(file).exists()
    return shown_store_address(url) + (" (newly created; --store names another)" if is_new else "")


def _metrics(settings: Settings) -> Metrics:
    pooled = not settings.store.url.startswith(("sqlite:", "memory:"))
    return Metrics(
        task_id_label=settings.metrics.task_id_label,
        task_id_limit=settings.metrics.task_id_limit,
        pool_size=settings.store.pool_size if pooled else 0,
    )
