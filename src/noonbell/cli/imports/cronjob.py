"""The tasks of a cronjob service: as its API lists them, or as its MySQL table `tasks` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from noonbell import when
from noonbell.cli.imports import Imported, unused
from noonbell.errors import ScheduleError

FIELDS: Final = (
    *("name", "description", "cron_expr", "timezone", "exec_type", "http_method", "target_url", "headers"),
    *("body_template", "timeout_seconds", "retry_policy", "max_concurrency", "concurrency_policy", "overlap_action"),
    *("failure_action", "misfire_policy", "catchup_limit", "callback_method", "callback_timeout_sec", "status"),
)
_NOT_CARRIED: Final = {"id", "version", "created_at", "updated_at", "deleted", "created_by", "updated_by"}
_JSON: Final = {"headers_json": "headers", "retry_policy_json": "retry_policy"}
"""Columns that hold JSON, and the field that it is."""


def read(text: str) -> Iterator[Imported]:
    """A list of tasks, one task, or a page of them: `{"items": [...]}`."""
    found = json.loads(text)
    rows = found.get("items", found.get("tasks", [found])) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise TypeError("expected a list of tasks")
    return read_rows(rows)


def read_rows(rows: Sequence[Any]) -> Iterator[Imported]:
    taken: set[str] = set()
    for number, row in enumerate(rows, 1):
        where = f"task {number}"
        if not isinstance(row, Mapping):
            yield Imported(where, str(row)[:80], refused="is not an object")
            continue
        source = str(row.get("name") or row.get("id") or "")
        if row.get("deleted"):
            yield Imported(where, source, refused="is deleted there")
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
