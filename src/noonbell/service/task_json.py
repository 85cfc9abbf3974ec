"""A task as JSON: `shown` for everybody to read, `written` for a change to be laid over. The inverse of `task_fields`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noonbell.clock import rfc3339
from noonbell.model.task import ExecType, Task, TaskSpec
from noonbell.service.activity import Activity
from noonbell.service.http_fields import HTTP_FIELDS
from noonbell.service.reader import Problems
from noonbell.service.secrets import MASK, masked, refuse_carried, unmasked
from noonbell.service.task_fields import READ_ONLY
from noonbell.when.cron_fields import Dialect

_MERGED: Final = ("retry_policy", "circuit", "rate_limit", "fanout")
"""A partial change of these names single fields; any other field is replaced as a whole."""

_BY_KIND: Final = ("timeout_seconds", "retry_policy", "max_concurrency")
"""Their default depends on the kind of target."""


def written(spec: TaskSpec) -> dict[str, Any]:
    """The fields as somebody would have to write them, secrets included. Not for answers."""
    fields: dict[str, Any] = msgspec.to_builtins(spec)
    for name in ("start_at", "end_at"):
        fields[name] = None if fields[name] is None else rfc3339(fields[name])
    return fields


def shown(task: Task, activity: Activity) -> dict[str, Any]:
    """Every field of a task, for answers: times as RFC 3339, secrets masked."""
    fields = written(task.spec)
    fields["headers"] = masked(task.spec.headers)
    fields["secret"] = None if task.spec.secret is None else MASK
    return {
        "id": task.id,
        "name": fields.pop("name"),
        "status": task.status,
        "version": task.version,
        **fields,
        "cron_expr": cron_expr(task.spec),
        "cron_dialect": cron_dialect(task.spec),
        "skip_next": task.skip_next,
        "created_by": task.created_by,
        "created_at": rfc3339(task.created_at),
        "updated_at": rfc3339(task.updated_at),
        "next_fire_at": None if task.next_fire_at is None else rfc3339(task.next_fire_at),
        "last_run_id": activity.last_run_id,
        "last_run_at": None if activity.last_run_at is None else rfc3339(activity.last_run_at),
        "last_run_status": activity.last_run_status,
        "active_runs": activity.active_runs,
        "queued_runs": activity.queued_runs,
    }


def cron_expr(spec: TaskSpec) -> str | None:
    """The short form of a cron schedule, in six fields; None for any other."""
    schedule = spec.schedule
    return str(schedule["expr"]) if schedule is not None and schedule["type"] == "cron" else None


def cron_dialect(spec: TaskSpec) -> str | None:
    """How `cron_expr` is to be read; None where there is none."""
    schedule = spec.schedule
    if schedule is None or schedule["type"] != "cron":
        return None
    return str(schedule.get("dialect", Dialect.STANDARD))


def replaced(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a full change asks for: `given` alone, with the secrets that it shows as masked."""
    fields = _without_echo(task, given)
    fields.setdefault("managed_by", task.spec.managed_by)
    refuse_carried(task.spec, given, fields)
    return fields


def merged(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a partial change asks for: `given` laid over what the task says now."""
    fields = _without_echo(task, given)
    base = _base_for(task.spec, fields)
    for name in _MERGED:
        if isinstance(fields.get(name), Mapping) and base.get(name) is not None:
            fields[name] = {**base[name], **fields[name]}
    kept: dict[str, Any] = base.get("schedule") or {}
    is_cron = kept.get("type") == "cron"
    if fields.get("cron_dialect") is not None and is_cron and not {"cron_expr", "schedule"} & fields.keys():
        fields["cron_expr"] = kept.get("source") or kept["expr"]
    if "cron_expr" in fields:
        base.pop("schedule", None)
        if fields["cron_expr"] is not None and is_cron:
            # The rest of a cron schedule (dialect, repeat) stays when its expression changes.
            rest = {name: value for name, value in kept.items() if name != "source"}
            dialect = fields.pop("cron_dialect", None) or rest.get("dialect")
            fields["schedule"] = {**rest, "dialect": dialect, "expr": fields.pop("cron_expr")}
    made = {**base, **fields}
    refuse_carried(task.spec, given, made)
    return made


def _without_echo(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` without what is only an answer sent back: read-only fields, masks, the schedule in both its forms."""
    fields = {name: value for name, value in given.items() if name not in READ_ONLY}
    if isinstance(fields.get("headers"), Mapping):
        fields["headers"] = unmasked(fields["headers"], task.spec.headers)
    if fields.get("secret") == MASK and task.spec.secret is not None:
        fields["secret"] = task.spec.secret
    if fields.get("status") == task.status:
        del fields["status"]
    is_same_dialect = fields.get("cron_dialect") in (None, cron_dialect(task.spec))
    if "schedule" in fields and "cron_expr" in fields:
        # An answer has both. The one that was not touched is an echo; with both changed, the caller has to choose.
        if fields["cron_expr"] == cron_expr(task.spec) and (
            is_same_dialect or fields["schedule"] != task.spec.schedule
        ):
            del fields["cron_expr"]
        elif fields["schedule"] == task.spec.schedule:
            del fields["schedule"]
    if is_same_dialect and fields.get("cron_expr") is None:
        fields.pop("cron_dialect", None)
    return fields


def _base_for(spec: TaskSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What the task says now, as far as it survives a change of the kind of its target."""
    base = written(spec)
    was_job = spec.exec_type is ExecType.JOB
    wants_job = (
        changes["exec_type"] == ExecType.JOB if changes.get("exec_type") else was_job or bool(changes.get("job_type"))
    )
    if was_job == wants_job:
        return base
    plain = TaskSpec(name="x", exec_type=spec.exec_type)
    gone = {"exec_type", "queue", *(("job_type",) if was_job else HTTP_FIELDS)}
    gone.update(name for name in _BY_KIND if getattr(spec, name) == getattr(plain, name))
    return {name: value for name, value in base.items() if name not in gone}


def check_new(given: Mapping[str, Any]) -> None:
    """A task that is made anew has no history to name."""
    problems = Problems()
    for name in given:
        if name in READ_ONLY:
            problems.add(name, "is read only; leave it out of a new task")
    problems.finish()
