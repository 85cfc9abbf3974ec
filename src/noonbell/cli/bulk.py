"""`noonbell bulk …`: one change of many runs or tasks, which the server carries out."""

from __future__ import annotations

import time
from typing import Any

import click

from noonbell.cli.api import Remote, segment
from noonbell.cli.options import confirm, span_option
from noonbell.cli.output import ago, coloured, fields, output_option, show_list, show_one, talk
from noonbell.cli.root import EXIT_FAILED, EXIT_STILL_GOING, NounGroup

_RUNS = ("retry-runs", "redrive-runs", "cancel-runs")
_TASKS = ("enable-tasks", "disable-tasks", "trigger-tasks", "delete-tasks", "change-tasks")
_OF_RUNS = ("task", "key", "since", "until", "text", "search")
_OF_TASKS = ("name",)


def progress(one: dict[str, Any]) -> str:
    """`209 of 210, 1 skipped: already (1)`."""
    handled = one["done"] + one["skipped"]
    more = "+" if one["total_is_least"] else ""
    whys = ", ".join(f"{why} ({count})" for why, count in one["reasons"].items())
    skipped = f", {one['skipped']} skipped: {whys}" if one["skipped"] else ""
    return f"{one['done']} of {max(one['total'], handled)}{more}{skipped}"


def _which(one: dict[str, Any]) -> str:
    if one["undo_of"] is not None:
        return f"undoes {one['undo_of']}"
    if one["listed"] is not None:
        return f"{one['listed']} ids"
    return " ".join(f"{name}={value}" for name, value in one["filter"].items()) or "all"


COLUMNS = {
    "id": lambda one: str(one["id"]),
    "kind": lambda one: one["kind"],
    "status": lambda one: coloured(one["status"]),
    "progress": progress,
    "which": _which,
    "started": lambda one: ago(one["created_at"]),
    "by": lambda one: one["created_by"] or "–",
}


@click.group("bulk", cls=NounGroup, aliases={"show": "get"})
def bulk_command() -> None:
    """Start, list, follow, cancel and undo bulk operations."""


@bulk_command.command("start")
@click.argument("kind", type=click.Choice((*_RUNS, *_TASKS)))
@click.option(
    "--id", "ids", multiple=True, type=int, metavar="ID", help="Only these runs or tasks, by ID; may be repeated."
)
@click.option("--status", multiple=True, metavar="STATUS", help="Only this status; may be repeated for runs.")
@click.option("--label", metavar="NAME=VALUE", help="Only tasks with this label, or runs of such tasks.")
@click.option("--queue", metavar="QUEUE", help="Only runs or tasks of this queue.")
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option("--key", metavar="KEY", help="Only runs with this key.")
@click.option("--since", metavar="SPAN", help="Only runs scheduled since: 30m, 24h, 7d, or a time.")
@click.option("--until", metavar="SPAN", help="Only runs scheduled until this time.")
@click.option("--text", metavar="TEXT", help="Only runs with this text in the task's name or the error message.")
@click.option("--search", metavar="TEXT", help="Only runs with this text in their key, payload, result, log or error.")
@click.option("--name", metavar="TEXT", help="Only tasks with this text in their name.")
@click.option("--all", "everything", is_flag=True, help="All runs or tasks.")
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="For change-tasks: a field to set; may be repeated."
)
@click.option("-y", "--yes", is_flag=True, help="For delete-tasks: do not ask for confirmation.")
@click.option("--wait", is_flag=True, help="Wait until it has ended.")
@span_option("--timeout", default="300s", show_default=True, help="Wait at most this long.")
@output_option
def start(
    kind: str,
    ids: tuple[int, ...],
    status: tuple[str, ...],
    everything: bool,
    changes: tuple[str, ...],
    yes: bool,
    wait: bool,
    timeout: float,
    output: str,
    **narrowed: str | None,
) -> int:
    """Change all runs or tasks that match a filter.

    The filter applies to what exists now: runs and tasks that are created or end later are not touched. The server
    continues on its own; `noonbell bulk get ID` shows the progress.
    """
    given: dict[str, Any] = {"kind": kind.replace("-", "_"), "ids": list(ids) or None, "all": everything or None}
    given["filter"] = _filter(kind, status, narrowed) or None
    given["change"] = _change(changes) or None
    if kind == "delete-tasks" and not yes:
        confirm("delete all these tasks?", refused="nothing was started")
    remote = Remote.of_environment()
    answer = remote.post("/bulk", {name: value for name, value in given.items() if value is not None})
    if wait:
        return await_bulk(remote, answer["id"], timeout, output)
    show_one(answer, output, name="id", lines=lambda one: [f"bulk operation {one['id']}"])
    return 0


def _filter(kind: str, status: tuple[str, ...], narrowed: dict[str, str | None]) -> dict[str, Any]:
    from noonbell.cli.run import moment

    wrong = _OF_TASKS if kind in _RUNS else _OF_RUNS
    for name in wrong:
        if narrowed[name] is not None:
            raise click.UsageError(f"--{name} does not apply to {kind}")
    found: dict[str, Any] = {name: value for name, value in narrowed.items() if value is not None}
    for option, field in (("since", "from"), ("until", "to")):
        if option in found:
            found[field] = moment(found.pop(option), f"--{option}")
    words = [word.upper() for word in status]
    if words and kind in _TASKS:
        if len(words) > 1:
            raise click.UsageError(f"--status is given {len(words)} times; {kind} accepts one")
        return {**found, "status": words[0]}
    return {**found, **({"status": words} if words else {})}


def _change(changes: tuple[str, ...]) -> dict[str, Any]:
    from noonbell.cli.task import value_of

    found: dict[str, Any] = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"is {text!r}; expected FIELD=VALUE", param_hint="--set")
        found[name] = value if name == "queue" else value_of(value)
    return found


def await_bulk(remote: Remote, operation_id: int, timeout: float, output: str) -> int:
    began, pause = time.monotonic(), 0.05
    while True:
        one = remote.get(f"/bulk/{operation_id}")
        if one["status"] != "RUNNING":
            break
        if time.monotonic() - began > timeout:
            talk(f"bulk operation {operation_id} is still running: {progress(one)}")
            return EXIT_STILL_GOING
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    show_one(one, output, name="id", lines=lambda one: [_told(one)])
    return 0 if one["status"] == "DONE" else EXIT_FAILED


def _told(one: dict[str, Any]) -> str:
    why = f": {one['error']}" if one["error"] else ""
    return f"bulk operation {one['id']}  {coloured(one['status'])}  {progress(one)}{why}"


@bulk_command.command("list")
@click.option("--limit", default=50, type=click.IntRange(1, 1000), show_default=True, help="Show at most this many.")
@output_option
def list_bulk(limit: int, output: str) -> None:
    """List bulk operations, newest first."""
    show_list(Remote.of_environment().get("/bulk", {"limit": limit})["items"], COLUMNS, output)


@bulk_command.command("get")
@click.argument("operation_id")
@output_option
def get(operation_id: str, output: str) -> None:
    """Show the progress of a bulk operation, or how it ended."""
    one = Remote.of_environment().get(f"/bulk/{segment(operation_id)}")
    show_one(one, output, name="id", lines=lambda one: [_told(one), "", *fields(one)])


_SKIPPED = {
    "id": lambda one: str(one["id"]),
    "name": lambda one: one["name"],
    "why": lambda one: one["why"],
}


@bulk_command.command("skipped")
@click.argument("operation_id")
@click.option(
    "--limit", default=1000, type=click.IntRange(1, 10_000), show_default=True, help="Show at most this many."
)
@output_option
def skipped(operation_id: str, limit: int, output: str) -> None:
    """List what a bulk operation skipped, each with the reason."""
    found = Remote.of_environment().get(f"/bulk/{segment(operation_id)}/skipped", {"limit": limit})
    show_list(found["items"], _SKIPPED, output)


@bulk_command.command("cancel")
@click.argument("operation_id")
@output_option
def cancel(operation_id: str, output: str) -> None:
    """Stop a bulk operation; what is already done is kept."""
    answer = Remote.of_environment().post(f"/bulk/{segment(operation_id)}/cancel")
    show_one(answer, output, name="id", lines=lambda one: [_told(one)])


@bulk_command.command("undo")
@click.argument("operation_id")
@click.option("--wait", is_flag=True, help="Wait until it has ended.")
@span_option("--timeout", default="300s", show_default=True, help="Wait at most this long.")
@output_option
def undo(operation_id: str, wait: bool, timeout: float, output: str) -> int:
    """Undo what enable-tasks or disable-tasks changed, with another operation."""
    remote = Remote.of_environment()
    answer = remote.post(f"/bulk/{segment(operation_id)}/undo")
    if wait:
        return await_bulk(remote, answer["id"], timeout, output)
    show_one(answer, output, name="id", lines=lambda one: [f"bulk operation {one['id']}"])
    return 0
