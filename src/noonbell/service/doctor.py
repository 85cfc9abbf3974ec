"""Checks of a whole installation: each says whether all is well, if not why, and what to do.

The English sentences stand at the end, by code; the dashboard has the same in its own languages.
"""

from __future__ import annotations

import enum
import os
import resource
import shlex
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from zoneinfo import TZPATH

from noonbell import sealing
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import SettingsError
from noonbell.fields import counted, shortened
from noonbell.model.call import CALL_TYPE
from noonbell.model.request import RunQuery, TaskQuery, UnclaimableRuns
from noonbell.model.run import SUCCEEDED
from noonbell.model.service_url import service_name
from noonbell.model.target_kind import COMMAND_TYPE, OWN_QUEUES, ExecType
from noonbell.model.task import Task, TaskStatus
from noonbell.model.worker import PART_OF, SERVE, Lack, WorkerState, is_scheduler_alive
from noonbell.policy.workers import takes_runs
from noonbell.ports import Store
from noonbell.service.filters import every, from_the_top
from noonbell.service.queues import DEAD
from noonbell.service.task_files import is_read_otherwise
from noonbell.service.translation import Translator, exchange_words
from noonbell.settings import Settings
from noonbell.settings.kinds import sqlite_file
from noonbell.when.cron_fields import CronDialect

_SKEW: Final = 2.0
"""Seconds that this machine's clock and the store's may differ without being worth a word."""
_SLOW: Final = 0.25
_LATE: Final = 30.0
_SPARE: Final = 1 << 30
_FILES: Final = 1024
_MOST_ALONE: Final = 5
_MOST_NAMED: Final = 20
_DAY: Final = 86_400 * SECOND
_FAILURES_READ: Final = 200
_WATCHED: Final = (TaskStatus.ENABLED, TaskStatus.COMPLETED)
"""Of tasks in these, failures are reported: a disabled one is known to be in trouble."""
_RUNS_READ: Final = 20
"""The newest runs of a task that are read to find the last one that has ended."""


class CheckStatus(enum.StrEnum):
    WELL = "well"
    NOTE = "note"
    """Nothing is wrong; there is something that one may want to do."""
    CARE = "care"
    """Works, but is worth a look."""
    ILL = "ill"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    mark: CheckStatus
    says: str
    fix: str = ""
    code: str = ""
    """What it is, for those who say it in other words. Empty where only the command line finds it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the braces of those words."""


def finding(check: str, mark: CheckStatus, code: str, **facts: Any) -> Finding:
    """A finding whose words are in the catalogues, as `doctor.CODE` and, where it can be mended, `doctor.CODE.fix`."""
    says, fix = said(code, facts, Translator("en"))
    return Finding(check, mark, says, fix, code, facts)


_STORED: Final = {"subscription_disabled": "why", "calendar_stale": "error"}
"""Facts that are kept as English texts."""


def said(code: str, facts: Mapping[str, Any], words: Translator) -> tuple[str, str]:
    """What it says, and how it is mended; that may be nothing."""
    key = f"doctor.{code}"
    if "who" in facts and not facts["who"]:
        facts = {**facts, "who": words("somebody")}
    if stored := _STORED.get(code):
        facts = {**facts, stored: exchange_words(str(facts[stored]), words)}
    return words(key, **facts), words(f"{key}.fix", **facts) if words.has(f"{key}.fix") else ""


async def look_at_store(store: Store, clock: Callable[[], int], *, sizes: bool = True) -> AsyncIterator[Finding]:
    """Without `sizes`, only what takes no time however much there is: for a page that is shown all day, and has the failing
    tasks in a list of its own.
    """
    yield await _clock(store, clock)
    for check in (_pause, _planner, _scheduler, _workers):
        yield await check(store)
    for look in (_commands, _unserved, _queues, _calendars, partial(_subscriptions, missed=sizes), _rules):
        async for found in look(store):
            yield found
    if sizes:
        yield await _tasks(store)
        yield await _size(store)


async def _calendars(store: Store) -> AsyncIterator[Finding]:
    """Calendars whose source could not be fetched: tasks go on with the last good copy."""
    for each in await store.calendars():
        if each.ical_error is not None:
            yield finding("calendars", CheckStatus.CARE, "calendar_stale", name=each.name, error=each.ical_error)


async def _subscriptions(store: Store, *, missed: bool) -> AsyncIterator[Finding]:
    """Subscriptions that fail, or were disabled because they did. With `missed`, also those that some events never
    reached, which stays true. One that an operator switched off is not reported.
    """
    for each in await store.subscriptions():
        name, state = each.subscription.name, each.state
        if state.disabled_at is not None:
            facts = {"since": rfc3339(state.disabled_at), "why": state.disabled_reason or "–", "n": state.pending}
            yield finding("subscriptions", CheckStatus.ILL, "subscription_disabled", name=name, **facts)
        elif each.subscription.active and state.failing_since is not None:
            facts = {"since": rfc3339(state.failing_since), "n": state.pending}
            yield finding("subscriptions", CheckStatus.CARE, "subscription_failing", name=name, **facts)
        if missed and state.missed:
            yield finding("subscriptions", CheckStatus.CARE, "subscription_missed", name=name, n=state.missed)


async def _rules(store: Store) -> AsyncIterator[Finding]:
    """Rules that name channels of which none is there and enabled. Their alerts are seen on the dashboard alone."""
    rules = [rule for rule in await store.alert_rules() if rule.enabled and rule.channels]
    open_ = {channel.name for channel in await store.alert_channels() if channel.enabled} if rules else set()
    silent = [rule.name for rule in rules if open_.isdisjoint(rule.channels)]
    if silent:
        yield finding("alerts", CheckStatus.CARE, "rules_silent", n=len(silent), names=shortened(silent))


async def _clock(store: Store, clock: Callable[[], int]) -> Finding:
    began, here = time.monotonic(), clock()
    there = await store.now()
    took = time.monotonic() - began
    skew = (there - here) / SECOND
    if abs(skew) - took > _SKEW:
        return finding("clock", CheckStatus.CARE, "clock_differs", skew=f"{skew:+.1f}")
    if took > _SLOW:
        return finding("store", CheckStatus.CARE, "store_slow", ms=f"{took * 1000:.0f}")
    return finding("store", CheckStatus.WELL, "store_well", ms=f"{took * 1000:.0f}", skew=f"{abs(skew):.1f}")


async def _pause(store: Store) -> Finding:
    pause = await store.installation_pause()
    if pause is None:
        return finding("pause", CheckStatus.WELL, "pause_none")
    facts = {"who": pause.by, "since": rfc3339(pause.since), "why": pause.reason}
    return finding("pause", CheckStatus.CARE, "paused" if pause.reason else "paused_unsaid", **facts)


async def _planner(store: Store) -> Finding:
    late = await store.overdue_tasks(_LATE)
    if not late:
        return finding("planner", CheckStatus.WELL, "planner_well")
    first = min(late, key=lambda each: each.since)
    return finding(
        "planner", CheckStatus.ILL, "planner_late", n=len(late), name=first.task_name, since=rfc3339(first.since)
    )


async def _scheduler(store: Store) -> Finding:
    seen_at, now = await store.scheduler_seen_at(), await store.now()
    if seen_at is None or not is_scheduler_alive(seen_at, now):
        return finding("scheduler", CheckStatus.CARE, "scheduler_none")
    return finding("scheduler", CheckStatus.WELL, "scheduler_well", seconds=f"{max(0, now - seen_at) / SECOND:.0f}")


async def _workers(store: Store) -> Finding:
    workers = await store.workers()
    lost = [worker.id for worker in workers if worker.state is WorkerState.LOST]
    if lost:
        return finding(
            "workers", CheckStatus.CARE, "workers_lost", n=len(lost), all=len(workers), names=shortened(lost)
        )
    drained = [one.id for one in workers if one.state is WorkerState.DRAINING and one.meta.get(PART_OF) == SERVE]
    if drained:
        names = shortened(drained)
        return finding("workers", CheckStatus.CARE, "workers_drained", n=len(drained), all=len(workers), names=names)
    return finding("workers", CheckStatus.WELL, "workers_well", n=len(workers))


async def _commands(store: Store) -> AsyncIterator[Finding]:
    """Workers that run programs of their machine are named, where there are some."""
    allow = [worker.id for worker in await store.workers() if COMMAND_TYPE in (worker.job_types or ())]
    if allow:
        yield finding(
            "commands", CheckStatus.WELL, "commands_allowed", n=len(allow), names=shortened(allow, _MOST_ALONE)
        )


async def _unserved(store: Store) -> AsyncIterator[Finding]:
    stranded = await store.stranded()
    alone = await _alone(store, stranded)
    for name, n in list(alone.items())[:_MOST_ALONE]:
        kind = OWN_QUEUES.get(name)
        if kind is not None and kind.extra is not None:
            facts = {"name": name, "n": n, "kind": kind.name, "install": kind.how_to_install}
            yield finding("service", CheckStatus.ILL, "queue_clientless", **facts)
            continue
        yield finding("service", CheckStatus.ILL, "queue_unserved", name=name, n=n)
    lacking = _lacking(stranded)
    for found in lacking[:_MOST_ALONE]:
        yield found
    if not alone and not lacking:
        yield finding("service", CheckStatus.WELL, "queues_served")


async def _alone(store: Store, stranded: Sequence[UnclaimableRuns]) -> dict[str, int]:
    """How many runs wait in each queue that no worker serves, or only those that make calls: these take its calls alone."""
    workers = [worker for worker in await store.workers() if takes_runs(worker)]
    served = {queue for worker in workers for queue in worker.queues}
    makes_calls = any(CALL_TYPE in (worker.job_types or ()) for worker in workers)
    with_calls = set(await store.call_queues()) if makes_calls else set()
    found = {
        queue.name: sum(one.count for one in stranded if one.queue == queue.name and one.lack is Lack.QUEUE)
        if queue.name in with_calls
        else queue.waiting
        for queue in await store.queues()
        if queue.waiting and not queue.paused and queue.name not in served
    }
    return {name: n for name, n in found.items() if n}


def _lacking(stranded: Sequence[UnclaimableRuns]) -> list[Finding]:
    """What the workers of a queue lack, though there are some: by queue and by what it is."""
    found: dict[tuple[str, Lack], list[UnclaimableRuns]] = {}
    for one in stranded:
        if one.lack is not Lack.QUEUE:
            found.setdefault((one.queue, one.lack), []).append(one)
    return [_lacks(queue, lack, waiting) for (queue, lack), waiting in found.items()]


def _lacks(queue: str, lack: Lack, waiting: Sequence[UnclaimableRuns]) -> Finding:
    if lack is Lack.JOB_TYPE and all(one.job_type == COMMAND_TYPE for one in waiting):
        count = f"{sum(one.count for one in waiting)}{'+' if any(one.is_least for one in waiting) else ''}"
        return finding("service", CheckStatus.ILL, "lacks_commands", name=queue, n=count)
    types = shortened([f"{one.job_type or 'HTTP'} ({one.count}{'+' if one.is_least else ''})" for one in waiting])
    return finding("service", CheckStatus.ILL, f"lacks_{lack}", name=queue, types=types)


async def _queues(store: Store) -> AsyncIterator[Finding]:
    paused = [queue for queue in await store.queues() if queue.paused and queue.waiting]
    for queue in paused:
        yield finding("queues", CheckStatus.CARE, "queue_paused", name=queue.name, n=queue.waiting)
    if not paused:
        yield finding("queues", CheckStatus.WELL, "queues_open")


async def look_at_dialects(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """Cron tasks that a save in the dialect of today would make fire at other times. They are left as they are."""
    default = CronDialect(settings.scheduler.cron_dialect)
    otherwise: list[str] = []
    jobs: list[str] = []
    async for task in every(store.tasks, TaskQuery()):
        spec = task.spec
        if spec.schedule is not None and spec.schedule["type"] == "cron" and _is_like_a_job(task):
            if is_read_otherwise(spec.schedule, spec.timezone, [CronDialect.QUARTZ]):
                jobs.append(task.name)
            continue
        saved = (*(() if spec.schedule is None else (spec.schedule,)), *spec.schedules, *spec.exclude)
        if any(is_read_otherwise(each, spec.timezone, [default]) for each in saved):
            otherwise.append(task.name)
    if otherwise:
        says = (
            f"{counted(len(otherwise), 'cron task is', 'cron tasks are')} in a different dialect from"
            " scheduler.cron_dialect, which would read them differently"
        )
        way = f"set scheduler.cron_dialect to theirs; or, if it was meant: noonbell task edit NAME --set cron_dialect={default}"
        yield Finding("dialects", CheckStatus.CARE, f"{says}: {shortened(otherwise)}", way)
    if jobs:
        says = (
            f"{counted(len(jobs), 'cron task is', 'cron tasks are')} in a dialect other than quartz, which"
            f" /api/jobs uses for new ones: {shortened(jobs)}"
        )
        yield Finding(
            "dialects", CheckStatus.NOTE, says, "if quartz was meant: noonbell task edit NAME --set cron_dialect=quartz"
        )
    if not otherwise and not jobs:
        yield Finding("dialects", CheckStatus.WELL, f"every cron task fires as {default} cron would")


async def look_at_services(store: Store, settings: Settings) -> AsyncIterator[Finding]:
    """Tasks that call a service by a name which these settings do not have."""
    known, without = settings.executor.services, []
    async for task in every(store.tasks, TaskQuery()):
        spec = task.spec
        urls = (spec.target_url, spec.cancel_url, *(step.target_url for step in spec.steps))
        names = {service_name(url) for url in urls if url is not None} - {None}
        if not names <= known.keys():
            without.append(task.name)
    if without:
        says = (
            f"{counted(len(without), 'task calls', 'tasks call')} a service that is not in executor.services of"
            f" these settings: {shortened(without)}"
        )
        way = (
            "add it on every node, and give the doctor the settings of a node (--config FILE); until then their"
            " runs fail as unknown_service"
        )
        yield Finding("services", CheckStatus.CARE, says, way)


def _is_like_a_job(task: Task) -> bool:
    """Whether it may have come by `/api/jobs` or `jobs.jobs`, which read six fields as quartz."""
    spec = task.spec
    fields = str((spec.schedule or {}).get("source") or (spec.schedule or {})["expr"]).split()
    return spec.exec_type is ExecType.JOB and not spec.managed_by.startswith("code:") and len(fields) > 5


async def _tasks(store: Store) -> Finding:
    """Tasks that failed within a day and have not run well since, a completed one included; and those that cannot be planned."""
    since = Instant(await store.now() - _DAY)
    query = RunQuery(status=DEAD, since=since, page_size=_FAILURES_READ, cursor=from_the_top("-id"))
    failures = await store.runs(query)
    is_whole = failures.next_cursor is None
    there = await store.tasks_by_id(list({run.task_id for run in failures.items}))
    watched = [task.id for task in there if task.deleted_at is None and task.status in _WATCHED]
    ended = {
        task_id: next((run for run in runs if run.status in DEAD or run.status in SUCCEEDED), None)
        for task_id, runs in (await store.newest_runs(watched, _RUNS_READ)).items()
    }
    failing = sorted((run.task_name, run.id) for run in ended.values() if run is not None and run.status in DEAD)
    unplanned = await store.tasks(TaskQuery(status=TaskStatus.ERROR, page_size=_MOST_NAMED))
    names = [*(name for name, _ in failing), *(task.name for task in unplanned.items)]
    if not names and is_whole:
        return finding("tasks", CheckStatus.WELL, "tasks_well")
    if not names:
        return finding("tasks", CheckStatus.CARE, "tasks_well_lately", read=_FAILURES_READ)
    facts = {
        "n": len(failing) + (unplanned.total or 0),
        "names": shortened(names),
        "read": _FAILURES_READ,
        "explain": f"run explain {failing[0][1]}" if failing else f"task explain {shlex.quote(names[0])}",
        "statuses": " ".join(f"--status {status.lower()}" for status in DEAD),
    }
    if is_whole:
        return finding("tasks", CheckStatus.ILL, "tasks_failing", **facts)
    return finding("tasks", CheckStatus.ILL, "tasks_failing_least", **facts)


async def _size(store: Store) -> Finding:
    counts = dict(await store.counts())
    # The table also holds tasks that were deleted, and Noonbell's own.
    counts["tasks"] = (await store.tasks(TaskQuery(page_size=1))).total or 0
    sizes = {name: f"{int(counts.get(name, 0)):,}" for name in ("tasks", "runs", "events")}
    return finding("size", CheckStatus.WELL, "size", **sizes)


def look_at_node(health: Mapping[str, Any]) -> Finding:
    """`health` is what a node says of itself, as `readyz` shows it."""
    if health.get("ok", True):
        return finding("node", CheckStatus.WELL, "node_well")
    return finding("node", CheckStatus.ILL, "node_stalled", why=health.get("reason") or "–")


def look_at_settings(
    settings: Settings, files: tuple[str, ...], *, asks_for_tokens: bool, exposed: bool
) -> list[Finding]:
    found = [_exposure(exposed=exposed, asks_for_tokens=asks_for_tokens), _audit_log(settings, exposed=exposed)]
    if exposed and settings.callback.base_url is None:
        found.append(finding("callbacks", CheckStatus.CARE, "callbacks_unset"))
    store = sqlite_file(settings.store.url)
    for file in (*files, *([] if store is None else [store])):
        mode = Path(file).stat().st_mode if Path(file).exists() else 0
        if mode & stat.S_IROTH:
            found.append(finding("files", CheckStatus.CARE, "file_open", file=file))
    return found


def _exposure(*, exposed: bool, asks_for_tokens: bool) -> Finding:
    if exposed and not asks_for_tokens:
        return finding("access", CheckStatus.ILL, "access_open")
    return finding("access", CheckStatus.WELL, "access_tokens" if asks_for_tokens else "access_local")


def _audit_log(settings: Settings, *, exposed: bool) -> Finding:
    """What a key would add is for those who do not trust everybody with the store: on a laptop it is no reason to worry."""
    try:
        key = sealing.from_file(settings.secrets.key_file).first
    except SettingsError as error:
        return Finding("audit log", CheckStatus.ILL, error.message)
    if key is None:
        return finding("audit log", CheckStatus.CARE if exposed else CheckStatus.NOTE, "audit_open")
    return finding("audit log", CheckStatus.WELL, "audit_signed", key=key)


def look_at_machine(folder: Path | None) -> list[Finding]:
    """`folder`: where SQLite keeps its file."""
    return [_zones(), _files(), *([] if folder is None else [_disk(folder)])]


def folder_of(url: str) -> Path | None:
    """Where SQLite keeps its file; None for any other store."""
    file = sqlite_file(url)
    return None if file is None else Path(file).resolve().parent


def _zones() -> Finding:
    try:
        release = metadata.version("tzdata")
    except metadata.PackageNotFoundError:
        release = ""
    if release:
        return finding("zones", CheckStatus.WELL, "zones_packaged", release=release)
    return finding("zones", CheckStatus.CARE, "zones_machine", folder=TZPATH[0] if TZPATH else "?")


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        return finding("open files", CheckStatus.CARE, "files_few", n=soft, wanted=_FILES * 8)
    return finding("open files", CheckStatus.WELL, "files_well", n=soft)


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder if folder.exists() else Path.cwd()).free
    writable = os.access(folder, os.W_OK) if folder.exists() else False
    if not writable:
        return finding("disk", CheckStatus.ILL, "disk_shut", folder=folder)
    if free < _SPARE:
        return finding("disk", CheckStatus.CARE, "disk_full", free=f"{free / 2**20:.0f}", folder=folder)
    return finding("disk", CheckStatus.WELL, "disk_well", free=f"{free / 2**30:.0f}")
