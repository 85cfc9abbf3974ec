"""A crontab, line by line. `curl` and `wget` become HTTP tasks; other commands become COMMAND tasks or jobs where that
is asked for.

Zones come from `CRON_TZ` and `TZ`. What cron does and a scheduler of HTTP calls and jobs does not (mail, a shell, a
user to run as) is noted at the task, never dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click

from noonbell import when
from noonbell.cli.importers.programs import Program, ProgramOptions, name_of, program_options, target_of
from noonbell.cli.importers.report import Findings, Imported, Refused, finish, import_options, read_entries, say_zone
from noonbell.cli.importers.sources import text_from
from noonbell.service.task_files import needs_dialect
from noonbell.when.zones import find

_ASSIGNMENT: Final = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*)$""")
_STEP_FROM: Final = re.compile(r"(?<![-\d])\d+/\d+")
"""Cron itself passes over the step of a single number."""
_NICKNAMES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


@dataclass
class _Surroundings:
    """What the lines above a line have set."""

    zone: str
    no_zone: str = ""
    """The line that names a zone that is none, until another one names one."""
    variables: dict[str, str] = field(default_factory=dict)


def read_crontab(
    text: str, *, zone: str = "UTC", system: bool = False, job_type: str | None = None, commands: bool = False
) -> Iterator[Imported]:
    """Every line that is not empty or a comment. `system`: lines have a user's name, as in /etc/crontab.

    What is no HTTP call becomes a COMMAND task with `commands`, a job of `job_type` where there is one, and is refused else.
    """
    around, options = _Surroundings(zone), ProgramOptions(job_type, commands)
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    entries = (
        (f"line {number}", line, partial(_line, line, around, options, system))
        for number, line in lines
        if line and not line.startswith("#")
    )
    return read_entries(entries, has_names=False)


def _line(
    line: str, around: _Surroundings, options: ProgramOptions, system: bool, found: Findings
) -> dict[str, Any] | None:
    assignment = _ASSIGNMENT.match(line)
    if assignment is None or re.match(r"[\d*@]", line):
        return _task(line, around, options, system, found)
    _set(around, assignment, found)
    return None


def _set(around: _Surroundings, assignment: re.Match[str], found: Findings) -> None:
    """ScheduleError for a time zone that is none; the lines below are refused then."""
    name, value = assignment[1] or assignment[2] or assignment[3], assignment[4].rstrip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    around.variables[name] = value
    if name in ("CRON_TZ", "TZ"):
        around.no_zone = f"{name}={value}"
        around.zone, around.no_zone = find(value).name, ""
        found.notes.append(f"the lines below are in {value}")
    else:
        told = "no mail is sent; alerts do that" if name == "MAILTO" else "kept for the commands below"
        found.notes.append(f"{name}: {told}")


def _task(line: str, around: _Surroundings, options: ProgramOptions, system: bool, found: Findings) -> dict[str, Any]:
    if around.no_zone:
        raise Refused(f"is below {around.no_zone}, which is no time zone")
    expr, rest = _moment(line)
    user = None
    if system:
        user, rest = (*rest.split(None, 1), "", "")[:2]
    command, given = _input(rest.strip())
    if not command:
        raise Refused("has no command" if not system else "has no command after the user's name")
    when.parse({"type": "cron", "expr": expr}, around.zone)
    if step := _STEP_FROM.search(expr):
        found.changes.append(
            f"{step[0]} is {step[0].partition('/')[0]} alone to cron; here it goes on to the end, in such steps"
        )
    if not system and command.split()[0] == "root":
        found.changes.append("begins with root: where that is a user, as in /etc/crontab, give --system")
    home = around.variables.get("HOME", "")
    program = Program(
        command,
        _expanded(command, around.variables),
        stdin=given,
        env=around.variables,
        user=user,
        cwd=home if home.startswith("/") else None,
        is_cron=True,
    )
    task = {
        "name": name_of(command),
        **_cron(expr, around.zone),
        "timezone": around.zone,
        **_POLICY,
        **target_of(program, options, found),
    }
    found.say_time_limit(task)
    if user is not None:
        found.notes.insert(0, f"ran as user {user}")
    return task


_POLICY: Final = {"misfire_policy": "SKIP", "max_concurrency": None}
"""Cron starts what is due beside what still runs, and nothing that was due while it was away."""


def _cron(expr: str, zone: str) -> dict[str, str]:
    """The expression; with its dialect where an installation may be set to read it otherwise."""
    schedule = {"type": "cron", "expr": expr, "dialect": "standard"}
    return {"cron_expr": expr, **({"cron_dialect": "standard"} if needs_dialect(schedule, zone) else {})}


def _moment(line: str) -> tuple[str, str]:
    """The expression, and what follows it."""
    if line.startswith("@"):
        word, rest = (*line.split(None, 1), "")[:2]
        if word.lower() == "@reboot":
            raise Refused("@reboot names no moment; trigger the task from what starts the machine")
        if word.lower() not in _NICKNAMES:
            raise Refused(f"{word} is unknown; expected {', '.join(_NICKNAMES)}")
        return word.lower(), rest.strip()
    parts = line.split(None, 5)
    if len(parts) < 5:
        raise Refused(f"has {len(parts)} of the five fields of a moment")
    return " ".join(parts[:5]), parts[5] if len(parts) > 5 else ""


def _input(command: str) -> tuple[str, str | None]:
    """Cron's rule: the first bare `%` ends the command, and what follows is its standard input, `%` by `%` a line."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0].strip(), "\n".join(parts[1:]) if len(parts) > 1 else None


def _expanded(command: str, variables: dict[str, str]) -> str:
    """`$NAME` and `${NAME}` of what the crontab itself sets; anything else stays, and is refused by its reader."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], found[0]), command)


@click.command("crontab")
@click.argument("file")
@click.option("--tz", metavar="ZONE", help="The zone that cron runs in [UTC].")
@click.option("--system", is_flag=True, help="Lines have a user's name, as in /etc/crontab.")
@program_options
@import_options
def crontab_command(file: str, tz: str | None, system: bool, job_type: str | None, commands: bool, **given: Any) -> int:
    """A crontab: FILE, or - for stdin."""
    options = ProgramOptions.of(job_type, commands=commands)
    text, zone = text_from(file), find(tz or "UTC").name
    found = read_crontab(text, zone=zone, system=system, job_type=options.job_type, commands=options.commands)
    code = finish(found, "crontab", **given)
    if tz is None and not any(entry.startswith(("CRON_TZ", "TZ")) for entry in text.split()):
        say_zone(zone, "lines")
    return code
