"""A crontab, line by line. `curl` and `wget` become HTTP tasks; other commands become jobs where a job type is given.

Zones come from `CRON_TZ` and `TZ`. What cron does and a scheduler of HTTP calls and jobs does not (mail, a shell, a user to
run as) is noted at the task, never dropped in silence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell import when
from noonbell.cli.imports import Imported, unused
from noonbell.cli.imports.commands import NotACall, call_of
from noonbell.errors import ScheduleError
from noonbell.service.writing import is_read_otherwise
from noonbell.when.zones import find

_ASSIGNMENT: Final = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*?)\s*$""")
_NICKNAMES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MOST_NAME = 60


@dataclass
class _Surroundings:
    """What the lines above a line have set."""

    zone: str
    variables: dict[str, str] = field(default_factory=dict)


class _Refused(Exception):
    """The line becomes no task; the message says why and what to do."""


def read(text: str, *, zone: str = "UTC", system: bool = False, job_type: str | None = None) -> Iterator[Imported]:
    """Every line that is not empty or a comment. `system`: lines have a user's name, as in /etc/crontab."""
    around, taken = _Surroundings(zone), set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        where = f"line {number}"
        if (found := _ASSIGNMENT.match(line)) and not re.match(r"[\d*@]", stripped):
            yield _set(around, where, stripped, found)
            continue
        try:
            task, notes = _task(stripped, around, system, job_type)
        except _Refused as refusal:
            yield Imported(where, stripped, refused=str(refusal))
            continue
        task["name"] = unused(task["name"], taken)
        yield Imported(where, stripped, task, notes=notes)


def _set(around: _Surroundings, where: str, source: str, found: re.Match[str]) -> Imported:
    name = found[1] or found[2] or found[3]
    value = found[4]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    around.variables[name] = value
    if name not in ("CRON_TZ", "TZ"):
        told = "nobody is mailed; alerts do that" if name == "MAILTO" else "kept for `${...}` in the commands below"
        return Imported(where, source, notes=[f"{name}: {told}"])
    try:
        around.zone = find(value).name
    except ScheduleError as error:
        return Imported(where, source, refused=error.message)
    return Imported(where, source, notes=[f"the lines below are in {value}"])


def _task(line: str, around: _Surroundings, system: bool, job_type: str | None) -> tuple[dict[str, Any], list[str]]:
    expr, rest = _moment(line)
    notes: list[str] = []
    if system:
        user, _, rest = rest.partition(" ")
        notes.append(f"ran as user {user}")
    command = rest.strip()
    if not command:
        raise _Refused("has no command" if not system else "has no command after the user's name")
    _check(expr, around.zone)
    command, given = _input(command)
    what = _what(command, given, around, job_type, notes)
    return {"name": _name(command), **_cron(expr, around.zone), "timezone": around.zone, **what}, notes


def _cron(expr: str, zone: str) -> dict[str, str]:
    """The expression; with its dialect where an installation may be set to read it otherwise."""
    schedule = {"type": "cron", "expr": expr, "dialect": "standard"}
    return {"cron_expr": expr, **({"cron_dialect": "standard"} if is_read_otherwise(schedule, zone) else {})}


def _moment(line: str) -> tuple[str, str]:
    """The expression, and what follows it."""
    if line.startswith("@"):
        word, _, rest = line.partition(" ")
        if word.lower() == "@reboot":
            raise _Refused("@reboot names no moment; trigger the task from what starts the machine")
        if word.lower() not in _NICKNAMES:
            raise _Refused(f"{word} is not known; there are {', '.join(_NICKNAMES)}")
        return word.lower(), rest.strip()
    parts = line.split(None, 5)
    if len(parts) < 5:
        raise _Refused(f"has {len(parts)} of the five fields of a moment")
    return " ".join(parts[:5]), parts[5] if len(parts) > 5 else ""


def _check(expr: str, zone: str) -> None:
    try:
        when.parse({"type": "cron", "expr": expr}, zone)
    except ScheduleError as error:
        raise _Refused(error.message) from None


def _input(command: str) -> tuple[str, str | None]:
    """Cron's rule: the first bare `%` ends the command, and what follows is its standard input, `%` by `%` a line."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", command)]
    return parts[0].strip(), "\n".join(parts[1:]) if len(parts) > 1 else None


def _what(
    command: str, given: str | None, around: _Surroundings, job_type: str | None, notes: list[str]
) -> dict[str, Any]:
    try:
        return call_of(_expanded(command, around.variables), given, notes)
    except NotACall as reason:
        if job_type is None:
            raise _Refused(f"{reason}; --job-type TYPE makes a job of it, for a worker of yours to run") from None
    payload: dict[str, Any] = {"command": command}
    if given is not None:
        payload["stdin"] = given
    if around.variables:
        payload["env"] = dict(around.variables)
    return {"job_type": job_type, "payload": payload}


def _expanded(command: str, variables: dict[str, str]) -> str:
    """`$NAME` and `${NAME}` of what the crontab itself sets; anything else stays, and is refused by its reader."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], found[0]), command)


def _name(command: str) -> str:
    try:
        words = [word for word in shlex.split(command, comments=True) if not word.startswith("-")]
    except ValueError:
        words = command.split()
    first = words[0].rsplit("/", 1)[-1] if words else "task"
    address = next((word for word in words if word.startswith(("http://", "https://"))), None)
    text = address.split("://", 1)[1].split("?")[0] if address else f"{first} {' '.join(words[1:2])}"
    return re.sub(r"[^\w.:/-]+", "-", text).strip("-/")[:_MOST_NAME] or "task"
