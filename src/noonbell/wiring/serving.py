"""One process, from its start to its end: `noonbell serve`, a node; `noonbell worker`, which only executes.

A worker plans nothing and listens on no port. It ends on a signal, or when an operator stops it; killed, it leaves nothing
behind but leases. Sweeping is left to nodes that serve: without one, the runs of a dead worker would wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

from noonbell.app import App
from noonbell.app.embedded import WorkerOptions, WorkerParts, job_worker, open_heartbeat_thread, open_part
from noonbell.client.transport import DEFAULT_URL
from noonbell.clock import SystemClock
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.event_hub import signal_events
from noonbell.engine.heartbeat import loop_watched
from noonbell.engine.node import Node, SchedulerWatch, SchemaWatch
from noonbell.errors import NoonbellError, SettingsError, StoreUnavailable
from noonbell.ports import Store
from noonbell.service import Rules, Services
from noonbell.settings import Settings
from noonbell.settings.kinds import shown_store_address
from noonbell.stores import wakeup_of
from noonbell.targets.http import template
from noonbell.telemetry import logs
from noonbell.version import __version__
from noonbell.wiring import process
from noonbell.wiring.application import Listening, application, asks_for_tokens, listen, warn
from noonbell.wiring.assemble import NodeParts, assembled, make_store, store_in_words, warn_of_commands
from noonbell.wiring.declared_tasks import load_app, reconcile
from noonbell.wiring.process import Stop, end_process_if, loop_factory

log = logging.getLogger("noonbell")

_LAST_HEAD = 3.0
"""Seconds that the store may take to tell the audit log's head when the node stops."""

Beside = Callable[[NodeParts, str], AbstractAsyncContextManager[None]]
"""What goes on beside a node, from its parts and the address that it listens on."""


def run(
    settings: Settings,
    *,
    scheduler: bool = True,
    worker: bool = True,
    api: bool = True,
    location: str | None = None,
    new: bool = False,
) -> int:
    """`serve` in an event loop of its own; the exit code. Startup errors are raised as NoonbellError."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    app = None if location is None else load_app(location)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        end_process_if(runner.run(serve(settings, scheduler=scheduler, worker=worker, api=api, app=app, new=new)))
    return 0


async def serve(
    settings: Settings,
    *,
    scheduler: bool = True,
    worker: bool = True,
    api: bool = True,
    app: App | None = None,
    beside: Beside | None = None,
    listener: socket.socket | None = None,
    new: bool = False,
) -> int:
    """One node, until SIGTERM or SIGINT. What is left out, other nodes on the same store must do.

    The jobs of `app` are made tasks, and executed here if anything is. `beside` is entered before the node works, and
    left when its work is done. `listener` is one that listens already, and is closed here. `new`: the store may be made
    beside another of the same database. Returns how many runs did not stop.
    """
    stop = Stop()
    store = store_in_words(settings.store.url)
    if api and listener is None:
        listener = listen(settings)
    warn(settings)
    closing = contextlib.closing(listener) if listener is not None else contextlib.nullcontext()
    with _names_mismatch() as watches, closing:
        port = None if listener is None else listener.getsockname()[1]
        async with assembled(settings, port, scheduler=scheduler, worker=worker, app=app, new=new) as parts:
            schema = SchemaWatch(parts.services.store, stop.wanted.set)
            watches.append(schema)
            with stop.on_signals():
                await reconcile(parts.services, settings)
                await _begin_signing(parts)
                if api and asks_for_tokens(settings) and not await parts.access.tokens():
                    at = shlex.quote(shown_store_address(settings.store.url))
                    log.warning(
                        "there is no token yet; create one: noonbell token create --role admin --name NAME --store %s",
                        at,
                    )
                if scheduler and settings.scheduler.misfire_on_start == "skip":
                    await _forget_downtime(parts.services.store, settings.scheduler.batch_limit)
                async with contextlib.AsyncExitStack() as attached:
                    await attached.enter_async_context(schema.looking())
                    if app is not None:
                        await attached.enter_async_context(app.attached(parts.services, works=worker))
                    await _until_stopped(settings, parts, listener, stop, beside, store)
    return _running(parts.node)


def _running(node: Node) -> int:
    return sum(one.in_flight.running for one in node.workers)


def _say_stopping(node: Node, graceful_timeout: float) -> None:
    count = _running(node)
    if not count:
        log.info("stopping: no runs are running")
        return
    runs = "1 run that is" if count == 1 else f"{count} runs that are"
    log.info(
        "stopping: %s still running may take %g s; a second Ctrl-C or signal stops at once", runs, graceful_timeout
    )


async def _begin_signing(parts: NodeParts) -> None:
    """From its first start with a key on, the audit log's newest entry is signed; that covers those from before."""
    first = await parts.access.audit_log.begin_signing()
    if first is not None:
        log.warning("the audit log is signed from entry %d on; earlier ones may have been changed before", first.id)


async def _forget_downtime(store: Store, batch: int) -> None:
    """`scheduler.misfire_on_start: skip`: what fell due while no node planned is dropped, and recorded as a misfire."""
    dropped = 0
    while (planned := await store.plan(batch, skip=True)).tasks:
        dropped += planned.dropped
    if dropped:
        log.info("dropped %d slots from before the start (scheduler.misfire_on_start is skip)", dropped)


async def _until_stopped(
    settings: Settings, parts: NodeParts, listener: socket.socket | None, stop: Stop, beside: Beside | None, store: str
) -> None:
    """The API listens while the node works, and a little longer: until the work in hand is settled."""
    async with contextlib.AsyncExitStack() as going:
        if listener is not None:
            app = await going.enter_async_context(application(parts, settings, parts.node.health))
            server = Listening(app, settings.server)
            await going.enter_async_context(server.listening(listener, stop))
            going.push_async_callback(parts.hub.close)  # after the last events of the work in hand
        if beside is not None and listener is not None:
            await going.enter_async_context(beside(parts, _address(listener)))
        process.settle_down()
        await parts.node.start(settings.server.graceful_timeout)
        going.push_async_callback(parts.node.stop, settings.server.graceful_timeout)
        going.push_async_callback(parts.long_poll.close)
        log.info("noonbell %s is ready%s", __version__, _where(store, listener, settings))
        with loop_watched(parts.stalled):
            await stop.wanted.wait()
        _say_stopping(parts.node, settings.server.graceful_timeout)
    await _write_last_head(parts)
    log.info("stopped")


async def _write_last_head(parts: NodeParts) -> None:
    """When no call can change anything any more."""
    try:
        async with asyncio.timeout(_LAST_HEAD):
            await parts.audit_watch.tick()
    except (NoonbellError, TimeoutError) as error:
        log.warning("the head of the audit log is unknown: %s", str(error) or "the store did not answer")


def _where(store: str, listener: socket.socket | None, settings: Settings) -> str:
    if listener is None:
        return f", on {store}"
    address = _address(listener)
    url = url_for_commands(address)
    hint = f"; commands find it with NOONBELL_URL={url}" if url else ""
    return f": {address} (dashboard; API at /api/v1) on {store}{hint}; tokens: {_tokens(settings)}"


def _tokens(settings: Settings) -> str:
    if asks_for_tokens(settings):
        return "asked for"
    return "not asked for on this machine" if settings.auth.enabled is None else "not asked for (auth.enabled: false)"


def url_for_commands(address: str) -> str | None:
    """What NOONBELL_URL must be, on this machine, for commands to find a server there; None: they find it by themselves."""
    url = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//127.0.0.1:")
    return None if url == DEFAULT_URL else url


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run_worker(settings: Settings, location: str | None, options: WorkerOptions) -> int:
    """`work` in an event loop of its own; the exit code. Startup errors are raised as NoonbellError.

    Without a `location` it carries out commands alone.
    """
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    app = App("commands") if location is None else load_app(location)
    if not len(app.handlers) and options.commands is None:
        raise SettingsError.field("--app", f"is {location!r}, whose App has no jobs: there would be nothing to do")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        end_process_if(runner.run(work(settings, app, options)))
    return 0


async def work(settings: Settings, app: App, options: WorkerOptions) -> int:
    """One worker for the App's jobs, until a signal or an operator stops it. Returns how many runs did not stop."""
    stop = Stop()
    store = store_in_words(settings.store.url)
    with _names_mismatch() as watches:
        async with contextlib.AsyncExitStack() as open_parts:
            parts, services = await _parts(settings, open_parts)
            schema = SchemaWatch(services.store, stop.wanted.set)
            watches.append(schema)
            worker = await job_worker(parts, app.handlers, options)
            node = Node(
                workers=[worker],
                others={"scheduler watch": SchedulerWatch(parts.store)},
                clock=SystemClock(),
                waits_for=parts.store.waits_for,
            )
            with stop.on_signals():
                await open_parts.enter_async_context(app.attached(services))
                process.settle_down()
                async with schema.looking(), _started(node, settings.server.graceful_timeout):
                    if options.commands is not None:
                        warn_of_commands(options.commands)
                    log.info(
                        "noonbell %s is ready: worker %s for %s, %d at a time, on %s",
                        *(__version__, worker.id, ", ".join(worker.queues), worker.in_flight.concurrency),
                        store,
                    )
                    await _first(stop.wanted, node.is_idle)
                    _say_stopping(node, settings.server.graceful_timeout)
        log.info("stopped")
    return worker.in_flight.running


@contextlib.contextmanager
def _names_mismatch() -> Iterator[list[SchemaWatch]]:
    """Ends with the reason for which a watch has stopped the process. A store that was moved takes no goodbye: that is not it."""
    watches: list[SchemaWatch] = []
    try:
        yield watches
    except StoreUnavailable as error:
        for watch in watches:
            if watch.mismatch is not None:
                raise watch.mismatch from error
        raise
    for watch in watches:
        if watch.mismatch is not None:
            raise watch.mismatch


async def _parts(settings: Settings, open_parts: contextlib.AsyncExitStack) -> tuple[WorkerParts, Services]:
    store = make_store(settings)
    await open_part(store, open_parts)
    wakeup = wakeup_of(settings)
    await open_part(wakeup, open_parts)
    open_parts.callback(signal_events(store, wakeup))
    services = Services(store, wakeup, Rules.of(settings, template.check))
    thread = await open_heartbeat_thread(settings, open_parts, partial(make_store, settings, connections=1))
    return WorkerParts(settings, store, wakeup, TaskCache(store), open_parts, thread), services


@contextlib.asynccontextmanager
async def _started(node: Node, graceful_timeout: float) -> AsyncIterator[None]:
    await node.start(graceful_timeout)
    try:
        yield
    finally:
        await node.stop(graceful_timeout)


async def _first(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
