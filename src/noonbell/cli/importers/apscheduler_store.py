"""Schedules of APScheduler 4 in a database, where its serializer wrote JSON. Nothing of it is unpickled: pickles, and CBOR of
classes, are refused row by row.

A trigger's JSON names its class and its state. Both become an object as `apscheduler` reads those of version 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from noonbell.cli.importers.apscheduler import EACH_LATE_SLOT, payload_of, schedule_of
from noonbell.cli.importers.report import Findings, Imported, Refused, read_entries, say_time_limit
from noonbell.clock import Instant, to_datetime

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
        (f"schedule {number}", str(row["id"]), partial(_task, row, known, to_datetime(now)))
        for number, row in enumerate(schedules, 1)
    )


def _task(row: Mapping[str, Any], tasks: Mapping[str, Any], now: datetime, found: Findings) -> dict[str, Any] | None:
    if row["next_fire_time"] is None:
        found.notes.append("has fired for the last time, and is left out")
        return None
    of_task = tasks.get(str(row["task_id"]), {})
    trigger, args, kwargs = (_json(row[name], name) for name in ("trigger", "args", "kwargs"))
    try:
        named = trigger["_apscheduler_json"]
    except (KeyError, TypeError):
        raise Refused("its trigger is JSON of a kind that is not known here") from None
    task: dict[str, Any] = {
        "name": str(row["id"]),
        "job_type": str(of_task.get("func") or row["task_id"]),
        **_when(named, now, found),
        **payload_of(list(args), dict(kwargs), found),
        "retry_policy": {"max_retries": 0},
        "max_concurrency": of_task.get("max_running_jobs"),
    }
    _misfires(row, task, found)
    say_time_limit(task, found)
    if row["max_jitter"]:
        task["jitter_seconds"] = -(-int(row["max_jitter"]) // _SECOND)
    if row["paused"]:
        task["status"] = "DISABLED"
    if row.get("metadata") and (given := _json(row["metadata"], "metadata")):
        task["meta"] = given
    if (executor := row.get("job_executor")) not in (None, "async", "threadpool"):
        found.changes.append(f"the executor {executor!r} is left out: a worker carries it out")
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
        raise Refused(f"its {name} is no JSON, and nothing else is read: use a store with the JSONSerializer") from None


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
                end_date=_moment(state["end_time"]),
            )
        case "IntervalTrigger":
            weeks, days, hours, minutes, seconds, microseconds = state["interval"]
            return SimpleNamespace(
                kind=kind,
                interval=timedelta(days, seconds, microseconds, 0, minutes, hours, weeks),
                start_date=datetime.fromisoformat(state["start_time"]),
                end_date=_moment(state["end_time"]),
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


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
