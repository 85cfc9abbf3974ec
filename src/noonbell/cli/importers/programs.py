"""What a program that another scheduler ran becomes: an HTTP task where it is one call, a COMMAND task with `--commands`, a job
with `--job-type`, and a refusal that names both options else. A command line of `curl` or `wget` is the HTTP task that it is, or the reason why it
is none.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import click

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
            raise click.UsageError("--commands and --job-type both set what other commands become; use only one")
        return cls(job_type, commands)


def program_options(function: F) -> F:
    for option in reversed(
        (
            click.option(
                "--job-type", metavar="TYPE", help="Turn commands that are not HTTP calls into jobs of this type."
            ),
            click.option("--commands", is_flag=True, help="Turn commands that are not HTTP calls into COMMAND tasks."),
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
    of_call = Findings()
    try:
        call = call_of(program.expanded or program.line, program.stdin, of_call)
    except NotACall as reason:
        if options.commands:
            return _command(program, found)
        if options.job_type is None:
            raise Refused(
                f"{reason}; --commands turns it into a COMMAND task, for a worker that allows it; --job-type TYPE"
                " turns it into a job, for one of your workers"
            ) from None
        return {"job_type": options.job_type, "payload": _payload(program), "retry_policy": {"max_retries": 0}}
    found.notes += of_call.notes
    found.changes += of_call.changes
    return call


def _payload(program: Program) -> dict[str, Any]:
    payload = {
        "command": program.command if isinstance(program.command, str) else list(program.command),
        **program.more,
        "stdin": program.stdin,
        "env": dict(program.env) or None,
        "user": None if program.is_cron else program.user,
        "cwd": program.cwd,
    }
    return {name: value for name, value in payload.items() if value is not None}


def _command(program: Program, found: Findings) -> dict[str, Any]:
    """What was run, as a task for a worker with `--commands`."""
    is_line = isinstance(program.command, str)
    command = program.line if is_line else list(program.command)
    task: dict[str, Any] = {"command": command, "shell": True} if is_line else {"command": command}
    env = {name: value for name, value in program.env.items() if not (program.is_cron and name in _OF_CRON)}
    more = {"payload": program.stdin, "env": env or None, "user": program.user, "cwd": program.cwd}
    task |= {name: value for name, value in more.items() if value is not None}
    if program.cwd is None and program.is_cron:
        found.changes.append("ran in its user's home directory; here it runs in /: cwd")
    shell = program.env.get("SHELL", "/bin/sh")
    if program.is_cron and shell not in ("/bin/sh", "/usr/bin/sh"):
        found.changes.append(f"SHELL={shell} is left out: /bin/sh reads the command")
    if named := sorted(set(env) & {"PATH", "HOME"}):
        found.notes.append(f"the worker's file has to name {' and '.join(named)} under `env`")
    allowed = "/bin/sh" if is_line else str(command[0])
    found.notes.append(f"a worker executes it whose file allows {allowed}: noonbell worker --commands FILE")
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


_SILENT: Final = {
    *("-s", "--silent", "-S", "--show-error", "-f", "--fail", "--fail-with-body", "-v", "--verbose", "--compressed"),
    *("-q", "--quiet", "-nv", "--no-verbose", "-4", "-6", "-N", "--no-buffer", "-#", "--progress-bar"),
}
"""Options that change nothing about the call."""
_IGNORED_WITH_VALUE: Final = {"-o", "--output", "-O", "--output-document", "-w", "--write-out", "-c", "--cookie-jar"}


class NotACall(Exception):
    """The command is not one HTTP call, or not one that can be told for sure; the message says what is in the way."""


class Word(NamedTuple):
    """A word of a command line as a shell reads it, or what stands between words: `|`, `&&`, `2>`."""

    text: str
    is_operator: bool = False

    @property
    def redirects(self) -> bool:
        return self.is_operator and (">" in self.text or "<" in self.text)


_PIECE: Final = re.compile(
    r"""(?P<gap>\\\n|(?:(?!\n\s*\S)\s)+|(?<!\S)\#[^\n]*)
    |(?P<operator>\n|(?:(?<!\S)\d+)?(?:[<>]&[\d-]|>>|>\||<<<|<<|<|>)|&>>?|\|\||&&|[;|&()])
    |(?P<text>'[^']*'|"(?:\\.|[^"\\])*"|\\.|.)""",
    re.VERBOSE | re.DOTALL,
)


def words_of(command: str) -> Iterator[Word]:
    """ValueError where a quotation is not closed."""
    raw = ""
    for piece in _PIECE.finditer(command):
        if piece["text"] is not None:
            raw += piece["text"]
            continue
        if raw:
            yield Word("".join(shlex.split(raw)))
        raw = ""
        if piece["operator"] is not None:
            yield Word(piece["operator"], is_operator=True)
    if raw:
        yield Word("".join(shlex.split(raw)))


def call_of(command: str, given: str | None, found: Findings) -> dict[str, Any]:
    """The fields of the HTTP task. `found` gets what was left out, and what means something else here."""
    try:
        read = list(words_of(command))
    except ValueError as error:
        raise NotACall(f"cannot be read as a shell would: {error}") from None
    if read and read[0].is_operator:
        raise NotACall("is a script of several commands")
    program = read[0].text.rsplit("/", 1)[-1] if read else ""
    if program not in _READERS:
        raise NotACall(f"runs a program ({program})")
    words = _without_redirections(read, found)
    for word in words:
        if "$(" in word or "`" in word:
            raise NotACall("is a script of several commands")
        if "$" in word:
            raise NotACall(f"uses a variable of the shell ({word})")
        if "{{" in word:
            raise NotACall(f"has braces that a task would fill in itself ({word})")
    reader, with_value = _READERS[program]
    return reader(_options(words[1:], with_value), given, found)


def _without_redirections(words: Iterable[Word], found: Findings) -> list[str]:
    """`> /dev/null 2>&1` says where output goes; the response is kept with the run instead."""
    kept: list[str] = []
    line = iter(words)
    for word in line:
        if not word.is_operator:
            kept.append(word.text)
        elif not word.redirects:
            raise NotACall("is a script of several commands")
        elif "<" in word.text:
            raise NotACall("reads a file")
        else:
            if not word.text[-1].isdigit() and not word.text.endswith("-"):
                next(line, None)
            if "redirection" not in " ".join(found.notes):
                found.notes.append("the redirection is left out: the response is kept with the run")
    return kept


def _value(option: str, line: Iterator[str]) -> str:
    found = next(line, None)
    if found is None:
        raise NotACall(f"ends after {option}")
    return found


def _limit(option: str, text: str) -> dict[str, float]:
    """0 is no limit to both programs, and so names none."""
    seconds = _seconds(option, text)
    return {"timeout_seconds": seconds} if seconds > 0 else {}


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
        try:
            parts = urlsplit(self.url)
        except ValueError as error:
            raise NotACall(f"has an address that cannot be parsed: {error}") from None
        if "@" in parts.netloc:
            pair, _, host = parts.netloc.rpartition("@")
            self.url = urlunsplit(parts._replace(netloc=host))
            self.log_in(unquote(pair))

    def log_in(self, pair: str) -> None:
        self.headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

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


def _url_encoded(text: str) -> str:
    """As curl reads it: `content`, `=content` or `name=content`."""
    name, equals, content = text.partition("=")
    if "@" in (name if equals else text):
        raise NotACall(f"sends a file ({text.partition('@')[2]})")
    if not equals:
        return quote(text, safe="")
    return f"{name}={quote(content, safe='')}" if name else quote(content, safe="")


def _curl(line: Iterator[str], given: str | None, found: Findings) -> dict[str, Any]:
    call, retry = _Call(), dict[str, Any]()
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
                call.log_in(_value(word, line))
            case "-d" | "--data" | "--data-raw" | "--data-ascii" | "--data-binary":
                text = _value(word, line)
                call.data(given if text == "@-" and given is not None else text)
            case "--data-urlencode":
                call.data(_url_encoded(_value(word, line)))
            case "--json":
                call.data(_value(word, line))
                call.headers.setdefault("Content-Type", "application/json")
            case "-I" | "--head":
                call.method = "HEAD"
            case "-L" | "--location":
                call.more["follow_redirects"] = True
            case "-m" | "--max-time":
                call.more |= _limit(word, _value(word, line))
            case "--retry":
                retry["max_retries"] = int(_seconds(word, _value(word, line)))
            case "--retry-delay":
                retry |= {"strategy": "fixed", "initial_delay": _seconds(word, _value(word, line))}
            case "--retry-connrefused":
                continue  # of the network, as others
            case "--connect-timeout":
                found.notes.append(
                    f"--connect-timeout {_value(word, line)} is left out: executor.connect_timeout is for all"
                )
            case "-k" | "--insecure":
                raise NotACall("does not check the certificate (--insecure)")
            case "--url":
                call.address(_value(word, line))
            case _:
                _read_any(word, line, call, found)
    if call.url is not None and _GLOB.search(call.url.partition("://")[2].partition("/")[2]):
        raise NotACall("calls more than one address")
    if retry.get("max_retries") is not None:
        call.more["retry_policy"] = retry
    return call.task()


_GLOB: Final = re.compile(r"\{[^{},]*,|\[\w+-\w+")
"""Where curl itself makes several addresses of one."""


def _wget(line: Iterator[str], given: str | None, found: Findings) -> dict[str, Any]:
    del given
    call = _Call()
    call.more["follow_redirects"] = True
    tries = 20  # unless it says otherwise
    for word in line:
        match word:
            case "--method":
                call.method = _value(word, line)
            case "--header":
                call.header(_value(word, line))
            case "--post-data" | "--body-data":
                call.data(_value(word, line))
            case "-T" | "--timeout":
                seconds = _value(word, line)
                call.more |= _limit(word, seconds)
                if "timeout_seconds" in call.more:
                    found.changes.append(f"-T {seconds} held for each step of the call; here it holds for an attempt")
            case "-t" | "--tries":
                tries = int(_seconds(word, _value(word, line)))
                call.more["retry_policy"] = {"max_retries": max(0, tries - 1)}
            case "--spider":
                call.method = "HEAD"
            case "--no-check-certificate":
                raise NotACall("does not check the certificate (--no-check-certificate)")
            case _:
                _read_any(word, line, call, found)
    if "retry_policy" not in call.more or tries == 0:
        often = f"up to {tries} times" if tries else "for ever"
        found.changes.append(f"was tried {often} where the connection failed; here it is tried once")
    elif tries > 1:
        found.changes.append(
            f"-t {tries} tried again only where the connection failed; here all that retry_on names is"
        )
    return call.task()


def _read_any(word: str, line: Iterator[str], call: _Call, found: Findings) -> None:
    """What both tools have: an address, or an option that changes nothing here."""
    if word in _IGNORED_WITH_VALUE:
        found.notes.append(f"{word} {_value(word, line)} is left out: the response is kept with the run")
    elif word.startswith("-") and word not in _SILENT:
        raise NotACall(f"has the option {word}, which is not supported")
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


_Reader = Callable[[Iterator[str], str | None, Findings], dict[str, Any]]

_READERS: Final[dict[str, tuple[_Reader, str]]] = {"curl": (_curl, "XHdAebumowcKTF"), "wget": (_wget, "OTtoPUe")}
"""Each program with its reader and the letters of its options that take a value."""
