"""`noonbell export`: the tasks of a server as a file, such that applying it changes nothing."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli import files as task_files
from noonbell.cli.output import talk
from noonbell.cli.remote import Remote


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
    """What somebody would have to write to get this task."""
    from noonbell.service.writing import written as as_written

    return as_written(task, versions=versions)
