"""A task as somebody would write it into a file: what `noonbell export` and the dashboard hand out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from noonbell import when
from noonbell.model.task import ExecType, TaskSpec
from noonbell.service.task_fields import READ_ONLY
from noonbell.service.task_json import written as whole
from noonbell.when.cron import Cron
from noonbell.when.cron_fields import Dialect

_DROPPED: Final = ("managed_by", "created_by", "skip_next", "cron_expr", "cron_dialect")


def written(task: dict[str, Any], *, versions: bool = False) -> dict[str, Any]:
    """What somebody would have to write to get this task: nothing that is its default anyway."""
    kind = ExecType(task["exec_type"])
    defaults = whole(TaskSpec(name="", exec_type=kind, job_type=task["job_type"]))
    defaults = msgspec.json.decode(msgspec.json.encode(defaults))  # lists, as in an answer
    fields = {"name": task["name"]}
    for name, value in task.items():
        if name in READ_ONLY or name in _DROPPED or name in ("name", "schedule"):
            continue
        if name == "status":
            if value == "DISABLED":
                fields[name] = value
        elif name not in defaults or value != defaults[name] or name == "job_type":
            fields[name] = value
    if kind is ExecType.ASYNC:
        fields["exec_type"] = str(kind)
    fields = {name: value for name, value in fields.items() if value is not None or defaults.get(name) is not None}
    fields.update(_schedule(task["schedule"], task["timezone"]))
    return {**fields, "version": task["version"]} if versions else fields


def _schedule(schedule: dict[str, Any] | None, zone: str) -> dict[str, Any]:
    """The shorthand where it says the same, with its dialect where another installation may read it otherwise."""
    if schedule is None:
        return {}
    if schedule["type"] == "cron":
        short, dialect = schedule.get("source") or schedule["expr"], schedule.get("dialect", Dialect.STANDARD)
        if when.normalise({"type": "cron", "expr": short, "dialect": dialect}, zone) == schedule:
            is_clear = dialect == Dialect.STANDARD and not is_read_otherwise(schedule, zone)
            return {"cron_expr": short} if is_clear else {"cron_expr": short, "cron_dialect": dialect}
    return {"schedule": schedule}


def is_read_otherwise(schedule: dict[str, Any], zone: str, dialects: Iterable[Dialect] = Dialect) -> bool:
    """Whether the text of a cron schedule would name other moments in one of the dialects."""
    found = when.parse(schedule, zone)
    return isinstance(found, Cron) and any(found.reads_otherwise(each) for each in dialects)
