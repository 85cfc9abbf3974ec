"""Jobs of a scheduler on the Rust crates apalis and cron: its configuration (TOML), its answers (JSON), or its table `jobs`.

Six and seven fields are read as that crate reads them: Sunday is 1, and both day fields must match. Five fields, which it
does not take though its documents show them, are read as cron does, and that is said.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from noonbell import when
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import is_database, json_from, rows_in, rows_of, text_from
from noonbell.dialects.jobs import LIKE_THE_TASK, new_task
from noonbell.service.task_fields import Rules

_KNOWN: Final = {
    *("job_name", "cron_expression", "enabled", "allow_concurrent", "max_concurrent"),
    *("max_retries", "retry_delay_seconds", *LIKE_THE_TASK),
}
_STATE: Final = {
    *("id", "last_run_at", "last_run_status", "next_run_at", "created_at", "updated_at", "created_by", "cron_dialect"),
}
_DEFAULTS: Final = {"max_retries": 3, "retry_delay_seconds": 60, "timeout_seconds": 300}
_CRATE_FIELDS: Final = 6


def read_jobs(
    rows: Sequence[Any], defaults: Mapping[str, Any] | None = None, *, is_off: bool = False
) -> Iterator[Imported]:
    """`defaults`: of its configuration, where a job says nothing. `is_off`: there, none of them runs."""
    usual = {**_DEFAULTS, **(defaults or {})}
    return read_entries(
        (f"job {number}", _said(row), partial(_task, row, usual, is_off)) for number, row in enumerate(rows, 1)
    )


def read_config(text: str) -> Iterator[Imported]:
    """`[[jobs.jobs]]` of its TOML, with the defaults of `[jobs]`. A value may be `null`, as its documents have it."""
    lines = (line for line in text.splitlines() if line.partition("=")[2].strip() != "null")
    jobs = tomllib.loads("\n".join(lines)).get("jobs")
    listed = jobs.get("jobs") if isinstance(jobs, dict) else None
    if not isinstance(jobs, dict) or not isinstance(listed, list):
        raise TypeError("expected jobs under [[jobs.jobs]]")
    words = {"job_timeout": "timeout_seconds", "max_retries": "max_retries", "retry_delay": "retry_delay_seconds"}
    defaults = {words[name]: value for name, value in jobs.items() if name in words}
    return read_jobs(listed, defaults, is_off=jobs.get("enabled") is False)


def _said(row: Any) -> str:
    return str(row.get("job_name") or row)[:200] if isinstance(row, Mapping) else str(row)[:200]


def _task(row: Any, usual: Mapping[str, Any], is_off: bool, found: Findings) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise Refused("is not an object")
    given = {name: value for name, value in row.items() if value is not None}
    if "cron" in given:
        given.setdefault("cron_expression", given.pop("cron"))
    for name in sorted(given.keys() - _KNOWN - _STATE):
        found.notes.append(f"{name} is unknown and was left out")
    job = {**usual, **{name: value for name, value in given.items() if name in _KNOWN}}
    if "job_type" not in job and "job_name" in job:
        job["job_type"] = job["job_name"]
        found.notes.append(f"it names no job_type; its name {job['job_name']!r} is taken")
    expr = job.get("cron_expression")
    if isinstance(expr, str):
        _say_how_it_is_read(expr, found)
    task = new_task(job, Rules())
    if task["max_concurrency"] is not None:
        found.notes.append("a slot that is one too many is a recorded skip")
    plain = {name: value for name, value in task.items() if value is not None or name == "max_concurrency"}
    plain["retry_policy"] = {**plain["retry_policy"], "strategy": str(plain["retry_policy"]["strategy"])}
    if "status" in plain:
        plain["status"] = str(plain["status"])
    if is_off:
        plain["status"] = "DISABLED"
        found.notes.append("[jobs] enabled is false there: it is DISABLED")
    return plain


def _say_how_it_is_read(expr: str, found: Findings) -> None:
    fields = expr.split()
    if expr.startswith("@"):
        return
    if len(fields) < _CRATE_FIELDS:
        found.changes.append(f"{expr!r} has {len(fields)} fields, which its crate refuses; it is read as cron reads it")
    elif any(letter.isdigit() for letter in fields[5].partition("/")[0].partition("#")[0]):
        words = when.parse({"type": "cron", "expr": expr, "dialect": "quartz"}, "UTC").describe()
        found.notes.append(f"its crate counts weekdays from 1 = Sunday, and cron_dialect quartz does: {words}")


@click.command("jobs")
@click.argument("source")
@import_options
def jobs_command(source: str, **given: Any) -> int:
    """Jobs on apalis: its configuration as FILE.toml, a JSON file of its jobs, or its database as postgresql://…"""
    if is_database(source):
        table = rows_of(source, {"jobs": "select * from jobs order by id"})["jobs"]
        return finish(read_jobs([_decoded(row) for row in table]), "jobs", **given)
    try:
        if source.endswith(".toml"):
            return finish(read_config(text_from(source)), "jobs", **given)
        return finish(read_jobs(rows_in(json_from(source), "jobs")), "jobs", **given)
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise click.BadParameter(f"{source} has no jobs: {error}", param_hint="SOURCE") from None


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Asyncpg gives JSONB as its text."""
    import json

    payload = row.get("payload")
    return {**row, "payload": json.loads(payload) if isinstance(payload, str) else payload}
