"""The tables of reference that are made from the source: errors with their codes, and every option of the command line.

python tools/reference.py            say which pages are out of date
python tools/reference.py --write    put the tables into docs/reference/, between their markers
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from noonbell import errors
from noonbell.api.errors import STATUS
from noonbell.cli.exits import exit_code
from noonbell.cli.root import root
from noonbell.errors import NoonbellError

DOCS = Path(__file__).parents[1] / "docs" / "reference"

ADVICE = {
    "INVALID_JSON": "the body is not JSON; the message says where it stops being so",
    "INVALID_ARGUMENT": "`details` names each field with what is wrong and what is expected; nothing was changed",
    "INVALID_ID": "an id is a number, or `name:NAME` where a task is meant",
    "UNAUTHORIZED": "send `Authorization: Bearer TOKEN`; `noonbell token create` makes one",
    "FORBIDDEN": "the token's role is too small for this, or the caller came by a name or a proxy that is not taken",
    "NOT_FOUND": "it was never there, or it was deleted",
    "METHOD_NOT_ALLOWED": "the address takes other methods: `Allow` lists them",
    "ALREADY_EXISTS": "a name, an external id, a worker's id or a port is taken",
    "CONCURRENCY_LIMIT": "the task is at its limit and its policy is SKIP: there is no run; try again later",
    "INVALID_STATE": "allowed, but not in the state it is in now; the message names that state",
    "LEASE_LOST": "the fencing token is no longer the current one: somebody else has the run, drop it",
    "VERSION_CONFLICT": "somebody else changed it first; read it again",
    "PAYLOAD_TOO_LARGE": "`executor.max_body_bytes` is the bound for what is sent and kept; requests have their own",
    "RATE_LIMITED": "wait for as long as `Retry-After` says",
    "INTERNAL": "a defect of ours; the log has it under the `request_id`",
    "UNAVAILABLE": "the store does not answer, or another session holds a lock (the message names it); trying again helps, `Retry-After` says when",
}
"""What each code asks of whoever gets it."""


def classes() -> list[type[NoonbellError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, NoonbellError)]


def error_table() -> str:
    lines = ["| code | HTTP | exit code | in Python | what to do |", "| --- | --- | --- | --- | --- |"]
    for code, status in STATUS.items():
        raised = [error for error in classes() if error.code == code]
        exits = sorted({exit_code(error("")) for error in raised})
        names = ", ".join(f"`{error.__name__}`" for error in raised)
        said = ", ".join(map(str, exits)) or "1"
        lines.append(f"| `{code}` | {status} | {said} | {names} | {ADVICE[code]} |")
    return "\n".join(lines)


def command_tables() -> str:
    """One for each command that can be called, in the order of `noonbell --help`."""
    return "\n\n".join(_table(path, command) for path, command in _commands("noonbell", root))


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
    context = click.Context(command, info_name=path)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _commands(f"{path} {name}", found)


def _table(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    said = (command.help or "").split("\n\n")[0].split("\f")[0]
    lines = [f"### `{usage}`", "", " ".join(said.split())]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    if records:
        lines += ["", "| option | |", "| --- | --- |"]
        lines += [f"| `{_cell(form)}` | {_cell(text)} |" for form, text in records]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


TABLES: dict[str, Callable[[], str]] = {"errors": error_table, "cli": command_tables}
"""By page."""


def updated(name: str, page: str) -> str:
    """The page with a fresh table between its markers. A page without them is refused."""
    begin, end = f"<!-- {name}: made by tools/reference.py -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{name}.md has lost its markers; it needs a line {begin} and, below it, a line {end}")
    return f"{before}{begin}\n{TABLES[name]()}\n{end}{after}"


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--write"]):
        raise SystemExit(f"unknown arguments {' '.join(arguments)}; usage: python tools/reference.py [--write]")
    for name in TABLES:
        path = DOCS / f"{name}.md"
        page = path.read_text(encoding="utf-8")
        fresh = updated(name, page)
        if page == fresh:
            continue
        if arguments:
            path.write_text(fresh, encoding="utf-8")
        print(f"{name}.md {'written' if arguments else 'is out of date: python tools/reference.py --write'}")


if __name__ == "__main__":
    main(sys.argv[1:])
