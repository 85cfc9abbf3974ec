"""Serving: one node in one process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from noonbell.app import App
from noonbell.engine.loop_watch import loop_watched
from noonbell.engine.schema_watch import SchemaWatch
from noonbell.ports import Store
from noonbell.settings import Settings
from noonbell.settings.masking import mask_addresses
from noonbell.sinks import logs
from noonbell.version import __version__
from noonbell.wiring import memory
from noonbell.wiring.application import application
from noonbell.wiring.applying import load_app
from noonbell.wiring.listening import Listening, asks_for_tokens, listen
from noonbell.wiring.loops import loop_factory
from noonbell.wiring.parts import Parts, assembled
from noonbell.wiring.reconciling import reconcile
from noonbell.wiring.stopping import Stop, end_process_if
from noonbell.wiring.warnings import warn

log = logging.getLogger("noonbell")

Beside = Callable[[Parts, str], AbstractAsyncContextManager[None]]
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
    new: bool = False,
) -> int:
    """One node, until SIGTERM or SIGINT. What is left out, other nodes on the same store must do.

    The jobs of `app` are made tasks, and executed here if anything is. `beside` is entered before the node works, and
    left when its work is done. `new`: the store may be made beside another of the same database.
    Returns how many runs did not stop.
    """
    stop = Stop()
    listener = listen(settings) if api else None
    warn(settings)
    with contextlib.closing(listener) if listener is not None else contextlib.nullcontext():
        port = None if listener is None else listener.getsockname()[1]
        async with assembled(settings, port, scheduler=scheduler, worker=worker, app=app, new=new) as parts:
            schema = SchemaWatch(parts.services.store, stop.wanted.set)
            with stop.on_signals():
                await reconcile(parts.services, settings)
                if api and asks_for_tokens(settings) and not await parts.access.tokens():
                    log.warning("nobody has a token yet: noonbell token create --role admin --name NAME makes one")
                if scheduler and settings.scheduler.misfire_on_start == "skip":
                    await _forget_downtime(parts.services.store, settings.scheduler.batch_limit)
                async with contextlib.AsyncExitStack() as attached:
                    await attached.enter_async_context(schema.looking())
                    if app is not None:
                        await attached.enter_async_context(app.attached(parts.services, works=worker))
                    await _until_stopped(settings, parts, listener, stop, beside)
    if schema.mismatch is not None:
        raise schema.mismatch
    return sum(one.hands.running for one in parts.node.workers)


async def _forget_downtime(store: Store, batch: int) -> None:
    """`scheduler.misfire_on_start: skip`: what fell due while nobody planned is dropped, and recorded as a misfire."""
    dropped = 0
    while (planned := await store.plan(batch, skip=True)).tasks:
        dropped += planned.dropped
    if dropped:
        log.info("dropped %d slots from before the start (scheduler.misfire_on_start is skip)", dropped)


async def _until_stopped(
    settings: Settings, parts: Parts, listener: socket.socket | None, stop: Stop, beside: Beside | None
) -> None:
    """The API listens while the node works, and a little longer: until the work in hand is settled."""
    async with contextlib.AsyncExitStack() as going:
        if listener is not None:
            app = await going.enter_async_context(application(parts, settings, parts.node.health))
            server = Listening(app, settings.server)
            await going.enter_async_context(server.listening(listener, stop))
            going.push_async_callback(parts.hub.close)  # streams end when the work in hand has ended, and is told
        if beside is not None and listener is not None:
            await going.enter_async_context(beside(parts, _address(listener)))
        memory.settle_down()
        await parts.node.start(settings.server.graceful_timeout)
        going.push_async_callback(parts.node.stop, settings.server.graceful_timeout)
        going.push_async_callback(parts.door.close)
        log.info("noonbell %s is ready%s", __version__, _where(settings, listener))
        with loop_watched(parts.stalled):
            await stop.wanted.wait()
        log.info("stopping: running work may take %g s", settings.server.graceful_timeout)
    log.info("stopped")


def _where(settings: Settings, listener: socket.socket | None) -> str:
    store = mask_addresses(settings.store.url)
    if listener is None:
        return f", on {store}"
    return f": {_address(listener)} on {store}"


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
