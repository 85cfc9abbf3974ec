"""`noonbell import …`: tasks from elsewhere, as a file for `noonbell apply`, with a report of every line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noonbell.cli import files as task_files
from noonbell.cli.exits import EXIT_FAILED
from noonbell.cli.output import talk

if TYPE_CHECKING:
    from noonbell.cli.imports import Imported

_SHOWN = 70


@click.group("import")
def command() -> None:
    """Turn a crontab or a cronjob service's tasks into a file of tasks.

    The tasks go to stdout, the report to stderr: what was translated, with its notes, and what could not be, and why.
    """


@command.command("crontab")
@click.argument("file")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The zone that cron runs in.")
@click.option("--system", is_flag=True, help="Lines have a user's name, as in /etc/crontab.")
@click.option("--job-type", metavar="TYPE", help="Make jobs of this type of what is not an HTTP call.")
def crontab(file: str, tz: str, system: bool, job_type: str | None) -> int:
    """A crontab: FILE, or - for stdin."""
    from noonbell.cli.imports import crontab as reader
    from noonbell.when.zones import find

    return _tell(list(reader.read(_text(file), zone=find(tz).name, system=system, job_type=job_type)))


@command.command("cronjob")
@click.argument("source")
def cronjob(source: str) -> int:
    """A cronjob service: a JSON file of its tasks, - for stdin, or its database as mysql://user@host/name."""
    import json

    from noonbell.cli.imports import cronjob as reader

    if source.startswith("mysql://"):
        from noonbell.cli.imports.mysql import rows

        return _tell(list(reader.read_rows(rows(source))))
    try:
        return _tell(list(reader.read(_text(source))))
    except (json.JSONDecodeError, TypeError) as error:
        raise click.BadParameter(f"{source} holds no list of tasks: {error}", param_hint="SOURCE") from None


def _text(file: str) -> str:
    if file == "-":
        import sys

        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise click.BadParameter(f"cannot read {file}: {said}", param_hint="FILE") from None


def _tell(found: Iterable[Imported]) -> int:
    entries = list(found)
    for entry in entries:
        shown = entry.source if len(entry.source) <= _SHOWN else f"{entry.source[: _SHOWN - 1]}…"
        mark = "✖" if entry.refused else "✔" if entry.task else "·"
        name = f" → {entry.task['name']}" if entry.task else ""
        talk(f"{mark} {entry.where}: {shown}{name}")
        for line in [*([entry.refused] if entry.refused else []), *entry.notes]:
            talk(f"    {line}")
    tasks = [entry.task for entry in entries if entry.task]
    refused = sum(entry.refused is not None for entry in entries)
    talk(f"{len(tasks)} translated, {refused} refused")
    click.echo(task_files.written(tasks), nl=False)
    return EXIT_FAILED if refused else 0
