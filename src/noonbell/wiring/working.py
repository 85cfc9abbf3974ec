"""Working: `noonbell worker`, a process that only executes. It plans nothing and listens to nobody.

It ends when it is told to by a signal, or when an operator stops its worker; killed, it leaves nothing behind but leases.
Sweeping is left to nodes that serve: without one, the runs of a dead worker would wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from noonbell.app import App
from noonbell.clock import SystemClock
from noonbell.engine.know import Tasks
from noonbell.engine.node import Node
from noonbell.engine.schema_watch import SchemaWatch
from noonbell.engine.tell import Nudge, telling
from noonbell.errors import InvalidState, SettingsError
from noonbell.service import Rules, Services, build
from noonbell.settings import Settings
from noonbell.settings.masking import mask_addresses
from noonbell.sinks import logs
from noonbell.stores.wakeups import wakeup_of
from noonbell.targets import template
from noonbell.version import __version__
from noonbell.wiring import memory
from noonbell.wiring.applying import load_app
from noonbell.wiring.loops import loop_factory
from noonbell.wiring.parts import make_store, open_pulse
from noonbell.wiring.stopping import Stop, end_process_if
from noonbell.wiring.watching import tell_events
from noonbell.wiring.workers import Badge, Ground, job_worker, open_part

log = logging.getLogger("noonbell")


def run_worker(settings: Settings, location: str, badge: Badge) -> int:
    """`work` in an event loop of its own; the exit code. Startup errors are raised as NoonbellError."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    app = load_app(location)
    if not len(app.handlers):
        raise SettingsError.field("--app", f"is {location!r}, whose App has no jobs: there would be nothing to do")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        end_process_if(runner.run(work(settings, app, badge)))
    return 0


async def work(settings: Settings, app: App, badge: Badge) -> int:
    """One worker for the App's jobs, until a signal or an operator stops it. Returns how many runs did not stop."""
    stop = Stop()
    async with contextlib.AsyncExitStack() as open_parts:
        ground, services = await _ground(settings, open_parts)
        schema = SchemaWatch(services.store, stop.wanted.set)
        worker = await job_worker(ground, app.handlers, badge)
        node = Node(workers=[worker], clock=SystemClock(), waits_for=ground.store.waits_for)
        with stop.on_signals():
            await open_parts.enter_async_context(app.attached(services))
            memory.settle_down()
            async with schema.looking(), _started(node, settings.server.graceful_timeout):
                log.info(
                    "noonbell %s is ready: worker %s for %s, %d at a time, on %s",
                    *(__version__, worker.id, ", ".join(worker.queues), worker.hands.concurrency),
                    mask_addresses(settings.store.url),
                )
                await _first(stop.wanted, node.is_idle)
                log.info("stopping: running work may take %g s", settings.server.graceful_timeout)
    log.info("stopped")
    if schema.mismatch is not None:
        raise schema.mismatch
    return worker.hands.running


async def _ground(settings: Settings, open_parts: contextlib.AsyncExitStack) -> tuple[Ground, Services]:
    quiet = make_store(settings)
    await open_part(quiet, open_parts)
    wakeup = wakeup_of(settings)
    await open_part(wakeup, open_parts)
    nudge = Nudge(wakeup)
    open_parts.callback(nudge.close)
    store = telling(quiet, nudge)
    told = tell_events(store, wakeup, open_parts)
    services = build(told, wakeup, Rules.of(settings, template.check), _no_callbacks)
    pulse = await open_pulse(settings, open_parts)
    return Ground(settings, told, wakeup, Tasks(told), open_parts, pulse), services


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


async def _no_callbacks(*_given: Any) -> NoReturn:
    raise InvalidState("a worker has no address for callbacks; `noonbell serve` has one")
