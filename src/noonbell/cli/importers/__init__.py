"""`noonbell import …`: the tasks of other systems, as a file for `noonbell apply`, with a report of every entry.

The table below names each kind of source; its file reads that source and hands `report.finish` what it found. A new kind is
one file with NAME_command, one line here, and one section of docs/how-to/move-in.md.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from noonbell.cli.root import NounGroup

KINDS: Final = {
    "crontab": "crontab",
    "cronjob": "cronjob",
    "jobs": "jobs",
    "plans": "plans",
    "kubernetes": "kubernetes",
    "systemd": "systemd",
    "celery": "celery_beat",
    "apscheduler": "apscheduler",
    "xxl-job": "xxl_job",
    "mscheduler": "mscheduler",
}
"""Each kind, and the module under `noonbell.cli.importers` that has its command."""


class _Importers(NounGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(KINDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in KINDS:
            return None
        module = importlib.import_module(f"noonbell.cli.importers.{KINDS[cmd_name]}")
        command: click.Command = getattr(module, f"{KINDS[cmd_name]}_command")
        return command


@click.group("import", cls=_Importers)
def import_command() -> None:
    """Convert the tasks of another system into a file of tasks.

    The tasks go to stdout, the report to stderr: what was translated, what was translated with a change of meaning, and
    what could not be translated, and why. --apply sends the tasks to the server instead, --dry-run only reports.
    """
