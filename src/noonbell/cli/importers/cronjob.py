"""The tasks of a cronjob service (HTTP cron on MySQL with `/api/v1/tasks`): its JSON in either spelling, or its table `tasks`;
and its runs (`cronjob_history`).

Its API takes `cron_expr` and answers `CronExpr`; both are read, also as documents print them, with `//` comments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from noonbell import when
from noonbell.cli.importers.cronjob_history import HistoryReport, rows_in_database, runs_in, send, translated
from noonbell.cli.importers.database import is_database, rows_of
from noonbell.cli.importers.report import (
    Findings,
    Imported,
    Refused,
    finish,
    import_options,
    in_snake_case,
    json_from,
    read_entries,
)
from noonbell.cli.root import EXIT_FAILED
from noonbell.dialects.cronjob import AS_THERE, FIELDS, OLD_ID, zone_of
from noonbell.errors import ScheduleError
from noonbell.when.zones import find

_NOT_CARRIED: Final = {"id", "version", "created_at", "updated_at", "deleted", "created_by", "updated_by"}
_JSON: Final = {"headers_json": "headers", "retry_policy_json": "retry_policy"}
"""Columns that hold JSON, and the field that it is."""
_DEFAULT_TIMEOUT: Final = 10


def read_cronjob(found: Any) -> Iterator[Imported]:
    """A list of tasks, one task, or a page of them: `{"items": [...]}`."""
    rows = found.get("items", found.get("tasks", [found])) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TypeError("expected a list of tasks")
    return read_cronjob_rows(rows)


def read_cronjob_rows(rows: Sequence[Any]) -> Iterator[Imported]:
    return read_entries((f"task {number}", _said(row), partial(_task, row)) for number, row in enumerate(rows, 1))


def _said(row: Any) -> str:
    known = in_snake_case(row) if isinstance(row, Mapping) else {}
    return str(known.get("name") or known.get("id") or row)[:200]


def _task(row: Any, found: Findings) -> dict[str, Any] | None:
    if not isinstance(row, Mapping):
        raise Refused("is not an object")
    given = in_snake_case(row)
    if given.get("deleted"):
        found.notes.append("is deleted there, and left out")
        return None
    task: dict[str, Any] = {}
    for column, value in given.items():
        name = _JSON.get(column, column)
        if value is None or value == "":
            continue
        if name in FIELDS:
            task[name] = _decoded(column, value) if isinstance(value, str) and name in _JSON.values() else value
        elif name not in _NOT_CARRIED:
            found.notes.append(f"{column} is not known and left out")
    if not task.get("name"):
        raise Refused("has no name")
    if "target_url" not in task:
        raise Refused("has no target_url: its list shows only some fields; take GET /tasks/{id}, or its database")
    if isinstance(given.get("id"), int) and given["id"] > 0:
        task["external_id"] = f"{OLD_ID}{given['id']}"
    _in_our_words(task, found)
    return {**task, **AS_THERE}


def _in_our_words(task: dict[str, Any], found: Findings) -> None:
    if "timezone" in task:
        task["timezone"] = _zone(str(task["timezone"]), found)
    expr, zone = task.pop("cron_expr", None), task.get("timezone", "UTC")
    if expr is not None:
        schedule = {"type": "cron", "expr": expr, "dialect": "cronjob"}
        when.parse(schedule, zone)
        task["schedule"] = schedule
    if isinstance(task.get("timeout_seconds"), int) and task["timeout_seconds"] <= 0:
        found.notes.append(f"timeout_seconds {task['timeout_seconds']} is its default, {_DEFAULT_TIMEOUT} seconds")
        task["timeout_seconds"] = _DEFAULT_TIMEOUT
    retry = task.get("retry_policy")
    most = retry.get("max_retries") if isinstance(retry, dict) else None
    if isinstance(most, int) and most > 0:
        found.changes.append(
            f"max_retries {most} is up to {most + 1} attempts; there, `attempt < max_retries` made it {most}"
        )
    if task.get("misfire_policy") == "CATCH_UP_LIMITED" and task.get("catchup_limit") in (0, None):
        found.changes.append("catchup_limit 0 was no limit there; FIRE_NOW says so here")
        task["misfire_policy"] = "FIRE_NOW"
        task.pop("catchup_limit", None)


def _zone(name: str, found: Findings) -> str:
    """Its own words for an offset, `UTC/+08` by default, in ours."""
    written = zone_of(name)
    try:
        find(name)
    except ScheduleError:
        found.changes.append(f"timezone {name!r} is read as the offset {written}")
    return written


def _decoded(column: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise Refused(f"{column} is not JSON") from None


@click.command("cronjob")
@click.argument("source")
@click.option("--history", is_flag=True, help="The finished runs of its database, too; with --apply or --dry-run.")
@click.option("--runs", "files", multiple=True, metavar="FILE", help="A JSON file of its runs, in place of --history.")
@click.option("--tz", "zone", default="UTC", metavar="ZONE", help="Of moments in its tables [UTC, as it stores them].")
@import_options
def cronjob_command(source: str, history: bool, files: tuple[str, ...], zone: str, **given: Any) -> int:
    """A cronjob service: a JSON file of its tasks, - for stdin, or its database as mysql://user@host/name."""
    _check_history(source, history, files, zone, given)
    try:
        if is_database(source):
            rows = rows_of(source, {"tasks": "select * from tasks order by id"})["tasks"]
            found = read_cronjob_rows(rows)
        else:
            found = read_cronjob(json_from(source))
    except TypeError as error:
        raise click.BadParameter(f"{source} holds no list of tasks: {error}", param_hint="SOURCE") from None
    report = HistoryReport()

    def bring_runs(entries: Sequence[Imported]) -> dict[str, Any]:
        total, rows = _runs_of(source, files)
        runs = translated(rows, entries, zone, report)
        if given["dry_run"]:
            for _ in runs:
                pass
        else:
            send(runs, total, report)
        report.tell()
        return {"history": report.as_json()}

    code = finish(found, "cronjob", then=bring_runs if history or files else None, **given)
    return code or (EXIT_FAILED if report.refused else 0)


def _check_history(source: str, history: bool, files: tuple[str, ...], zone: str, given: Mapping[str, Any]) -> None:
    if history and not is_database(source):
        raise click.UsageError("--history reads a database; --runs FILE takes the answers of GET /tasks/{id}/runs")
    if history and files:
        raise click.UsageError("--history and --runs are two ways to the same runs; give one of them")
    if (history or files) and not (given["apply"] or given["dry_run"]):
        raise click.UsageError("runs are sent to a server; give --apply, or --dry-run for the report alone")
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise click.BadParameter(f"there is no time zone {zone!r}", param_hint="--tz") from None


def _runs_of(source: str, files: Sequence[str]) -> tuple[int, Iterator[Any]]:
    if not files:
        return rows_in_database(source)
    rows: list[Any] = []
    for file in files:
        try:
            rows += runs_in(json_from(file))
        except TypeError as error:
            raise click.BadParameter(f"{file} holds no list of runs: {error}", param_hint="--runs") from None
    return len(rows), iter(rows)
