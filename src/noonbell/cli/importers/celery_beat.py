"""Celery beat: the `beat_schedule` and the `add_periodic_task(…)` of a module, or the tables of django-celery-beat.

The module is read and not executed: its text is parsed, and only literals, `crontab(…)`, `schedule(…)`, `timedelta(…)`
and names that the module itself sets are understood. What else stands there is refused by name.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from noonbell.cli.importers.cron_text import WEEKDAYS, cron_fields, interval_of, schedule_of_cron, weekdays_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import is_database, rows_of, text_from
from noonbell.when.zones import find

_SCHEDULES: Final = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES: Final = ("timezone", "CELERY_TIMEZONE")
_QUEUES: Final = ("task_default_queue", "CELERY_TASK_DEFAULT_QUEUE", "CELERY_DEFAULT_QUEUE")
_LIMITS: Final = ("task_time_limit", "CELERY_TASK_TIME_LIMIT", "CELERYD_TASK_TIME_LIMIT")
_ROUTES: Final = ("task_routes", "CELERY_TASK_ROUTES", "CELERY_ROUTES")
_LEFT_OUT: Final = (
    *("task_soft_time_limit", "CELERY_TASK_SOFT_TIME_LIMIT", "CELERYD_TASK_SOFT_TIME_LIMIT"),
    *("task_annotations", "CELERY_TASK_ANNOTATIONS", "CELERY_ANNOTATIONS"),
    *("task_default_rate_limit", "CELERY_TASK_DEFAULT_RATE_LIMIT", "CELERY_DEFAULT_RATE_LIMIT"),
)
"""Settings that say something of every task, and have no counterpart in a file of tasks."""
_CRONTAB: Final = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")


_SUN: Final = "runs by the sun, which is not supported"


_OPERATORS: Final = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class _Crontab(NamedTuple):
    minute: str = "*"
    hour: str = "*"
    day_of_week: str = "*"
    day_of_month: str = "*"
    month_of_year: str = "*"


class _NotLiteral(Exception):
    """A part of the module that only executing it would tell; the message shows it."""


class _Module:
    """The names that a module sets, evaluated when they are asked for."""

    def __init__(self, text: str) -> None:
        self.named: dict[str, ast.expr] = {}
        self.added: list[ast.Dict] = []
        """What is put into the schedule after it was set."""
        self.periodic: list[ast.Call] = []
        self.places: dict[str, str] = {}
        """Where imported names come from, with the dot; "" for a name that the module defines."""
        self.task_names: dict[str, str] = {}
        """Of functions whose decorator names them."""
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        if isinstance(target, ast.Subscript) and _last_name(target.value) in _SCHEDULES:
                            self.added.append(ast.Dict([target.slice], [value]))
                        self._set(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._set(target, value)
                case ast.Call(func=ast.Attribute(attr="add_periodic_task")):
                    self.periodic.append(node)
                case ast.ImportFrom(module=str(module), names=names):
                    self.places.update({each.asname or each.name: f"{module}.{each.name}" for each in names})
                case ast.Import(names=names):
                    self.places.update({each.asname: each.name for each in names if each.asname})
                case ast.FunctionDef(name=name, decorator_list=decorators):
                    self.places[name] = ""
                    for decorator in decorators:
                        self._name_task(name, decorator)
                case ast.Call(func=ast.Attribute(attr="update", value=owner), args=[ast.Dict() as more]) if (
                    _last_name(owner) in _SCHEDULES
                ):
                    self.added.append(more)
                case ast.Call(func=ast.Attribute(attr="update"), args=args, keywords=keywords):
                    self.named.update({each.arg: each.value for each in keywords if each.arg})
                    for arg in args:
                        if isinstance(arg, ast.Dict):
                            for key, value in zip(arg.keys, arg.values, strict=True):
                                self._set(ast.Subscript(arg, key or arg), value)
                case _:
                    continue

    def _set(self, target: ast.expr, value: ast.expr) -> None:
        """`beat_schedule = …`, `app.conf.beat_schedule = …`, `app.conf["beat_schedule"] = …`."""
        match target:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                self.named[name] = value
            case _:
                return

    def _name_task(self, function: str, decorator: ast.expr) -> None:
        """`@app.task(name="…")`."""
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            match keyword:
                case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                    self.task_names[function] = name

    def first_of(self, names: Iterable[str]) -> ast.expr | None:
        """The value of the first of these names that the module sets."""
        return next((self.named[name] for name in names if name in self.named), None)

    def items(self, node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
        match node:
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is None:  # **others
                        yield from self.items(value)
                    else:
                        yield key, value
            case ast.Call(func=ast.Name(id="dict"), keywords=keywords, args=[]):
                yield from ((ast.Constant(each.arg), each.value) for each in keywords)
            case ast.Name(id=name) if name in self.named:
                yield from self.items(self.named[name])
            case _:
                raise _NotLiteral(ast.unparse(node))

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > 50:
            raise _NotLiteral(ast.unparse(node))
        read = partial(self.value, depth=depth + 1)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Dict() | ast.Call(func=ast.Name(id="dict"), args=[]):
                return {read(key): read(value) for key, value in self.items(node)}
            case ast.List(elts=each) | ast.Tuple(elts=each) | ast.Set(elts=each):
                return [read(one) for one in each]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._number(read(inner), node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._sum(read(left), op, read(right), node)
            case ast.Name(id=name) if name in self.named:
                return read(self.named[name])
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given, keywords=keywords):
                return self._call(
                    name, [read(one) for one in given], {str(one.arg): read(one.value) for one in keywords}, node
                )
            case _:
                raise _NotLiteral(ast.unparse(node))

    def _number(self, value: Any, node: ast.expr) -> Any:
        if isinstance(value, int | float | timedelta):
            return value
        raise _NotLiteral(ast.unparse(node))

    def _sum(self, left: Any, op: ast.operator, right: Any, node: ast.expr) -> Any:
        left, right = self._number(left, node), self._number(right, node)
        try:
            return _OPERATORS[type(op)](left, right)
        except (LookupError, ArithmeticError, TypeError):
            raise _NotLiteral(ast.unparse(node)) from None

    def _call(self, name: str, given: list[Any], keywords: dict[str, Any], node: ast.expr) -> Any:
        try:
            match name:
                case "timedelta":
                    return timedelta(*given, **keywords)
                case "crontab":
                    fields = dict(zip(_Crontab._fields, given, strict=False)) | keywords
                    return _Crontab(**{key: _text(value) for key, value in fields.items()})
                case "solar":
                    raise Refused(_SUN)
                case "schedule" if given or "run_every" in keywords:
                    return given[0] if given else keywords["run_every"]
        except (TypeError, OverflowError):
            pass
        raise _NotLiteral(ast.unparse(node))


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_module(text: str, zone: str | None, name: str = "tasks") -> Iterator[Imported]:
    """ValueError if the module has no schedule. `zone`: in place of the one that the module names. `name`: that of the module."""
    module = _Module(text)
    asked = module.first_of(_SCHEDULES)
    if asked is None and not module.added and not module.periodic:
        raise ValueError(f"sets no {', '.join(_SCHEDULES)}, and calls no add_periodic_task")
    named = module.first_of(_ZONES)
    if zone is None and named is None and _is_local(module):
        raise ValueError("its schedule is in the zone of the machine, because enable_utc is off; give --tz")
    if zone is None:
        try:
            zone = find("UTC" if named is None else module.value(named)).name
        except _NotLiteral as error:
            raise ValueError(f"its timezone is {error}, which is not written out; give --tz") from None
    try:
        parts = [*([] if asked is None else [asked]), *module.added]
        entries = [entry for part in parts for entry in module.items(part)]
    except _NotLiteral as error:
        raise ValueError(f"its schedule is {error}, which is not written out") from None
    last = {ast.unparse(key): value for key, value in entries}
    readers: list[tuple[str, Callable[[Findings], dict[str, Any] | None]]] = [
        *(
            (written, partial(_entry, module, key, value, zone) if last[written] is value else _replaced)
            for key, value in entries
            for written in [ast.unparse(key)]
        ),
        *((ast.unparse(call), partial(_periodic, module, call, zone, name)) for call in module.periodic),
    ]
    rest = _TaskSettings(module)
    return read_entries(
        (f"entry {number}", source, partial(rest.complete, read)) for number, (source, read) in enumerate(readers, 1)
    )


class _TaskSettings:
    """What the module says of all tasks, for those that do not say it themselves: queue, routes, time limit."""

    def __init__(self, module: _Module) -> None:
        self._unread = [f"{name} is left out" for name in _LEFT_OUT if name in module.named]
        self._queue: str | None = self._setting(module, _QUEUES, str)
        self._limit: float | None = self._setting(module, _LIMITS, (int, float))
        self._routes: dict[str, Any] = self._setting(module, _ROUTES, dict) or {}

    def _setting(self, module: _Module, names: tuple[str, ...], kind: Any) -> Any:
        name = next((each for each in names if each in module.named), None)
        if name is None:
            return None
        try:
            value = module.value(module.named[name])
        except (_NotLiteral, Refused):
            value = ...
        if value is None or isinstance(value, kind):
            return value
        self._unread.append(f"{name} is not written out in a way that is known here, and is left out")
        return None

    def complete(self, read: Callable[[Findings], dict[str, Any] | None], found: Findings) -> dict[str, Any] | None:
        task = read(found)
        if task is None:
            return None
        found.changes += self._unread
        if "queue" not in task and (queue := self._route(task["job_type"], found) or self._queue):
            task["queue"] = queue
        if self._limit is not None:
            task.setdefault("timeout_seconds", self._limit)
        found.say_time_limit(task)
        return task

    def _route(self, job_type: str, found: Findings) -> str | None:
        """Its own name goes before patterns, and of those the first."""
        named = (job_type, *(pattern for pattern in self._routes if fnmatchcase(job_type, str(pattern))))
        route = next((self._routes[each] for each in named if each in self._routes), None)
        if route is None or isinstance(route, str):
            return route
        given = dict(route) if isinstance(route, dict) else {str(route): ""}
        queue = given.pop("queue", None)
        if given:
            found.changes.append(f"its route in task_routes is left out: {', '.join(map(str, given))}")
        return str(queue) if queue is not None else None


def _is_local(module: _Module) -> bool:
    found = module.first_of(("enable_utc", "CELERY_ENABLE_UTC"))
    return isinstance(found, ast.Constant) and not found.value


def _periodic(module: _Module, call: ast.Call, zone: str, name: str, found: Findings) -> dict[str, Any]:
    """`app.add_periodic_task(schedule, task.s(…), args, kwargs, name)` with options of apply_async."""
    given = dict(zip(("schedule", "sig", "args", "kwargs", "name"), call.args, strict=False))
    given |= {str(each.arg): each.value for each in call.keywords}
    match given.pop("sig", None):
        case ast.Call(func=ast.Attribute(value=task, attr="s" | "si"), args=args, keywords=keywords):
            job_type = _task_name(module, task, name)
        case signature:
            shown = "nothing" if signature is None else ast.unparse(signature)
            raise Refused(f"sends {shown}, which is not written out as TASK.s(…)")
    try:
        read = {key: module.value(value) for key, value in given.items()}
        positional = [*(read.pop("args", None) or []), *(module.value(each) for each in args)]
        named = {**(read.pop("kwargs", None) or {}), **{str(each.arg): module.value(each.value) for each in keywords}}
    except _NotLiteral as error:
        raise _unwritten(error) from None
    except TypeError:
        raise Refused("its args are no list, or its kwargs no object") from None
    entry = {"task": job_type, "schedule": read.pop("schedule", None), "args": positional, "kwargs": named}
    return _task_of(str(read.pop("name", None) or job_type), {**entry, "options": read}, zone, found)


def _task_name(module: _Module, task: ast.expr, name: str) -> str:
    """The name that Celery gives it: that of its module and its own."""
    root, dot, rest = ast.unparse(task).partition(".")
    if not dot and root in module.task_names:
        return module.task_names[root]
    place = module.places.get(root)
    if place is None:
        return f"{root}{dot}{rest}" if dot else f"{name}.{root}"
    return f"{place or f'{name}.{root}'}{dot}{rest}"


def _replaced(found: Findings) -> None:
    found.notes.append("another entry has the same key further down, and replaces this one")


def _unwritten(error: _NotLiteral) -> Refused:
    return Refused(f"{error} is not written out; only executing the module would tell what it is")


def _entry(module: _Module, key: ast.expr, value: ast.expr, zone: str, found: Findings) -> dict[str, Any]:
    try:
        name, entry = module.value(key), module.value(value)
    except _NotLiteral as error:
        raise _unwritten(error) from None
    if not isinstance(entry, dict) or not isinstance(entry.get("task"), str):
        raise Refused("names no task")
    for other in sorted(entry.keys() - {"task", "schedule", "args", "kwargs", "options", "relative"}):
        found.notes.append(f"{other} is unknown and was left out")
    if entry.get("relative"):
        found.changes.append("`relative` is left out: the interval counts from when the task is made")
    return _task_of(str(name), entry, zone, found)


def _task_of(name: str, entry: Mapping[str, Any], zone: str, found: Findings) -> dict[str, Any]:
    """An entry as `beat_schedule` has it."""
    return {
        "name": name,
        "timezone": zone,
        "job_type": entry["task"],
        **_schedule(entry.get("schedule"), zone),
        **_payload(entry.get("args") or [], entry.get("kwargs") or {}, found),
        **_options(entry.get("options") or {}, found),
        **_POLICY,
    }


_POLICY: Final = {"misfire_policy": "FIRE_ONCE", "retry_policy": {"max_retries": 0}}
"""Beat sends what is overdue once. Retries are the business of the task there; of the worker's job here."""


def _schedule(value: Any, zone: str) -> dict[str, Any]:
    match value:
        case _Crontab():
            return _crontab(value, zone)
        case timedelta() | int() | float():
            return {"schedule": interval_of(value.total_seconds() if isinstance(value, timedelta) else value)}
        case _:
            raise Refused(f"its schedule {value!r} is not supported")


def _crontab(given: _Crontab, zone: str) -> dict[str, Any]:
    return cron_fields(
        minute=given.minute,
        hour=given.hour,
        day=given.day_of_month,
        month=given.month_of_year,
        weekday=weekdays_of(given.day_of_week, _weekday, first=0),
        zone=zone,
    )


def _weekday(text: str) -> int:
    return WEEKDAYS.index(text[:3].upper()) if text[:1].isalpha() else range(7)[int(text) % 7]


def _payload(args: Any, kwargs: Any, found: Findings) -> dict[str, Any]:
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Refused("its args are no list, or its kwargs no object")
    try:
        json.dumps([args, kwargs], allow_nan=False)
    except (TypeError, ValueError):
        raise Refused("its arguments are not JSON") from None
    if not args:
        return {"payload": kwargs} if kwargs else {}
    found.changes.append("has positional arguments: the payload is {args, kwargs}, and the handler takes those two")
    return {"payload": {"args": args, "kwargs": kwargs}}


def _options(options: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        match name, value:
            case "queue", str():
                fields["queue"] = value
            case "expires", int() | float() if value >= 1:
                fields["expires_in_seconds"] = int(value)
            case "time_limit", int() | float() if value > 0:
                fields["timeout_seconds"] = value
            case "priority", int():
                fields["priority"] = value
                found.changes.append(f"priority {value}: the higher one is first here, on every broker it was not")
            case _:
                found.changes.append(f"the option {name} is left out")
    return fields


# django-celery-beat

TABLES: Final = {
    "tasks": "select * from django_celery_beat_periodictask order by id",
    "crontabs": "select * from django_celery_beat_crontabschedule",
    "intervals": "select * from django_celery_beat_intervalschedule",
    "clocked": "select * from django_celery_beat_clockedschedule",
}


def read_tables(tables: Mapping[str, list[dict[str, Any]]], zone: str) -> Iterator[Imported]:
    """The rows of `TABLES`. `zone`: of intervals and moments; a crontab has its own."""
    known = {name: {row["id"]: row for row in rows} for name, rows in tables.items() if name != "tasks"}
    return read_entries(
        (f"row {row['id']}", str(row.get("name")), partial(_row, row, known, zone)) for row in tables["tasks"]
    )


_Known = Mapping[str, Mapping[Any, Mapping[str, Any]]]
"""The rows of each table but that of the tasks, by their ids."""


def _row(row: Mapping[str, Any], known: _Known, zone: str, found: Findings) -> dict[str, Any] | None:
    if row["task"] == "celery.backend_cleanup":
        found.notes.append("cleans Celery's own results, and is left out")
        return None
    if row.get("one_off") and row.get("enabled") and row.get("total_run_count"):
        found.notes.append("was to run once and has, and is left out")
        return None
    names = ("queue", "priority", "exchange", "routing_key")
    options = {name: row.get(name) for name in names if row.get(name) not in (None, "")}
    if row.get("expire_seconds"):
        options["expires"] = row["expire_seconds"]
    if row.get("headers") not in (None, "", "{}"):
        options["headers"] = row["headers"]
    task: dict[str, Any] = {
        "name": str(row["name"]),
        "job_type": str(row["task"]),
        **_row_times(row, known, zone),
        **_payload(_json(row.get("args"), []), _json(row.get("kwargs"), {}), found),
        **_options(options, found),
        **_POLICY,
    }
    found.say_time_limit(task)
    if row.get("description"):
        task["description"] = str(row["description"])
    for column, name in (("start_time", "start_at"), ("expires", "end_at")):
        if row.get(column):
            task[name] = _moment(row[column])
    if not row.get("enabled"):
        task["status"] = "DISABLED"
    return task


def _row_times(row: Mapping[str, Any], known: _Known, zone: str) -> dict[str, Any]:
    """An interval goes on from its last run; what is to run once has one slot."""
    task = _row_schedule(row, known, zone)
    if row.get("one_off") and "cron_expr" in task:
        task["schedule"] = schedule_of_cron(task)
        task = {name: value for name, value in task.items() if name not in ("cron_expr", "cron_dialect")}
    schedule = task.get("schedule", {})
    if row.get("last_run_at") and schedule.get("type") == "interval":
        schedule["anchor"] = _moment(row["last_run_at"])
    if row.get("one_off") and schedule.get("type") != "once":
        schedule["repeat"] = 1
    return task


def _row_schedule(row: Mapping[str, Any], known: _Known, zone: str) -> dict[str, Any]:
    if (crontab := known["crontabs"].get(row.get("crontab_id"))) is not None:
        own = find(str(crontab.get("timezone") or zone)).name
        fields = _Crontab(*(str(crontab[name]) for name in _CRONTAB))
        return {"timezone": own, **_crontab(fields, own)}
    if (interval := known["intervals"].get(row.get("interval_id"))) is not None:
        seconds = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}.get(str(interval["period"]))
        if seconds is None:
            raise Refused(
                f"runs every {interval['every']} {interval['period']}; seconds are the shortest supported interval"
            )
        return {"timezone": zone, "schedule": interval_of(int(interval["every"]) * seconds)}
    if (clocked := known["clocked"].get(row.get("clocked_id"))) is not None:
        return {"timezone": zone, "schedule": {"type": "once", "at": _moment(clocked["clocked_time"])}}
    raise Refused(_SUN if row.get("solar_id") else "has no schedule")


def _moment(value: Any) -> str:
    """Django writes UTC; SQLite and MySQL give it without a zone."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise Refused(f"{value!r} is not a time") from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(text: Any, default: Any) -> Any:
    try:
        return json.loads(text) if text else default
    except (TypeError, json.JSONDecodeError):
        raise Refused(f"{text!r} is not JSON") from None


@click.command("celery")
@click.argument("source")
@click.option("--tz", metavar="ZONE", help="The zone of the schedule [that of the module, else UTC].")
@import_options
def celery_beat_command(source: str, tz: str | None, **given: Any) -> int:
    """Celery beat: a module FILE.py with its schedule (read, not executed), or a database with django-celery-beat."""
    zone = None if tz is None else find(tz).name
    if is_database(source):
        return finish(read_tables(rows_of(source, TABLES), zone or "UTC"), "celery", **given)
    try:
        return finish(read_module(text_from(source), zone, Path(source).stem), "celery", **given)
    except (ValueError, SyntaxError) as error:
        raise click.BadParameter(f"{source}: {error}", param_hint="SOURCE") from None
