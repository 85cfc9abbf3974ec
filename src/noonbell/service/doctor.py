"""A look at a whole installation: each check says whether it is well, why not, and what to do."""

from __future__ import annotations

import enum
import os
import resource
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote
from zoneinfo import TZPATH

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.alert import Late
from noonbell.model.request import TaskQuery
from noonbell.model.task import ExecType, Task
from noonbell.model.worker import PART_OF, SERVE, Queue, Worker, WorkerState
from noonbell.ports import Store
from noonbell.service.doctor_words import ENGLISH
from noonbell.service.writing import is_read_otherwise
from noonbell.settings import Settings
from noonbell.when.cron_fields import Dialect

_SKEW: Final = 2.0
"""Seconds that this machine's clock and the store's may differ without being worth a word."""
_SLOW: Final = 0.25
_LATE: Final = 30.0
_SPARE: Final = 1 << 30
_FILES: Final = 1024
_MOST_ALONE: Final = 5
_MOST_NAMED: Final = 20
_PAGE: Final = 500


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
    code: str = ""
    """What it is, for those who say it in other words. Empty where only the command line finds it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the braces of those words."""


def finding(check: str, mark: Mark, code: str, **facts: Any) -> Finding:
    """One whose words are in the table."""
    says, fix = ENGLISH[code]
    return Finding(check, mark, says.format(**facts), fix.format(**facts), code, facts)


class Patient(Protocol):
    """What of a store the doctor looks at."""

    async def now(self) -> Instant: ...
    async def workers(self) -> list[Worker]: ...
    async def queues(self) -> list[Queue]: ...
    async def counts(self) -> Any: ...
    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[Late]: ...


async def look_at_store(store: Patient, clock: Callable[[], int], *, sizes: bool = True) -> AsyncIterator[Finding]:
    """Without `sizes`, only what takes no time however much there is: for a page that is shown all day."""
    yield await _clock(store, clock)
    yield await _planner(store)
    yield await _workers(store)
    async for found in _unserved(store):
        yield found
    async for found in _queues(store):
        yield found
    if sizes:
        yield await _size(store)


async def _clock(store: Patient, clock: Callable[[], int]) -> Finding:
    began, here = time.monotonic(), clock()
    there = await store.now()
    took = time.monotonic() - began
    skew = (there - here) / SECOND
    if abs(skew) - took > _SKEW:
        return finding("clock", Mark.CARE, "clock_differs", skew=f"{skew:+.1f}")
    if took > _SLOW:
        return finding("store", Mark.CARE, "store_slow", ms=f"{took * 1000:.0f}")
    return finding("store", Mark.WELL, "store_well", ms=f"{took * 1000:.0f}", skew=f"{abs(skew):.1f}")


async def _planner(store: Patient) -> Finding:
    late = await store.overdue_tasks(_LATE)
    if not late:
        return finding("planner", Mark.WELL, "planner_well")
    first = min(late, key=lambda each: each.since)
    return finding("planner", Mark.ILL, "planner_late", n=len(late), name=first.task_name, since=rfc3339(first.since))


async def _workers(store: Patient) -> Finding:
    workers = await store.workers()
    lost = [worker.id for worker in workers if worker.state is WorkerState.LOST]
    if lost:
        return finding("workers", Mark.CARE, "workers_lost", n=len(lost), all=len(workers), names=", ".join(lost[:3]))
    drained = [one.id for one in workers if one.state is WorkerState.DRAINING and one.meta.get(PART_OF) == SERVE]
    if drained:
        names = ", ".join(drained[:3])
        return finding("workers", Mark.CARE, "workers_drained", n=len(drained), all=len(workers), names=names)
    return finding("workers", Mark.WELL, "workers_well", n=len(workers))


async def _unserved(store: Patient) -> AsyncIterator[Finding]:
    served = {
        queue for worker in await store.workers() if worker.state is WorkerState.RUNNING for queue in worker.queues
    }
    alone = [queue for queue in await store.queues() if queue.waiting and not queue.paused and queue.name not in served]
    for queue in alone[:_MOST_ALONE]:
        yield finding("service", Mark.ILL, "queue_unserved", name=queue.name, n=queue.waiting)
    if not alone:
        yield finding("service", Mark.WELL, "queues_served")


async def _queues(store: Patient) -> AsyncIterator[Finding]:
    paused = [queue for queue in await store.queues() if queue.paused and queue.waiting]
    for queue in paused:
        yield finding("queues", Mark.CARE, "queue_paused", name=queue.name, n=queue.waiting)
    if not paused:
        yield finding("queues", Mark.WELL, "queues_open")


async def look_at_dialects(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """Cron tasks that a save in the dialect of today would make fire at other times. They are left as they are."""
    default = Dialect(settings.scheduler.cron_dialect)
    otherwise: list[str] = []
    jobs: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.tasks(TaskQuery(page_size=_PAGE, cursor=cursor))
        for task in page.items:
            schedule = task.spec.schedule
            if schedule is None or schedule["type"] != "cron":
                continue
            if _is_like_a_job(task):
                if is_read_otherwise(schedule, task.spec.timezone, [Dialect.QUARTZ]):
                    jobs.append(task.name)
            elif is_read_otherwise(schedule, task.spec.timezone, [default]):
                otherwise.append(task.name)
        cursor = page.next_cursor
        if cursor is None:
            break
    if otherwise:
        says = f"{_counted(otherwise)} in another dialect than scheduler.cron_dialect, which would read them otherwise"
        way = f"set scheduler.cron_dialect to theirs; or, if it was meant: noonbell task edit NAME --set cron_dialect={default}"
        yield Finding("dialects", Mark.CARE, f"{says}: {_named(otherwise)}", way)
    if jobs:
        says = f"{_counted(jobs)} in a dialect that is not quartz, as which /api/jobs reads new ones: {_named(jobs)}"
        yield Finding(
            "dialects", Mark.WELL, says, "if quartz was meant: noonbell task edit NAME --set cron_dialect=quartz"
        )
    if not otherwise and not jobs:
        yield Finding("dialects", Mark.WELL, f"every cron task fires as {default} cron would")


def _is_like_a_job(task: Task) -> bool:
    """Whether it may have come by `/api/jobs` or `jobs.jobs`, which read six fields as quartz."""
    spec = task.spec
    fields = str((spec.schedule or {}).get("source") or (spec.schedule or {})["expr"]).split()
    return spec.exec_type is ExecType.JOB and not spec.managed_by.startswith("code:") and len(fields) > 5


def _counted(names: list[str]) -> str:
    return f"{len(names)} cron task{'s are' if len(names) > 1 else ' is'}"


def _named(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")


async def _size(store: Patient) -> Finding:
    counts = dict(await store.counts())
    sizes = {name: f"{int(counts.get(name, 0)):,}" for name in ("tasks", "runs", "events")}
    return finding("size", Mark.WELL, "size", **sizes)


def look_at_node(health: Mapping[str, Any]) -> Finding:
    """`health` is what a node says of itself, as `readyz` shows it."""
    if health.get("ok", True):
        return finding("node", Mark.WELL, "node_well")
    return finding("node", Mark.ILL, "node_stalled", why=health.get("reason") or "–")


def look_at_settings(
    settings: Settings, files: tuple[str, ...], *, asks_for_tokens: bool, exposed: bool
) -> list[Finding]:
    found = [_exposure(exposed=exposed, asks_for_tokens=asks_for_tokens)]
    if exposed and settings.callback.base_url is None:
        found.append(finding("callbacks", Mark.CARE, "callbacks_unset"))
    for file in (*files, *file_of(settings.store.url)):
        mode = Path(file).stat().st_mode if Path(file).exists() else 0
        if mode & stat.S_IROTH:
            found.append(finding("files", Mark.CARE, "file_open", file=file))
    return found


def _exposure(*, exposed: bool, asks_for_tokens: bool) -> Finding:
    if exposed and not asks_for_tokens:
        return finding("access", Mark.ILL, "access_open")
    return finding("access", Mark.WELL, "access_tokens" if asks_for_tokens else "access_local")


def look_at_machine(folder: Path | None) -> list[Finding]:
    """`folder`: where SQLite keeps its file."""
    return [_zones(), _files(), *([] if folder is None else [_disk(folder)])]


def file_of(url: str) -> tuple[str, ...]:
    """SQLite's file; nothing for any other store."""
    return (unquote(url.removeprefix("sqlite:///").partition("?")[0]),) if url.startswith("sqlite:///") else ()


def folder_of(url: str) -> Path | None:
    """Where SQLite keeps its file; None for any other store."""
    return Path(url.removeprefix("sqlite:///")).resolve().parent if url.startswith("sqlite:///") else None


def _zones() -> Finding:
    try:
        release = metadata.version("tzdata")
    except metadata.PackageNotFoundError:
        release = ""
    if release:
        return finding("zones", Mark.WELL, "zones_packaged", release=release)
    return finding("zones", Mark.CARE, "zones_machine", folder=TZPATH[0] if TZPATH else "?")


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        return finding("open files", Mark.CARE, "files_few", n=soft, wanted=_FILES * 8)
    return finding("open files", Mark.WELL, "files_well", n=soft)


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder if folder.exists() else Path.cwd()).free
    writable = os.access(folder, os.W_OK) if folder.exists() else False
    if not writable:
        return finding("disk", Mark.ILL, "disk_shut", folder=folder)
    if free < _SPARE:
        return finding("disk", Mark.CARE, "disk_full", free=f"{free / 2**20:.0f}", folder=folder)
    return finding("disk", Mark.WELL, "disk_well", free=f"{free / 2**30:.0f}")
