"""The form of a task: from a task to fields, and from fields to what `Tasks.create` and `Tasks.change` take. Pure.

The form has the fields that most tasks need. All others are one text of JSON, `rest`, so that nothing is out of reach.
What the form does not show of a task (a kind of schedule that it does not know, fields that have their defaults) is taken
from the task that is saved: see `change_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.errors import InvalidArgument, InvalidJson
from noonbell.model.task import TaskSpec
from noonbell.service.reader import Problems
from noonbell.web import schedules
from noonbell.web.jsontext import read_json
from noonbell.web.tasks.versions import told
from noonbell.web.visit import as_json

KINDS: Final = ("http", "callback", "job")
EXEC_TYPES: Final = {"http": "SYNC", "callback": "ASYNC", "job": "JOB"}
WHENS: Final = ("cron", "interval", "weekly", "monthly", "once", "none")
UNITS: Final = ("second", "minute", "hour", "day")
PRESETS: Final = {
    "hourly": "0 * * * *",
    "daily": "0 2 * * *",
    "weekdays": "30 8 * * MON-FRI",
    "month_end": "0 23 L * *",
}

_TEXTS: Final = ("name", "description", "timezone")
_HTTP: Final = ("http_method", "target_url", "body_template")
_CHOICES: Final = ("concurrency_policy", "overlap_action", "failure_action", "misfire_policy")
_NUMBERS: Final = ("timeout_seconds", "jitter_seconds", "priority", "catchup_limit")
_RETRY: Final = ("max_retries", "initial_delay")
_BOUNDS: Final = ("start_at", "end_at")
_SHOWN_FOR: Final = {
    **dict.fromkeys(("http_method", "target_url", "headers", "body_template"), ("http", "callback")),
    **dict.fromkeys(("job_type", "payload", "queue"), ("job",)),
    "callback_timeout_sec": ("callback",),
}
"""Fields that the form shows only for some kinds of target."""
_IN_FORM: Final = frozenset(
    {
        *(*_TEXTS, *_HTTP, *_CHOICES, *_NUMBERS, *_BOUNDS),
        *("labels", "headers", "schedule", "exec_type", "job_type", "payload", "queue"),
        *("max_concurrency", "callback_timeout_sec", "managed_by"),
    }
)
_ELSEWHERE: Final = ("schedule", "exec_type", "managed_by", "retry_policy")
"""Fields of a task that are looked after one by one."""
SCHEDULE: Final = ("every", "unit", "weekday", "day", "time", "at", "repeat", "mode", "anchor", "dialect", "dst")
"""Fields of schedules that the form shows by their own names."""
EMPTY: Final[dict[str, str]] = {
    "kind": "http",
    "when": "cron",
    "http_method": "POST",
    "unit": "minute",
    "every": "5",
    "weekday": "1",
    "day": "1",
    "time": "09:00:00",
    "timezone": "UTC",
    "enabled": "on",
    "strategy": "exponential",
    "mode": "fixed_rate",
    "dialect": "standard",
    "dst": "debian",
    "run_if_late": "true",
    **dict.fromkeys(("cron_expr", "at", "anchor", "repeat"), ""),
}


# From a task


def fields_of(task: Mapping[str, Any], dialect: str = EMPTY["dialect"]) -> dict[str, str]:
    """What the form shows of a task, as the service tells it. `dialect`: of a cron that the task does not have yet."""
    kind = _kind_of(task)
    fields = {name: str(task[name] or "") for name in (*_TEXTS, *_HTTP, *_CHOICES)}
    fields |= {name: number(task[name]) for name in _NUMBERS}
    fields |= {name: task[name] or "" for name in _BOUNDS}
    retry = dict(task["retry_policy"])
    fields |= {
        "kind": kind,
        "labels": "\n".join(f"{name}={value}" for name, value in task["labels"].items()),
        "headers": "\n".join(f"{name}: {value}" for name, value in task["headers"].items()),
        "job_type": task["job_type"] or "",
        "payload": "" if task["payload"] is None else as_json(task["payload"]),
        "queue": task["queue"] if kind == "job" else "",
        "callback_timeout_sec": number(task["callback_timeout_sec"]),
        "max_concurrency": number(task["max_concurrency"]),
        "max_retries": number(retry.pop("max_retries")),
        "initial_delay": number(retry.pop("initial_delay")),
        "strategy": str(retry.pop("strategy")),
        "enabled": "on" if task["status"] == "ENABLED" else "",
        "version": str(task["version"]),
        "rest": rest_of(task),
    }
    return {**EMPTY, "dialect": dialect, **fields, **_schedule_fields(task["schedule"])}


def _kind_of(task: Mapping[str, Any]) -> str:
    return {"SYNC": "http", "ASYNC": "callback"}.get(task["exec_type"], "job")


def _has_field(name: str, kind: str) -> bool:
    """Whether the form of a task with that kind of target has a field for it."""
    return name in _IN_FORM and kind in _SHOWN_FOR.get(name, (kind,))


def whens_for(fields: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of schedule to choose from; with the one that the task has, if the form has no fields for it."""
    kind = fields.get("when") or "none"
    return WHENS if kind in WHENS else (kind, *WHENS)


def rest_of(task: Mapping[str, Any]) -> str:
    """All that the form has no field for and that is not what it would be anyway."""
    plain = told(TaskSpec(name="x", exec_type=task["exec_type"], job_type=task["job_type"]))
    kind = _kind_of(task)
    rest = {name: task[name] for name in plain if not _has_field(name, kind) and task[name] != plain[name]}
    retry, usual = dict(task["retry_policy"]), plain["retry_policy"]
    kept = {
        name: value
        for name, value in retry.items()
        if name not in (*_RETRY, "strategy") and list_of(value) != list_of(usual[name])
    }
    rest.pop("retry_policy", None)
    if kept:
        rest["retry_policy"] = kept
    return as_json(rest) if rest else ""


def list_of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def number(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else str(value)


def _schedule_fields(schedule: Mapping[str, Any] | None) -> dict[str, str]:
    if schedule is None:
        return {"when": "none"}
    fields = {"when": str(schedule["type"]), "cron_expr": schedules.written(schedule)}
    for name in SCHEDULE:
        if schedule.get(name) is not None:
            fields[name] = str(schedule[name])
    fields["run_if_late"] = "false" if schedule.get("run_if_late") is False else "true"
    return fields


# To a task


def given_of(fields: Mapping[str, str], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The task that the form asks for. `old` is its schedule so far: what the form does not show of it stays.

    Raises InvalidArgument for what is no number, no JSON, or no line of the kind that is expected; the rest is checked by
    the service.
    """
    problems = Problems()
    kind = fields.get("kind", "http")
    given: dict[str, Any] = {name: fields[name].strip() for name in _TEXTS if fields.get(name, "").strip()}
    given |= {name: fields[name] for name in _CHOICES if fields.get(name)}
    given |= {name: fields[name].strip() for name in _BOUNDS if fields.get(name, "").strip()}
    given["exec_type"] = EXEC_TYPES.get(kind, "SYNC")
    given["labels"] = _lines(fields, "labels", "=", problems)
    if kind == "job":
        _read_job(fields, given, problems)
    else:
        _read_http(fields, given, problems)
    for name in _NUMBERS:
        _read_number(fields, name, given, problems)
    _read_number(fields, "max_concurrency", given, problems)
    if "max_concurrency" not in given and kind != "job" and fields.get("max_concurrency") == "":
        given["max_concurrency"] = None
    schedule = schedule_of(fields, old, problems)
    if schedule is not None:
        given["schedule"] = schedule
    given["status"] = "ENABLED" if fields.get("enabled") else "DISABLED"
    _read_rest(fields, given, problems)
    _read_retry(fields, given, problems)
    problems.finish()
    return given


def change_of(fields: Mapping[str, str], old: Mapping[str, Any]) -> dict[str, Any]:
    """The whole task that a save asks for. `old` is the task as the service tells it, and as the form showed it: every field
    that is still as it was shown, or was not sent, keeps its value to the letter.

    A field that was emptied, or taken out of `rest`, has its default. One that has its default already is not in `rest`; it
    stays as it is, for an installation may have set another default since.
    """
    kind = fields.get("kind") or _kind_of(old)
    given = given_of({**fields, "kind": kind}, old["schedule"])
    if old["exec_type"] != given["exec_type"]:
        return given
    seen = fields_of(old, fields.get("dialect", EMPTY["dialect"]))

    def is_same(name: str) -> bool:
        return fields.get(name, seen[name]).replace("\r\n", "\n") == seen[name].replace("\r\n", "\n")

    plain = told(TaskSpec(name="x", exec_type=old["exec_type"], job_type=old["job_type"]))
    for name, usual in plain.items():
        if name in _ELSEWHERE:
            continue
        if is_same(name) if _has_field(name, kind) else is_same("rest") or (name not in given and old[name] == usual):
            given[name] = old[name]
    if all(map(is_same, ("when", "cron_expr", *SCHEDULE, "run_if_late"))):
        given["schedule"] = old["schedule"]
    retry: dict[str, Any] = dict(given.get("retry_policy") or {})
    for name, value in old["retry_policy"].items():
        is_usual = list_of(value) == list_of(plain["retry_policy"][name])
        if is_same(name) if name in (*_RETRY, "strategy") else is_same("rest") or (name not in retry and is_usual):
            retry[name] = value
    return {**given, "retry_policy": retry} if "max_retries" in retry else given


def _read_job(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    given["job_type"] = fields.get("job_type", "").strip()
    if fields.get("queue", "").strip():
        given["queue"] = fields["queue"].strip()
    if fields.get("payload", "").strip():
        given["payload"] = _json(fields, "payload", problems)


def _read_http(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    given["http_method"] = fields.get("http_method", "GET")
    given["target_url"] = fields.get("target_url", "").strip()
    given["headers"] = _lines(fields, "headers", ":", problems)
    if fields.get("body_template"):
        given["body_template"] = fields["body_template"].replace("\r\n", "\n")
    if fields.get("kind") == "callback":
        _read_number(fields, "callback_timeout_sec", given, problems)


def _read_number(fields: Mapping[str, str], name: str, given: dict[str, Any], problems: Problems) -> None:
    text = fields.get(name, "").strip()
    if not text:
        return
    try:
        value = float(text)
    except ValueError:
        problems.add(name, f"is {text[:40]!r}; expected a number")
        return
    given[name] = int(value) if value.is_integer() else value


def _read_retry(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    retry: dict[str, Any] = dict(given.get("retry_policy") or {})
    for name in _RETRY:
        _read_number(fields, name, retry, problems)
    if fields.get("strategy"):
        retry["strategy"] = fields["strategy"]
    if "max_retries" in retry:
        given["retry_policy"] = retry


def _read_rest(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    if not fields.get("rest", "").strip():
        return
    rest = _json(fields, "rest", problems)
    if not isinstance(rest, dict):
        problems.add("rest", "is not an object; expected {…} with fields of a task")
        return
    for name, value in rest.items():
        if _has_field(name, fields.get("kind", "http")):
            problems.add("rest", f"has {name!r}, which has a field of its own in the form")
        given[name] = value


def _json(fields: Mapping[str, str], name: str, problems: Problems) -> Any:
    try:
        return read_json(fields[name])
    except InvalidJson as error:
        problems.add(name, error.message)
        return {}


def _lines(fields: Mapping[str, str], name: str, mark: str, problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in fields.get(name, "").splitlines():
        if not line.strip():
            continue
        key, there, value = line.partition(mark)
        if not there or not key.strip():
            problems.add(name, f"has the line {line.strip()[:60]!r}; expected NAME{mark}VALUE")
            continue
        found[key.strip()] = value.strip()
    return found


def schedule_of(fields: Mapping[str, str], old: Mapping[str, Any] | None, problems: Problems) -> dict[str, Any] | None:
    """The schedule that the fields say; None for a task on demand. `old` is the one that the task has."""
    kind = fields.get("when", "none" if old is None else str(old["type"]))
    if kind == "none":
        return None
    if old is not None and old["type"] == kind and ("when" not in fields or kind not in WHENS):
        return dict(old)
    if kind not in WHENS:
        problems.add("when", f"is {kind[:40]!r}; expected one of {', '.join(WHENS)}")
        return None
    found: dict[str, Any] = {}
    if old is not None and old.get("type") == kind:
        found = {name: value for name, value in old.items() if name != "source"}
    found["type"] = kind
    match kind:
        case "cron":
            found["expr"] = fields.get("cron_expr", "").strip()
            found |= {name: fields[name] for name in ("dialect", "dst") if fields.get(name)}
        case "interval":
            _read_number(fields, "every", found, problems)
            found["unit"] = fields.get("unit", "minute")
            found |= {name: fields[name].strip() or None for name in ("mode", "anchor") if name in fields}
        case "weekly":
            _read_number(fields, "weekday", found, problems)
            found["time"] = fields.get("time", "").strip()
        case "monthly":
            _read_number(fields, "day", found, problems)
            found["time"] = fields.get("time", "").strip()
        case _:
            found["at"] = fields.get("at", "").strip() or None
            if "run_if_late" in fields:
                found["run_if_late"] = fields["run_if_late"] != "false"
    if kind != "once" and "repeat" in fields:
        found["repeat"] = None
        _read_number(fields, "repeat", found, problems)
    return found


_KNOWN: Final = frozenset({*_IN_FORM, *_RETRY, *SCHEDULE, "cron_expr", "when", "rest"} - {"schedule", "managed_by"})
"""Names of what the form has a box for."""


def problems_of(error: InvalidArgument) -> dict[str, str]:
    """By the field of the form that it is about; what has no field is said on top, under the empty name."""
    names = {
        **dict.fromkeys(("schedule", "schedule.type"), "when"),
        "schedule.expr": "cron_expr",
        "cron_expr": "cron_expr",
    }
    found: dict[str, str] = {}
    for name, problem in error.details.items() or [("", error.message)]:
        head = names.get(name) or name.removeprefix("schedule.").removeprefix("retry_policy.").partition(".")[0]
        where = head if head in _KNOWN else ""
        said = str(problem) if where and name == head else f"{name}: {problem}"
        found[where] = f"{found[where]}; {said}" if where in found else said
    return found
