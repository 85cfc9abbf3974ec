"""`noonbell stats`: figures of a server, and counting them again from the history of a store, which needs no server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from noonbell.cli.api import Remote, segment
from noonbell.cli.options import config_option, load_settings, store_option
from noonbell.cli.output import Cell, Row, duration, moment_text, output_option, show_list, show_one
from noonbell.cli.root import NounGroup
from noonbell.cli.store import missing_file

if TYPE_CHECKING:
    from noonbell.clock import Instant
    from noonbell.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

_ROWS = 1_000
"""Rows of history in one transaction."""


@click.group("stats", cls=NounGroup)
def stats_command() -> None:
    """Statistics of runs that ended."""


@stats_command.command("show")
@click.option("--task", help="Only of this task: its id or name.")
@click.option("--from", "since", metavar="TIME", help="Start of the time range, RFC 3339 [a day before --to].")
@click.option("--to", "until", metavar="TIME", help="End of the time range [now].")
@output_option
def show_command(task: str | None, since: str | None, until: str | None, output: str) -> None:
    """Show how runs ended in a time range, and how long they took."""
    given = {"task": task, "from": since, "to": until}
    answer = Remote.of_environment().get("/stats", {name: value for name, value in given.items() if value is not None})
    show_one(answer, output, name="total", lines=_lines)


def _lines(told: dict[str, Any]) -> list[str]:
    ended = told["by_final_status"]
    rate = "–" if told["success_rate"] is None else f"{100 * told['success_rate']:.2f} %"
    lines = [
        f"{told['from']} to {told['to']}",
        f"success      {rate}",
        *(f"{status.lower():<12} {count}" for status, count in ended.items()),
        f"dropped      {told['dropped']}",
    ]
    for title, name in (
        ("duration", "duration_ms"),
        ("start delay", "start_delay_ms"),
        ("queue time", "queue_time_ms"),
    ):
        shares = "  ".join(f"{share} {duration(told[name][share])}" for share in ("p50", "p95", "p99", "most"))
        lines.append(f"{title:<12} {shares}")
    return lines


@stats_command.command("sla")
@click.option("--task", help="Only of this task: its id or name.")
@click.option("--label", metavar="NAME=VALUE", help="Tasks with this label.")
@click.option("--queue", help="Tasks of this queue.")
@click.option("--from", "since", metavar="TIME", help="Start of the time range, RFC 3339 [28 days before --to].")
@click.option("--to", "until", metavar="TIME", help="End of the time range [now].")
@click.option("--by", type=click.Choice(["hour", "day"]), help="Also the figures of each hour or day, for -o json.")
@output_option
def sla_command(output: str, **given: str | None) -> None:
    """Show how well tasks meet their service levels, and what is left of their error budgets."""
    asked = {{"since": "from", "until": "to"}.get(name, name): value for name, value in given.items() if value}
    answer = Remote.of_environment().get("/stats/sla", asked)
    if output in ("table", "name"):
        show_list(answer["tasks"], _LEVELS, output, name="task_name")
        if answer.get("tasks_total", 0) > len(answer["tasks"]):
            click.echo(f"the first {len(answer['tasks'])} of {answer['tasks_total']} tasks, by name", err=True)
    else:
        show_one(answer, output)


def _budget(task: Row) -> str:
    budget = task["error_budget"]
    return "–" if budget is None else f"{100 * budget['left']:.0f} %"


def _shares(name: str) -> Cell:
    return lambda task: " / ".join(duration(task[name][share]) for share in ("p50", "p95", "p99"))


_LEVELS: Final[Mapping[str, Cell]] = {
    "task": lambda task: str(task["task_name"]),
    "runs": lambda task: str(task["runs"]),
    "succeeded": lambda task: "–" if task["success_ratio"] is None else f"{100 * task['success_ratio']:.2f} %",
    "budget left": _budget,
    "start delay": _shares("start_delay_ms"),
    "queue time": _shares("queue_time_ms"),
    "duration": _shares("duration_ms"),
    "breaches": lambda task: str(sum(task["breaches"].values())),
}
"""The columns of `stats sla`; spreads are p50, p95 and p99."""


def _load_options(command: Command) -> Command:
    command = output_option(command)
    command = click.option("--by", type=click.Choice(["hour", "day"]), default="hour", show_default=True)(command)
    command = click.option("--to", "until", metavar="TIME", help="End of the time range [now].")(command)
    return click.option(
        "--from", "since", metavar="TIME", help="Start of the time range, RFC 3339 [a day before --to]."
    )(command)


@stats_command.command("queue")
@click.argument("name")
@_load_options
def queue_command(name: str, output: str, **given: str | None) -> None:
    """Show how long the runs of a queue waited and took, hour by hour or day by day."""
    _show_load(f"/stats/queues/{segment(name)}", _LOAD, output, given)


@stats_command.command("worker")
@click.argument("worker")
@_load_options
def worker_command(worker: str, output: str, **given: str | None) -> None:
    """Show how busy a worker was, hour by hour or day by day."""
    _show_load(f"/stats/workers/{segment(worker)}", {"from": _LOAD["from"], "busy": _busy, **_LOAD}, output, given)


def _show_load(path: str, columns: Mapping[str, Cell], output: str, given: Mapping[str, str | None]) -> None:
    asked = {{"since": "from", "until": "to"}.get(name, name): value for name, value in given.items() if value}
    answer = Remote.of_environment().get(path, asked)
    if output in ("table", "name"):
        show_list(answer["items"], columns, output, name="at")
    else:
        show_one(answer, output)


def _busy(step: Row) -> str:
    return "–" if step["busy"] is None else f"{100 * step['busy']:.1f} %"


_LOAD: Final[Mapping[str, Cell]] = {
    "from": lambda step: moment_text(step["at"]),
    "ended": lambda step: str(step["runs"]),
    "failed": lambda step: str(step["failed"]),
    "queue time": _shares("queue_time_ms"),
    "duration": _shares("duration_ms"),
}
"""The columns of `stats queue`; spreads are p50, p95 and p99."""


@stats_command.command("rebuild")
@config_option
@store_option
@click.option("--from", "since", metavar="DAY", help="The first day [the first from which no run was removed].")
@click.option("--to", "until", metavar="DAY", help="Up to this day, not including it [now].")
def rebuild_command(files: tuple[str, ...], store: str | None, since: str | None, until: str | None) -> None:
    """Rebuild the statistics of whole days (UTC) from history; the store may be in use.

    While it is running, those days show too few runs. If interrupted, any running server continues it; so does calling
    it again.
    """
    from noonbell.cli.doctor import check_default_store
    from noonbell.errors import NotFound

    loaded = load_settings(files, store__url=store)
    first, end = _day("--from", since), _day("--to", until)
    if (missing := missing_file(loaded.settings.store.url)) is not None:
        raise NotFound(f"there is no file {missing}; give the store with --store")
    check_default_store(loaded)
    asyncio.run(_rebuild(loaded.settings, first, end))


def _day(option: str, text: str | None) -> Instant | None:
    """A date as 2026-11-01, which begins at midnight UTC."""
    from datetime import UTC, date, datetime, time

    from noonbell.clock import from_datetime
    from noonbell.errors import InvalidArgument

    if text is None:
        return None
    try:
        return from_datetime(datetime.combine(date.fromisoformat(text), time(tzinfo=UTC)))
    except ValueError:
        raise InvalidArgument.field(option, f"is {text!r}; expected a date such as 2026-11-01") from None


async def _rebuild(settings: Settings, since: Instant | None, until: Instant | None) -> None:
    from noonbell.clock import rfc3339
    from noonbell.wiring import make_store

    store = make_store(settings)
    await store.open()
    try:
        await store.order_rebuild(since, until)
        state = await store.rebuild_state()
        while state.is_under_way:
            if not await store.rebuild_rollups(_ROWS):
                await asyncio.sleep(0.1)  # a server is at it
            state = await store.rebuild_state()
    finally:
        await store.close()
    until = state.until if state.until is not None and state.until > state.since else state.since
    begin = moment_text(rfc3339(state.since)) if state.since else "the beginning of history"
    click.echo(f"rebuilt: {begin} to {moment_text(rfc3339(until))}")
