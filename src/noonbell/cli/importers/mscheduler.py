"""mscheduler's collection of tasks, as `mongoexport` writes it: one document per line, or an array.

Its tasks are published once each: what no worker has finished becomes a task that runs once, at its `start_time`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click

from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries
from noonbell.cli.importers.sources import json_from

_LIKE_OURS: Final = ("priority", "ping_interval_ms", "worker_timeout_ms", "min_worker_version", "specific_worker_ids")


def read_mscheduler(documents: Sequence[Any], job_type: str) -> Iterator[Imported]:
    """`job_type`: of all of them; a collection there is one kind of task."""
    return read_entries(
        (f"document {number}", _said(each), partial(_task, each, job_type)) for number, each in enumerate(documents, 1)
    )


def _said(document: Any) -> str:
    return str(document.get("key") or document)[:200] if isinstance(document, Mapping) else str(document)[:200]


def _task(document: Any, job_type: str, found: Findings) -> dict[str, Any] | None:
    if not isinstance(document, Mapping) or not document.get("key"):
        raise Refused("has no key")
    state, option = document.get("task_state") or {}, document.get("task_option") or {}
    if not isinstance(state, Mapping) or not isinstance(option, Mapping):
        raise Refused("its task_state or task_option is no object")
    workers = [each for each in state.get("worker_states") or [] if isinstance(each, Mapping)]
    ended = [each for each in workers if each.get("success_time") or each.get("fail_time")]
    most = _number(option.get("concurrent_worker_cnt"), 1)
    if len(ended) >= most or any(each.get("success_time") for each in ended):
        found.notes.append("has ended there, and is left out")
        return None
    if len(workers) > len(ended):
        raise Refused("a worker is at it there; wait until it has ended, and export again")
    task: dict[str, Any] = {
        "name": str(document["key"]),
        "external_id": str(document["key"]),
        "job_type": job_type,
        "schedule": {"type": "once", "at": _moment(state.get("start_time")), "run_if_late": True},
        "payload": document.get("params"),
        **{name: _plain(option[name]) for name in _LIKE_OURS if option.get(name) not in (None, [])},
        "retry_policy": _retry(option),
    }
    if most > 1:
        task["fanout"] = {"workers": most}
        found.changes.append(f"{most} workers carry it out, as parts of one run")
    return task


def _retry(option: Mapping[str, Any]) -> dict[str, Any]:
    """Its retries happen in the worker that holds the task."""
    return {
        "max_retries": _number(option.get("max_unexpected_retries"), 0),
        "strategy": "fixed",
        "initial_delay": _number(option.get("unexpected_retry_delay_ms"), 0) / 1000,
        "local": True,
    }


def _plain(value: Any) -> Any:
    """Extended JSON has numbers as `{"$numberInt": "3"}`."""
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, inner),) = value.items()
        if name in ("$numberInt", "$numberLong"):
            return int(inner)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _number(value: Any, default: int) -> int:
    found = _plain(value)
    return found if isinstance(found, int) else default


def _moment(value: Any) -> str:
    """`{"$date": …}`, as text or in milliseconds."""
    inner = _plain(value.get("$date")) if isinstance(value, Mapping) else value
    try:
        if isinstance(inner, int):
            return datetime.fromtimestamp(inner / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return datetime.fromisoformat(str(inner)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise Refused(f"start_time {value!r} is not a time") from None


@click.command("mscheduler")
@click.argument("source")
@click.option("--job-type", required=True, metavar="TYPE", help="Of the tasks in this collection.")
@import_options
def mscheduler_command(source: str, job_type: str, **given: Any) -> int:
    """mscheduler: a collection as `mongoexport` writes it, or - for stdin."""
    found = json_from(source)
    documents = found if isinstance(found, list) else [found]
    return finish(read_mscheduler(documents, job_type), "mscheduler", **given)
