"""`noonbell task …`: tasks on a server."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from noonbell.cli.api import Named, Remote, post_for_each, task_segment
from noonbell.cli.options import confirm, interval, is_bare, say_bare_spans, span_option, text_of, zone_hint
from noonbell.cli.output import (
    ProgressBar,
    ago,
    coloured,
    explained,
    failure_said,
    fields,
    moment_text,
    next_fire,
    output_option,
    show_list,
    show_one,
    shown_safely,
    talk,
    terminal_language,
)
from noonbell.cli.root import NounGroup
from noonbell.cli.run import cleaning_options, list_runs, remove_history, trigger_command
from noonbell.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = {
    "id": lambda task: str(task["id"]),
    "name": lambda task: task["name"],
    "status": lambda task: coloured(task["status"]),
    "schedule": lambda task: when_words(task),  # noqa: PLW0108 - it is defined below
    "next": lambda task: next_fire(task["next_fire_at"]),
    "last run": lambda task: coloured(task["last_run_status"] or "–"),
}


@click.group("task", cls=NounGroup, aliases={"show": "get", "pause": "disable", "resume": "enable"})
def task_command() -> None:
    """List, read, create and change tasks."""


task_command.add_command(trigger_command)


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of tasks that begin so, from the server; silence where there is none."""
    del ctx, param
    try:
        found = Remote.of_environment().get("/tasks", {"name": incomplete or None, "page_size": 50})
    except Exception:
        return []
    return [task["name"] for task in found["items"] if task["name"].startswith(incomplete)]


@task_command.command("list")
@click.option("--status", type=click.Choice(["ENABLED", "DISABLED", "COMPLETED", "ERROR"], case_sensitive=False))
@click.option("--name", metavar="TEXT", help="Only tasks with this text in their name.")
@click.option("--label", metavar="NAME=VALUE", help="Only tasks with this label.")
@click.option("--limit", default=100, type=click.IntRange(1), show_default=True, help="Show at most this many.")
@click.option("--all", "everything", is_flag=True, help="Show all of them.")
@output_option
def list_tasks(
    status: str | None, name: str | None, label: str | None, limit: int, everything: bool, output: str
) -> None:
    """List tasks."""
    query = {"status": status, "name": name, "label": label}
    show_list(Remote.of_environment().pages("/tasks", query, None if everything else limit), COLUMNS, output)


task_command.add_command(
    click.Command(
        "runs",
        params=[
            click.Argument(["task"], shell_complete=complete),
            *(option for option in list_runs.params if option.name != "task"),
        ],
        callback=list_runs.callback,
        help="List the runs of a task, newest first; also `run list --task TASK`.",
    )
)


@task_command.command("get")
@click.argument("task", shell_complete=complete)
@click.option("--all", "everything", is_flag=True, help="Also the fields that have their defaults.")
@output_option
def get(task: str, everything: bool, output: str) -> None:
    """Show one task, by its name or ID: its state, and the fields that differ from their defaults. JSON has all of them."""
    found = Remote.of_environment().get(f"/tasks/{task_segment(task)}")
    show_one(found, output, lines=_all_lines if everything else _lines)
    if output == "table" and not everything:
        talk(f"the other fields have their defaults: noonbell task get {shlex.quote(task)} --all")


_FIELD_OPTIONS = (
    click.option("--cron", metavar="EXPR", help="When: a cron expression."),
    click.option("--every", metavar="SPAN", help="When: an interval such as 10s, 5m, 1h30m; a bare number is seconds."),
    click.option("--at", metavar="TIME", help="When: once, such as 2026-03-26T12:00:00Z."),
    click.option(
        "--after",
        "upstreams",
        multiple=True,
        metavar="TASK[:ON]",
        help="When: after this task, on success, failure, skipped or any [success]; may be repeated.",
    ),
    click.option("--tz", metavar="ZONE", help="Time zone of the schedule."),
    click.option("--url", metavar="URL", help="What: a URL to call, or service://NAME/PATH."),
    click.option("--method", metavar="METHOD", help="HTTP method [GET]."),
    click.option("--job", metavar="TYPE", help="What: a job type, executed by a worker."),
    click.option("--command", metavar="LINE", help="What: a program by its absolute path, with its arguments."),
    click.option("--shell", is_flag=True, default=None, help="Let the shell read --command as is."),
    click.option("--data", metavar="JSON", help="The job's payload, or the body of the call."),
    click.option("--body", metavar="TEXT", help="The body of the call, as is; placeholders are filled in."),
    click.option("--payload", metavar="JSON", help="The payload: a job's arguments, or {{payload.x}} of a call."),
    click.option(
        "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header of the call; may be repeated."
    ),
    span_option("--timeout", is_zero_allowed=False, help="Timeout: 30s, 5m."),
    click.option("--retries", metavar="N", type=click.IntRange(0), help="Retries after a failure."),
    click.option(
        "--set",
        "more",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Any other field, or OBJECT.FIELD=VALUE; as JSON or text.",
    ),
)


def _field_options(function: F) -> F:
    """The fields of a task as `create` and `edit` take them; `_given` reads them."""
    for option in reversed(_FIELD_OPTIONS):
        function = option(function)
    return function


@task_command.command("create")
@click.argument("name", required=False)
@_field_options
@click.option("-f", "--file", "file", metavar="FILE", help="The whole task as JSON or YAML; - for stdin.")
@output_option
def create(name: str | None, file: str | None, output: str, **given: Any) -> None:
    """Create a task, from options or from a file."""
    task = read_file(file) if file else {}
    task.update(({} if name is None else {"name": name}) | _given({}, **given))
    remote = Remote.of_environment()
    made: Any = _save(remote, "POST", "/tasks", task)
    _say_spans(given)
    show_one(made, output, lines=lambda made: _made(made, task))
    if job_type := task.get("job_type"):
        _warn_of_no_worker(remote, made["id"], job_type)


def _say_spans(given: Mapping[str, Any]) -> None:
    """On stderr, what was understood of a bare number: `--every 10` is every 10 seconds."""
    if given["every"] is not None and is_bare(given["every"]):
        talk(f"fires {schedule_words(interval(given['every']), 'UTC')}")
    say_bare_spans(timeout="each attempt may take")


def _save(remote: Remote, method: str, path: str, fields: dict[str, Any]) -> Any:
    """The answer. An error about the time zone has names that are near, one about a missing target the options for it."""
    try:
        return remote.call(method, path, fields)
    except InvalidArgument as error:
        hints = {
            "timezone": zone_hint(str(fields["timezone"])) if "timezone" in fields else "",
            "target_url": "" if "target_url" in fields else " (--url URL, or --job TYPE)",
        }
        if not any(hints.get(name) for name in error.details):
            raise
        found = {name: f"{problem}{hints.get(name, '')}" for name, problem in error.details.items()}
        raise InvalidArgument.fields(found) from None


def _warn_of_no_worker(remote: Remote, task_id: int, job_type: str) -> None:
    queue: str = remote.get(f"/tasks/{task_id}")["queue"]
    for worker in remote.get("/workers")["items"]:
        knows = worker["job_types"] is None or job_type in worker["job_types"]
        if worker["state"] == "running" and queue in worker["queues"] and knows:
            return
    talk(f"no connected worker of queue {queue} supports job type {job_type}: its runs wait for one")
    talk(f"  start one: noonbell worker --app MODULE:APP --queues {queue} --store URL, the same as the server's")


@task_command.command("edit")
@click.argument("task", shell_complete=complete)
@_field_options
@click.option("-f", "--file", "file", metavar="FILE", help="The changed fields as JSON or YAML; - for stdin.")
@output_option
def edit(task: str, file: str | None, output: str, **given: Any) -> None:
    """Change fields of a task; without options, in the editor."""
    in_editor = not file and not any(value not in (None, ()) for value in given.values())
    if in_editor and not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal for an editor; give the changes with --set FIELD=VALUE", click.get_current_context()
        )
    remote = Remote.of_environment()
    path = f"/tasks/{task_segment(task)}"
    before = remote.get(path)
    if in_editor:
        changes = _edited(before)
        if changes is None:
            talk("nothing changed")
            return
    else:
        changes = {**(read_file(file) if file else {}), **_given(before, **given)}
    changed = _save(remote, "PATCH", path, changes)
    _say_spans(given)
    show_one(changed, output, name="version", lines=_changed)
    owner = str(changes.get("managed_by", before["managed_by"]))
    if owner.startswith(("file:", "code:")):
        talk(
            f"note: {owner} declares this task and will undo the change when it is applied next; change it there,"
            " or detach the task with --set managed_by=api"
        )


def _tell_status(task: str, answer: Any) -> None:
    click.echo(f"{task}  {coloured(answer['status'])}")


_TASKS = Named("tasks", lambda task: f"/tasks/{task_segment(task)}", complete)
post_for_each(task_command, "enable", "Let tasks fire again, from now on; also `task resume`.", _TASKS, _tell_status)


@task_command.command("disable")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete)
@click.option("--reason", default="", help="The reason, shown with the task.")
@click.option("--until", metavar="TIME", help="Resume them automatically at this time, such as 2026-03-26T12:00:00Z.")
@span_option("--for", "seconds", is_zero_allowed=False, help="Resume them automatically after this time: 30m, 2h.")
def disable(tasks: tuple[str, ...], reason: str, until: str | None, seconds: float | None) -> None:
    """Stop tasks from firing, until they are enabled or for a while; also `task pause`.

    If a task is already disabled, this replaces its reason and its end.
    """
    if until is not None and seconds is not None:
        raise click.UsageError("--until and --for mean the same; use only one", click.get_current_context())
    said = {"reason": reason, "until": until, "for_seconds": None if seconds is None else math.ceil(seconds)}
    body = {name: value for name, value in said.items() if value}
    remote = Remote.of_environment()
    for task in tasks:
        _TASKS.check(remote, task)
        answer = remote.post(f"{_TASKS.address(task)}/disable", body)
        pause = answer.get("pause")
        click.echo(f"{task}  {coloured(answer['status'])}{'' if pause is None else _said(pause)}")


def _said(pause: dict[str, Any]) -> str:
    """`  until 2026-11-15 04:00:00+00:00: the vendor mends its API`"""
    until = f"  until {moment_text(pause['until'])}" if pause["until"] else "  until it is enabled"
    return f"{until}: {pause['reason']}" if pause["reason"] else until


@task_command.command("delete")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete)
@click.option("--cancel-running", is_flag=True, help="Cancel running runs, too.")
@click.option("--purge", is_flag=True, help="Delete their whole history, too.")
@click.option("--force", is_flag=True, help="Delete them even if other tasks run after them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(tasks: tuple[str, ...], cancel_running: bool, purge: bool, force: bool, yes: bool) -> None:
    """Delete tasks; their history is kept unless --purge. If one of them does not exist, none is deleted."""
    from noonbell.fields import counted

    remote = Remote.of_environment()
    every = [remote.get(f"/tasks/{task_segment(task)}") for task in tasks]
    found = {task["id"]: task for task in every}
    if not yes:
        waiting = sum(task["queued_runs"] for task in found.values())
        what = (
            "with the whole history"
            if purge
            else f"({counted(waiting, 'waiting run is', 'waiting runs are')} canceled)"
        )
        names = ", ".join(repr(task["name"]) for task in found.values())
        confirm(
            f"Delete {'task' if len(found) == 1 else f'{len(found)} tasks:'} {names} {what}?", refused="nothing deleted"
        )
    flags = {
        name: str(is_set).lower()
        for name, is_set in (("cancel_running", cancel_running), ("purge", purge), ("force", force))
    }
    for task_id, task in found.items():
        remote.call("DELETE", f"/tasks/{task_id}", query=flags)
        talk(f"deleted {task['name']}")


@task_command.command("clean")
@click.argument("task", shell_complete=complete)
@cleaning_options
def clean(task: str, older_than: float | None, keep: int | None, yes: bool) -> None:
    """Remove the final runs of a task: those that ended long ago, or all but the newest."""
    remove_history(f"task {task!r}", f"/tasks/{task_segment(task)}", older_than, keep, yes=yes)


_KEYS: Final = {
    "key": lambda line: line["key"] or "(no value)",
    "waiting": lambda line: str(line["waiting"]),
    "oldest": lambda line: ago(line["oldest_at"]),
    "blocked": lambda line: f"{line['running']} of {line['max_per_key']} in use",
    "by run": lambda line: str(line["blocking_run_id"] or "–"),
    "next run": lambda line: str(line["next_run_id"] or "–"),
}


@task_command.command("keys")
@click.argument("task", shell_complete=complete)
@output_option
def keys(task: str, output: str) -> None:
    """List the keys that runs of a task wait for, longest queue first; `calls:QUEUE` for the calls of a queue."""
    show_list(Remote.of_environment().get(f"/tasks/{task_segment(task)}/keys")["items"], _KEYS, output, name="key")


@task_command.command("backfill")
@click.argument("task", shell_complete=complete)
@click.option("--from", "since", metavar="TIME", required=True, help="The first slot, such as 2026-11-14T00:00:00Z.")
@click.option("--to", "until", metavar="TIME", help="The last slot [now].")
@click.option("--payload", metavar="JSON", help="The payload, in place of the task's.")
@click.option("--priority", metavar="N", type=int, help="The priority, in place of the task's; higher runs first.")
@click.option(
    "--if-finished",
    type=click.Choice(["keep", "rerun", "rerun_failed", "rerun_succeeded"]),
    help="What to do with slots that already have a run [keep].",
)
@click.option("--dry-run", is_flag=True, help="Only list the slots.")
@output_option
def backfill(
    task: str, since: str, until: str | None, payload: str | None, priority: int | None, output: str, **given: Any
) -> None:
    """Run a task for past slots, each at most once even if you repeat this."""
    asked = {"to": until, "priority": priority, "limit": _SLOTS, **given}
    if payload is not None:
        asked["payload"] = json_of(payload, "--payload")
    asked = {name: value for name, value in asked.items() if value is not None}
    remote, path = Remote.of_environment(), f"/tasks/{task_segment(task)}/backfill"
    whole: dict[str, Any] = {"count": 0, "slots": [], "created": 0, "existing": 0, "refused": 0}
    following: str | None = since
    with ProgressBar() as bar:
        while following is not None:
            done = remote.post(path, {**asked, "from": following})
            for name in whole:
                whole[name] += done[name]
            following = done["next_from"]
            if following is not None:
                bar.move(_part(following, since, until))
    show_one(whole, output, name="count", lines=lambda whole: _filled(whole, dry_run=bool(given["dry_run"])))


_SLOTS: Final = 1_000
"""That one call fills, so that the bar moves and no transaction is long."""


def _part(reached: str, since: str, until: str | None) -> float:
    from datetime import datetime

    from noonbell.clock import SystemClock, to_datetime

    first, here = datetime.fromisoformat(since.upper()), datetime.fromisoformat(reached)
    last = to_datetime(SystemClock().now()) if until is None else datetime.fromisoformat(until.upper())
    return min(1.0, max(0.0, (here - first) / (last - first)))


def _filled(whole: dict[str, Any], *, dry_run: bool) -> list[str]:
    if dry_run:
        return [*map(moment_text, whole["slots"]), f"{whole['count']} slots (nothing was written)"]
    said = f"{whole['created']} runs created, {whole['existing']} slots already had one"
    return [f"{said}, {whole['refused']} were rejected at the task's limit" if whole["refused"] else said]


@task_command.command("explain")
@click.argument("task", shell_complete=complete)
@click.option("--at", metavar="TIME", help="The slot: 2026-03-26T12:00, in the task's zone, or with Z [the newest].")
@output_option
def explain(task: str, at: str | None, output: str) -> None:
    """Explain why a task did, or did not, run."""
    remote = Remote.of_environment()
    asked = {"at": None if at is None else _with_seconds(at), "lang": terminal_language()}
    answer = remote.get(f"/tasks/{task_segment(task)}/explain", asked)

    def lines(answer: Mapping[str, Any]) -> list[str]:
        return explained(answer if at is not None else {**answer, "last_run": _last_run(remote, task, answer)})

    show_one(answer, output, name="cause", lines=lines)


def _with_seconds(moment: str) -> str:
    """As the API takes it, of any form that `noonbell next --from` takes."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(moment).isoformat()
    except ValueError:
        return moment  # which the API refuses, and says what it takes


_FEW: Final = 20
"""Runs among which the last one that has begun or ended is looked for: those that wait come before it."""


def _last_run(remote: Remote, task: str, answer: Mapping[str, Any]) -> str | None:
    """The newest run that has begun or ended, however it was made; None where the answer is about that run."""
    runs = remote.pages("/runs", {"task": task}, _FEW)
    run = next((run for run in runs if run["end_time"] or run["start_time"]), None)
    if run is None or run["id"] == answer["run_id"]:
        return None
    said = f"{run['id']} {run['status']} {ago(run['end_time'] or run['start_time'])}"
    why = failure_said(run) if run["error_message"] else run["skip_reason"]
    return str(shown_safely(f"{said}: {why}" if why else said))


def read_file(name: str) -> dict[str, Any]:
    """One object from a file, JSON or YAML; `-` is stdin."""
    from noonbell import yaml_text

    try:
        found = yaml_text.read(text_of(name))
    except ValueError as error:
        raise click.BadParameter(f"{name} {error}", param_hint="-f") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{name} does not have an object", param_hint="-f")
    if set(found) == {"tasks"}:
        said = (
            f"{name} has a list of tasks; this command accepts one. noonbell apply {shlex.quote(name)} creates all"
            " of them"
        )
        raise click.BadParameter(said, param_hint="-f")
    return found


def _given(before: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """The fields that the options say; `before` is the task that they change."""
    task: dict[str, Any] = {}
    whens = [f"--{option}" for option in ("cron", "every", "at") if given[option] is not None]
    if len(whens) > 1:
        raise click.UsageError(
            f"{' and '.join(whens)} each set the schedule; use only one", click.get_current_context()
        )
    plain = {"cron": "cron_expr", "tz": "timezone", "url": "target_url", "method": "http_method", "job": "job_type"}
    task.update({field: given[option] for option, field in plain.items() if given[option] is not None})
    if given["command"] is not None:
        task |= _command(given["command"], is_shell=bool(given["shell"]))
    elif given["shell"]:
        raise click.UsageError("--shell requires --command", click.get_current_context())
    if given["every"] is not None:
        task["schedule"] = interval(given["every"])
    if given["at"] is not None:
        task["schedule"] = {"type": "once", "at": given["at"]}
    if given["upstreams"]:
        task["after"] = {"tasks": [_upstream(item) for item in given["upstreams"]]}
    if given["data"] is not None:
        is_job = given["job"] or given["command"] or (before.get("job_type") and not given["url"])
        if is_job:
            task["payload"] = json_of(given["data"], "--data")
        else:
            _check_json_body(given["data"])
            task["body_template"] = given["data"]
    if given["body"] is not None:
        if given["data"] is not None and "body_template" in task:
            raise click.UsageError("--data and --body both set the body; use only one", click.get_current_context())
        task["body_template"] = given["body"]
    if given["payload"] is not None:
        task["payload"] = json_of(given["payload"], "--payload")
    if given["headers"]:
        headers = _headers(given["headers"])
        named = {name.lower() for name in headers}
        kept = {name: value for name, value in (before.get("headers") or {}).items() if name.lower() not in named}
        task["headers"] = kept | headers
    if given["timeout"] is not None:
        task["timeout_seconds"] = given["timeout"]
    if given["retries"] is not None:
        task["retry_policy"] = {"max_retries": given["retries"]}
    return _with_fields(task, given["more"], before)


def _check_json_body(text: str) -> None:
    """A body with placeholders is JSON only when they are filled in."""
    if "{{" not in text:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            said = f"is {text!r}, which is not JSON: {error}; --body sends a text as is"
            raise click.BadParameter(said, param_hint="--data") from None


_SCHEDULE_OPTIONS = ("cron", "every", "at")


def _with_fields(task: dict[str, Any], more: tuple[str, ...], before: Mapping[str, Any]) -> dict[str, Any]:
    """With what `--set` gives. `--set OBJECT.FIELD=VALUE` and an object beside an option for one of its fields keep the rest."""
    for item in more:
        name, equals, text = item.partition("=")
        if not equals:
            raise click.BadParameter(f"is {item!r}; expected FIELD=VALUE or OBJECT.FIELD=VALUE", param_hint="--set")
        if name in _SCHEDULE_OPTIONS:
            raise click.BadParameter(f"is {item!r}; use the option: --{name} {shlex.quote(text)}", param_hint="--set")
        value, (name, _, within) = value_of(text), name.partition(".")
        there = task.get(name)
        if within:
            kept = before.get(name) if there is None else there
            task[name] = {**(kept if isinstance(kept, dict) else {}), within: value}
        elif isinstance(there, dict) and isinstance(value, dict) and "type" not in value:  # a schedule is whole
            task[name] = {**there, **value}
        else:
            task[name] = value
    return task


def _command(line: str, *, is_shell: bool) -> dict[str, Any]:
    if is_shell:
        return {"command": line, "shell": True}
    try:
        return {"command": shlex.split(line), "shell": False}
    except ValueError as error:
        raise click.BadParameter(f"is {line!r}: {error}", param_hint="--command") from None


_ON: Final = ("success", "failure", "skipped", "any")


def _upstream(item: str) -> dict[str, Any]:
    """`NAME`, or `NAME:failure`. A number is an id; a colon before anything else belongs to the name."""
    name, colon, on = item.rpartition(":")
    if not colon or on not in _ON:
        name, on = item, _ON[0]
    return {"task": int(name) if name.isdigit() else name, "on": on}


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given:
        name, colon, value = item.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"is {item!r}; expected 'NAME: VALUE'", param_hint="--header")
        found[name.strip()] = value.strip()
    return found


def value_of(text: str) -> Any:
    """JSON if it is, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def json_of(text: str, option: str) -> Any:
    """The value of an option that takes JSON. Text without quotes is refused: it is more often JSON with a slip in it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        said = f"is {text!r}, which is not JSON: {error}; to send it as text: {option} {shlex.quote(json.dumps(text))}"
        raise click.BadParameter(said, param_hint=option) from None


_READ_ONLY: Final = frozenset(
    [
        "id",
        "version",
        "created_at",
        "updated_at",
        "created_by",
        "next_fire_at",
        "active_runs",
        "queued_runs",
        "cron_expr",
        "cron_dialect",
    ]
)


def _edited(task: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that were changed in the editor, with the version that was shown: a newer one is not overwritten."""
    from noonbell import yaml_text

    shown = {name: value for name, value in task.items() if name not in _READ_ONLY and not name.startswith("last_run")}
    written = click.edit(yaml_text.write(shown), extension=".yaml")
    try:
        after = yaml_text.read(written) if written else None
    except ValueError as error:
        raise click.UsageError(f"what was written {error}") from None
    if not isinstance(after, dict):
        return None
    changes = {name: value for name, value in after.items() if name not in shown or shown[name] != value}
    return {**changes, "version": task["version"]} if changes else None


def when_words(task: Mapping[str, Any]) -> str:
    """Its schedules, what they leave out, and what it runs after."""
    zone, after = task["timezone"], task.get("after")
    several = task.get("schedules") or ([] if task["schedule"] is None else [task["schedule"]])
    said = "; ".join(schedule_words(each, zone) for each in several) or "on demand"
    if task.get("exclude"):
        said += f" except {'; '.join(schedule_words(each, zone) for each in task['exclude'])}"
    if not after:
        return said
    names = [str(each["task"]) + ("" if each["on"] == "success" else f" ({each['on']})") for each in after["tasks"]]
    follows = f"after {(' or ' if after['join'] == 'any' else ' and ').join(names)}"
    return f"{said}; {follows}" if several else follows


def schedule_words(schedule: dict[str, Any] | None, zone: str) -> str:
    if schedule is None:
        return "on demand"
    match schedule["type"]:
        case "cron":
            text = schedule.get("source") or schedule["expr"]
        case "interval":
            count, unit = schedule["every"], schedule["unit"]
            text = f"every {unit}" if count == 1 else f"every {count} {unit}s"
        case kind:
            said = (str(value) for name, value in schedule.items() if name not in ("type", "repeat", "run_if_late"))
            text = " ".join((kind, *said))
    return str(text) if zone == "UTC" else f"{text} {zone}"


_STATE: Final = ("id", "version", "managed_by", "created_by", "created_at", "updated_at", "active_runs", "queued_runs")
"""What is shown of a task besides its fields and its last run."""
_WHEN: Final = ("cron_expr", "cron_dialect", "schedule", "timezone")
"""Said in words, as the list does."""


def _lines(task: dict[str, Any]) -> list[str]:
    """Its state, what differs from the defaults, and what the server keeps of it."""
    from noonbell.service.task_files import written

    own = written(task)
    kept = {name: value for name, value in own.items() if name not in ("name", "status", "managed_by", *_WHEN)}
    state = {name: task[name] for name in _STATE if task[name] != 0}
    return [*_head(task), *fields(kept), *([""] if kept else []), *fields(state)]


def _all_lines(task: dict[str, Any]) -> list[str]:
    return [*_head(task), *fields({name: value for name, value in task.items() if name not in _TOLD})]


_TOLD: Final = ("name", "status", "pause", "cron_expr", "cron_dialect", "schedule", "next_fire_at", "last_run_at")


def _head(task: dict[str, Any]) -> list[str]:
    pause = "" if task.get("pause") is None else _said(task["pause"])
    last = f"{coloured(task['last_run_status'])}  {ago(task['last_run_at'])}" if task["last_run_status"] else "–"
    return [
        f"{task['name']}  {coloured(task['status'])}{pause}",
        f"schedule   {when_words(task)}",
        f"next fire  {next_fire(task['next_fire_at'])}",
        f"last run   {last}",
        "",
    ]


def _made(made: dict[str, Any], task: Mapping[str, Any]) -> list[str]:
    lines = _next(f"created {made['name']}, id {made['id']}", made)
    if not any(task.get(name) for name in ("schedule", "cron_expr", "schedules", "after")):
        lines.append(f"note: it has no schedule and runs only on demand: noonbell trigger {shlex.quote(made['name'])}")
    return lines


def _changed(changed: dict[str, Any]) -> list[str]:
    return _next(f"changed, now version {changed['version']}", changed)


def _next(done: str, answer: dict[str, Any]) -> list[str]:
    """What was done, the next slots below it, and the notes."""
    slots = [f"  {fire['local'].replace('T', ' ')}" for fire in answer.get("next_fires", [])]
    head = f"{done}; the next slots:" if slots else done
    return [head, *slots, *(f"note: {note['message']}" for note in answer.get("notes", []))]
