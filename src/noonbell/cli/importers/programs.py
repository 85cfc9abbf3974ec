"""What a program that another scheduler ran becomes: an HTTP task where it is one call, a COMMAND task with `--commands`, a job
with `--job-type`, and a refusal that names both options else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple, TypeVar

import click

from noonbell.cli.importers.http_call import NotACall, Word, call_of, words_of
from noonbell.cli.importers.report import Findings, Refused

F = TypeVar("F", bound=Callable[..., Any])

_MOST_NAME = 60
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
"""A variable that is set for one command."""
_OF_CRON: Final = ("MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "SHELL", "LOGNAME", "USER")


class ProgramOptions(NamedTuple):
    job_type: str | None = None
    commands: bool = False

    @classmethod
    def of(cls, job_type: str | None, *, commands: bool) -> ProgramOptions:
        if commands and job_type is not None:
            raise click.UsageError(
                "--commands and --job-type both say what becomes of other commands; give one of them"
            )
        return cls(job_type, commands)


def program_options(function: F) -> F:
    for option in reversed(
        (
            click.option("--job-type", metavar="TYPE", help="Make jobs of this type of what is not an HTTP call."),
            click.option("--commands", is_flag=True, help="Make COMMAND tasks of what is not an HTTP call."),
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class Program:
    """A command line, or the words of one that no shell reads."""

    command: str | Sequence[str]
    expanded: str = ""
    """The line with the variables filled in that its own source sets; for an HTTP call."""
    stdin: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    cwd: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """What a job's payload has besides: the image of a container."""
    is_cron: bool = False

    @property
    def line(self) -> str:
        return self.command if isinstance(self.command, str) else shlex.join(self.command)


def target_of(program: Program, options: ProgramOptions, found: Findings) -> dict[str, Any]:
    """The fields of a task that say what is carried out."""
    notes: list[str] = []
    try:
        call = call_of(program.expanded or program.line, program.stdin, notes)
    except NotACall as reason:
        if options.commands:
            return _command(program, found)
        if options.job_type is None:
            raise Refused(
                f"{reason}; --commands makes a COMMAND task of it, for a worker that allows it;"
                " --job-type TYPE makes a job of it, for a worker of yours to run"
            ) from None
        return {"job_type": options.job_type, "payload": _payload(program), "retry_policy": {"max_retries": 0}}
    found.notes += notes
    return call


def _payload(program: Program) -> dict[str, Any]:
    command = program.command if isinstance(program.command, str) else list(program.command)
    payload: dict[str, Any] = {"command": command, **program.more}
    if program.stdin is not None:
        payload["stdin"] = program.stdin
    if program.env:
        payload["env"] = dict(program.env)
    if program.user is not None and not program.is_cron:
        payload["user"] = program.user
    if program.cwd is not None:
        payload["cwd"] = program.cwd
    return payload


def _command(program: Program, found: Findings) -> dict[str, Any]:
    """What was run, as a task for a worker with `--commands`."""
    is_line = isinstance(program.command, str)
    command = program.line if is_line else list(program.command)
    task: dict[str, Any] = {"command": command, "shell": True} if is_line else {"command": command}
    if program.stdin is not None:
        task["payload"] = program.stdin
    env = {name: value for name, value in program.env.items() if not (program.is_cron and name in _OF_CRON)}
    if env:
        task["env"] = env
    if program.user is not None:
        task["user"] = program.user
    if program.cwd is not None:
        task["cwd"] = program.cwd
    shell = program.env.get("SHELL", "/bin/sh")
    if program.is_cron and shell not in ("/bin/sh", "/usr/bin/sh"):
        found.changes.append(f"SHELL={shell} is left out: /bin/sh reads the command")
    if named := sorted(set(env) & {"PATH", "HOME"}):
        found.notes.append(f"the worker's file has to name {' and '.join(named)} under `env`")
    allowed = "/bin/sh" if is_line else str(command[0])
    found.notes.append(f"a worker carries it out whose file allows {allowed}: noonbell worker --commands FILE")
    return task


def name_of(command: str) -> str:
    """A name for a task, from the words of its command: not of `cd DIR &&` before it, nor of what a shell does with it."""
    try:
        read = list(words_of(command))
    except ValueError:
        read = [Word(word) for word in command.split()]
    if read and read[0].text == "cd" and (after := [place for place, word in enumerate(read) if word.text == "&&"]):
        read = read[after[0] + 1 :]
    read = list(dropwhile(lambda word: word.is_operator or _ASSIGNMENT.match(word.text), read))
    words = [word.text for word in takewhile(lambda word: not word.is_operator, read) if not word.text.startswith("-")]
    first = words[0].rsplit("/", 1)[-1] if words else "task"
    address = next((word for word in words if word.startswith(("http://", "https://"))), None)
    text = address.split("://", 1)[1].split("?")[0] if address else f"{first} {' '.join(words[1:2])}"
    return re.sub(r"[^\w.:/-]+", "-", text.rpartition("@")[2] if address else text).strip("-/")[:_MOST_NAME] or "task"
