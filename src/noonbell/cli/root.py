"""`noonbell` itself: the table of commands, each imported when it is called and not before."""

from __future__ import annotations

import difflib
import importlib
from typing import NamedTuple

import click

from noonbell.version import __version__


class Entry(NamedTuple):
    module: str
    """Under `noonbell.cli`; the command in it has the name of the command."""
    does: str
    """The line in `noonbell --help`, known without importing the command."""


COMMANDS = {
    "serve": Entry("serve", "Start scheduler, worker and API in one process."),
    "worker": Entry("worker", "Execute the jobs of an App; list, drain and stop workers."),
    "dev": Entry("dev", "Try an App: everything in one process, reloaded when it changes."),
    "demo": Entry("demo", "Show a dozen tasks of every temper, with a week of history."),
    "next": Entry("next", "Show the next slots of a schedule; needs no server."),
    "task": Entry("task", "List, read, make and change tasks."),
    "trigger": Entry("trigger", "Make one run of a task now; --wait tells how it went."),
    "run": Entry("run", "List, read, cancel, retry and follow runs."),
    "queue": Entry("queue", "List, pause, resume, drain and clean queues."),
    "api": Entry("api", "Call any endpoint of the API."),
    "validate": Entry("validate", "Check tasks in files; needs no server."),
    "diff": Entry("diff", "Show what applying files would change."),
    "apply": Entry("apply", "Make the tasks of a server as files say."),
    "export": Entry("export", "Write the tasks of a server as a file."),
    "import": Entry("import_", "Turn a crontab or a cronjob service's tasks into a file of tasks."),
    "migrate": Entry("migrate", "Bring the store's schema to a step, or show where it is."),
    "audit": Entry("audit", "Check a whole store for holes and doubles; needs no server."),
    "config": Entry("config", "Show and check the settings."),
    "doctor": Entry("doctor", "Look the installation over, and say what to do."),
    "token": Entry("token", "Make, list and revoke API tokens."),
    "secrets": Entry("secrets", "Make a key for secrets in the store; seal them all anew."),
    "completion": Entry("completion", "Print the completion script of a shell."),
    "version": Entry("version", "Print the version."),
    "help": Entry("help", "Explain a topic: exit-codes."),
}


class Table(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"noonbell.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.does) for name, entry in COMMANDS.items()])


@click.group(cls=Table, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="noonbell %(version)s")
def root() -> None:
    """A job scheduler that accounts for every slot.

    Exit codes: noonbell help exit-codes
    """
