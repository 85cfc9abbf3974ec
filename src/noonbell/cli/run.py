"""`noonbell run …`: runs on a server; and `noonbell trigger TASK`: one run now, and how it went."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from noonbell.cli.api import Remote, segment, task_segment
from noonbell.cli.options import SPAN_FORMS, confirm, is_bare, say_bare_spans, seconds_in, span_option
from noonbell.cli.output import (
    ago,
    coloured,
    cut,
    duration,
    explained,
    failure_said,
    fields,
    output_option,
    show_list,
    show_one,
    talk,
    terminal_language,
)
from noonbell.cli.root import EXIT_FAILED, EXIT_STILL_GOING, EXIT_WITHOUT_SUCCESS, NounGroup
from noonbell.clock import SystemClock, to_datetime


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from noonbell.cli.task import complete as names

    return names(ctx, param, incomplete)


_wait_option = span_option("--timeout", default="300s", show_default=True, help="Wait at most this long.")


@click.command("trigger")
@click.argument("task", shell_complete=complete)
@click.option("--data", "--payload", metavar="JSON", help="The payload.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="One field of the payload; may be repeated."
)
@click.option("--body", metavar="TEXT", help="HTTP tasks: this body instead of the task's.")
@click.option("--key", metavar="KEY", help="Idempotency key: at most one run has it.")
@span_option("--delay", help="Earliest start, from now: 30s, 5m.")
@span_option("--expires", help="Skip it if no worker has claimed it this long after it was due: 60s, 1h.")
@click.option("--priority", type=int, help="Higher runs first.")
@click.option(
    "--concurrency-key",
    metavar="KEY",
    help="At most max_per_key of the task's runs with this key run at once.",
)
@click.option(
    "--dedupe-key",
    metavar="KEY",
    help="No second run while one with this key is not final; --throttle and --debounce change that.",
)
@span_option("--throttle", help="With --dedupe-key: at most one run in this time.")
@span_option("--debounce", help="With --dedupe-key: one run, once none was requested for this long.")
@span_option("--max-wait", help="With --debounce: after this long at the latest.")
@click.option(
    "--keep",
    type=click.Choice(["first", "last"]),
    help="With --dedupe-key: the first publish counts, or the last [first; with --debounce last].",
)
@click.option("--wait", is_flag=True, help="Wait until the run has ended; the exit code is its outcome.")
@_wait_option
@output_option
def trigger_command(
    task: str,
    data: str | None,
    arguments: tuple[str, ...],
    body: str | None,
    key: str | None,
    delay: float | None,
    expires: float | None,
    priority: int | None,
    concurrency_key: str | None,
    dedupe_key: str | None,
    throttle: float | None,
    debounce: float | None,
    max_wait: float | None,
    keep: str | None,
    wait: bool,
    timeout: float,
    output: str,
) -> int:
    """Start one run of TASK now, independent of its schedule."""
    remote = Remote.of_environment()
    given: dict[str, Any] = {"key": key, "delay_seconds": delay, "priority": priority, "override_body": body}
    given |= {"concurrency_key": concurrency_key, "dedupe": _dedupe(dedupe_key, throttle, debounce, max_wait, keep)}
    given["expires_in_seconds"] = None if expires is None else math.ceil(expires)
    given = {name: value for name, value in given.items() if value is not None}
    payload = _payload(data, arguments)
    if payload is not None:
        given["payload"] = payload
    answer = remote.post(f"/tasks/{task_segment(task)}/trigger", given)
    say_bare_spans(delay="starts in", expires="is skipped if no worker has claimed it after")
    return _asked_for(remote, answer, timeout if wait else None, output)


_TEXTS = (
    *("method", "body", "key", "queue", "priority", "success_url", "failure_url"),
    *("concurrency_key", "max_per_key", "rate_key", "expires_at"),
)


@click.command("call")
@click.argument("url")
@click.option("--method", metavar="METHOD", help="GET, POST, PUT, PATCH, DELETE, HEAD or OPTIONS [POST].")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header to send; may be repeated.")
@click.option("--body", metavar="TEXT", help="The body, sent as is.")
@span_option("--delay", help="Earliest start, from now: 30s, 5m.")
@click.option("--at", metavar="TIME", help="Earliest start: 2026-11-15T02:30:00Z.")
@click.option("--expires-at", metavar="TIME", help="Skip it if no worker has claimed it by this time.")
@click.option("--key", metavar="KEY", help="Idempotency key: at most one call of the queue has it.")
@click.option("--queue", metavar="NAME", help="The queue that it waits in [http].")
@click.option("--priority", type=int, help="Higher runs first.")
@click.option(
    "--concurrency-key", metavar="KEY", help="At most --max-per-key calls of the queue with this key run at once."
)
@click.option("--max-per-key", type=int, help="Calls per --concurrency-key at once [1].")
@click.option("--rate-key", metavar="KEY", help="Calls of the queue with the same key share one rate limit.")
@span_option("--call-timeout", help="Timeout of one attempt [10s].")
@click.option("--retries", type=int, help="Retries after the first attempt [3].")
@click.option("--success-url", metavar="URL", help="URL to call with the outcome when it has succeeded.")
@click.option("--failure-url", metavar="URL", help="URL to call with the outcome when it has failed or was canceled.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of the call; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait until the call has ended; the exit code is its outcome.")
@_wait_option
@output_option
def call_command(
    url: str,
    headers: tuple[str, ...],
    delay: float | None,
    at: str | None,
    call_timeout: float | None,
    retries: int | None,
    labels: tuple[str, ...],
    wait: bool,
    timeout: float,
    output: str,
    **texts: Any,
) -> int:
    """Call URL, now or later, without a task. Once this command returns, the call is stored, and is made at
    least once, even if a node dies.
    """
    given: dict[str, Any] = {name: texts[name] for name in _TEXTS} | {
        "url": url,
        "headers": _pairs(headers, ":", "--header", "NAME:VALUE") or None,
        "labels": _pairs(labels, "=", "--label", "NAME=VALUE") or None,
        "delay_seconds": delay,
        "run_at": at,
        "timeout_seconds": call_timeout,
        "retry_policy": None if retries is None else {"max_retries": retries},
    }
    remote = Remote.of_environment()
    answer = remote.post("/calls", {name: value for name, value in given.items() if value is not None})
    say_bare_spans(delay="starts in", call_timeout="each attempt may take")
    return _asked_for(remote, answer, timeout if wait else None, output)


_NOT_NEW = {
    "exists": "there is a run of this key already",
    "running": "a run of this key is under way",
    "updated": "the waiting run of this key was changed",
}


def _asked_for(remote: Remote, answer: dict[str, Any], timeout: float | None, output: str) -> int:
    """Tell the run that was asked for, or how it went; on stderr, whether there was one of this key before."""
    if (known := _NOT_NEW.get(answer.get("outcome", ""))) is not None:
        talk(f"note: {known}; no new one was made")
    if timeout is not None:
        return await_run(remote, answer["run_id"], timeout, output)
    show_one(answer, output, name="run_id", lines=lambda answer: [f"run {answer['run_id']}"])
    return 0


def _pairs(given: tuple[str, ...], mark: str, option: str, form: str) -> dict[str, str]:
    found = {}
    for text in given:
        name, parted, value = text.partition(mark)
        if not parted or not name.strip():
            raise click.BadParameter(f"is {text!r}; expected {form}", param_hint=option)
        found[name.strip()] = value.strip()
    return found


def _dedupe(
    key: str | None, throttle: float | None, debounce: float | None, max_wait: float | None, keep: str | None
) -> dict[str, Any] | None:
    if throttle is not None and debounce is not None:
        raise click.UsageError("--throttle and --debounce cannot be combined")
    if key is None:
        if (throttle, debounce, max_wait, keep) != (None,) * 4:
            raise click.UsageError("--throttle, --debounce, --max-wait and --keep require --dedupe-key")
        return None
    mode = "throttle" if throttle is not None else "debounce" if debounce is not None else "key"
    asked = {"mode": mode, "key": key, "seconds": throttle or debounce, "max_wait_seconds": max_wait, "keep": keep}
    return {name: value for name, value in asked.items() if value is not None}


_SILENT = 2.0
"""Seconds that a run may wait for its start before the command says why."""


def await_run(remote: Remote, run_id: int, timeout: float, output: str) -> int:
    """Ask until the run is final: often at first, then less. One that does not start, or is tried again, says why on stderr."""
    try:
        return _await_run(remote, run_id, timeout, output)
    except KeyboardInterrupt:
        talk(
            f"\nrun {run_id} continues; noonbell run tail {run_id} follows it, noonbell run cancel {run_id} cancels it"
        )
        raise


def _await_run(remote: Remote, run_id: int, timeout: float, output: str) -> int:
    began = time.monotonic()
    pause = 0.05
    said = ""
    while True:
        run = remote.get(f"/runs/{run_id}")
        if run["final_status"] is not None:
            break
        waited = time.monotonic() - began
        if run["status"] == "RETRYING" or (run["status"] == "SCHEDULED" and waited > min(_SILENT, timeout)):
            said = _say_why(remote, run, said)
        if waited > timeout:
            talk(f"run {run_id} is still {run['status']} after {timeout:g} s; noonbell run tail {run_id} follows it")
            return EXIT_STILL_GOING
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)

    def lines(run: dict[str, Any]) -> list[str]:
        is_retried = run["attempt"] > 1
        return [ended(run, remote.get(f"/runs/{run_id}/attempts")["items"] if is_retried else ())]

    show_one(run, output, name="id", lines=lines)
    return 0 if run["final_status"] == "SUCCESS" else EXIT_WITHOUT_SUCCESS


def _say_why(remote: Remote, run: Mapping[str, Any], said: str) -> str:
    """What a run waits for, once for each cause and attempt; what was said last."""
    answer = remote.get(f"/runs/{run['id']}/explain", {"lang": terminal_language()})
    saying = f"{answer['cause']} {run['attempt']}"
    if saying != said and answer["cause"] != "ran":  # by now it may have ended
        talk(str(answer["message"]))
        if answer["cause"] == "no_worker":
            talk("  noonbell doctor shows how to start one; Ctrl-C ends this wait, and the run keeps waiting")
    return saying


def ended(run: dict[str, Any], attempts: Sequence[dict[str, Any]] = ()) -> str:
    """One line for a run that is over."""
    good = run["final_status"] == "SUCCESS"
    parts = [f"{'✔' if good else '✖'} run {run['id']} {coloured(run['status'])} in {duration(run['duration_ms'])}"]
    parts[0] += _in_all(run, attempts)
    if run["response_code"] is not None:
        parts.append(f"HTTP {run['response_code']}")
    if run["result"] is not None:
        parts.append(cut(json.dumps(run["result"], ensure_ascii=False), 200))
    if not good and run["error_message"]:
        parts.append(failure_said(run))
    if run["skip_reason"]:
        parts.append(run["skip_reason"])
    return "  ".join(parts)


def _in_all(run: dict[str, Any], attempts: Sequence[dict[str, Any]]) -> str:
    """Of a run that was tried again, which attempt was the last and how long it took from the start of its first."""
    starts = [datetime.fromisoformat(each["start_time"]) for each in attempts if each["start_time"]]
    if not starts or run["attempt"] < 2 or not run["end_time"]:
        return ""
    seconds = (datetime.fromisoformat(run["end_time"]) - min(starts)).total_seconds()
    return f" at attempt {run['attempt']}, {duration(seconds * 1000)} in all"


def _payload(data: str | None, arguments: tuple[str, ...]) -> Any:
    from noonbell.cli.task import json_of, value_of

    payload = None if data is None else json_of(data, "--data")
    for item in arguments:
        name, equals, value = item.partition("=")
        if not equals or not (payload is None or isinstance(payload, dict)):
            raise click.BadParameter(f"is {item!r}; expected NAME=VALUE, with --data an object", param_hint="--arg")
        payload = {**(payload or {}), name: value_of(value)}
    return payload


COLUMNS = {
    "id": lambda run: str(run["id"]),
    "task": lambda run: run["task_name"],
    "status": lambda run: coloured(run["status"]) + (f" ({run['skip_reason']})" if run["skip_reason"] else ""),
    "attempt": lambda run: str(run["attempt"]),
    "scheduled": lambda run: ago(run["scheduled_time"]),
    "took": lambda run: duration(run["duration_ms"]),
    "error": lambda run: cut(failure_said(run), 60),
}


@click.group("run", cls=NounGroup, aliases={"show": "get", "log": "tail", "logs": "tail"})
def run_command() -> None:
    """List, read, explain, cancel, retry, follow and remove runs."""


@run_command.command("list")
@click.option("--task", metavar="TASK", shell_complete=complete, help="Only runs of this task.")
@click.option("--status", multiple=True, metavar="STATUS", help="Only this status; may be repeated.")
@click.option("--queue", metavar="QUEUE")
@click.option("--key", metavar="KEY")
@click.option(
    "--label", metavar="NAME=VALUE", help="Only runs of tasks with this label; with --calls, calls that have it."
)
@click.option("--calls", is_flag=True, help="Only calls without a task.")
@click.option("--search", metavar="TEXT", help="Only runs with this text in their key, payload, result, log or error.")
@click.option("--since", metavar="SPAN", help="Only runs scheduled since: 30m, 24h, 7d, or a time.")
@click.option("--limit", default=50, type=click.IntRange(1), show_default=True, help="Show at most this many.")
@click.option("--all", "everything", is_flag=True, help="Show all of them.")
@output_option
def list_runs(
    task: str | None,
    status: tuple[str, ...],
    queue: str | None,
    key: str | None,
    label: str | None,
    calls: bool,
    search: str | None,
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
        "label": label,
        "origin": "call" if calls else None,
        "search": search,
        "from": None if since is None else moment(since),
    }
    remote = Remote.of_environment()
    runs = remote.pages("/runs", query, None if everything else limit)
    first = list(itertools.islice(runs, 1))
    if task is not None and not first:
        remote.get(f"/tasks/{task_segment(task)}")  # a name that no task has is an error
    show_list(itertools.chain(first, runs), COLUMNS, output, name="id")


@run_command.command("export")
@click.option("--format", "form", type=click.Choice(["csv", "ndjson"]), default="csv", show_default=True)
@click.option("--task", metavar="TASK", shell_complete=complete, help="Only runs of this task.")
@click.option("--status", multiple=True, metavar="STATUS", help="Only this status; may be repeated.")
@click.option("--queue", metavar="QUEUE")
@click.option("--label", metavar="NAME=VALUE", help="Only runs of tasks with this label.")
@click.option("--search", metavar="TEXT", help="Only runs with this text in their key, payload, result, log or error.")
@click.option("--since", metavar="SPAN", help="Only runs scheduled since: 30m, 24h, 7d, or a time.")
def export_runs(
    form: str,
    task: str | None,
    status: tuple[str, ...],
    queue: str | None,
    label: str | None,
    search: str | None,
    since: str | None,
) -> None:
    """Print all runs that match the filter, newest first, as CSV or as one line of JSON each."""
    from noonbell.service.runs import EXPORT_COLUMNS, csv_lines, written

    query = {
        "task": task,
        "status": [word.upper() for word in status] or None,
        "queue": queue,
        "label": label,
        "search": search,
        "from": None if since is None else moment(since),
    }
    if form == "csv":
        click.echo(csv_lines([EXPORT_COLUMNS]), nl=False)
    for run in Remote.of_environment().pages("/runs", query, None):
        click.echo(written([run], form), nl=False)


@run_command.command("get")
@click.argument("run_id")
@output_option
def get(run_id: str, output: str) -> None:
    """Show one run with its attempts."""
    remote = Remote.of_environment()
    run = remote.get(f"/runs/{segment(run_id)}")
    run["attempts"] = remote.get(f"/runs/{segment(run_id)}/attempts")["items"]
    show_one(run, output, name="id", lines=_lines)


@run_command.command("explain")
@click.argument("run_id")
@output_option
def explain(run_id: str, output: str) -> None:
    """Explain why a run ended as it did, or what it waits for."""
    answer = Remote.of_environment().get(f"/runs/{segment(run_id)}/explain", {"lang": terminal_language()})
    show_one(answer, output, name="cause", lines=explained)


@run_command.command("cancel")
@click.argument("run_ids", nargs=-1, required=True)
@click.option("--reason", default="", help="The reason, kept with the run.")
def cancel(run_ids: tuple[str, ...], reason: str) -> None:
    """Cancel runs that are not final."""
    remote = Remote.of_environment()
    for run_id in run_ids:
        answer = remote.post(f"/runs/{segment(run_id)}/cancel", {"reason": reason})
        done = "" if answer["canceled"] else "  (it was already final)"
        click.echo(f"{answer['run_id']}  {coloured(answer['status'])}{done}")


@run_command.command("clean")
@click.argument("run_ids", nargs=-1, required=True, type=int)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def clean(run_ids: tuple[int, ...], yes: bool) -> int:
    """Remove final runs from history. `noonbell task clean` and `noonbell queue clean` do it by age and by count."""
    return remove_runs(list(run_ids), yes=yes)


@run_command.command("retry")
@click.argument("run_ids", nargs=-1, required=True)
@click.option("--from-step", metavar="STEP", help="For a flow: run this step again, and all steps that need it.")
@click.option("--wait", is_flag=True, help="Wait until the new runs have ended; the exit code is the worst outcome.")
@_wait_option
@output_option
def retry(run_ids: tuple[str, ...], from_step: str | None, wait: bool, timeout: float, output: str) -> int:
    """Retry final runs, each as a new run. A flow that did not succeed keeps the steps that did."""
    remote = Remote.of_environment()
    made = []
    for run_id in run_ids:
        answer = remote.post(f"/runs/{segment(run_id)}/retry", {} if from_step is None else {"from_step": from_step})
        made.append(answer["run_id"])
        if not wait:
            show_one(answer, output, name="run_id", lines=lambda answer: [f"run {answer['run_id']}"])
    return max((await_run(remote, run_id, timeout, output) for run_id in made), default=0) if wait else 0


@run_command.command("graph")
@click.argument("run_id")
@output_option
def graph(run_id: str, output: str) -> None:
    """Print the steps of a flow's run: the status of each, what it needs, and what it waits for."""
    show_one(Remote.of_environment().get(f"/runs/{segment(run_id)}/graph"), output, name="run_id", lines=graph_lines)


_MARKS = {"SUCCESS": "✔", "FAILED": "✖", "SKIPPED": "⊘", "CANCELED": "⊘", "RUNNING": "▶", "WAITING": "·"}


def graph_lines(graph: dict[str, Any]) -> list[str]:
    """One line for each step, after those that it needs."""
    again = "" if graph["retry_of_run_id"] is None else f"  (a retry of run {graph['retry_of_run_id']})"
    lines = [f"run {graph['run_id']}  {coloured(graph['status'])}{again}"]
    steps = graph["steps"]
    width = max((len(step["id"]) for step in steps), default=0)
    for step in steps:
        told = [f"{_MARKS[step['status']]} {step['id']:<{width}}  {coloured(step['status'])}"]
        told += _counted(step)
        if step["started_at"] and step["ended_at"]:
            told.append(duration(_milliseconds(step["started_at"], step["ended_at"])))
        if step["needs"]:
            after = "" if step["on"] == "success" else f" on {step['on']}"
            told.append(f"needs {cut(', '.join(step['needs']), 80)}{after}")
        if step["run_id"] is not None:
            told.append(f"run {step['run_id']}")
        if step["copied_from"] is not None:
            told.append(f"kept from run {step['copied_from']}")
        if step["message"] or step["reason"]:
            told.append(cut((step["message"] or step["reason"]).partition("\n")[0], 200))
        lines.append("  ".join(told))
    return lines


def _counted(step: dict[str, Any]) -> list[str]:
    if not step["foreach"] or not step["total"]:
        return []
    failed = f", {step['failed']} failed" if step["failed"] else ""
    return [f"{step['succeeded'] + step['failed']}/{step['total']}{failed}"]


def _milliseconds(start: str, end: str) -> int:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)) / timedelta(milliseconds=1))


@run_command.command("tail")
@click.argument("run_id", required=False)
@click.option("--task", metavar="TASK", shell_complete=complete, help="Only events of this task.")
@click.option(
    "--level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="For one run: only lines of this level and above.",
)
@click.option("--search", metavar="TEXT", help="For one run: only lines with this text.")
@output_option
def tail(run_id: str | None, task: str | None, level: str | None, search: str | None, output: str) -> int:
    """Print the log of one run and follow it to its end (also `run log`), or the events of all runs."""
    remote = Remote.of_environment()
    if run_id is not None:
        return _follow(remote, run_id, {"level": level, "search": search}, output)
    if level is not None or search is not None:
        raise click.UsageError("--level and --search apply to the log of one run; give its ID")
    query = {"type": "run.", "task": None if task is None else remote.get(f"/tasks/{task_segment(task)}")["id"]}
    last: str | None = None
    while True:
        for event in remote.events(query, last):
            last = event["id"]
            show_one(event, output, name="id", lines=lambda event: [_told(event)])
        time.sleep(1)
        remote.get("/version")  # a server that is gone is an error, one that restarts is followed again


def _follow(remote: Remote, run_id: str, narrowed: dict[str, Any], output: str) -> int:
    """The log as it grows, until the run is final."""
    after = 0
    while True:
        run = remote.get(f"/runs/{segment(run_id)}")
        page = remote.get(f"/runs/{segment(run_id)}/log", {**narrowed, "after": after})
        after = page["next_after"]
        for line in page["items"]:
            show_one(line, output, name="message", lines=_logged)
        if not page["items"]:
            if run["final_status"] is not None:
                break
            time.sleep(0.5)
    return await_run(remote, run["id"], 0, output)


def _logged(line: dict[str, Any]) -> list[str]:
    return [f"{line['at'][11:23]} {line['level']:<7} {line['message']}"]


def moment(text: str, option: str = "--since") -> str:
    """`24h` ago, or the time itself, as RFC 3339. BadParameter names `option`.

    Eight digits or more without a unit are no seconds: a date, a slip in one, or a Unix time, which would be decades ago.
    """
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.astimezone()).isoformat()
    with contextlib.suppress(ValueError, OverflowError):
        if not text.isdecimal() or len(text) < 8:
            ago = timedelta(seconds=seconds_in(text))
            return (to_datetime(SystemClock().now()) - ago).isoformat(timespec="seconds")
    raise click.BadParameter(f"is {text!r}; expected {SPAN_FORMS} ago, or a time", param_hint=option)


def _lines(run: dict[str, Any]) -> list[str]:
    is_over = run["final_status"] is not None
    head = ended(run, run["attempts"]) if is_over else f"run {run['id']} {coloured(run['status'])}"
    rest = {name: value for name, value in run.items() if name not in ("attempts", "id")}
    details = dict(run["error_details"] or {})
    trace = str(details.pop("traceback", ""))
    rest["error_details"] = details
    attempts = [
        f"  attempt {each['attempt']}  {coloured(each['status'])}  {duration(each['duration_ms'])}"
        f"  {each['worker_id'] or ''}  {failure_said(each)}".rstrip()
        for each in run["attempts"]
    ]
    raised = [*trace.rstrip("\n").split("\n"), f"  {run['error_message']}", ""] if trace else []
    return [head, *attempts, "", *raised, *fields(rest)]


def _told(event: dict[str, Any]) -> str:
    data = event.get("data") or {}
    return (
        f"{event['time'][11:23]} {event['type']:<18} {event.get('topic') or ''}  {event.get('subject') or ''}  {data}"
    )


F = TypeVar("F", bound=Callable[..., Any])

_REASONS = {
    "not_found": "there is no such run",
    "not_final": "it is not final; cancel it first",
    "part": "it is part of another run and is removed with it",
    "active_parts": "a part, step or child of it is not final",
}


def _days(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Every bare number as days, as its metavar says; `12h` and `7d` as what they are."""
    if value is None:
        return None
    try:
        found = seconds_in(value)
    except ValueError:
        said = f"is {value!r}; expected a number of days, or 30m, 12h, 7d"
        raise click.BadParameter(said, context, parameter) from None
    return found if is_bare(value) else found / 86_400


def cleaning_options(command: F) -> F:
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N runs."),
        click.option(
            "--older-than",
            metavar="DAYS",
            callback=_days,
            help="Only runs that ended longer ago, in days or as 12h, 7d [30; all, with --keep].",
        ),
    ):
        command = option(command)
    return command


def remove_history(what: str, path: str, older_than: float | None, keep: int | None, *, yes: bool) -> None:
    """POST to PATH/clean until nothing more is left to remove, and print how many runs went."""
    if older_than is None and keep is None:
        older_than = 30.0
    parts = [f"that ended over {older_than:g} days ago"] if older_than is not None else []
    parts += [f"but the newest {keep}"] if keep is not None else []
    if not yes:
        confirm(f"Remove the final runs of {what} {', '.join(parts)}?", refused="nothing removed")
    asked = {"older_than_days": older_than, "keep": keep}
    remote, removed = Remote.of_environment(), 0
    while True:
        answer = remote.post(f"{path}/clean", {name: value for name, value in asked.items() if value is not None})
        removed += answer["removed"]
        if not answer["more"]:
            break
    click.echo(f"{removed} removed")


def remove_runs(run_ids: list[int], *, yes: bool) -> int:
    """By thousands; EXIT_FAILED if one of them is not removed."""
    if not yes:
        confirm(f"Remove {len(run_ids)} run(s) from history for good?", refused="nothing removed")
    remote, removed, kept = Remote.of_environment(), 0, list[dict[str, Any]]()
    for start in range(0, len(run_ids), 1_000):
        answer = remote.post("/runs/clean", {"run_ids": run_ids[start : start + 1_000]})
        removed, kept = removed + answer["removed"], kept + answer["kept"]
    for each in kept:
        talk(f"run {each['run_id']} stays: {_REASONS.get(each['reason'], each['reason'])}")
    click.echo(f"{removed} removed")
    return EXIT_FAILED if kept else 0
