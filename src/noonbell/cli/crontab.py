"""A crontab, line by line. `curl` and `wget` become HTTP tasks; other commands become COMMAND tasks or jobs where that is asked for.

Zones come from `CRON_TZ` and `TZ`. What cron does and a scheduler of HTTP calls and jobs does not (mail, a shell, a user to
run as) is noted at the task, never dropped in silence.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from noonbell import when
from noonbell.cli.import_ import Imported, unused
from noonbell.errors import ScheduleError
from noonbell.service.task_files import is_read_otherwise
from noonbell.when.zones import find

_ASSIGNMENT: Final = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*)$""")
_NICKNAMES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MOST_NAME = 60
_REDIRECTION: Final = re.compile(r"\d*[<>&|;]")
"""Where what a shell does with a command begins."""


@dataclass
class _Surroundings:
    """What the lines above a line have set."""

    zone: str
    variables: dict[str, str] = field(default_factory=dict)


class _Refused(Exception):
    """The line becomes no task; the message says why and what to do."""


def read_crontab(
    text: str, *, zone: str = "UTC", system: bool = False, job_type: str | None = None, commands: bool = False
) -> Iterator[Imported]:
    """Every line that is not empty or a comment. `system`: lines have a user's name, as in /etc/crontab.

    What is no HTTP call becomes a COMMAND task with `commands`, a job of `job_type` where there is one, and is refused else.
    """
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
            task, notes = _task(stripped, around, system, job_type, commands=commands)
        except _Refused as refusal:
            yield Imported(where, stripped, refused=str(refusal))
            continue
        task["name"] = unused(task["name"], taken)
        yield Imported(where, stripped, task, notes=notes)


def _set(around: _Surroundings, where: str, source: str, found: re.Match[str]) -> Imported:
    name = found[1] or found[2] or found[3]
    value = found[4].rstrip()
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


def _task(
    line: str, around: _Surroundings, system: bool, job_type: str | None, *, commands: bool
) -> tuple[dict[str, Any], list[str]]:
    expr, rest = _moment(line)
    notes: list[str] = []
    user = None
    if system:
        user, _, rest = rest.partition(" ")
        notes.append(f"ran as user {user}")
    command = rest.strip()
    if not command:
        raise _Refused("has no command" if not system else "has no command after the user's name")
    _check(expr, around.zone)
    command, given = _input(command)
    what = _what(command, given, around, job_type, notes, commands=commands)
    if user is not None and "command" in what:
        what["user"] = user
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
    command: str, given: str | None, around: _Surroundings, job_type: str | None, notes: list[str], *, commands: bool
) -> dict[str, Any]:
    noted = len(notes)
    try:
        return call_of(_expanded(command, around.variables), given, notes)
    except NotACall as reason:
        if commands:
            del notes[noted:]  # those of a call
            return _command(command, given, around.variables, notes)
        if job_type is None:
            raise _Refused(
                f"{reason}; --commands makes a COMMAND task of it, for a worker that allows /bin/sh;"
                " --job-type TYPE makes a job of it, for a worker of yours to run"
            ) from None
    payload: dict[str, Any] = {"command": command}
    if given is not None:
        payload["stdin"] = given
    if around.variables:
        payload["env"] = dict(around.variables)
    return {"job_type": job_type, "payload": payload}


_OF_CRON: Final = ("MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "SHELL", "LOGNAME", "USER")


def _command(command: str, given: str | None, variables: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """What cron would have run, as a task for a worker with `--commands`."""
    task: dict[str, Any] = {"command": command, "shell": True}
    if given is not None:
        task["payload"] = given
    env = {name: value for name, value in variables.items() if name not in _OF_CRON}
    if env:
        task["env"] = env
    if variables.get("SHELL", "/bin/sh") not in ("/bin/sh", "/usr/bin/sh"):
        notes.append(f"SHELL={variables['SHELL']} is left out: /bin/sh reads the command")
    if named := sorted(set(env) & {"PATH", "HOME"}):
        notes.append(f"the worker's file has to name {' and '.join(named)} under `env`")
    notes.append("a worker carries it out whose file allows /bin/sh: noonbell worker --commands FILE")
    return task


def _expanded(command: str, variables: dict[str, str]) -> str:
    """`$NAME` and `${NAME}` of what the crontab itself sets; anything else stays, and is refused by its reader."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], found[0]), command)


def _name(command: str) -> str:
    try:
        words = [word for word in shlex.split(command, comments=True) if not word.startswith("-")]
    except ValueError:
        words = command.split()
    words = list(takewhile(lambda word: not _REDIRECTION.match(word), words))
    first = words[0].rsplit("/", 1)[-1] if words else "task"
    address = next((word for word in words if word.startswith(("http://", "https://"))), None)
    text = address.split("://", 1)[1].split("?")[0] if address else f"{first} {' '.join(words[1:2])}"
    return re.sub(r"[^\w.:/-]+", "-", text).strip("-/")[:_MOST_NAME] or "task"


_SHELL: Final = ("|", "||", "&&", ";", "&", "`")
_SILENT: Final = {
    *("-s", "--silent", "-S", "--show-error", "-f", "--fail", "--fail-with-body", "-v", "--verbose", "--compressed"),
    *("-q", "--quiet", "-nv", "--no-verbose", "-4", "-6", "-N", "--no-buffer", "-#", "--progress-bar"),
}
"""Options that change nothing about the call."""
_IGNORED_WITH_VALUE: Final = {"-o", "--output", "-O", "--output-document", "-w", "--write-out", "-c", "--cookie-jar"}


class NotACall(Exception):
    """The command is not one HTTP call, or not one that can be told for sure; the message says what is in the way."""


def call_of(command: str, given: str | None, notes: list[str]) -> dict[str, Any]:
    """The fields of the HTTP task. `notes` gets what was left out."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError as error:
        raise NotACall(f"cannot be read as a shell would: {error}") from None
    words = _without_redirections(words, notes)
    program = words[0].rsplit("/", 1)[-1] if words else ""
    if program not in _READERS:
        raise NotACall(f"runs a program ({program})")
    for word in words:
        if word in _SHELL or word.endswith(";") or "$(" in word or "`" in word:
            raise NotACall("is a script of several commands")
        if "$" in word:
            raise NotACall(f"uses a variable of the shell ({word})")
    reader, with_value = _READERS[program]
    return reader(_options(words[1:], with_value), given, notes)


def _without_redirections(words: list[str], notes: list[str]) -> list[str]:
    """`> /dev/null 2>&1` says where output goes; the response is kept with the run instead."""
    kept: list[str] = []
    line = iter(words)
    for word in line:
        bare = word.lstrip("012&")
        if bare.startswith(">"):
            if bare in (">", ">>"):
                next(line, None)
            if "redirection" not in " ".join(notes):
                notes.append("the redirection is left out: the response is kept with the run")
        else:
            kept.append(word)
    return kept


def _value(option: str, line: Iterator[str]) -> str:
    found = next(line, None)
    if found is None:
        raise NotACall(f"ends after {option}")
    return found


def _seconds(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotACall(f"has {option} {text}, which is not a number of seconds") from None


class _Call:
    """What is gathered from the options of either program."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.method: str | None = None
        self.headers: dict[str, str] = {}
        self.body: list[str] = []
        self.more: dict[str, Any] = {}

    def address(self, word: str) -> None:
        if self.url is not None:
            raise NotACall("calls more than one address")
        self.url = word if "://" in word else f"http://{word}"

    def header(self, text: str) -> None:
        name, colon, value = text.partition(":")
        if not colon:
            raise NotACall(f"has the header {text!r}, which has no colon")
        self.headers[name.strip()] = value.strip()

    def data(self, text: str) -> None:
        if text.startswith("@"):
            raise NotACall(f"sends a file ({text[1:]})")
        self.body.append(text)

    def task(self) -> dict[str, Any]:
        if self.url is None:
            raise NotACall("has no address")
        if not self.url.startswith(("http://", "https://")):
            raise NotACall(f"calls {self.url}, and only http and https are called")
        method = self.method or ("POST" if self.body else "GET")
        task: dict[str, Any] = {"http_method": method.upper(), "target_url": self.url, **self.more}
        if self.body:
            task["body_template"] = "&".join(self.body)
            if not any(name.lower() == "content-type" for name in self.headers):
                self.headers["Content-Type"] = "application/x-www-form-urlencoded"
        if self.headers:
            task["headers"] = self.headers
        return task


def _curl(line: Iterator[str], given: str | None, notes: list[str]) -> dict[str, Any]:
    call = _Call()
    for word in line:
        match word:
            case "-X" | "--request":
                call.method = _value(word, line)
            case "-H" | "--header":
                call.header(_value(word, line))
            case "-A" | "--user-agent":
                call.headers["User-Agent"] = _value(word, line)
            case "-e" | "--referer":
                call.headers["Referer"] = _value(word, line)
            case "-b" | "--cookie":
                call.headers["Cookie"] = _value(word, line)
            case "-u" | "--user":
                pair = base64.b64encode(_value(word, line).encode()).decode()
                call.headers["Authorization"] = f"Basic {pair}"
            case "-d" | "--data" | "--data-raw" | "--data-ascii" | "--data-binary":
                text = _value(word, line)
                call.data(given if text == "@-" and given is not None else text)
            case "--json":
                call.data(_value(word, line))
                call.headers.setdefault("Content-Type", "application/json")
            case "-I" | "--head":
                call.method = "HEAD"
            case "-L" | "--location":
                call.more["follow_redirects"] = True
            case "-m" | "--max-time":
                call.more["timeout_seconds"] = _seconds(word, _value(word, line))
            case "--retry":
                call.more["retry_policy"] = {"max_retries": int(_seconds(word, _value(word, line)))}
            case "--connect-timeout":
                notes.append(f"--connect-timeout {_value(word, line)} is left out: executor.connect_timeout is for all")
            case "-k" | "--insecure":
                raise NotACall("does not check the certificate (--insecure)")
            case "--url":
                call.address(_value(word, line))
            case _:
                _read_any(word, line, call, notes)
    return call.task()


def _wget(line: Iterator[str], given: str | None, notes: list[str]) -> dict[str, Any]:
    del given
    call = _Call()
    call.more["follow_redirects"] = True
    for word in line:
        match word:
            case "--method":
                call.method = _value(word, line)
            case "--header":
                call.header(_value(word, line))
            case "--post-data" | "--body-data":
                call.data(_value(word, line))
            case "-T" | "--timeout":
                call.more["timeout_seconds"] = _seconds(word, _value(word, line))
            case "-t" | "--tries":
                tries = int(_seconds(word, _value(word, line)))
                call.more["retry_policy"] = {"max_retries": max(0, tries - 1)}
            case "--spider":
                call.method = "HEAD"
            case "--no-check-certificate":
                raise NotACall("does not check the certificate (--no-check-certificate)")
            case _:
                _read_any(word, line, call, notes)
    return call.task()


def _read_any(word: str, line: Iterator[str], call: _Call, notes: list[str]) -> None:
    """What both tools have: an address, or an option that changes nothing here."""
    if word in _IGNORED_WITH_VALUE:
        notes.append(f"{word} {_value(word, line)} is left out: the response is kept with the run")
    elif word.startswith("-") and word not in _SILENT:
        raise NotACall(f"has the option {word}, which is not known here")
    elif word not in _SILENT:
        call.address(word)


def _options(words: list[str], with_value: str) -> Iterator[str]:
    """`--name=value`, `-XPOST` and `-fsSL` as single words. `with_value`: the letters that take one."""
    for word in words:
        if word.startswith("--") and "=" in word:
            yield from word.split("=", 1)
        elif word.startswith("-") and not word.startswith("--") and word not in ("-", "-nv"):
            yield from _letters(word[1:], with_value)
        else:
            yield word


def _letters(letters: str, with_value: str) -> Iterator[str]:
    for place, letter in enumerate(letters):
        yield f"-{letter}"
        if letter in with_value:
            if letters[place + 1 :]:
                yield letters[place + 1 :]
            return


_Reader = Callable[[Iterator[str], str | None, list[str]], dict[str, Any]]

_READERS: Final[dict[str, tuple[_Reader, str]]] = {"curl": (_curl, "XHdAebumowcKTF"), "wget": (_wget, "OTtoPUe")}
"""Each program with its reader and the letters of its options that take a value."""
