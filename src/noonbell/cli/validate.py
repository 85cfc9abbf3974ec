"""`noonbell validate -f FILE`: read tasks as a server would; needs none."""

from __future__ import annotations

from typing import Any

import click

from noonbell.cli import files as task_files
from noonbell.cli.output import talk


@click.command("validate")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="A file, a folder of files, or - (stdin).")
@task_files.env_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of such files, for editors.")
def command(files: tuple[str, ...], env: tuple[str, ...], schema: bool) -> None:
    """Check tasks in files, a line for each problem; needs no server."""
    if schema:
        import json

        from noonbell.cli.task_schema import task_schema

        click.echo(json.dumps(task_schema(), indent=2))
        return
    if not files:
        raise click.UsageError("missing option -f FILE")
    tasks = task_files.read(files, env)
    check(tasks)
    talk(f"{len(tasks)} tasks are sound")


def check(tasks: list[dict[str, Any]]) -> None:
    """Raises InvalidArgument with every problem of every task."""
    from noonbell.clock import SystemClock
    from noonbell.errors import InvalidArgument
    from noonbell.service.rules import Rules
    from noonbell.service.task_fields import read_task
    from noonbell.targets import template

    problems: dict[str, str] = {}
    names: set[str] = set()
    now, rules = SystemClock().now(), Rules(check_template=template.check)
    for number, task in enumerate(tasks):
        name = task.get("name")
        place = f"tasks[{name if isinstance(name, str) and name else number}]"
        fields = {key: value for key, value in task.items() if key != "version"}
        try:
            read_task(fields, now, rules)
        except InvalidArgument as error:
            problems.update({f"{place}.{key}": str(problem) for key, problem in error.details.items()})
        if isinstance(name, str) and name in names:
            problems[f"{place}.name"] = "is there twice; a name belongs to one task"
        names.add(str(name))
    if problems:
        raise InvalidArgument.fields(problems)
