"""`noonbell run …`: runs on a server."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import click

from noonbell.cli.output import ago, coloured, duration, fields, output_option, show_list, show_one
from noonbell.cli.remote import Remote, segment, task_segment
from noonbell.cli.trigger import await_run, complete, ended
from noonbell.clock import SystemClock, to_datetime

COLUMNS = {
    "id": lambda run: str(run["id"]),
    "task": lambda run: run["task_name"],
    "status": lambda run: coloured(run["status"]) + (f" ({run['skip_reason']})" if run["skip_reason"] else ""),
    "attempt": lambda run: str(run["attempt"]),
    "scheduled": lambda run: ago(run["scheduled_time"]),
    "took": lambda run: duration(run["duration_ms"]),
    "error": lambda run: (run["error_message"] or "")[:60],
}


@click.group("run")
def command() -> None:
    """List, read, cancel, retry and follow runs."""


@command.command("list")
@click.option("--task", metavar="TASK", shell_complete=complete, help="Only runs of this task.")
@click.option("--status", multiple=True, metavar="STATUS", help="Only these; may be repeated.")
@click.option("--queue", metavar="QUEUE")
@click.option("--key", metavar="KEY")
@click.option("--since", metavar="SPAN", help="Only what was scheduled since then: 30m, 24h, 7d, or a time.")
@click.option("--limit", default=50, type=click.IntRange(1), show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@output_option
def list_runs(
    task: str | None,
    status: tuple[str, ...],
    queue: str | None,
    key: str | None,
    since: str | None,
    limit: int,
    everything: bool,
    output: str,
) -> None:
    """List runs, newest first."""
    query = {
        "task": task,
        "status": [word.upper() for word in status] or None,
        "queue": queue,
        "key": key,
        "from": None if since is None else moment(since),
    }
    runs = Remote.of_environment().pages("/runs", query, None if everything else limit)
    show_list(runs, COLUMNS, output, name="id")


@command.command("get")
@click.argument("run_id")
@output_option
def get(run_id: str, output: str) -> None:
    """Show one run with its attempts."""
    remote = Remote.of_environment()
    run = remote.get(f"/runs/{segment(run_id)}")
    run["attempts"] = remote.get(f"/runs/{segment(run_id)}/attempts")["items"]
    show_one(run, output, name="id", lines=_lines)


@command.command("cancel")
@click.argument("run_ids", nargs=-1, required=True)
@click.option("--reason", default="", help="Kept with the run.")
def cancel(run_ids: tuple[str, ...], reason: str) -> None:
    """Cancel runs that are not final."""
    remote = Remote.of_environment()
    for run_id in run_ids:
        answer = remote.post(f"/runs/{segment(run_id)}/cancel", {"reason": reason})
        done = "" if answer["canceled"] else "  (it was final already)"
        click.echo(f"{answer['run_id']}  {coloured(answer['status'])}{done}")


@command.command("retry")
@click.argument("run_id")
@click.option("--wait", is_flag=True, help="Wait until the new run has ended; its outcome is the exit code.")
@click.option("--timeout", default=300.0, metavar="SECONDS", show_default=True, help="Wait no longer than that.")
@output_option
def retry(run_id: str, wait: bool, timeout: float, output: str) -> int:
    """Run a final run once more, as a new run."""
    remote = Remote.of_environment()
    answer = remote.post(f"/runs/{segment(run_id)}/retry")
    if wait:
        return await_run(remote, answer["run_id"], timeout, output)
    show_one(answer, output, name="run_id", lines=lambda answer: [f"run {answer['run_id']}"])
    return 0


@command.command("tail")
@click.argument("run_id", required=False)
@click.option("--task", metavar="TASK", shell_complete=complete, help="Only events of this task.")
@output_option
def tail(run_id: str | None, task: str | None, output: str) -> int:
    """Follow one run to its end, or the events of all runs."""
    remote = Remote.of_environment()
    if run_id is not None:
        return _follow(remote, run_id, output)
    query = {"type": "run.", "task": None if task is None else remote.get(f"/tasks/{task_segment(task)}")["id"]}
    last: str | None = None
    while True:
        for event in remote.events(query, last):
            last = event["id"]
            show_one(event, output, name="id", lines=lambda event: [_told(event)])
        time.sleep(1)
        remote.get("/version")  # a server that is gone is an error, one that restarts is followed again


def _follow(remote: Remote, run_id: str, output: str) -> int:
    """The log as it grows, until the run is final."""
    after = 0
    while True:
        run = remote.get(f"/runs/{segment(run_id)}")
        page = remote.get(f"/runs/{segment(run_id)}/log", {"after": after})
        after = page["next_after"]
        for line in page["items"]:
            show_one(line, output, name="message", lines=_logged)
        if run["final_status"] is not None:
            break
        time.sleep(0.5)
    return await_run(remote, run["id"], 0, output)


def _logged(line: dict[str, Any]) -> list[str]:
    return [f"{line['at'][11:23]} {line['level']:<7} {line['message']}"]


def moment(text: str) -> str:
    """`24h` ago, or the time itself, as RFC 3339."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    number, unit = text[:-1], text[-1:]
    if number.isdecimal() and unit in units:
        return (to_datetime(SystemClock().now()) - timedelta(**{units[unit]: int(number)})).isoformat(
            timespec="seconds"
        )
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"is {text!r}; takes 30m, 24h, 7d, or a time", param_hint="--since") from None
    return (found if found.tzinfo else found.astimezone()).isoformat()


def _lines(run: dict[str, Any]) -> list[str]:
    head = ended(run) if run["final_status"] is not None else f"run {run['id']} {coloured(run['status'])}"
    rest = {name: value for name, value in run.items() if name not in ("attempts", "id")}
    attempts = [
        f"  attempt {each['attempt']}  {coloured(each['status'])}  {duration(each['duration_ms'])}"
        f"  {each['worker_id'] or ''}  {each['error_message'] or ''}".rstrip()
        for each in run["attempts"]
    ]
    return [head, *attempts, "", *fields(rest)]


def _told(event: dict[str, Any]) -> str:
    data = event.get("data") or {}
    return (
        f"{event['time'][11:23]} {event['type']:<18} {event.get('topic') or ''}  {event.get('subject') or ''}  {data}"
    )
