"""Trying things: `noonbell dev`. A node like any other, with targets to call, that tells how every run ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence

from noonbell.app import App
from noonbell.app.declaring import declare
from noonbell.clock import to_datetime
from noonbell.engine.listen import Hub
from noonbell.model.event import Event
from noonbell.model.run import Run
from noonbell.model.stream import Filter
from noonbell.ports import Store
from noonbell.service.reconcile import reconcile
from noonbell.settings import Settings
from noonbell.settings.masking import mask_addresses
from noonbell.sinks import logs
from noonbell.version import __version__
from noonbell.wiring import samples
from noonbell.wiring.applying import load_app
from noonbell.wiring.loops import loop_factory
from noonbell.wiring.parts import Parts
from noonbell.wiring.serving import serve

_ENDS = Filter(types=("run.succeeded", "run.failed", "run.retrying", "run.canceled", "run.skipped"))
_MOST_LINES = 20
"""Lines for what ended at the same time; of more than that, only the number is told."""
_WIDEST = 100


def run_dev(settings: Settings, location: str | None, *, prune: bool = False) -> int:
    """`prune`: tasks of jobs that the App no longer has are deleted, as suits a store that nobody shares."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    app = None if location is None else load_app(location)

    def beside(parts: Parts, address: str) -> contextlib.AbstractAsyncContextManager[None]:
        return _beside(parts, address, settings, app, prune=prune)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(settings, app=app, beside=beside))
    return 0


@contextlib.asynccontextmanager
async def _beside(
    parts: Parts, address: str, settings: Settings, app: App | None, *, prune: bool
) -> AsyncIterator[None]:
    async with samples.targets() as url:
        if app is None:
            await reconcile(parts.services, "code:noonbell-dev", samples.tasks(url), by="dev")
        elif prune:
            await declare(parts.services, app.owner, list(app.jobs.values()), prune=True)
        _say(_where(address, url, settings, app))
        telling = asyncio.create_task(_tell(parts.hub, parts.services.store))
        try:
            yield
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling


def _where(address: str, targets: str, settings: Settings, app: App | None) -> list[str]:
    names = ", ".join(app.jobs) if app is not None else "sample-echo, sample-async"
    return [
        f"Noonbell {__version__} is ready. Ctrl-C ends it.",
        f"  API     {address}/api/v1, described at {address}/docs",
        f"  tasks   {names or 'none yet'}",
        f"  echo    {targets}/echo answers with what it was sent",
        f"  async   {targets}/async accepts, and calls back after {samples.CALLS_BACK_IN:g} s",
        f"  store   {mask_addresses(settings.store.url)}",
        "Runs, as they end:",
    ]


async def _tell(hub: Hub, store: Store) -> None:
    async with hub.listen(_ENDS) as listener:
        while not listener.is_cut:
            batch = await listener.next()
            if batch is None:
                continue
            ended = batch.chosen(_ENDS)
            _say([await _line(store, event) for event in ended[:_MOST_LINES]])
            if len(ended) > _MOST_LINES:
                _say([f"  … and {len(ended) - _MOST_LINES} more"])


async def _line(store: Store, event: Event) -> str:
    run = None if event.run_id is None else await store.run(event.run_id)
    if run is None:
        return f"  {event.type} of a run that is gone"
    at = to_datetime(event.at).astimezone().strftime("%H:%M:%S")
    took = "" if run.duration_ms is None else f"{run.duration_ms} ms"
    return f"  {at}  {run.task_name:<20}  {_status(event, run):<16}  {took:>8}  {_said(run)}".rstrip()


def _status(event: Event, run: Run) -> str:
    return "RETRYING" if event.type == "run.retrying" else str(run.status)


def _said(run: Run) -> str:
    """What came of it, cut to a line."""
    text = run.error_message or (str(run.skip_reason) if run.skip_reason is not None else None)
    if text is None:
        text = "" if run.result is None else json.dumps(run.result, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…"


def _say(lines: Sequence[str]) -> None:
    """On stdout, which is what somebody reads who tries things."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
