"""`noonbell task …`: tasks on a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from noonbell.cli.output import ago, coloured, fields, output_option, show_list, show_one, talk
from noonbell.cli.remote import Remote, task_segment
from noonbell.cli.trigger import trigger

COLUMNS = {
    "id": lambda task: str(task["id"]),
    "name": lambda task: task["name"],
    "status": lambda task: coloured(task["status"]),
    "schedule": lambda task: schedule_words(task["schedule"], task["timezone"]),
    "next": lambda task: ago(task["next_fire_at"]),
    "last run": lambda task: coloured(task["last_run_status"] or "–"),
}


@click.group("task")
def command() -> None:
    """List, read, make and change tasks."""


command.add_command(trigger)


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of tasks that begin so, from the server; silence where there is none."""
    del ctx, param
    try:
        found = Remote.of_environment().get("/tasks", {"name": incomplete or None, "page_size": 50})
    except Exception:
        return []
    return [task["name"] for task in found["items"] if task["name"].startswith(incomplete)]


@command.command("list")
@click.option("--status", type=click.Choice(["ENABLED", "DISABLED", "COMPLETED", "ERROR"], case_sensitive=False))
@click.option("--name", metavar="TEXT", help="Only names with this in them.")
@click.option("--label", metavar="NAME=VALUE", help="Only tasks with this label.")
@click.option("--limit", default=100, type=click.IntRange(1), show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@output_option
def list_tasks(
    status: str | None, name: str | None, label: str | None, limit: int, everything: bool, output: str
) -> None:
    """List tasks."""
    query = {"status": status, "name": name, "label": label}
    show_list(Remote.of_environment().pages("/tasks", query, None if everything else limit), COLUMNS, output)


@command.command("get")
@click.argument("task", shell_complete=complete)
@output_option
def get(task: str, output: str) -> None:
    """Show one task, by its name or id."""
    found = Remote.of_environment().get(f"/tasks/{task_segment(task)}")
    show_one(found, output, lines=_lines)


@command.command("create")
@click.argument("name", required=False)
@click.option("--cron", metavar="EXPR", help="When: a cron expression.")
@click.option("--every", metavar="SPAN", help="When: an interval such as 10s, 5m, 2h, 1d.")
@click.option("--at", metavar="TIME", help="When: once, such as 2026-03-26T12:00:00Z.")
@click.option("--tz", metavar="ZONE", help="Time zone of the schedule.")
@click.option("--url", metavar="URL", help="What: an address to call.")
@click.option("--method", metavar="METHOD", help="How it is called [GET].")
@click.option("--job", metavar="TYPE", help="What: a job type, carried out by a worker.")
@click.option("--data", metavar="JSON", help="The job's payload, or the body of the call.")
@click.option("--set", "more", multiple=True, metavar="FIELD=VALUE", help="Any other field; the value as JSON or text.")
@click.option("-f", "--file", "file", metavar="FILE", help="The whole task as JSON or YAML; - reads stdin.")
@output_option
def create(name: str | None, file: str | None, output: str, **given: Any) -> None:
    """Make a task, from options or from a file."""
    task = read_file(file) if file else {}
    task.update(_given(name, **given))
    made = Remote.of_environment().post("/tasks", task)
    show_one(made, output, lines=_made)


@command.command("edit")
@click.argument("task", shell_complete=complete)
@click.option("--set", "more", multiple=True, metavar="FIELD=VALUE", help="A field and its new value, as JSON or text.")
@click.option("-f", "--file", "file", metavar="FILE", help="The changed fields as JSON or YAML; - reads stdin.")
@output_option
def edit(task: str, more: tuple[str, ...], file: str | None, output: str) -> None:
    """Change fields of a task; without options, in the editor."""
    remote = Remote.of_environment()
    path = f"/tasks/{task_segment(task)}"
    if not more and not file:
        changes = _edited(remote.get(path))
        if changes is None:
            talk("nothing changed")
            return
    else:
        changes = {**(read_file(file) if file else {}), **_fields(more)}
    changed = remote.call("PATCH", path, changes)
    show_one(changed, output, name="version", lines=_changed)


@command.command("enable")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete)
def enable(tasks: tuple[str, ...]) -> None:
    """Let tasks fire again, from now on."""
    _each(tasks, "enable")


@command.command("disable")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete)
def disable(tasks: tuple[str, ...]) -> None:
    """Stop tasks from firing."""
    _each(tasks, "disable")


def _each(tasks: tuple[str, ...], verb: str) -> None:
    remote = Remote.of_environment()
    for task in tasks:
        answer = remote.post(f"/tasks/{task_segment(task)}/{verb}")
        click.echo(f"{task}  {coloured(answer['status'])}")


@command.command("delete")
@click.argument("task", shell_complete=complete)
@click.option("--cancel-running", is_flag=True, help="Cancel what executes, too.")
@click.option("--purge", is_flag=True, help="Remove its whole history.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(task: str, cancel_running: bool, purge: bool, yes: bool) -> None:
    """Delete a task; its history stays unless --purge."""
    remote = Remote.of_environment()
    found = remote.get(f"/tasks/{task_segment(task)}")
    if not yes:
        what = "and its whole history" if purge else f"({found['queued_runs']} waiting runs are canceled)"
        click.confirm(f"Delete task {found['name']!r} {what}?", abort=True, err=True)
    flags = {"cancel_running": str(cancel_running).lower(), "purge": str(purge).lower()}
    remote.call("DELETE", f"/tasks/{found['id']}", query=flags)
    talk(f"deleted {found['name']}")


@command.command("explain")
@click.argument("task", shell_complete=complete)
@click.option("--at", metavar="TIME", help="The slot, such as 2026-03-26T12:00:00Z [the newest].")
@output_option
def explain(task: str, at: str | None, output: str) -> None:
    """Say why a task did, or did not, run."""
    answer = Remote.of_environment().get(f"/tasks/{task_segment(task)}/explain", {"at": at})
    show_one(answer, output, name="cause", lines=_explained)


def _explained(answer: dict[str, Any]) -> list[str]:
    rest = {name: value for name, value in answer.items() if name not in ("message", "cause")}
    return [f"{answer['cause']}: {answer['message']}", *fields(rest)]


def read_file(name: str) -> dict[str, Any]:
    """One object from a file, JSON or YAML; `-` is stdin."""
    import yaml

    text = sys.stdin.read() if name == "-" else _text(name)
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise click.BadParameter(f"{name} is neither JSON nor YAML: {error}", param_hint="-f") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{name} holds no object", param_hint="-f")
    return found


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"cannot read {name}: {error.strerror}", param_hint="-f") from None


def _given(name: str | None, **given: Any) -> dict[str, Any]:
    task: dict[str, Any] = {} if name is None else {"name": name}
    plain = {"cron": "cron_expr", "tz": "timezone", "url": "target_url", "method": "http_method", "job": "job_type"}
    task.update({field: given[option] for option, field in plain.items() if given[option] is not None})
    if given["every"] is not None:
        task["schedule"] = _interval(given["every"])
    if given["at"] is not None:
        task["schedule"] = {"type": "once", "at": given["at"]}
    if given["data"] is not None:
        task.update({"payload": value_of(given["data"])} if given["job"] else {"body_template": given["data"]})
    return task | _fields(given["more"])


def _interval(text: str) -> dict[str, Any]:
    units = {"s": "second", "m": "minute", "h": "hour", "d": "day"}
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in units:
        raise click.BadParameter(f"is {text!r}; takes a number and a unit: 10s, 5m, 2h, 1d", param_hint="--every")
    return {"type": "interval", "every": int(number), "unit": units[unit]}


def _fields(more: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in more:
        name, equals, value = item.partition("=")
        if not equals:
            raise click.BadParameter(f"is {item!r}; takes FIELD=VALUE", param_hint="--set")
        found[name] = value_of(value)
    return found


def value_of(text: str) -> Any:
    """JSON if it is, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _edited(task: dict[str, Any]) -> dict[str, Any] | None:
    """What somebody changed in an editor; the version that they saw goes along, so that nobody is overwritten."""
    import yaml

    read_only = (
        "id",
        "created_at",
        "updated_at",
        "created_by",
        "next_fire_at",
        "active_runs",
        "queued_runs",
        "cron_expr",
        "cron_dialect",
    )
    shown = {
        name: value
        for name, value in task.items()
        if name not in read_only and not name.startswith("last_run") and name != "version"
    }
    written = click.edit(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), extension=".yaml")
    after = yaml.safe_load(written) if written else None
    if not isinstance(after, dict):
        return None
    changes = {name: value for name, value in after.items() if name not in shown or shown[name] != value}
    return {**changes, "version": task["version"]} if changes else None


def schedule_words(schedule: dict[str, Any] | None, zone: str) -> str:
    if schedule is None:
        return "on demand"
    match schedule["type"]:
        case "cron":
            text = schedule.get("source") or schedule["expr"]
        case "interval":
            text = f"every {schedule['every']} {schedule['unit']}"
        case kind:
            text = f"{kind} {schedule.get('day', schedule.get('weekday', ''))} {schedule.get('time') or schedule.get('at')}"
    return str(text) if zone == "UTC" else f"{text} {zone}"


def _lines(task: dict[str, Any]) -> list[str]:
    head = [f"{task['name']}  {coloured(task['status'])}", f"next fire  {ago(task['next_fire_at'])}", ""]
    return head + fields({name: value for name, value in task.items() if name not in ("name", "status")})


def _made(made: dict[str, Any]) -> list[str]:
    return [f"{made['name']}  id {made['id']}", *_next(made)]


def _changed(changed: dict[str, Any]) -> list[str]:
    return [f"version {changed['version']}", *_next(changed)]


def _next(answer: dict[str, Any]) -> list[str]:
    lines = [f"  {fire['local']}" for fire in answer.get("next_fires", [])]
    return lines + [f"note: {note['message']}" for note in answer.get("notes", [])]
