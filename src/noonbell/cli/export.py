"""`noonbell export`: the tasks of a server as a file, such that applying it changes nothing."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli import files as task_files
from noonbell.cli.output import talk
from noonbell.cli.remote import Remote

_DROPPED = ("managed_by", "created_by", "skip_next", "cron_expr")


@click.command("export")
@click.option("--owner", metavar="OWNER", help="Only what this owner manages, such as file:billing.")
@click.option("--label", metavar="NAME=VALUE", help="Only tasks with this label.")
@click.option("--versions", is_flag=True, help="With the version of each, so that applying it later overwrites nobody.")
@click.option("-f", "--file", "file", metavar="FILE", help="Write to this file instead of stdout.")
def command(owner: str | None, label: str | None, versions: bool, file: str | None) -> None:
    """Write tasks as a file that `noonbell apply` takes.

    Secrets are masked; a masked value that is applied to the same server keeps the secret.
    """
    query = {"managed_by": owner, "label": label}
    found = [written(task, versions=versions) for task in Remote.of_environment().pages("/tasks", query, None)]
    text = task_files.written(found)
    if file is None:
        click.echo(text, nl=False)
        return
    with click.open_file(file, "w", encoding="utf-8") as out:
        out.write(text)
    talk(f"{len(found)} tasks written to {file}")


def written(task: dict[str, Any], *, versions: bool = False) -> dict[str, Any]:
    """What somebody would have to write to get this task: nothing that is its default anyway."""
    import msgspec

    from noonbell.model.task import ExecType, TaskSpec
    from noonbell.service.task_fields import READ_ONLY
    from noonbell.service.task_json import written as whole

    kind = ExecType(task["exec_type"])
    defaults = whole(TaskSpec(name="", exec_type=kind, job_type=task["job_type"]))
    defaults = msgspec.json.decode(msgspec.json.encode(defaults))  # lists, as in an answer
    fields = {"name": task["name"]}
    for name, value in task.items():
        if name in READ_ONLY or name in _DROPPED or name in ("name", "schedule"):
            continue
        if name == "status":
            if value == "DISABLED":
                fields[name] = value
        elif name not in defaults or value != defaults[name] or name == "job_type":
            fields[name] = value
    if kind is ExecType.ASYNC:
        fields["exec_type"] = str(kind)
    fields = {name: value for name, value in fields.items() if value is not None or defaults.get(name) is not None}
    fields.update(_schedule(task["schedule"], task["timezone"]))
    return {**fields, "version": task["version"]} if versions else fields


def _schedule(schedule: dict[str, Any] | None, zone: str) -> dict[str, Any]:
    """The shorthand where it says the same."""
    from noonbell import when

    if schedule is None:
        return {}
    if schedule["type"] == "cron":
        short = schedule.get("source") or schedule["expr"]
        if when.normalise({"type": "cron", "expr": short}, zone) == schedule:
            return {"cron_expr": short}
    return {"schedule": schedule}
