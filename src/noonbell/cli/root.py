"""`noonbell` itself: the table of commands, each imported when it is called; `completion`, `help` and `version`; exit codes, and
how an error is said. docs/reference/cli.md has the table for readers.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from noonbell import errors
from noonbell.errors import NoonbellError
from noonbell.version import __version__

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_FORBIDDEN: Final = 4
EXIT_CONFLICT: Final = 5
EXIT_WITHOUT_SUCCESS: Final = 6
EXIT_STILL_GOING: Final = 7
EXIT_UNREACHABLE: Final = 8
EXIT_INTERRUPTED: Final = 130

MEANINGS: Final = {
    0: "done",
    EXIT_FAILED: "failed; for a comparison: differences found",
    EXIT_USAGE: "wrong usage, or a wrong setting",
    EXIT_NOT_FOUND: "not found",
    EXIT_FORBIDDEN: "authentication or permission",
    EXIT_CONFLICT: "conflict: the version changed, or a name or an address is in use",
    EXIT_WITHOUT_SUCCESS: "the awaited run ended without success",
    EXIT_STILL_GOING: "waiting timed out, the run has not ended",
    EXIT_UNREACHABLE: "the server or the store is unreachable",
    EXIT_INTERRUPTED: "interrupted",
}

_CODES: Final[dict[type[NoonbellError], int]] = {
    errors.SettingsError: EXIT_USAGE,
    errors.NotFound: EXIT_NOT_FOUND,
    errors.Unauthorized: EXIT_FORBIDDEN,
    errors.Forbidden: EXIT_FORBIDDEN,
    errors.AlreadyExists: EXIT_CONFLICT,
    errors.ConcurrencyLimit: EXIT_CONFLICT,
    errors.InvalidState: EXIT_CONFLICT,
    errors.LeaseLost: EXIT_CONFLICT,
    errors.VersionConflict: EXIT_CONFLICT,
    errors.SchemaMismatch: EXIT_FAILED,
    errors.StoreUnavailable: EXIT_UNREACHABLE,
}


def exit_code(error: NoonbellError) -> int:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), EXIT_FAILED)


def say_error(message: str) -> None:
    """One line on stderr; line breaks and control characters of the message are replaced."""
    line = "".join(char if char.isprintable() else " " for char in message.replace("\n", "; "))
    mark = "\x1b[31merror:\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    print(f"{mark} {line}", file=sys.stderr)


def say_problems(error: NoonbellError) -> None:
    """A line for each field that is wrong, or one line."""
    if isinstance(error, errors.InvalidArgument) and len(error.details) > 1:
        for name, problem in error.details.items():
            say_error(f"{name}: {problem}")
    else:
        say_error(error.message)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about a name that is not known; empty where no known one is near."""
    import difflib

    return _question([repr(each) for each in difflib.get_close_matches(name, list(known), n=3)])


def _question(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


_CRON_FIELD: Final = re.compile(r"[0-9*?][0-9A-Za-z*/,#?-]*|(?:[A-Za-z]{3}|L)(?:[-,/][0-9A-Za-z]+)*")


def unquoted_cron(words: Sequence[str]) -> str:
    """What to say where a cron expression was given without quotes, so that a shell made several words of it; else nothing."""
    place = next((n for n, word in enumerate(words) if word.partition("=")[0] == "--cron"), None)
    if place is not None:
        _, equals, first = words[place].partition("=")
        rest, option = [*([first] if equals else []), *words[place + 1 :]], "--cron "
    elif words and words[0] == "next":
        rest, option = list(words[1:]), "noonbell next "
    else:
        return ""
    given = list(itertools.takewhile(lambda word: not word.startswith("-"), rest))
    if len(given) < 2 or not _CRON_FIELD.fullmatch(given[0]):
        return ""
    fields = list(itertools.takewhile(_CRON_FIELD.fullmatch, given))[:5]
    shown = " ".join(fields) if len(fields) == 5 else "*/5 * * * *"
    return f"quote the cron expression, or the shell splits it: {option}'{shown}'"


def takes_no_names(words: Sequence[str]) -> str:
    """What to say of a name after `noonbell pause` or `resume`, which are about everything; else nothing."""
    if not words or words[0] not in ("pause", "resume"):
        return ""
    verb = words[0]
    return f"noonbell {verb} is about everything; of one: noonbell task {verb} NAME, noonbell queue {verb} NAME"


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextlib.contextmanager
def _output_may_be_closed() -> Iterator[None]:
    """Exit code 0 when the reader of stdout has left, as `head` does; click would make it 1. A disk that is full is an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        raise click.ClickException(f"cannot write the output: {error.strerror}") from None


def _drop_output() -> None:
    """Python flushes once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_WHOLE: Final = 1_000
"""Characters; longer than the first sentence of any command."""


class NounGroup(click.Group):
    """The commands of a noun; `aliases` maps other words for them to their names. Help and completion list the names only."""

    def __init__(self, *args: Any, aliases: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._aliases = aliases or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With whole sentences: click itself cuts them off where the line ends."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, each.get_short_help_str(limit=_WHOLE)) for name, each in commands if each and not each.hidden]
        if shown:
            with formatter.section("Commands"):
                formatter.write_dl(shown)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            known = self.list_commands(ctx)
            near = [word for word in _OTHER_WORDS.get(name, ()) if word in known][:1]
            near = near or difflib.get_close_matches(name, [*known, *self._aliases], n=1)
            full = f"{self.name} {name}"
            if full in _ELSEWHERE:
                raise click.UsageError(f"there is no command {full!r}; {_ELSEWHERE[full]}")
            raise click.UsageError(
                f"there is no command {full!r}{_question([f'{self.name} {word}' for word in near])}", ctx
            )
        return super().resolve_command(ctx, args)


_OTHER_WORDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("rm", "remove", "del", "purge"), ("delete", "revoke", "clean")),
    **dict.fromkeys(("ls", "all"), ("list",)),
    **dict.fromkeys(("add", "new", "make"), ("create",)),
    **dict.fromkeys(("update", "change", "set", "patch"), ("edit",)),
    **dict.fromkeys(("describe", "info", "view", "status"), ("get", "explain", "list")),
    **dict.fromkeys(("start", "run", "exec", "fire"), ("trigger", "retry", "resume")),
    **dict.fromkeys(("stop", "kill", "abort"), ("cancel", "disable", "pause")),
    **dict.fromkeys(("history", "executions"), ("runs",)),
    **dict.fromkeys(("why", "reason"), ("explain",)),
    **dict.fromkeys(("follow", "watch"), ("tail",)),
    **dict.fromkeys(("rerun", "redo", "replay"), ("retry",)),
}
"""Words of other tools, and the commands of a noun that may be meant; the first that the noun has is proposed."""

_ALERT_NOUNS: Final = ("channel", "channels", "rule", "rules")
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("dump", "snapshot"),
        "noonbell backup FILE writes a whole store to a file: docs/how-to/backup-and-restore.md",
    ),
    **dict.fromkeys(("dashboard", "ui", "web"), "noonbell serve serves the dashboard at its address"),
    **dict.fromkeys(
        ("flow", "flows"),
        "a flow is a task with steps: noonbell apply FILE creates it, noonbell run graph ID shows a run of it:"
        " docs/how-to/flows.md",
    ),
    **dict.fromkeys(
        (*(f"alert {noun}" for noun in _ALERT_NOUNS), *_ALERT_NOUNS),
        "noonbell api GET /alerts/channels lists channels, POST creates one; rules are at /alerts/rules:"
        " docs/how-to/alerts.md",
    ),
}
"""What people look for as a command, and where it is."""


class CommandEntry(NamedTuple):
    module: str
    """Under `noonbell.cli`; it defines NAME_command."""
    does: str
    """The line in `noonbell --help`, known without importing the command."""


COMMANDS = {
    "serve": CommandEntry("serve", "Start scheduler, worker and API in one process."),
    "worker": CommandEntry("worker", "Execute the jobs of an App; list, drain and stop workers."),
    "dev": CommandEntry("serve", "Try an App: everything in one process, reloaded when it changes."),
    "demo": CommandEntry("serve", "Start a server with a dozen sample tasks and a week of history."),
    "next": CommandEntry("next", "Show the next slots of a schedule; needs no server."),
    "task": CommandEntry("task", "List, read, create and change tasks."),
    "trigger": CommandEntry("run", "Start one run of a task now; --wait reports how it ended."),
    "call": CommandEntry("run", "Call a URL, now or later, without a task; --wait reports how it ended."),
    "run": CommandEntry("run", "List, read, cancel, retry, follow and remove runs."),
    "queue": CommandEntry("queue", "List, limit, pause, resume, drain and clean queues."),
    "bulk": CommandEntry("bulk", "Change all runs or tasks that match a filter, on the server."),
    "subscription": CommandEntry("subscription", "List, create, test, replay and remove webhook subscriptions."),
    "alert": CommandEntry("alert", "List, acknowledge and mute alerts; test channels and list deliveries."),
    "calendar": CommandEntry("calendar", "List, show, import, compare and delete business calendars."),
    "pause": CommandEntry("queue", "Pause everything, on all nodes."),
    "resume": CommandEntry("queue", "Resume everything."),
    "api": CommandEntry("api", "Call any endpoint of the API."),
    "mcp": CommandEntry("mcp", "Serve the API as tools of the Model Context Protocol."),
    "validate": CommandEntry("task_files", "Check tasks in files; needs no server."),
    "diff": CommandEntry("task_files", "Show what applying files would change."),
    "apply": CommandEntry("task_files", "Create and change tasks of a server as files declare them."),
    "export": CommandEntry("task_files", "Write the tasks of a server to a file."),
    "import": CommandEntry("importers", "Convert the tasks of other systems into a file of tasks."),
    "migrate": CommandEntry("store", "Migrate the store's schema to a step, or show its step."),
    "audit": CommandEntry("store", "Check that every slot in a store has exactly one outcome; needs no server."),
    "move": CommandEntry("move", "Move a store to another database while its nodes work."),
    "backup": CommandEntry("move", "Back up a store, in use or not, to one file."),
    "restore": CommandEntry("move", "Restore a backup into an empty store."),
    "stats": CommandEntry("stats", "Show how runs ended; rebuild the statistics from history."),
    "config": CommandEntry("config", "Show and check the settings."),
    "doctor": CommandEntry("doctor", "Check the installation, and say what to fix."),
    "token": CommandEntry("access", "Create, list and revoke API tokens."),
    "secrets": CommandEntry("access", "Create a key for secrets in the store; re-encrypt all of them."),
    "completion": CommandEntry("root", "Print the completion script of a shell."),
    "version": CommandEntry("root", "Print the version."),
    "help": CommandEntry("root", "Show the help of a command, or of a topic: exit-codes."),
}


class Table(click.Group):
    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _output_may_be_closed():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _output_may_be_closed():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"noonbell.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            if name in _ELSEWHERE:
                raise click.UsageError(f"there is no command {name!r}; {_ELSEWHERE[name]}")
            near = (
                self._of_many(ctx, name) or self._in_groups(ctx, name) or difflib.get_close_matches(name, COMMANDS, n=1)
            )
            raise click.UsageError(f"there is no command {name!r}{_question(near)}", ctx)
        return super().resolve_command(ctx, args)

    def _of_many(self, ctx: click.Context, name: str) -> list[str]:
        """`run list` for `runs`."""
        noun = name.removesuffix("s")
        group = self.get_command(ctx, noun) if noun != name else None
        return [f"{noun} list"] if isinstance(group, click.Group) and group.get_command(ctx, "list") else []

    def _in_groups(self, ctx: click.Context, name: str) -> list[str]:
        """`task explain` for `explain`, `task disable` for `pause`. Imports every command, which an error may."""
        groups = ((group, self.get_command(ctx, group)) for group in COMMANDS)
        found = ((group, each.get_command(ctx, name)) for group, each in groups if isinstance(each, click.Group))
        return [f"{group} {command.name}" for group, command in found if command is not None]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.does) for name, entry in COMMANDS.items()])


@click.group(cls=Table, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="noonbell %(version)s")
def root() -> None:
    """A job scheduler that accounts for every slot.

    Exit codes: noonbell help exit-codes
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the completion script: `eval "$(noonbell completion bash)"`."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"{shell} is not known", param_hint="SHELL")
    click.echo(kind(root, {}, "noonbell", "_NOONBELL_COMPLETE").source())


@click.command("help")
@click.argument("words", metavar="[COMMAND… | exit-codes]", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its --help does, or the exit codes."""
    if words == ("exit-codes",):
        for code, meaning in MEANINGS.items():
            click.echo(f"{code:>3}  {meaning}")
        return
    assert ctx.parent is not None  # noqa: S101 - a command of the group has one
    shown = ctx.parent
    for word in words:
        group = shown.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{shown.command_path} has no commands; see {shown.command_path} --help")
        _, command, _ = group.resolve_command(shown, [word])
        assert command is not None  # noqa: S101 - else it has raised
        shown = type(shown)(command, parent=shown, info_name=command.name)
    click.echo(shown.get_help())


@click.command("version")
def version_command() -> None:
    """Print the version."""
    click.echo(f"noonbell {__version__}")
