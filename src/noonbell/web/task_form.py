"""The form of a task: from a task to fields, and from fields to what `Tasks.create` and `Tasks.change` take. Pure.

The form has the fields that most tasks need. All others are in one JSON text, `rest`, so that every field can be
edited. The boxes of schedules, and of targets other than HTTP and jobs, are made from the declarations of their fields.
What the form does not show of a task (a schedule type that is not in the table, fields with their default) is kept as it was
saved: see `change_of`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import msgspec

from noonbell import when
from noonbell.errors import NoonbellError, Sentence
from noonbell.fields import StructField, table
from noonbell.fields.kinds import BoolKind, ChoiceKind, IntegerKind, NumberKind, TextKind, TimeKind
from noonbell.fields.problems import Problems
from noonbell.model.calendar import TaskCalendar
from noonbell.model.target_kind import BROKERS, GRPC, HTTP, JOBS, MESSAGE_FIELDS, TARGET_KINDS
from noonbell.model.task import Circuit, Fanout, RateLimit, RetryPolicy, Task, TaskSpec
from noonbell.model.task_schedule import After, ClockChanges, UpstreamOutcome
from noonbell.service.task_files import needs_dialect
from noonbell.service.tasks import masked_fields
from noonbell.web.context import as_json
from noonbell.web.explanation import cron_text
from noonbell.web.forms import box_text, number_or_text, problems_by_box, read_box, read_json_box


@dataclass(frozen=True, slots=True)
class MadeBox:
    """An input that is made from the declaration of a field."""

    name: str
    """The label is `field.NAME` of the locales, the hint `hint.NAME`, if there is one."""
    shown_for: tuple[str, ...]
    """The kinds of schedule, or of target, that have the field."""
    is_number: bool
    options: tuple[str, ...]
    """What is chosen from, if it is a choice."""
    prefix: str
    """Of the options in the locales: `choice.NAME.OPTION` where `_PREFIXES` has nothing else."""
    placeholder: str
    initial: str
    is_finer: bool
    """Most tasks have its default."""


_FORM_NAMES: Final = {"expr": "cron_expr", "dst": "cron_dst"}
"""Fields of schedules that the form calls otherwise."""
_NOT_SHOWN: Final = ("source",)
_BOXED: Final = (BoolKind, ChoiceKind, IntegerKind, NumberKind, TextKind, TimeKind)
"""Kinds of values that a box can hold."""
_OPTIONS: Final = {"weekday": ("1", "2", "3", "4", "5", "6", "0")}
_PREFIXES: Final = {
    "unit": "unit_name.",
    "weekday": "weekday.",
    "dialect": "cron_dialect.",
    "cron_dst": "cron_dst.",
    "mode": "interval_mode.",
    "run_if_late": "late.",
}


def _boxes(declared: Iterable[tuple[str, str, StructField, bool]]) -> tuple[MadeBox, ...]:
    """From (kind, name, field, whether it is the kind's first): one for each name; numbers before what they count."""
    found: dict[str, MadeBox] = {}
    for kind, name, field, is_first in declared:
        box = found.get(name)
        found[name] = (
            _box(kind, name, field, is_first) if box is None else replace(box, shown_for=(*box.shown_for, kind))
        )
    return tuple(sorted(found.values(), key=lambda box: (box.is_finer, not box.is_number)))


def _box(kind: str, name: str, field: StructField, is_first: bool) -> MadeBox:
    example = _text(next(iter(field.extra.get("examples", ())), None))
    options: tuple[str, ...] = _OPTIONS.get(name, ())
    placeholder = ""
    match field.kind:
        case BoolKind():
            options = ("true", "false")
        case ChoiceKind(options=words):
            options = tuple(words)
        case TimeKind():
            placeholder = "2027-01-01T09:00:00+08:00"
        case TextKind():
            placeholder = example
    return MadeBox(
        name=name,
        shown_for=(kind,),
        is_number=isinstance(field.kind, IntegerKind | NumberKind),
        options=options,
        prefix=_PREFIXES.get(name, f"choice.{name}."),
        placeholder=placeholder,
        initial=example if field.is_required else _text(field.default),
        is_finer=not field.is_required and not is_first,
    )


def _text(value: Any) -> str:
    """A value as its box has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


SEVERAL: Final = "several"
_KINDS_OF_SCHEDULE: Final = tuple(sorted(when.KINDS, key="once".__eq__))
WHENS: Final = (*_KINDS_OF_SCHEDULE, SEVERAL, "none")
SCHEDULE_BOXES: Final = _boxes(
    (kind, _FORM_NAMES.get(name, name), fields[name], name == next(iter(fields)))
    for kind in _KINDS_OF_SCHEDULE
    for fields in (table(when.KINDS[kind].Spec),)
    for name in fields
    if name not in _NOT_SHOWN
)
SCHEDULE: Final = tuple(box.name for box in SCHEDULE_BOXES)

EXEC_TYPES: Final = {
    {"SYNC": "http", "ASYNC": "callback"}.get(exec_type, exec_type.lower()): str(exec_type)
    for kind in sorted(TARGET_KINDS, key=lambda kind: (kind is not HTTP, kind is GRPC or kind in BROKERS))
    for exec_type in kind.exec_types
}
"""Those that people look for first: HTTP, then what workers carry out, then messages and calls."""
KINDS: Final = tuple(EXEC_TYPES)
_NAMES_OF_KINDS: Final = {exec_type: name for name, exec_type in EXEC_TYPES.items()}
TARGET_BOXES: Final = _boxes(
    (_NAMES_OF_KINDS[exec_type], name, table(TaskSpec)[name], True)
    for kind in TARGET_KINDS
    if kind not in (HTTP, JOBS)
    for exec_type in kind.exec_types
    for name in kind.fields
    if isinstance(table(TaskSpec)[name].kind, _BOXED)
)
PRESETS: Final = {
    "hourly": "0 * * * *",
    "daily": "0 2 * * *",
    "weekdays": "30 8 * * MON-FRI",
    "month_end": "0 23 L * *",
}

_BOXES: Final = (
    *("name", "description", "labels", "timezone", "start_at", "end_at", "jitter_seconds", "http_method", "target_url"),
    *("headers", "body_template", "cancel_url", "callback_timeout_sec", "job_type", "steps", "command", "env"),
    *(*MESSAGE_FIELDS, "grpc", "payload", "queue", "timeout_seconds", "priority", "concurrency_key", "max_per_key"),
    *("max_concurrency", "concurrency_policy", "overlap_action", "failure_action", "misfire_policy", "catchup_limit"),
    *("expires_in_seconds", "quiet", "spread_seconds", "sla"),
)
"""Fields of a task that the form lays out one by one; what each box shows and says is declared."""
_SHOWN_FOR: Final = {
    **dict.fromkeys(("http_method", "target_url", "headers", "body_template", "cancel_url"), ("http", "callback")),
    "job_type": ("job",),
    "queue": ("job", "command"),
    "steps": ("flow",),
    **dict.fromkeys(("command", "env"), ("command",)),
    **{name: (name,) for name in MESSAGE_FIELDS},
    "grpc": ("grpc",),
    "payload": ("job", "flow", "command", *MESSAGE_FIELDS, "grpc"),
    "callback_timeout_sec": ("callback", "grpc"),
    **{box.name: box.shown_for for box in TARGET_BOXES},
}
"""Fields that the form shows only for some kinds of target."""
_FIGURES: Final[dict[str, type[msgspec.Struct]]] = {"rate_limit": RateLimit, "fanout": Fanout, "circuit": Circuit}
"""Groups with boxes for figures. All empty: the task has none, or the usual one."""
GROUPS: Final = {"dst": ClockChanges, "calendar": TaskCalendar, "after": After, **_FIGURES}
"""Fields of a task that have a box for each of their own fields: `rate_limit_max`."""
GROUP_BOXES: Final = {group: tuple(f"{group}_{name}" for name in table(struct)) for group, struct in GROUPS.items()}
LISTS: Final = ("schedules", "exclude")
"""Boxes with a schedule on each line: a cron expression, or the JSON of any kind."""
_MARKS: Final = {"labels": "=", "headers": ": ", "env": "="}
_RETRY: Final = ("max_retries", "initial_delay", "strategy")
_ELSEWHERE: Final = ("schedule", *LISTS, "exec_type", "managed_by", "retry_policy", *GROUPS)
"""Fields of a task that are looked after one by one."""
_IN_FORM: Final = frozenset({*_BOXES, *(box.name for box in TARGET_BOXES), *_ELSEWHERE} - {"retry_policy"})
_SAID_BY: Final = {
    "schedule": ("when", *SCHEDULE),
    "schedules": ("when", "schedules"),
    "exclude": ("exclude",),
    **GROUP_BOXES,
}
"""The boxes of each field of a task that has several, or another name in the form."""
NAMES: Final = (_IN_FORM - {*_ELSEWHERE}) | {*_RETRY, *chain(*_SAID_BY.values()), "rest"}
"""Fields that the form has a box for, and that a problem can be shown at."""
_ON_TOP: Final = (
    *("", "name", "http_method", "target_url", "headers", "body_template", "cancel_url", "callback_timeout_sec"),
    "job_type",
)
_AT_THE_END: Final = (*_RETRY, "failure_action")
_SCHEDULED: Final = (
    *("when", *SCHEDULE, "timezone", "jitter_seconds", "start_at", "end_at"),
    *(*GROUP_BOXES["calendar"], *GROUP_BOXES["after"]),
)
_ONES: Final = ("queue", "steps", "payload", *(box.name for box in TARGET_BOXES), "description", "labels")
ORDER: Final = (
    *(*_ON_TOP, *_ONES, *_SCHEDULED),
    *sorted(NAMES - {*_ON_TOP, *_ONES, *_SCHEDULED, *_AT_THE_END}),
    *_AT_THE_END,
)
"""NAMES as the form has them from top to bottom, and before them the name of what concerns no box."""
NO_LIMIT: Final = "unlimited"
"""In the box of `max_concurrency`: null where the kind of target has another default."""
_DEFAULTED: Final = tuple(name for name in _BOXES if isinstance(table(TaskSpec)[name].kind, ChoiceKind))
"""Boxes to choose from: a new form has chosen what a task has that says nothing of them."""
EMPTY: Final[dict[str, str]] = {
    **{box.name: box.initial for box in (*SCHEDULE_BOXES, *TARGET_BOXES)},
    **{
        f"{group}_{name}": "" if field.is_required else _text(field.default)
        for group in ("after", "calendar")
        for name, field in table(GROUPS[group]).items()
    },
    **dict.fromkeys((*LISTS, *chain(*(GROUP_BOXES[group] for group in ("dst", *_FIGURES)))), ""),
    "kind": "http",
    "when": "cron",
    **{name: _text(table(TaskSpec)[name].default) for name in _DEFAULTED},
    "cron_expr": "",
    "unit": "minute",
    "every": "5",
    "timezone": "UTC",
    "enabled": "on",
    "strategy": "exponential",
}


# From a task


def fields_of(task: Mapping[str, Any], dialect: str = EMPTY["dialect"]) -> dict[str, str]:
    """What the form shows of a task, as the service tells it. `dialect`: of a cron that the task does not have yet."""
    kind, spec, retry = _kind_of(task), table(TaskSpec), table(RetryPolicy)
    fields = {name: box_text(spec[name].kind, task[name], _MARKS.get(name, "")) for name in _BOXES}
    fields |= {box.name: _text(task[box.name]) for box in TARGET_BOXES}
    # Whole: what a step has by itself depends on its kind, so nothing may be left out as a default of the Struct.
    fields["steps"] = as_json([{"id": step["id"], **step} for step in task["steps"]]) if task["steps"] else ""
    fields |= {name: box_text(retry[name].kind, task["retry_policy"][name]) for name in _RETRY}
    fields |= {
        "kind": kind,
        "queue": fields["queue"] if _has_field("queue", kind) else "",
        "command": command_text(task["command"]),
        "max_concurrency": _limit_text(task["max_concurrency"], task["exec_type"]),
        "enabled": "on" if task["status"] == "ENABLED" else "",
        "version": str(task["version"]),
        "rest": rest_of(task),
    }
    said = {**_schedule_fields(task["schedule"]), **_list_fields(task), **_group_fields(task)}
    return {**EMPTY, "dialect": dialect, **fields, **said}


def _limit_text(limit: int | None, exec_type: str) -> str:
    """Empty where that is the default of the kind of target, and no limit."""
    if limit is None:
        return "" if default_limit(exec_type) is None else NO_LIMIT
    return str(limit)


def default_limit(exec_type: str) -> int | None:
    """The `max_concurrency` of a task that says nothing of it."""
    return next(kind.max_concurrency for kind in TARGET_KINDS if exec_type in kind.exec_types)


def command_text(command: Any) -> str:
    """A command as its box has it: a text as it is, a list as JSON."""
    if command is None:
        return ""
    is_text = isinstance(command, str) and read_command(command) == command
    return command if is_text else json.dumps(command, ensure_ascii=False)


def read_command(text: str) -> Any:
    """What the box says: a list, or a text that a shell reads."""
    text = text.replace("\r\n", "\n")
    if text.strip()[:1] in ("[", '"'):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return found if isinstance(found, list | str) else text
    return text


def _kind_of(task: Mapping[str, Any]) -> str:
    return _NAMES_OF_KINDS[task["exec_type"]]


def _has_field(name: str, kind: str) -> bool:
    """Whether the form of a task with that kind of target has a field for it."""
    return name in _IN_FORM and kind in _SHOWN_FOR.get(name, (kind,))


def is_finer(fields: Mapping[str, str]) -> bool:
    """Whether the schedule has something that most do without."""
    named = ("start_at", "end_at", "jitter_seconds", "exclude", "calendar_name", *GROUP_BOXES["dst"])
    limited = any(fields.get(name, "") not in ("", "0") for name in named)
    return limited or any(box.is_finer and fields.get(box.name, "") not in ("", box.initial) for box in SCHEDULE_BOXES)


def whens_for(fields: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds of schedule to choose from; with the one that the task has, if the form has no fields for it."""
    kind = fields.get("when") or "none"
    return WHENS if kind in WHENS else (kind, *WHENS)


def rest_of(task: Mapping[str, Any]) -> str:
    """All that the form has no field for and that is not what it would be anyway."""
    plain = masked_fields(TaskSpec(name="x", exec_type=task["exec_type"], job_type=task["job_type"]))
    kind = _kind_of(task)
    rest = {name: task[name] for name in plain if not _has_field(name, kind) and task[name] != plain[name]}
    retry, usual = dict(task["retry_policy"]), plain["retry_policy"]
    kept = {
        name: value for name, value in retry.items() if name not in _RETRY and list_of(value) != list_of(usual[name])
    }
    rest.pop("retry_policy", None)
    if kept:
        rest["retry_policy"] = kept
    return as_json(rest) if rest else ""


def list_of(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _list_fields(task: Mapping[str, Any]) -> dict[str, str]:
    """What the boxes of LISTS say."""
    said = {name: "\n".join(_schedule_line(each, task["timezone"]) for each in task[name]) for name in LISTS}
    return said | ({"when": SEVERAL} if task["schedules"] else {})


def _schedule_line(schedule: Mapping[str, Any], zone: str) -> str:
    """A cron expression where that says it all, in every dialect; else JSON."""
    kept = {name: value for name, value in schedule.items() if value is not None}
    if kept.keys() <= {"type", "expr", "dialect", "source"} and not needs_dialect(dict(schedule), zone):
        return cron_text(schedule)
    return msgspec.json.encode(kept).decode()


def schedules_of(name: str, fields: Mapping[str, str], problems: Problems) -> list[Any]:
    """What a box of LISTS says."""
    lines = [line.strip() for line in fields.get(name, "").splitlines() if line.strip()]
    return [
        read_json_box(name, line, problems) if line.startswith("{") else {"type": "cron", "expr": line}
        for line in lines
    ]


def when_of(fields: Mapping[str, str], old: Mapping[str, Any] | None, problems: Problems) -> dict[str, Any]:
    """The fields of a task that say when it has slots. `old` is the schedule that the task has."""
    schedule = schedule_of(fields, old, problems)
    given: dict[str, Any] = {} if schedule is None else {"schedule": schedule}
    for name in LISTS:
        if name == "exclude" or fields.get("when") == SEVERAL:
            listed = schedules_of(name, fields, problems)
            given |= {name: listed} if listed else {}
    if fields.get("when") == SEVERAL and "schedules" not in given:
        problems.add("schedules", "is empty; expected a schedule on each line")
    dst = {name: fields[f"dst_{name}"] for name in table(ClockChanges) if fields.get(f"dst_{name}")}
    return given | ({"dst": dst} if dst else {})


def _schedule_fields(schedule: Mapping[str, Any] | None) -> dict[str, str]:
    if schedule is None:
        return {"when": "none"}
    named = {_FORM_NAMES.get(name, name): value for name, value in schedule.items() if value is not None}
    said = {name: _text(named[name]) for name in SCHEDULE if name in named}
    return {**said, "when": str(schedule["type"]), "cron_expr": cron_text(schedule)}


def _group_fields(task: Mapping[str, Any]) -> dict[str, str]:
    """What differs from a task that says nothing of them: a circuit of the usual figures has empty boxes."""
    found: dict[str, str] = {}
    for group, struct in GROUPS.items():
        value = task[group] or {}
        is_usual = all(not each.is_required and value.get(name) == each.default for name, each in table(struct).items())
        found |= {} if is_usual else {f"{group}_{name}": _text(each) for name, each in value.items()}
    if task["after"] is not None:
        found["after_tasks"] = "\n".join(_upstream_line(each) for each in task["after"]["tasks"])
    return found


def _upstream_line(upstream: Mapping[str, Any]) -> str:
    """`NAME`, or `NAME:failure`; of a name that ends like that itself, always with its outcome."""
    name, on = str(upstream["task"]), str(upstream["on"])
    return name if on == UpstreamOutcome.SUCCESS and _read_upstream(name)["task"] == name else f"{name}:{on}"


def _read_upstream(line: str) -> dict[str, str]:
    """A colon before anything but an outcome belongs to the name."""
    name, colon, on = line.rpartition(":")
    if not colon or on not in tuple(UpstreamOutcome):
        name, on = line, UpstreamOutcome.SUCCESS
    return {"task": name, "on": str(on)}


# To a task


def given_of(fields: Mapping[str, str], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The task that the form asks for. `old` is its schedule so far: what the form does not show of it stays.

    Raises InvalidArgument for what is no number, no JSON, or no line of the kind that is expected; the rest is checked by
    the service.
    """
    problems, spec = Problems(), table(TaskSpec)
    kind = fields.get("kind", "http")
    given: dict[str, Any] = {"exec_type": EXEC_TYPES.get(kind, "SYNC")}
    if kind in ("http", "callback", "job"):
        given["job_type" if kind == "job" else "target_url"] = ""
    for name in _BOXES:
        if name == "max_concurrency" and fields.get(name, "").strip().lower() == NO_LIMIT:
            given[name] = None
        elif _has_field(name, kind) and name != "command":
            value = read_box(spec[name], fields.get(name, ""), problems, _MARKS.get(name, "").strip())
            given |= {} if value is None else {name: value}
    if kind == "command" and (text := fields.get("command", "")).strip():
        given["command"] = read_command(text)
    for box in TARGET_BOXES:
        if kind in box.shown_for:
            _read_made(box.name, spec[box.name], fields, given, problems)
    if "body_template" in given:
        given["body_template"] = fields["body_template"].replace("\r\n", "\n")
    given |= when_of(fields, old, problems)
    if (calendar := calendar_of(fields, problems)) is not None:
        given["calendar"] = calendar
    if (after := after_of(fields, problems)) is not None:
        given["after"] = after
    given |= figures_of(fields)
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
    # What was not sent is not to be missed: `when` alone may be a schedule whose kind the form does not know.
    given = given_of({**_list_fields(old), **_group_fields(old), **fields, "kind": kind}, old["schedule"])
    if old["exec_type"] != given["exec_type"]:
        return given
    seen = fields_of(old, fields.get("dialect", EMPTY["dialect"]))

    def is_same(name: str) -> bool:
        return fields.get(name, seen[name]).replace("\r\n", "\n") == seen[name].replace("\r\n", "\n")

    plain = masked_fields(TaskSpec(name="x", exec_type=old["exec_type"], job_type=old["job_type"]))
    for name, usual in plain.items():
        if name in _ELSEWHERE:
            continue
        if is_same(name) if _has_field(name, kind) else is_same("rest") or (name not in given and old[name] == usual):
            given[name] = old[name]
    given |= {name: old[name] for name, boxes in _SAID_BY.items() if all(map(is_same, boxes))}
    retry: dict[str, Any] = dict(given.get("retry_policy") or {})
    for name, value in old["retry_policy"].items():
        is_usual = list_of(value) == list_of(plain["retry_policy"][name])
        if is_same(name) if name in _RETRY else is_same("rest") or (name not in retry and is_usual):
            retry[name] = value
    return {**given, "retry_policy": retry} if "max_retries" in retry else given


def _read_retry(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    retry: dict[str, Any] = dict(given.get("retry_policy") or {})
    for name in _RETRY:
        value = read_box(table(RetryPolicy)[name], fields.get(name, ""), problems)
        retry |= {} if value is None else {name: value}
    if "max_retries" in retry:
        given["retry_policy"] = retry


def _read_rest(fields: Mapping[str, str], given: dict[str, Any], problems: Problems) -> None:
    if not fields.get("rest", "").strip():
        return
    rest = read_json_box("rest", fields["rest"], problems)
    if not isinstance(rest, dict):
        problems.add("rest", "is not an object; expected {…} with fields of a task")
        return
    for name, value in rest.items():
        if _has_field(name, fields.get("kind", "http")):
            problems.add("rest", Sentence("has {value}, which has a field of its own in the form", value=repr(name)))
        given[name] = value


def schedule_of(fields: Mapping[str, str], old: Mapping[str, Any] | None, problems: Problems) -> dict[str, Any] | None:
    """The schedule that the fields say; None for a task on demand. `old` is the one that the task has: it is given up by
    choosing "No schedule", and not by an empty expression.
    """
    kind = fields.get("when", "none" if old is None else str(old["type"]))
    if kind in ("none", SEVERAL):
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
    for name, field in table(when.KINDS[kind].Spec).items():
        if name not in _NOT_SHOWN:
            _read_made(name, field, fields, found, problems)
    return found


def lacks_expression(fields: Mapping[str, str]) -> bool:
    """Whether a cron schedule is chosen, and its box is empty."""
    return fields.get("when") == "cron" and not fields.get("cron_expr", "").strip()


def calendar_of(fields: Mapping[str, str], problems: Problems) -> dict[str, Any] | None:
    """The calendar that the task keeps to; None where none is chosen."""
    if not fields.get("calendar_name"):
        return None
    found: dict[str, Any] = {}
    for name, field in table(TaskCalendar).items():
        _read_made(name, field, fields, found, problems, "calendar_")
    return found


def quiet_of(fields: Mapping[str, str], problems: Problems) -> Any:
    """The quiet hours, as the form has them."""
    return read_box(table(TaskSpec)["quiet"], fields.get("quiet", ""), problems) or []


def figures_of(fields: Mapping[str, str]) -> dict[str, Any]:
    """The groups of figures of which a box is filled in."""
    found: dict[str, Any] = {}
    for group, struct in _FIGURES.items():
        texts = {name: text for name in table(struct) if (text := fields.get(f"{group}_{name}", "").strip())}
        if texts:
            found[group] = {name: text if name == "key" else number_or_text(text) for name, text in texts.items()}
    return found


def after_of(fields: Mapping[str, str], problems: Problems) -> dict[str, Any] | None:
    """What the task runs after; None where no task is named."""
    lines = [line.strip() for line in fields.get("after_tasks", "").splitlines() if line.strip()]
    if not lines:
        return None
    found: dict[str, Any] = {"tasks": [_read_upstream(line) for line in lines]}
    for name, field in table(After).items():
        if name != "tasks":
            _read_made(name, field, fields, found, problems, "after_")
    return found


def _read_made(
    name: str,
    field: StructField,
    fields: Mapping[str, str],
    found: dict[str, Any],
    problems: Problems,
    prefix: str = "",
) -> None:
    """What a box of SCHEDULE_BOXES, TARGET_BOXES, `calendar` or `after` says. Where nothing is in it and the field
    must not be null, `found` keeps what it has.
    """
    text = fields.get(f"{prefix}{_FORM_NAMES.get(name, name)}")
    if text is None:
        return
    value = text != "false" if isinstance(field.kind, BoolKind) else read_box(field, text, problems)
    if value is not None or field.takes_null:
        found[name] = value
    elif isinstance(field.kind, TextKind):
        found[name] = ""


def problems_of(error: NoonbellError) -> dict[str, str]:
    """By the box that each is about; what has none is said on top, under the empty name."""
    return problems_by_box(error, NAMES, _box_of)


def _box_of(name: str) -> str:
    if name in ("schedule", "schedule.type"):
        return "when"
    group, _, inner = name.partition(".")
    if group in GROUPS:
        return f"{group}_{inner}" if inner else GROUP_BOXES[group][0]
    name = name.removeprefix("schedule.").removeprefix("retry_policy.")
    return _FORM_NAMES.get(name, name)


def is_managed(task: Task) -> bool:
    """By a file or by code, which would change it back."""
    return task.spec.managed_by.startswith(("file:", "code:"))
