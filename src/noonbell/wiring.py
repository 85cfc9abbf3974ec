"""The composition root: Settings → store, wake-up, targets, node, API. Only this module knows everyone.

A process stops in this order, each step after the one before it:

    stop claiming and planning; let running work end, up to `server.graceful_timeout`; hand the rest back
    stop listening; end requests and event streams
    close targets, wake-up and store

While work drains, the API still answers: callbacks and cancels come through. A second signal ends the process at once,
which is as safe as kill -9: leases run out by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import uvicorn

from noonbell.clock import SystemClock
from noonbell.engine import callback
from noonbell.engine.know import Tasks
from noonbell.engine.node import Node
from noonbell.engine.plan import Planner
from noonbell.engine.sweep import Sweeper
from noonbell.engine.work import Worker
from noonbell.errors import AlreadyExists, InvalidArgument, NotFound, SettingsError
from noonbell.model.request import CallbackIn
from noonbell.model.task import HTTP_QUEUE, ExecType
from noonbell.ports import Store, Wakeup
from noonbell.service import Rules, Services, build
from noonbell.service.callbacks import Receive, Received, Said
from noonbell.settings import Server, Settings, plain
from noonbell.settings.masking import mask_addresses
from noonbell.sinks import logs
from noonbell.sinks.metrics import Metrics, Readings
from noonbell.sinks.run_log import RunLog
from noonbell.sinks.watch import WatchedTarget, watch_store
from noonbell.stores import open_store
from noonbell.stores.sql.store import SqlStore
from noonbell.stores.wakeups import make_wakeup
from noonbell.targets import template
from noonbell.targets.guard import Guard
from noonbell.targets.http import HttpTarget
from noonbell.version import __version__

log = logging.getLogger("noonbell")

EXIT_AT_ONCE = 130
STREAMS_END_IN = 2
"""Seconds that requests and event streams get to end when the process stops."""
BACKLOG = 2048

NOT_YET = (
    *("callback.token_ttl", "jobs.enabled", "jobs.worker_concurrency"),
    *("jobs.poll_interval", "jobs.retry_delay", "jobs.history_retention_days", "jobs.jobs", "plans.exec_timeout"),
    "alerts",
)
"""Settings that are read and checked, but that no part obeys so far. Whoever sets one is told."""

_DRIVERS = {"asyncpg": "postgres", "asyncmy": "mysql", "redis": "redis"}


# Starting and stopping


def run(settings: Settings, *, scheduler: bool = True, worker: bool = True, api: bool = True) -> int:
    """`serve` in an event loop of its own; the exit code. Startup errors are raised as NoonbellError."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, scheduler=scheduler, worker=worker, api=api))
    return 0


async def serve(settings: Settings, *, scheduler: bool = True, worker: bool = True, api: bool = True) -> None:
    """One node, until SIGTERM or SIGINT. What is left out, other nodes on the same store must do."""
    stop = Stop()
    listener = listen(settings) if api else None
    _warn(settings)
    with contextlib.closing(listener) if listener is not None else contextlib.nullcontext():
        port = None if listener is None else listener.getsockname()[1]
        async with assembled(settings, port, scheduler=scheduler, worker=worker) as parts:
            with stop.on_signals():
                await reconcile(parts.services, settings)
                if scheduler and settings.scheduler.misfire_on_start == "skip":
                    await _forget_downtime(parts.services.store, settings.scheduler.batch_limit)
                await _until_stopped(settings, parts, listener, stop)


async def _forget_downtime(store: Store, batch: int) -> None:
    """`scheduler.misfire_on_start: skip`: what fell due while nobody planned is dropped, and recorded as a misfire."""
    dropped = 0
    while (planned := await store.plan(batch, skip=True)).tasks:
        dropped += planned.dropped
    if dropped:
        log.info("dropped %d slots from before the start (scheduler.misfire_on_start is skip)", dropped)


async def _until_stopped(settings: Settings, parts: Parts, listener: socket.socket | None, stop: Stop) -> None:
    """The API listens while the node works, and a little longer: until the work in hand is settled."""
    async with contextlib.AsyncExitStack() as going:
        if listener is not None:
            server = Listening(_app(parts, settings))
            await going.enter_async_context(server.listening(listener, stop))
        await parts.node.start(settings.server.graceful_timeout)
        going.push_async_callback(parts.node.stop, settings.server.graceful_timeout)
        log.info("noonbell %s is ready%s", __version__, _where(settings, listener))
        await stop.wanted.wait()
        log.info("stopping: running work may take %g s", settings.server.graceful_timeout)
    log.info("stopped")


def _app(parts: Parts, settings: Settings) -> Any:
    from noonbell.api.app import create_app

    page = None if parts.readings is None else parts.readings.page
    return create_app(parts.services, settings, health=parts.node.health, metrics_render=page)


def _warn(settings: Settings) -> None:
    """Of what is allowed, but probably not what was meant."""
    values, defaults = plain(settings), plain(Settings())
    idle = [path for path in NOT_YET if values[path] != defaults[path]]
    if idle:
        log.warning("set, but without effect in this version: %s", ", ".join(idle))
    if settings.callback.base_url is None and not is_loopback(settings.server.host):
        log.warning("callback.base_url is not set: targets on other machines cannot call back")


def _where(settings: Settings, listener: socket.socket | None) -> str:
    store = mask_addresses(settings.store.url)
    if listener is None:
        return f", on {store}"
    host, port = listener.getsockname()[:2]
    return f": http://{f'[{host}]' if ':' in host else host}:{port} on {store}"


class Stop:
    """The wish to end, from outside: the first signal asks, the second does not."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self.wanted.is_set():
            log.warning(
                "%s again: stopping at once; what was under way is taken up when its lease runs out", number.name
            )
            logging.shutdown()
            os._exit(EXIT_AT_ONCE)
        log.info("%s", number.name)
        self.wanted.set()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


# Listening


def listen(settings: Settings) -> socket.socket:
    """A socket that listens, so that a taken port is known before anything else has begun."""
    server = settings.server
    check_exposure(settings)
    try:
        addresses = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        family, *_, address = addresses[0]
        both = server.host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)
        # Accepted sockets inherit it. Without it an answer waits for the caller's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except socket.gaierror:
        raise SettingsError.field("server.host", f"is {server.host!r}, which names no address here") from None
    except OSError as error:
        raise _cannot_listen(server, error) from None
    return listener


def _cannot_listen(server: Server, error: OSError) -> Exception:
    place = f"{server.host}:{server.port}"
    if error.errno == errno.EADDRINUSE:
        return AlreadyExists(
            f"cannot listen on {place}: the port is taken; choose another with --port, or stop what listens there"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return SettingsError.field(
            "server.port", f"is {server.port}, which this user may not listen on; take 1024 or more"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError.field("server.host", f"is {server.host!r}, which is no address of this machine")
    return SettingsError.field("server", f"cannot listen on {place}: {error.strerror}")


def check_exposure(settings: Settings) -> None:
    """Whoever lets others in says so: any address but loopback needs auth, or a written `auth.enabled: false`."""
    if settings.auth.enabled:
        raise SettingsError.field(
            "auth.enabled", "is true, but this version has no tokens yet; write false, and listen on loopback"
        )
    if settings.auth.enabled is None and not is_loopback(settings.server.host):
        raise SettingsError.field(
            "server.host",
            f"is {settings.server.host!r}, where others can reach it, and nobody would be asked for a token;"
            " listen on 127.0.0.1, or write auth.enabled: false (NOONBELL_AUTH__ENABLED=false) if that is meant",
        )


def is_loopback(host: str) -> bool:
    """Whether all that the name stands for is this machine alone."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


class Listening(uvicorn.Server):
    """uvicorn inside our event loop: it leaves the signals to us, and tells when it is ready."""

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=STREAMS_END_IN,
        )
        super().__init__(config)
        self._ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    @contextlib.asynccontextmanager
    async def listening(self, listener: socket.socket, stop: Stop) -> AsyncIterator[None]:
        """Answers from entering to leaving. Should the server end by itself, that is a wish to stop."""
        task = asyncio.create_task(self.serve(sockets=[listener]), name="noonbell API")
        task.add_done_callback(lambda _: stop.wanted.set())
        task.add_done_callback(lambda _: self._ready.set())
        await self._ready.wait()
        try:
            yield
        finally:
            self.should_exit = True
            await task


# Putting the parts together


@dataclass(frozen=True, slots=True)
class Parts:
    node: Node
    services: Services
    readings: Readings | None
    """What `/metrics` shows; None where it is switched off."""


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings, port: int | None = None, *, scheduler: bool = True, worker: bool = True
) -> AsyncIterator[Parts]:
    """All parts, opened, the node not started; closed again in the opposite order."""
    async with contextlib.AsyncExitStack() as open_parts:
        metrics = _metrics(settings) if settings.metrics.enabled else None
        unwatched = make_store(settings)
        await _open(unwatched, open_parts)
        store: Store = unwatched if metrics is None else watch_store(unwatched, metrics)
        wakeup = make_wakeup(settings.store.url)
        await _open(wakeup, open_parts)
        tasks = Tasks(store)
        workers = [await _http_worker(settings, store, wakeup, tasks, metrics, port, open_parts)] if worker else []
        yield Parts(
            node=_node(settings, store, wakeup, tasks, workers, scheduler=scheduler),
            services=build(store, wakeup, Rules.of(settings, template.check), _receive(store, wakeup, tasks)),
            readings=None if metrics is None else Readings(metrics, unwatched),
        )


def make_store(settings: Settings) -> SqlStore:
    """The store of the settings, not opened yet. A missing driver is named, with what brings it."""
    try:
        return open_store(settings.store.url, connections=settings.store.pool_size)
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


def _receive(store: Store, wakeup: Wakeup, tasks: Tasks) -> Receive:
    """What the service reads, as the engine wants to hear it."""

    async def receive(given: CallbackIn, said: Said) -> Received:
        message = callback.Message(
            status=callback.CallbackStatus(said.status),
            data=said.data,
            error_message=said.error_message,
            progress=said.progress,
        )
        return await callback.receive(store, wakeup, tasks, given, message)

    return receive


def _node(
    settings: Settings, store: Store, wakeup: Wakeup, tasks: Tasks, workers: Sequence[Worker], *, scheduler: bool
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
    return Node(planner=planner, sweeper=Sweeper(store, wakeup, tasks=tasks), workers=workers, clock=SystemClock())


async def _http_worker(
    settings: Settings,
    store: Store,
    wakeup: Wakeup,
    tasks: Tasks,
    metrics: Metrics | None,
    port: int | None,
    open_parts: contextlib.AsyncExitStack,
) -> Worker:
    executor = settings.executor
    http = HttpTarget(
        connect_timeout=executor.connect_timeout,
        max_body_bytes=executor.max_body_bytes,
        global_headers=executor.global_headers,
        guard=Guard(executor.allow_networks, executor.deny_networks),
    )
    await _open(http, open_parts)
    run_log = RunLog()
    target = run_log.watch(http if metrics is None else WatchedTarget(http, metrics))
    base = settings.callback_url(port)
    return Worker(
        store,
        wakeup,
        {ExecType.SYNC: target, ExecType.ASYNC: target},
        queues=(HTTP_QUEUE,),
        concurrency=executor.worker_pool_size,
        poll=settings.scheduler.poll_interval,
        callback_url=lambda token: f"{base}/{token}",
        observe=run_log.settled,
        tasks=tasks,
    )


class _Opened(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def _open(part: _Opened, open_parts: contextlib.AsyncExitStack) -> None:
    open_parts.push_async_callback(part.close)
    await part.open()


async def reconcile(services: Services, settings: Settings) -> None:
    """Make the tasks that the settings files declare, or bring them to what the files say now."""
    problems: dict[str, str] = {}
    for declared in settings.tasks:
        name = str(declared.fields["name"])
        manager = f"file:{declared.file}"
        fields = {**declared.fields, "managed_by": manager}
        try:
            try:
                await services.tasks.change(name, fields, partial=False, by=manager)
            except NotFound:
                await services.tasks.create(fields, by=manager)
        except InvalidArgument as error:
            problems.update({f"tasks[{name}].{field}": problem for field, problem in error.details.items()})
    if problems:
        raise SettingsError.fields(problems)
