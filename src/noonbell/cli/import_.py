"""`noonbell import …`: tasks from elsewhere, as a file for `noonbell apply`, with a report of every line.

A reader turns one kind of source into tasks, or says why it cannot: crontabs in `crontab.py`; here the tasks of a cronjob
service, as its API lists them or as its MySQL table `tasks` has them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click

from noonbell import when
from noonbell.cli import task_files
from noonbell.cli.options import text_of
from noonbell.cli.output import talk
from noonbell.cli.root import EXIT_FAILED, NounGroup
from noonbell.errors import ScheduleError, SettingsError, StoreUnavailable

_SHOWN = 70


@click.group("import", cls=NounGroup)
def import_command() -> None:
    """Turn a crontab or a cronjob service's tasks into a file of tasks.

    The tasks go to stdout, the report to stderr: what was translated, with its notes, and what could not be, and why.
    """


@import_command.command("crontab")
@click.argument("file")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The zone that cron runs in.")
@click.option("--system", is_flag=True, help="Lines have a user's name, as in /etc/crontab.")
@click.option("--job-type", metavar="TYPE", help="Make jobs of this type of what is not an HTTP call.")
@click.option("--commands", is_flag=True, help="Make COMMAND tasks of what is not an HTTP call.")
def crontab(file: str, tz: str, system: bool, job_type: str | None, commands: bool) -> int:
    """A crontab: FILE, or - for stdin."""
    from noonbell.cli.crontab import read_crontab
    from noonbell.when.zones import find

    if commands and job_type is not None:
        raise click.UsageError("--commands and --job-type both say what becomes of other commands; give one of them")
    text, zone = text_of(file, "FILE"), find(tz).name
    return _tell(list(read_crontab(text, zone=zone, system=system, job_type=job_type, commands=commands)))


@import_command.command("cronjob")
@click.argument("source")
def cronjob(source: str) -> int:
    """A cronjob service: a JSON file of its tasks, - for stdin, or its database as mysql://user@host/name."""
    import json

    if source.startswith("mysql://"):
        return _tell(list(read_cronjob_rows(mysql_rows(source))))
    try:
        return _tell(list(read_cronjob(text_of(source, "FILE"))))
    except (json.JSONDecodeError, TypeError) as error:
        raise click.BadParameter(f"{source} holds no list of tasks: {error}", param_hint="SOURCE") from None


def _tell(found: Iterable[Imported]) -> int:
    entries = list(found)
    for entry in entries:
        shown = entry.source if len(entry.source) <= _SHOWN else f"{entry.source[: _SHOWN - 1]}…"
        mark = "✖" if entry.refused else "✔" if entry.task else "·"
        name = f" → {entry.task['name']}" if entry.task else ""
        talk(f"{mark} {entry.where}: {shown}{name}")
        for line in [*([entry.refused] if entry.refused else []), *entry.notes]:
            talk(f"    {line}")
    tasks = [entry.task for entry in entries if entry.task]
    refused = sum(entry.refused is not None for entry in entries)
    talk(f"{len(tasks)} translated, {refused} refused")
    click.echo(task_files.as_yaml(tasks), nl=False)
    return EXIT_FAILED if refused else 0


@dataclass(frozen=True)
class Imported:
    """One entry of a source: a task, or the reason why there is none."""

    where: str
    """Such as `line 12`."""
    source: str
    task: dict[str, Any] | None = None
    refused: str | None = None
    notes: list[str] = field(default_factory=list)
    """What was left out or is to be looked at."""


def unused(name: str, taken: set[str]) -> str:
    """The name, or the name with a number; from now on it is taken."""
    found, number = name, 2
    while found in taken:
        found = f"{name}-{number}"
        number += 1
    taken.add(found)
    return found


FIELDS: Final = (
    *("name", "description", "cron_expr", "timezone", "exec_type", "http_method", "target_url", "headers"),
    *("body_template", "timeout_seconds", "retry_policy", "max_concurrency", "concurrency_policy", "overlap_action"),
    *("failure_action", "misfire_policy", "catchup_limit", "callback_method", "callback_timeout_sec", "status"),
)
_NOT_CARRIED: Final = {"id", "version", "created_at", "updated_at", "deleted", "created_by", "updated_by"}
_JSON: Final = {"headers_json": "headers", "retry_policy_json": "retry_policy"}
"""Columns that hold JSON, and the field that it is."""


def read_cronjob(text: str) -> Iterator[Imported]:
    """A list of tasks, one task, or a page of them: `{"items": [...]}`."""
    found = json.loads(text)
    rows = found.get("items", found.get("tasks", [found])) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TypeError("expected a list of tasks")
    return read_cronjob_rows(rows)


def read_cronjob_rows(rows: Sequence[Any]) -> Iterator[Imported]:
    taken: set[str] = set()
    for number, row in enumerate(rows, 1):
        where = f"task {number}"
        if not isinstance(row, Mapping):
            yield Imported(where, str(row)[:80], refused="is not an object")
            continue
        source = str(row.get("name") or row.get("id") or "")
        if row.get("deleted"):
            yield Imported(where, source, notes=["is deleted there, and left out"])
            continue
        notes: list[str] = []
        try:
            task = _task(row, notes)
        except (ScheduleError, ValueError) as error:
            yield Imported(where, source, refused=str(error), notes=notes)
            continue
        wanted = str(task["name"])
        task["name"] = unused(wanted, taken)
        if task["name"] != wanted:
            notes.append(f"the name {wanted!r} is there twice")
        yield Imported(where, source, task, notes=notes)


def _task(row: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    task: dict[str, Any] = {}
    for column, value in row.items():
        name = _JSON.get(column, column)
        if value is None or value == "":
            continue
        if name in FIELDS:
            task[name] = _decoded(column, value) if isinstance(value, str) and name in _JSON.values() else value
        elif name not in _NOT_CARRIED:
            notes.append(f"{column} is not known and left out")
    if not task.get("name"):
        raise ValueError("has no name")
    expr, zone = task.pop("cron_expr", None), str(task.get("timezone", "UTC"))
    if expr is not None:
        schedule = {"type": "cron", "expr": expr, "dialect": "cronjob"}
        when.parse(schedule, zone)
        task["schedule"] = schedule
    return task


def _decoded(column: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"{column} is not JSON") from None


def mysql_rows(url: str) -> list[dict[str, Any]]:
    """Every task, also the deleted ones, in order of its id."""
    return asyncio.run(_rows(url))


async def _rows(url: str) -> list[dict[str, Any]]:
    try:
        import asyncmy
        from asyncmy.cursors import DictCursor
        from asyncmy.errors import MySQLError
    except ModuleNotFoundError:
        raise SettingsError.field(
            "SOURCE", "needs the driver asyncmy, which is not installed: pip install 'noonbell[mysql]'"
        ) from None
    parts = urlsplit(url)
    try:
        link = await asyncmy.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            db=unquote(parts.path.lstrip("/")),
            connect_timeout=10,
        )
    except (OSError, MySQLError) as error:
        raise StoreUnavailable(f"cannot read from {parts.hostname}: {error}") from None
    try:
        async with link.cursor(cursor=DictCursor) as cursor:
            await cursor.execute("select * from tasks order by id")
            return [dict(row) for row in await cursor.fetchall()]
    except MySQLError as error:
        raise StoreUnavailable(f"cannot read its tasks: {error}") from None
    finally:
        await link.ensure_closed()
