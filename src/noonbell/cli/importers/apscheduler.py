"""APScheduler 3: a scheduler object of your own module, named as MODULE:OBJECT, and imported as your program imports it; and
APScheduler 4: its database.

Jobs of version 3 in memory are read. Those in a database, Redis or MongoDB are pickles, and a pickle is a program: they are never
read, and the report names each such store. To bring them over, add them to a scheduler in memory and name that one.

Schedules of APScheduler 4 in a database, where its serializer wrote JSON. Nothing of it is unpickled: pickles, and CBOR of
classes, are refused row by row.

A trigger's JSON names its class and its state. Both become an object as `apscheduler` reads those of version 3.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import click

from noonbell.cli.importers.cron_text import WEEKDAYS, cron_fields, interval_of, schedule_of_cron, weekdays_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import is_database, rows_of
from noonbell.clock import Instant, SystemClock, to_datetime
from noonbell.dialects.cronjob import zone_of
from noonbell.errors import ScheduleError
from noonbell.when.zones import find

_FROM_MONDAY: Final = (*WEEKDAYS[1:], WEEKDAYS[0])
_DEFAULTS: Final = {"max_instances": 1, "misfire_grace_time": 1, "coalesce": True}
"""Of APScheduler 3. A scheduler may have others, and gives them to its jobs when it starts."""
_ORDINALS: Final = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5}


def read_scheduler(scheduler: Any) -> Iterator[Imported]:
    """The jobs that it holds in memory, and an entry that is refused for each store of pickles."""
    jobs = [job for job, *_ in getattr(scheduler, "_pending_jobs", ())]
    defaults = {**_DEFAULTS, **getattr(scheduler, "_job_defaults", {})}
    for alias, store in getattr(scheduler, "_jobstores", {}).items():
        if type(store).__name__ == "MemoryJobStore":
            jobs += store.get_all_jobs()
        else:
            said = f"job store {alias!r} ({type(store).__name__})"
            yield Imported(
                said, said, refused="holds pickles, which are never read: see `noonbell import apscheduler -h`"
            )
    yield from read_entries(
        (f"job {number}", f"{job.id}: {job.trigger}", partial(_task, job, defaults))
        for number, job in enumerate(jobs, 1)
    )


def _task(job: Any, defaults: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    reference = getattr(job, "func_ref", None)
    if not reference:
        raise Refused("its function has no name that a worker could find; move it to the top of a module")
    task: dict[str, Any] = {
        "name": str(job.name) if job.id == "" or len(str(job.id)) == 32 else str(job.id),
        "job_type": str(reference),
        **schedule_of(job.trigger, found),
        **payload_of(list(getattr(job, "args", ())), dict(getattr(job, "kwargs", {})), found),
        "retry_policy": {"max_retries": 0},
    }
    next_at = getattr(job, "next_run_time", None)
    if next_at is not None and _kind(job.trigger) == "IntervalTrigger":
        task["schedule"]["anchor"] = _moment(next_at - job.trigger.interval)
    found.say_time_limit(task)
    most, grace, coalesce = (getattr(job, name, defaults[name]) for name in _DEFAULTS)
    task["max_concurrency"] = most
    task["concurrency_policy"] = "SKIP"
    if grace is None:
        task["misfire_policy"] = "FIRE_ONCE" if coalesce else "FIRE_NOW"
    else:
        task["misfire_grace_seconds"] = int(grace)
        task["misfire_policy"] = "SKIP"
        if not coalesce:
            found.changes.append(EACH_LATE_SLOT)
    if next_at is None and hasattr(job, "next_run_time"):
        task["status"] = "DISABLED"
    if not isinstance(getattr(getattr(job, "func", None), "__self__", type), type | ModuleType):
        found.changes.append("is a method of an object: only its name comes over, and the handler has no object")
    if getattr(job, "executor", "default") != "default":
        found.changes.append(f"the executor {job.executor!r} is left out: a worker executes it")
    return task


EACH_LATE_SLOT: Final = "each late slot was run there that was not too late (coalesce); here the newest one is"


def payload_of(args: list[Any], kwargs: dict[str, Any], found: Findings) -> dict[str, Any]:
    args, kwargs = _with_lists(args), _with_lists(kwargs)
    try:
        is_json = json.loads(json.dumps([args, kwargs], allow_nan=False)) == [args, kwargs]
    except (TypeError, ValueError):
        is_json = False
    if not is_json:
        raise Refused("its arguments are not JSON, as a payload must be")
    if not args:
        return {"payload": kwargs} if kwargs else {}
    found.changes.append("has positional arguments: the payload is {args, kwargs}, and the handler takes those two")
    return {"payload": {"args": args, "kwargs": kwargs}}


def _with_lists(value: Any) -> Any:
    """JSON has no tuples."""
    if isinstance(value, list | tuple):
        return [_with_lists(each) for each in value]
    return {key: _with_lists(each) for key, each in value.items()} if isinstance(value, dict) else value


def schedule_of(trigger: Any, found: Findings) -> dict[str, Any]:
    match _kind(trigger):
        case "CronTrigger":
            return {**_cron(trigger), **_bounds(trigger, found)}
        case "IntervalTrigger":
            return {**_interval(trigger), **_bounds(trigger, found)}
        case "DateTrigger":
            return {"schedule": {"type": "once", "at": _moment(trigger.run_date)}}
        case "CalendarIntervalTrigger":
            return {**_calendar(trigger), **_jitter(trigger, found)}
        case "OrTrigger":
            return {**_any_of(trigger, found), **_jitter(trigger, found)}
        case other:
            raise Refused(f"its trigger is a {other}, which is not supported")


def _kind(trigger: Any) -> str:
    return str(getattr(trigger, "kind", None) or type(trigger).__name__)


def _any_of(trigger: Any, found: Findings) -> dict[str, Any]:
    parts = [schedule_of(each, found) for each in trigger.triggers]
    zones = {part.get("timezone", "UTC") for part in parts}
    if len(zones) != 1 or any({"start_at", "end_at", "jitter_seconds"} & part.keys() for part in parts):
        raise Refused("joins triggers with zones or bounds of their own; make a task of each")
    schedules = [part.get("schedule") or schedule_of_cron(part) for part in parts]
    return {"timezone": zones.pop(), "schedules": schedules}


def _bounds(trigger: Any, found: Findings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if getattr(trigger, "end_date", None) is not None:
        fields["end_at"] = _moment(trigger.end_date)
    if _kind(trigger) == "CronTrigger" and trigger.start_date is not None:
        fields["start_at"] = _moment(trigger.start_date)
    return {**fields, **_jitter(trigger, found)}


def _jitter(trigger: Any, found: Findings) -> dict[str, Any]:
    if not getattr(trigger, "jitter", None):
        return {}
    found.changes.append("jitter goes both ways there; here a run starts up to that much after its slot")
    return {"jitter_seconds": int(trigger.jitter)}


def _interval(trigger: Any) -> dict[str, Any]:
    schedule = interval_of(trigger.interval.total_seconds())
    # Its first run is at start_date; a fixed rate here begins one step after its anchor.
    schedule["anchor"] = _moment(trigger.start_date - trigger.interval)
    return {"timezone": _zone(trigger), "schedule": schedule}


def _zone(trigger: Any) -> str:
    zone = getattr(trigger, "timezone", None)
    return zone_of(str(zone)) if zone is not None else "UTC"


def _cron(trigger: Any) -> dict[str, Any]:
    fields = {field.name: ",".join(map(_text, field.expressions)) for field in trigger.fields}
    if fields["week"] != "*":
        raise Refused(f"names weeks of the year ({fields['week']}), which cron cannot say")
    if fields["year"] != "*":
        raise Refused(f"names years ({fields['year']}); leave them out, and give the task `start_at` and `end_at`")
    zone = _zone(trigger)
    day, weekday = fields["day"], weekdays_of(fields["day_of_week"], _weekday, first=1)
    if " " in day:
        if weekday != "*":
            raise Refused(f"has {day!r} and days of the week, which cron cannot both say")
        day, weekday = "*", _nth(day)
    elif "last" in day:
        day = day.replace("last", "L")
    given = {"day": day, "weekday": weekday, "month": fields["month"], "hour": fields["hour"], "zone": zone}
    try:
        return {"timezone": zone, **cron_fields(second=fields["second"], minute=fields["minute"], **given)}
    except ScheduleError as error:
        raise Refused(error.message) from None


def _text(expression: Any) -> str:
    """As it is shown there; but `5-5/2`, which is shown as `5/2`, would go on to the end of its range."""
    first = getattr(expression, "first", None)
    is_one = first is not None and first == getattr(expression, "last", None)
    return str(expression).partition("/")[0] if is_one else str(expression)


def _calendar(trigger: Any) -> dict[str, Any]:
    """Every day, week, month or year; of longer steps cron knows none."""
    at: time = trigger._time
    start: date = trigger.start_date
    if trigger.end_date is not None:
        raise Refused("ends on a date; leave it out, and give the task `end_at`")
    days: dict[Sequence[int], dict[str, str]] = {
        (1, 0, 0, 0): {"day": str(start.day), "month": str(start.month)},
        (0, 1, 0, 0): {"day": str(start.day)},
        (0, 0, 1, 0): {"weekday": WEEKDAYS[start.isoweekday() % 7]},
        (0, 0, 0, 1): {},
    }
    step = (trigger.years, trigger.months, trigger.weeks, trigger.days)
    if step not in days:
        raise Refused(f"has a step of {step} years, months, weeks and days; only one of each is supported")
    zone = _zone(trigger)
    made = cron_fields(second=str(at.second), minute=str(at.minute), hour=str(at.hour), zone=zone, **days[step])
    begin = datetime(start.year, start.month, start.day, tzinfo=find(zone).tzinfo)
    return {"timezone": zone, **made, "start_at": _moment(begin)}


def _weekday(text: str) -> int:
    """Monday is 0 there."""
    return 1 + (_FROM_MONDAY.index(text.upper()) if text.isalpha() else range(7).index(int(text)))


def _nth(text: str) -> str:
    """`2nd fri`, `last sun`, or several of them."""
    found: list[str] = []
    for item in text.split(","):
        which, _, day = item.partition(" ")
        number = WEEKDAYS.index(day.upper()) if day.upper() in WEEKDAYS else None
        if number is None or (which != "last" and which not in _ORDINALS):
            raise Refused(f"the day {text!r} is not supported")
        found.append(f"{number}L" if which == "last" else f"{number}#{_ORDINALS[which]}")
    return ",".join(found)


def _moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command("apscheduler")
@click.argument("source", metavar="MODULE:OBJECT|DATABASE")
@import_options
def apscheduler_command(source: str, **given: Any) -> int:
    """APScheduler: version 3's scheduler object of your program, whose module is imported; or version 4's database,
    with JSON in it.

    Pickles are never read.
    """
    if is_database(source):
        rows = rows_of(source, QUERIES)
        return finish(read_store(rows["schedules"], rows["tasks"], SystemClock().now()), "apscheduler", **given)
    module, colon, name = source.partition(":")
    if not colon or not name:
        raise click.BadParameter("name it as MODULE:OBJECT, or as the URL of a database", param_hint="MODULE:OBJECT")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
    try:
        scheduler = importlib.import_module(module)
        for part in name.split("."):
            scheduler = getattr(scheduler, part)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"cannot find {source}: {error}", param_hint="MODULE:OBJECT") from None
    except Exception as error:
        said = f"importing {module} raised {type(error).__name__}: {error}; python -c 'import {module}' says where"
        raise click.BadParameter(said, param_hint="MODULE:OBJECT") from None
    if not hasattr(scheduler, "_jobstores"):
        raise click.BadParameter(f"{source} is not an APScheduler 3 scheduler", param_hint="MODULE:OBJECT")
    return finish(read_scheduler(scheduler), "apscheduler", **given)


QUERIES: Final = {"tasks": "select * from tasks", "schedules": "select * from schedules order by id"}
_CRON_FIELDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_SECOND: Final = 1_000_000
"""Spans in its tables are in microseconds."""


def read_store(
    schedules: Sequence[Mapping[str, Any]], tasks: Sequence[Mapping[str, Any]], now: Instant
) -> Iterator[Imported]:
    """`now`: a trigger that began before has no `start_at`."""
    known = {str(task["id"]): task for task in tasks}
    return read_entries(
        (f"schedule {number}", str(row["id"]), partial(_task_of_row, row, known, to_datetime(now)))
        for number, row in enumerate(schedules, 1)
    )


def _task_of_row(
    row: Mapping[str, Any], tasks: Mapping[str, Any], now: datetime, found: Findings
) -> dict[str, Any] | None:
    if row["next_fire_time"] is None:
        found.notes.append("has fired for the last time, and is left out")
        return None
    of_task = tasks.get(str(row["task_id"]), {})
    trigger, args, kwargs = (_json(row[name], name) for name in ("trigger", "args", "kwargs"))
    try:
        named = trigger["_apscheduler_json"]
    except (KeyError, TypeError):
        raise Refused("its trigger is JSON of a kind that is not supported") from None
    task: dict[str, Any] = {
        "name": str(row["id"]),
        "job_type": str(of_task.get("func") or row["task_id"]),
        **_when(named, now, found),
        **payload_of(list(args), dict(kwargs), found),
        "retry_policy": {"max_retries": 0},
        "max_concurrency": of_task.get("max_running_jobs"),
    }
    _misfires(row, task, found)
    found.say_time_limit(task)
    if row["max_jitter"]:
        task["jitter_seconds"] = -(-int(row["max_jitter"]) // _SECOND)
    if row["paused"]:
        task["status"] = "DISABLED"
    if row.get("metadata") and (given := _json(row["metadata"], "metadata")):
        task["meta"] = given
    if (executor := row.get("job_executor")) not in (None, "async", "threadpool"):
        found.changes.append(f"the executor {executor!r} is left out: a worker executes it")
    return task


def _misfires(row: Mapping[str, Any], task: dict[str, Any], found: Findings) -> None:
    if row["misfire_grace_time"] is not None:
        task |= {"misfire_policy": "SKIP", "misfire_grace_seconds": int(row["misfire_grace_time"]) // _SECOND}
        if row["coalesce"] == "all":
            found.changes.append(EACH_LATE_SLOT)
        return
    task["misfire_policy"] = "FIRE_NOW" if row["coalesce"] == "all" else "FIRE_ONCE"
    if row["coalesce"] == "earliest":
        found.changes.append("of late slots the earliest was run there; here it is the newest")


def _json(value: Any, name: str) -> Any:
    raw = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()
    if raw[:1] == b"\x80" and name == "trigger":
        raise Refused("is a pickle, which is never read: add the schedule again in a store with the JSONSerializer")
    try:
        return json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise Refused(
            f"its {name} is not JSON, and nothing else is read: use a store with the JSONSerializer"
        ) from None


def _when(named: Any, now: datetime, found: Findings) -> dict[str, Any]:
    try:
        kind, state = str(named[0]).rpartition(":")[2], dict(named[1])
        return schedule_of(_trigger(kind, state, now), found)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Refused(f"its trigger cannot be read: {error}") from None


def _trigger(kind: str, state: Mapping[str, Any], now: datetime) -> Any:
    match kind:
        case "CronTrigger":
            fields = [
                SimpleNamespace(name=name, expressions=[text])
                for name, text in zip(_CRON_FIELDS, state["fields"], strict=True)
            ]
            start = datetime.fromisoformat(state["start_time"])
            return SimpleNamespace(
                kind=kind,
                fields=fields,
                timezone=state["timezone"],
                start_date=start if start > now else None,
                end_date=_moment_of_row(state["end_time"]),
            )
        case "IntervalTrigger":
            weeks, days, hours, minutes, seconds, microseconds = state["interval"]
            return SimpleNamespace(
                kind=kind,
                interval=timedelta(days, seconds, microseconds, 0, minutes, hours, weeks),
                start_date=datetime.fromisoformat(state["start_time"]),
                end_date=_moment_of_row(state["end_time"]),
            )
        case "CalendarIntervalTrigger":
            years, months, weeks, days = state["interval"]
            return SimpleNamespace(
                kind=kind,
                years=years,
                months=months,
                weeks=weeks,
                days=days,
                _time=time(*state["time"]),
                start_date=date.fromisoformat(state["start_date"]),
                end_date=state["end_date"],
                timezone=state["timezone"],
            )
        case "DateTrigger":
            return SimpleNamespace(kind=kind, run_date=datetime.fromisoformat(state["run_time"]))
        case "OrTrigger":
            parts = [_trigger(str(each[0]).rpartition(":")[2], each[1], now) for each in state["triggers"]]
            return SimpleNamespace(kind=kind, triggers=parts)
        case _:
            return SimpleNamespace(kind=kind)


def _moment_of_row(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
