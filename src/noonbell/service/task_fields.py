"""From a JSON object to a TaskSpec: every field of a task with its check. The inverse is `task_json`.

`read_task` reads a whole task: what is absent has its default. A partial change is laid over what the task says now
(`task_json.written`) and read as a whole again, so there is one set of rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, slot_of
from noonbell.errors import ScheduleError
from noonbell.model.task import (
    HTTP_QUEUE,
    ConcurrencyPolicy,
    Delivery,
    ExecType,
    FailureAction,
    MisfirePolicy,
    OnExhausted,
    OnLost,
    OverlapAction,
    TaskSpec,
    TaskStatus,
)
from noonbell.service.http_fields import HTTP_FIELDS, read_http
from noonbell.service.policy_fields import read_circuit, read_fanout, read_rate_limit, read_retry_policy
from noonbell.service.reader import Problems, Reader, unfit
from noonbell.service.retention import Keep, read_keep
from noonbell.service.rules import Rules
from noonbell.when import due
from noonbell.when.cron import with_dialect
from noonbell.when.cron_fields import Dialect

INT32: Final = 2**31 - 1
YEAR: Final = 31_536_000
MOST_BYTES: Final = 60_000
"""Of the columns that hold a small JSON object: what MariaDB's `text` takes, with room to spare."""

READ_ONLY: Final = frozenset(
    {
        *("id", "version", "created_by", "created_at", "updated_at", "deleted_at", "next_fire_at", "last_run_id"),
        *(
            "last_run_at",
            "last_run_status",
            "active_runs",
            "queued_runs",
            "next_fires",
            "notes",
            "description_of_schedule",
        ),
    }
)
"""What an answer shows and nobody writes. In a change these are passed over, so that a task can be sent back as read."""

_MANAGER = re.compile(r"api|(file|code):.{1,200}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A task as somebody asks for it."""

    spec: TaskSpec
    status: TaskStatus | None = None
    """None: ENABLED for a new task, as it stands for a change."""
    skip_next: int | None = None


def read_task(given: Mapping[str, Any], now: Instant, rules: Rules, *, kept: Mapping[str, Any] | None = None) -> Draft:
    """Raises InvalidArgument with every problem by its field's name.

    `now` is what "at once" means in a schedule. `kept` is the schedule that the task has now, if it has one: where the
    new one differs only in a moment that was left out, it stays.
    """
    problems = Problems()
    reader = Reader(given, problems)
    values: dict[str, Any] = {}
    _read_identity(reader, values)
    _read_kind(reader, values, rules)
    _read_when(reader, values, now, rules, kept)
    _read_policies(reader, values, rules)
    _read_flow(reader, values, rules)
    status = _read_status(reader)
    skip_next = reader.integer("skip_next", None, -1, 1_000_000)
    reader.finish("a task")
    problems.finish()
    return Draft(TaskSpec(**values), status, skip_next)


def _read_identity(reader: Reader, values: dict[str, Any]) -> None:
    values["name"] = read_name(reader, "name")
    values["description"] = reader.text("description", "", most=4_000, lines=True)
    values["labels"] = _read_labels(reader)
    values["external_id"] = reader.text("external_id", None, least=1)
    values["meta"] = _read_meta(reader)
    manager = reader.text("managed_by", "api", least=1)
    if _MANAGER.fullmatch(manager) is None:
        reader.expected("managed_by", "api, file:NAME or code:NAME")
    values["managed_by"] = manager


def _read_meta(reader: Reader) -> dict[str, Any]:
    """The caller's own, but for the names by which a task says how long its history is kept."""
    inner = reader.object("meta")
    if inner is None:
        return {}
    read_keep(inner, Keep(days=0))
    return reader.json("meta") or {}


def read_name(reader: Reader, field: str) -> str:
    """A name that can stand in a path, a log line and a unique column."""
    if reader.get(field) is None:
        reader.wrong(field, "is missing; expected a text of 1 to 255 characters")
        return ""
    name = reader.text(field, "", least=1)
    if name != name.strip():
        reader.expected(field, "a name without a blank at its ends")
    return name


def _read_labels(reader: Reader) -> dict[str, str]:
    inner = reader.object("labels")
    if inner is None:
        return {}
    labels: dict[str, str] = {}
    for name, value in inner.given.items():
        if not 1 <= len(name) <= 255 or unfit(name) is not None:
            reader.wrong("labels", f"has the name {ascii(name)[:60]}; expected 1 to 255 characters")
        elif not isinstance(value, str) or len(value) > 255 or unfit(value) is not None:
            inner.expected(name, "a text of at most 255 characters")
        else:
            labels[name] = value
    if len(msgspec.json.encode(labels)) > MOST_BYTES:
        reader.wrong("labels", f"are more than {MOST_BYTES} bytes")
    return labels


def _read_status(reader: Reader) -> TaskStatus | None:
    if reader.get("status") is None:
        return None
    status = reader.choice("status", TaskStatus, TaskStatus.ENABLED)
    if status not in (TaskStatus.ENABLED, TaskStatus.DISABLED):
        reader.expected("status", "one of ENABLED, DISABLED; the others come of themselves")
    return status


def _read_kind(reader: Reader, values: dict[str, Any], rules: Rules) -> None:
    """What is done: an HTTP call, or a job."""
    job_type = reader.text("job_type", None, least=1)
    implied = ExecType.SYNC if job_type is None else ExecType.JOB
    kind = reader.choice("exec_type", ExecType, implied)
    values["exec_type"], values["job_type"] = kind, job_type
    values["payload"] = reader.json("payload")
    if kind is ExecType.JOB:
        if reader.get("job_type") is None:
            reader.wrong("job_type", "is missing; a JOB names the handler that carries it out")
        values["queue"] = reader.text("queue", "default", least=1)
        if values["queue"] == HTTP_QUEUE:
            reader.wrong("queue", "is 'http'; that queue is for HTTP targets, expected another one")
        _refuse_http_fields(reader)
        return
    if job_type is not None:
        reader.wrong("job_type", f"is for tasks of exec_type JOB, and this one is {kind}; leave one of the two out")
    if reader.text("queue", HTTP_QUEUE) not in ("", HTTP_QUEUE):
        reader.expected("queue", "nothing: HTTP targets live on the queue 'http'")
    read_http(reader, values, rules.check_template)


def _refuse_http_fields(reader: Reader) -> None:
    for name, default in HTTP_FIELDS.items():
        if reader.get(name) not in (None, "", default):
            reader.wrong(name, "is for HTTP targets, and this task is a JOB; leave it out")


def _read_when(
    reader: Reader, values: dict[str, Any], now: Instant, rules: Rules, kept: Mapping[str, Any] | None
) -> None:
    zone = _read_zone(reader)
    values["timezone"] = zone
    values["start_at"] = start = reader.moment("start_at", zone)
    values["end_at"] = end = reader.moment("end_at", zone)
    if start is not None and end is not None and end < start:
        reader.wrong("end_at", "is before start_at")
    values["jitter_seconds"] = reader.integer("jitter_seconds", 0, 0, YEAR)
    spec = schedule_asked_for(reader)
    values["schedule"] = None
    if spec is None:
        return
    try:
        schedule = _normal(spec, zone, now, rules, kept)
    except ScheduleError as error:
        _name_shorthand(reader, error)
        return
    values["schedule"] = schedule
    _check_jitter(reader, values, slot_of(now))


def _read_zone(reader: Reader) -> str:
    value = reader.get("timezone")
    if value is None:
        return "UTC"
    try:
        when.zone(value)
    except ScheduleError as error:
        reader.problems.take(error)
        return "UTC"
    return str(value)


def schedule_asked_for(reader: Reader) -> Any:
    """The schedule that is given, or the one that its short form `cron_expr`, `cron_dialect` stands for."""
    spec, shorthand, dialect = reader.get("schedule"), reader.get("cron_expr"), reader.get("cron_dialect")
    if shorthand is None:
        if dialect is not None:
            reader.wrong(
                "cron_dialect", "says how a cron expression is read, and there is none; a schedule has its own dialect"
            )
        return spec
    if spec is not None:
        reader.wrong("cron_expr", "is the short form of schedule; expected one of the two, not both")
        return None
    return {"type": "cron", "expr": shorthand, **({} if dialect is None else {"dialect": dialect})}


def short_name(reader: Reader, name: str) -> str:
    """What a field of the schedule is called by who wrote `cron_expr`."""
    if reader.get("cron_expr") is None:
        return name
    return {"schedule.expr": "cron_expr", "schedule.dialect": "cron_dialect"}.get(name, name)


def _normal(spec: Any, zone: str, now: Instant, rules: Rules, kept: Mapping[str, Any] | None) -> dict[str, Any]:
    slot = slot_of(now)
    spec = _in_its_dialect(spec, zone, slot, rules, kept)
    normal = when.normalise(spec, zone, slot, seconds_field=rules.seconds_field)
    moment = {"interval": "anchor", "once": "at"}.get(normal["type"])
    if kept is not None and moment is not None and spec.get(moment) is None and moment in kept:
        # The caller left open what creation decided. Asked for again, it is no other schedule.
        again = when.normalise({**spec, moment: kept[moment]}, zone, slot, seconds_field=rules.seconds_field)
        if again == kept:
            return again
    return normal


def _in_its_dialect(spec: Any, zone: str, slot: int, rules: Rules, kept: Mapping[str, Any] | None) -> Any:
    """A cron that names no dialect has the one of the settings; but the same expression stays in the one that it has."""
    if kept is not None and kept["type"] == "cron":
        again = with_dialect(spec, Dialect(kept.get("dialect", Dialect.STANDARD)))
        if again is not spec and _expr_of(again, zone, slot, rules) == kept["expr"]:
            return again
    return with_dialect(spec, rules.cron_dialect)


def _expr_of(spec: Any, zone: str, slot: int, rules: Rules) -> str | None:
    try:
        return str(when.normalise(spec, zone, slot, seconds_field=rules.seconds_field)["expr"])
    except ScheduleError:
        return None


def _name_shorthand(reader: Reader, error: ScheduleError) -> None:
    """Who wrote `cron_expr` is told about `cron_expr`."""
    for name, problem in error.details.items():
        reader.wrong(short_name(reader, name), str(problem))


def _check_jitter(reader: Reader, values: dict[str, Any], now: int) -> None:
    jitter = values["jitter_seconds"]
    if not jitter:
        return
    gap = due.shortest_gap(when.parse(values["schedule"], values["timezone"]), now)
    if gap is not None and jitter >= gap:
        reader.expected("jitter_seconds", f"less than the {gap} seconds between two slots of the schedule")


def _read_policies(reader: Reader, values: dict[str, Any], rules: Rules) -> None:
    is_job = values["exec_type"] is ExecType.JOB
    timeout = reader.number("timeout_seconds", 0, -YEAR, 2_592_000, "seconds, at most 2592000 (30 days)")
    values["timeout_seconds"] = timeout if timeout > 0 else (rules.job_timeout if is_job else rules.http_timeout)
    values["retry_policy"] = read_retry_policy(reader, rules.job_retry if is_job else rules.http_retry)
    values["max_concurrency"] = (
        reader.integer("max_concurrency", None, 0, 1_000_000, "0 to 1000000, or null for no limit")
        if reader.has("max_concurrency")
        else (None if is_job else 1)
    )
    values["concurrency_policy"] = reader.choice("concurrency_policy", ConcurrencyPolicy, ConcurrencyPolicy.QUEUE)
    values["queue_depth"] = reader.integer("queue_depth", None, 0, INT32, "0 or more, or null for no limit")
    values["overlap_action"] = reader.choice("overlap_action", OverlapAction, OverlapAction.ALLOW)
    values["failure_action"] = reader.choice("failure_action", FailureAction, FailureAction.RUN_NEW)
    values["circuit"] = read_circuit(reader)
    values["misfire_policy"] = reader.choice("misfire_policy", MisfirePolicy, MisfirePolicy.FIRE_NOW)
    values["catchup_limit"] = reader.integer("catchup_limit", 0, 0, 100_000)
    if values["misfire_policy"] is MisfirePolicy.CATCH_UP_LIMITED and values["catchup_limit"] < 1:
        reader.wrong("catchup_limit", "is 0; CATCH_UP_LIMITED needs 1 or more, the number of late slots to run")
    values["misfire_grace_seconds"] = reader.integer("misfire_grace_seconds", 10, 0, YEAR)


def _read_flow(reader: Reader, values: dict[str, Any], rules: Rules) -> None:
    values["priority"] = reader.integer("priority", 0, -1_000_000_000, 1_000_000_000)
    values["rate_limit"] = read_rate_limit(reader)
    values["fanout"] = read_fanout(reader)
    _read_lease(reader, values)
    workers = reader.texts("specific_worker_ids", most=1_000)
    if len(msgspec.json.encode(workers)) > MOST_BYTES:
        reader.wrong("specific_worker_ids", f"are more than {MOST_BYTES} bytes")
    values["specific_worker_ids"] = workers
    values["min_worker_version"] = reader.integer("min_worker_version", 0, 0, INT32)
    values["delivery"] = reader.choice("delivery", Delivery, Delivery.AT_LEAST_ONCE)
    values["on_lost"] = reader.choice("on_lost", OnLost, rules.on_lost)
    values["max_lost"] = reader.integer("max_lost", 3, 0, 1_000_000)
    values["on_exhausted"] = reader.choice("on_exhausted", OnExhausted, OnExhausted.KEEP)
    values["delete_on_complete"] = reader.flag("delete_on_complete", default=False)


def _read_lease(reader: Reader, values: dict[str, Any]) -> None:
    lease = reader.integer("worker_timeout_ms", 15_000, 100, 86_400_000)
    # A short lease with no word about the heartbeat gets a heartbeat that fits.
    ping = reader.integer("ping_interval_ms", min(5_000, lease // 3), 10, 28_800_000)
    if ping >= lease:
        reader.expected("ping_interval_ms", f"less than worker_timeout_ms ({lease}), or every lease would run out")
    values["worker_timeout_ms"], values["ping_interval_ms"] = lease, ping
