"""The demo as a whole: fill a store that has nothing else in it, serve it, and take it all away again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import unquote

import msgspec

from noonbell.app.opening import opened
from noonbell.clock import SECOND, Clock, Instant, ManualClock, SystemClock
from noonbell.demo import targets
from noonbell.demo.history import DAYS, History
from noonbell.demo.tasks import LABEL, OWNER, PAUSED, declared
from noonbell.errors import InvalidState
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task
from noonbell.model.worker import WorkerState
from noonbell.ports import Store
from noonbell.service import Services
from noonbell.service.reconcile import reconcile
from noonbell.service.tasks import Removal
from noonbell.settings import Settings
from noonbell.settings.masking import mask_addresses
from noonbell.sinks import logs
from noonbell.stores import store_of
from noonbell.stores.memory import MemoryStore
from noonbell.version import __version__
from noonbell.wiring.loops import loop_factory
from noonbell.wiring.parts import Parts
from noonbell.wiring.serving import serve

Say = Callable[[str], None]
Progress = Callable[[float], None]


def show(settings: Settings, *, yes: bool, serves: bool, say: Say, progress: Progress) -> int:
    """Fill the store unless it is filled, and serve until a signal comes. `yes`: beside the tasks of others."""
    logs.set_up(settings.logging.level, as_json=settings.logging.json)
    with (
        contextlib.closing(targets.place(settings.server.port + 1 if settings.server.port else 0)) as listener,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        url = targets.address(listener)
        runner.run(_fill(settings, url, yes=yes, say=say, progress=progress))
        if not serves:
            return 0

        @contextlib.asynccontextmanager
        async def beside(parts: Parts, address: str) -> AsyncIterator[None]:
            async with targets.answering(listener):
                await reconcile(parts.services, OWNER, declared(url), by=OWNER)
                for line in _where(settings, address):
                    say(line)
                yield

        runner.run(serve(settings, beside=beside))
    return 0


async def clean(settings: Settings) -> int:
    """Delete every task that has the demo's label, with its history; how many."""
    if _fresh_file(settings.store.url) is not None:
        return 0
    async with opened(settings) as services:
        found = await _tasks(services.store, label=LABEL)
        for task in found:
            await services.tasks.delete(task.id, Removal(cancel_running=True, purge=True), by=OWNER)
    return len(found)


async def _fill(settings: Settings, url: str, *, yes: bool, say: Say, progress: Progress) -> None:
    path = _fresh_file(settings.store.url)
    if path is not None:
        say(f"filling {path} with {DAYS} days of history")
        memory = MemoryStore(clock := _week_ago())
        await _live(memory, clock, url, progress, lambda: memory.save(path))
        return
    async with opened(settings) as services:
        if await _tasks(services.store, label=LABEL):
            return
        problem = await _in_the_way(services)
        if problem is not None and not yes:
            raise InvalidState(f"{problem}; name another store, or add the tasks without a history: --yes")
        if problem is not None:
            await reconcile(services, OWNER, declared(url), by=OWNER)
            await services.tasks.disable(PAUSED, by=OWNER)
            say("added the tasks, without a history: that would have to be told in the past of a store that is in use")
            return
    say(f"filling the store with {DAYS} days of history")
    clock = _week_ago()
    await _live(store_of(settings, clock=clock), clock, url, progress, lambda: None)


async def _live(store: Store, clock: ManualClock, url: str, progress: Progress, save: Callable[[], None]) -> None:
    await store.open()
    try:
        await History(store, clock, url).live(SystemClock().now(), progress)
        save()
    finally:
        await store.close()


async def _in_the_way(services: Services) -> str | None:
    """Why no past may be told in this store."""
    others = [task for task in await _tasks(services.store) if task.spec.labels.get(LABEL[0]) != LABEL[1]]
    if others:
        return f"the store has {len(others)} task{'s' * (len(others) > 1)} of somebody else's"
    if any(worker.state is not WorkerState.LOST for worker in await services.store.workers()):
        return "a server or a worker is running on the store"
    return None


async def _tasks(store: Store, label: tuple[str, str] | None = None) -> list[Task]:
    found: list[Task] = []
    query = TaskQuery(label=label, page_size=500)
    while True:
        page = await store.tasks(query)
        found += page.items
        if page.next_cursor is None:
            return found
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def _fresh_file(url: str) -> str | None:
    """The path of a SQLite store that is not there yet."""
    if not url.startswith("sqlite:"):
        return None
    path = Path(unquote(url.removeprefix("sqlite://").removeprefix("/")))
    return None if path.exists() and path.stat().st_size else str(path)


def _week_ago(clock: Clock | None = None) -> ManualClock:
    return ManualClock(Instant((clock or SystemClock()).now() - DAYS * 86_400 * SECOND))


def _where(settings: Settings, address: str) -> list[str]:
    return [
        f"Noonbell {__version__} shows its demo. Ctrl-C ends it.",
        f"  dashboard  {address}/",
        f"  API        {address}/api/v1/tasks?label={LABEL[0]}={LABEL[1]}, described at {address}/docs",
        f"  store      {mask_addresses(settings.store.url)}",
        "  remove it  noonbell demo --clean, with the same --store",
    ]
