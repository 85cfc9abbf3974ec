"""The run history of a cronjob service: rows of its table `task_runs`, or answers of its `GET /tasks/{id}/runs` as they are.

Runs that are over go to the server in batches, each one transaction; what was brought before is passed over there. So the
same command can be given again, after a broken connection or when the old service has run a while longer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from noonbell.cli.importers.database import rows_of
from noonbell.cli.importers.report import Imported, in_snake_case
from noonbell.cli.output import ProgressBar, shown_safely, talk
from noonbell.dialects.cronjob import OLD_ID
from noonbell.errors import NoonbellError
from noonbell.model.run import FINAL, RunStatus

_PAGE: Final = 1_000
_BATCH: Final = 500
_BATCH_CHARACTERS: Final = 2_000_000
_LONGEST_BODY: Final = 1_000_000
_LONGEST_MESSAGE: Final = 10_000
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
    cut: int = 0
    """Runs with a body that is longer than is carried over."""
    left_out: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("read", "imported", "known", "removed", "recent", "cut")}
        return {**counts, "left_out": dict(self.left_out), "refused": self.refused}

    def tell(self) -> None:
        for problem in self.refused[:_TOLD]:
            talk(shown_safely(f"✖ {problem}"))
        if len(self.refused) > _TOLD:
            talk(f"✖ … and {len(self.refused) - _TOLD} more")
        for reason, count in sorted(self.left_out.items()):
            talk(shown_safely(f"· {count} runs: {reason}"))
        talk(
            f"history: {self.read} runs read, {self.imported} imported, {self.known} known already,"
            f" {sum(self.left_out.values())} left out, {len(self.refused)} refused"
        )
        if self.cut:
            talk(f"{self.cut} runs have a body of more than {_LONGEST_BODY} characters, which was cut")
        if self.removed:
            talk(f"{self.removed} runs ended before history was cleaned up here, and were left out")
        if self.recent:
            talk(f"{self.recent} runs ended less than a minute ago; the same command brings them later")


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


def runs_in(found: Any) -> list[Any]:
    """The runs of a file: a list of them, one, or a page `{"items": [...]}`."""
    rows = found.get("items", found.get("runs", [found])) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TypeError("expected a list of runs")
    return rows


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
        raise NotCarried(f"{status}, so not over")
    if status not in _FINAL:
        raise ValueError(f"its status {status[:40]!r} is not known")
    task = names.get(str(run["task_id"]))
    if task is None:
        raise NotCarried("their task was not translated, or is deleted there")
    scheduled = _moment(run["scheduled_time"], zone)
    start, end = _moment(run.get("start_time"), zone), _moment(run.get("end_time"), zone)
    over = end or _moment(run.get("updated_at"), zone) or start or scheduled
    if scheduled is None or over is None:
        raise ValueError("it has no scheduled_time")
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
        except NoonbellError:
            talk(f"{report.imported} runs were imported; the same command does the rest")
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
