"""The tasks of a cronjob service (HTTP cron on MySQL with `/api/v1/tasks`): its JSON in either spelling, or its table `tasks`;
and its runs.

Its API takes `cron_expr` and answers `CronExpr`; both are read, also as documents print them, with `//` comments.

Its run history: rows of its table `task_runs`, or answers of its `GET /tasks/{id}/runs` as they are.

Runs that are over go to the server in batches, each one transaction; what was brought before is passed over there. So the
same command can be given again, after a broken connection or when the old service has run a while longer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import click
import msgspec

from noonbell import when
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import is_database, json_from, rows_in, rows_of
from noonbell.cli.output import ProgressBar, shown_safely, talk
from noonbell.cli.root import EXIT_FAILED
from noonbell.clock import SystemClock, to_datetime
from noonbell.dialects.cronjob import AS_THERE, FIELDS, OLD_ID, zone_of
from noonbell.errors import NoonbellError, ScheduleError, StoreUnavailable
from noonbell.fields import counted
from noonbell.model.run import FINAL, RunStatus
from noonbell.settings.sections import JobSettings
from noonbell.when.zones import find

_NOT_CARRIED: Final = {"id", "version", "created_at", "updated_at", "deleted", "created_by", "updated_by"}
_JSON: Final = {"headers_json": "headers", "retry_policy_json": "retry_policy"}
"""Columns that hold JSON, and the field that it is."""
_DEFAULT_TIMEOUT: Final = 10


def read_cronjob(found: Any) -> Iterator[Imported]:
    """A list of tasks, one task, or a page of them: `{"items": [...]}`."""
    return read_cronjob_rows(rows_in(found, "tasks"))


def read_cronjob_rows(rows: Sequence[Any]) -> Iterator[Imported]:
    return read_entries((f"task {number}", _said(row), partial(_task, row)) for number, row in enumerate(rows, 1))


_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word of `CallbackTimeoutSec` or `HTTPMethod` begins."""


def in_snake_case(row: Mapping[str, Any]) -> dict[str, Any]:
    return {_WORD.sub("_", str(name)).lower(): value for name, value in row.items()}


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
            found.notes.append(f"{column} is unknown and was left out")
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
    wait = task.get("callback_timeout_sec")
    if isinstance(wait, int) and wait <= 0:
        del task["callback_timeout_sec"]
        if task.get("exec_type") == "ASYNC":
            found.notes.append(f"callback_timeout_sec {wait} is its default, 300 seconds")
    limit = task.get("catchup_limit") or 0
    if isinstance(limit, int) and limit <= 0:
        task.pop("catchup_limit", None)
        if task.get("misfire_policy") == "CATCH_UP_LIMITED":
            found.changes.append(f"catchup_limit {limit} was no limit there; FIRE_NOW says so here")
            task["misfire_policy"] = "FIRE_NOW"


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
@click.option(
    "--history", is_flag=True, help="Also import the finished runs of its database; with --apply or --dry-run."
)
@click.option("--runs", "files", multiple=True, metavar="FILE", help="A JSON file of its runs, instead of --history.")
@click.option(
    "--tz", "zone", default="UTC", metavar="ZONE", help="Time zone of the times in its tables [UTC, as it stores them]."
)
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
        raise click.BadParameter(f"{source} has no list of tasks: {error}", param_hint="SOURCE") from None
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
        raise click.UsageError("--history and --runs read the same runs; use only one")
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
            rows += rows_in(json_from(file), "runs")
        except TypeError as error:
            raise click.BadParameter(f"{file} has no list of runs: {error}", param_hint="--runs") from None
    return len(rows), iter(rows)


_PAGE: Final = 1_000
_BATCH: Final = 500
_BATCH_CHARACTERS: Final = 2_000_000
_LONGEST_BODY: Final = 1_000_000
_LONGEST_MESSAGE: Final = 10_000
_KEPT_DAYS: Final = JobSettings().history_retention_days
_TOLD: Final = 20
"""Refused runs that are listed one by one; the rest are counted."""
_OTHER_NAMES: Final = {"CALLBACK_TIMEOUT": RunStatus.FAILED_TIMEOUT}
"""The document has two names for a callback that did not come."""
_FINAL: Final = {**{str(status): status for status in FINAL}, **_OTHER_NAMES}
_UNDER_WAY: Final = frozenset({"SCHEDULED", "RUNNING", "RETRYING", "CALLBACK_PENDING"})


class NotCarried(Exception):
    """Why a run is left out."""


@dataclass(slots=True)
class HistoryReport:
    read: int = 0
    imported: int = 0
    known: int = 0
    removed: int = 0
    recent: int = 0
    old: int = 0
    """Runs that ended longer ago than history is kept unless the settings say otherwise."""
    cut: int = 0
    """Runs with a body that is longer than is carried over."""
    left_out: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def tell(self) -> None:
        for problem in self.refused[:_TOLD]:
            talk(shown_safely(f"✖ {problem}"))
        if len(self.refused) > _TOLD:
            talk(f"✖ … and {len(self.refused) - _TOLD} more")
        for reason, count in sorted(self.left_out.items()):
            talk(shown_safely(f"· {counted(count, 'run')}: {reason}"))
        talk(
            f"history: {counted(self.read, 'run')} read, {self.imported} imported, {self.known} known already,"
            f" {sum(self.left_out.values())} left out, {len(self.refused)} refused"
        )
        if self.cut:
            talk(f"{counted(self.cut, 'run')} with a body of more than {_LONGEST_BODY} characters, which was cut")
        if self.removed:
            talk(f"{counted(self.removed, 'run')} left out, which ended before history was cleaned up here")
        if self.old:
            talk(
                f"{counted(self.old, 'run')} ended more than {_KEPT_DAYS} days ago: the nightly cleaning here removes them,"
                " unless jobs.history_retention_days is set to more before they come"
            )
        if self.recent:
            talk(
                f"{counted(self.recent, 'run')} ended less than a minute ago; run the same command again later to import them"
            )


def rows_in_database(url: str) -> tuple[int, Iterator[Mapping[str, Any]]]:
    """How many rows `task_runs` has, and the rows, read page by page. Nothing is written there."""
    total = rows_of(url, {"runs": "select count(*) as total from task_runs"})["runs"][0]["total"]
    return int(total), _pages(url)


def _pages(url: str) -> Iterator[Mapping[str, Any]]:
    after = 0
    while True:
        # `after` is a number that the database gave.
        query = f"select * from task_runs where id > {after:d} order by id limit {_PAGE:d}"
        rows = rows_of(url, {"runs": query})["runs"]
        yield from rows
        if len(rows) < _PAGE:
            return
        after = int(rows[-1]["id"])


def translated(
    rows: Iterable[Any], entries: Iterable[Imported], zone: str, report: HistoryReport
) -> Iterator[dict[str, Any]]:
    """Each run that is over, as `POST /runs/import` takes it. `zone` is that of moments without an offset."""
    names = {
        str(entry.task["external_id"]).removeprefix(OLD_ID): str(entry.task["name"])
        for entry in entries
        if entry.task is not None and "external_id" in entry.task
    }
    for row in rows:
        report.read += 1
        run = in_snake_case(row) if isinstance(row, Mapping) else {}
        try:
            yield _run(run, names, ZoneInfo(zone), report)
        except NotCarried as reason:
            report.left_out[str(reason)] += 1
        except (KeyError, TypeError, ValueError) as error:
            told = f"has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            report.refused.append(f"run {run.get('id', '?')}: {told}"[:300])


def _run(run: Mapping[str, Any], names: Mapping[str, str], zone: ZoneInfo, report: HistoryReport) -> dict[str, Any]:
    status = str(run["status"])
    if status in _UNDER_WAY:
        raise NotCarried(f"{status}, so not final")
    if status not in _FINAL:
        raise ValueError(f"its status {status[:40]!r} is not known")
    task = names.get(str(run["task_id"]))
    if task is None:
        raise NotCarried("the task was not translated, or is deleted there")
    scheduled = _moment(run["scheduled_time"], zone)
    start, end = _moment(run.get("start_time"), zone), _moment(run.get("end_time"), zone)
    over = end or _moment(run.get("updated_at"), zone) or start or scheduled
    if scheduled is None or over is None:
        raise ValueError("it has no scheduled_time")
    report.old += over < to_datetime(SystemClock().now()) - timedelta(days=_KEPT_DAYS)
    made: dict[str, Any] = {
        "task": task,
        "key": f"{OLD_ID}{int(run['id'])}",
        "status": str(_FINAL[status]),
        "scheduled_time": _written(scheduled),
        "created_at": _written(_moment(run.get("created_at"), zone) or scheduled),
        "end_time": _written(over if start is None else max(over, start)),
        "start_time": None if start is None else _written(start),
        "attempt": int(run.get("attempt") or 0),
        "response_code": run.get("response_code") or None,
        "error_message": _text(run.get("error_message"), _LONGEST_MESSAGE),
        "trace_id": _text(run.get("trace_id"), 64),
        "request_headers": _headers(run.get("request_headers")),
        "request_body": _text(run.get("request_body"), _LONGEST_BODY),
        "response_body": _text(run.get("response_body"), _LONGEST_BODY),
    }
    if any(len(str(run.get(name) or "")) > _LONGEST_BODY for name in ("request_body", "response_body")):
        made["truncated"] = True
        report.cut += 1
    return {name: value for name, value in made.items() if value is not None}


def _moment(value: Any, zone: ZoneInfo) -> datetime | None:
    if value is None or value == "":
        return None
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _text(value: Any, longest: int) -> str | None:
    """Without what no text column can hold: control characters, and halves of a character."""
    if value is None or value == "":
        return None
    text = str(value)[:longest].encode("utf-8", "replace").decode()
    return (
        "".join(each for each in text if each in "\t\n\r" or (ord(each) >= 32 and not 127 <= ord(each) < 160)) or None
    )


def _headers(value: Any) -> dict[str, str] | None:
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    if not isinstance(value, Mapping) or not value:
        return None
    return {
        str(name): _text(said[0] if isinstance(said, list) and said else said, 8_000) or ""
        for name, said in value.items()
    }


def send(runs: Iterable[dict[str, Any]], total: int, report: HistoryReport) -> None:
    """To the server, in batches."""
    from noonbell.cli.api import Remote

    remote, batch, size = Remote.of_environment(), list[dict[str, Any]](), 0

    def post() -> None:
        try:
            done = remote.post("/runs/import", {"runs": batch})
        except NoonbellError as error:
            again = "; run the same command again to continue" if isinstance(error, StoreUnavailable) else ""
            talk(f"{counted(report.imported, 'run')} imported{again}")
            raise
        for name in ("imported", "known", "removed", "recent"):
            setattr(report, name, getattr(report, name) + done[name])

    with ProgressBar() as bar:
        for run in runs:
            weight = len(run.get("request_body", "")) + len(run.get("response_body", ""))
            if batch and (len(batch) == _BATCH or size + weight > _BATCH_CHARACTERS):
                post()
                batch, size = [], 0
                bar.move(min(1.0, report.read / max(1, total)))
            batch.append(run)
            size += weight
        if batch:
            post()
        bar.move(1.0)
