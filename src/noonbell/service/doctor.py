"""A look at a whole installation: each check says whether it is well, why not, and what to do."""

from __future__ import annotations

import enum
import os
import resource
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol
from zoneinfo import TZPATH

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.alert import Late
from noonbell.model.worker import Queue, Worker, WorkerState
from noonbell.settings import Settings

_SKEW: Final = 2.0
"""Seconds that this machine's clock and the store's may differ without being worth a word."""
_SLOW: Final = 0.25
_LATE: Final = 30.0
_SPARE: Final = 1 << 30
_FILES: Final = 1024


class Mark(enum.StrEnum):
    WELL = "well"
    CARE = "care"
    """Works, but is worth a look."""
    ILL = "ill"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    mark: Mark
    says: str
    fix: str = ""


class Patient(Protocol):
    """What of a store the doctor looks at."""

    async def now(self) -> Instant: ...
    async def workers(self) -> list[Worker]: ...
    async def queues(self) -> list[Queue]: ...
    async def counts(self) -> Any: ...
    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[Late]: ...


async def look_at_store(store: Patient, clock: Callable[[], int]) -> AsyncIterator[Finding]:
    yield await _clock(store, clock)
    yield await _planner(store)
    yield await _workers(store)
    yield await _unserved(store)
    async for finding in _queues(store):
        yield finding
    yield await _size(store)


async def _clock(store: Patient, clock: Callable[[], int]) -> Finding:
    began, here = time.monotonic(), clock()
    there = await store.now()
    took = time.monotonic() - began
    skew = (there - here) / SECOND
    if abs(skew) - took > _SKEW:
        return Finding(
            "clock",
            Mark.CARE,
            f"the store's clock is {skew:+.1f} s from this machine's; the store's decides what is due",
            "set both by NTP",
        )
    if took > _SLOW:
        return Finding("store", Mark.CARE, f"a question to the store took {took * 1000:.0f} ms", "look at its load")
    return Finding("store", Mark.WELL, f"answers in {took * 1000:.0f} ms, its clock is {abs(skew):.1f} s from ours")


async def _planner(store: Patient) -> Finding:
    late = await store.overdue_tasks(_LATE)
    if not late:
        return Finding("planner", Mark.WELL, "no slot is overdue")
    first = min(late, key=lambda each: each.since)
    return Finding(
        "planner",
        Mark.ILL,
        f"{len(late)} tasks have slots that nobody planned, the oldest {first.task_name!r} since {rfc3339(first.since)}",
        "start a node that plans: noonbell serve, with scheduler.enabled",
    )


async def _workers(store: Patient) -> Finding:
    workers = await store.workers()
    lost = [worker.id for worker in workers if worker.state is WorkerState.LOST]
    if lost:
        return Finding(
            "workers",
            Mark.CARE,
            f"{len(lost)} of {len(workers)} are silent: {', '.join(lost[:3])}",
            "their runs go to others; if they were stopped for good, they are forgotten after a day",
        )
    return Finding("workers", Mark.WELL, f"{len(workers)} there, none silent")


async def _unserved(store: Patient) -> Finding:
    served = {
        queue for worker in await store.workers() if worker.state is WorkerState.RUNNING for queue in worker.queues
    }
    alone = [queue for queue in await store.queues() if queue.waiting and not queue.paused and queue.name not in served]
    if not alone:
        return Finding("service", Mark.WELL, "every queue with work in it has a worker")
    named = ", ".join(f"{queue.name} ({queue.waiting} waiting)" for queue in alone[:5])
    return Finding(
        "service", Mark.ILL, f"nobody works on {named}", "start a worker for it: noonbell worker --queues NAME …"
    )


async def _queues(store: Patient) -> AsyncIterator[Finding]:
    paused = [queue for queue in await store.queues() if queue.paused and queue.waiting]
    for queue in paused:
        yield Finding(
            "queues",
            Mark.CARE,
            f"{queue.name!r} is paused with {queue.waiting} waiting",
            f"noonbell queue resume {queue.name}, when that is over",
        )
    if not paused:
        yield Finding("queues", Mark.WELL, "none is paused with work in it")


async def _size(store: Patient) -> Finding:
    counts = dict(await store.counts())
    runs = int(counts.get("runs", 0))
    return Finding(
        "size", Mark.WELL, f"{counts.get('tasks', 0)} tasks, {runs:,} runs, {counts.get('events', 0):,} events"
    )


def look_at_settings(
    settings: Settings, files: tuple[str, ...], *, asks_for_tokens: bool, exposed: bool
) -> list[Finding]:
    found = [_exposure(exposed=exposed, asks_for_tokens=asks_for_tokens)]
    if exposed and settings.callback.base_url is None:
        found.append(
            Finding(
                "callbacks",
                Mark.CARE,
                "callback.base_url is not set: targets on other machines cannot call back",
                "set it to where they reach this service",
            )
        )
    for file in files:
        mode = Path(file).stat().st_mode if Path(file).exists() else 0
        if mode & stat.S_IROTH:
            found.append(Finding("files", Mark.CARE, f"{file} can be read by everybody", f"chmod o-r {file}"))
    return found


def _exposure(*, exposed: bool, asks_for_tokens: bool) -> Finding:
    if exposed and not asks_for_tokens:
        return Finding(
            "access", Mark.ILL, "others can reach it and nobody is asked for a token", "set auth.enabled to true"
        )
    return Finding("access", Mark.WELL, "tokens are asked for" if asks_for_tokens else "only this machine can reach it")


def look_at_machine(folder: Path | None) -> list[Finding]:
    """`folder`: where SQLite keeps its file."""
    return [_zones(), _files(), *([] if folder is None else [_disk(folder)])]


def _zones() -> Finding:
    try:
        release = metadata.version("tzdata")
    except metadata.PackageNotFoundError:
        release = ""
    if release:
        return Finding("zones", Mark.WELL, f"time zones of tzdata {release}")
    return Finding(
        "zones", Mark.CARE, f"time zones of the machine ({TZPATH[0] if TZPATH else '?'})", "pip install tzdata"
    )


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        return Finding(
            "open files", Mark.CARE, f"at most {soft} are allowed", f"ulimit -n {_FILES * 8}, for many targets"
        )
    return Finding("open files", Mark.WELL, f"up to {soft} are allowed")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder if folder.exists() else Path.cwd()).free
    writable = os.access(folder, os.W_OK) if folder.exists() else False
    if not writable:
        return Finding("disk", Mark.ILL, f"{folder} cannot be written to", "give this user the right to")
    if free < _SPARE:
        return Finding(
            "disk", Mark.CARE, f"{free / 2**20:.0f} MiB are free in {folder}", "make room, or keep less history"
        )
    return Finding("disk", Mark.WELL, f"{free / 2**30:.0f} GiB are free")
