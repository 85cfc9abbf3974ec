"""What is made from the source: tables of errors, of every option of the command line and of the fields of a task; the
options of `@app.job`; the methods of the client.

python tools/reference.py            say which pages are out of date
python tools/reference.py --write    put the tables into docs/reference/, between their markers
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import client_types

from noonbell import errors
from noonbell.cli.root import exit_code, root
from noonbell.errors import HTTP_STATUS, NoonbellError
from noonbell.fields import StructField, StructKind, TaggedKind, table
from noonbell.fields.kinds import (
    AnyKind,
    BoolKind,
    ChoiceKind,
    IntegerKind,
    ListKind,
    MapKind,
    NumberKind,
    TextKind,
    TimeKind,
)
from noonbell.model.target_kind import JOBS, TARGET_KINDS
from noonbell.service.task_fields import ShownTask, TaskWrite

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
    "UNAVAILABLE": "the store is not responding, or another session holds a lock (the message names it); trying again"
    " helps, `Retry-After` says when",
}
"""What each code asks of whoever gets it."""


def classes() -> list[type[NoonbellError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, NoonbellError)]


def error_table() -> str:
    lines = ["| code | HTTP | exit code | in Python | what to do |", "| --- | --- | --- | --- | --- |"]
    for code, status in HTTP_STATUS.items():
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


def task_table() -> str:
    """Every field of a task, with the bounds that the server keeps."""
    lines = ["| field | meaning | takes | default |", "| --- | --- | --- | --- |"]
    for name, field in table(ShownTask).items():
        default = "" if field.extra.get("read_only") or name in ("id", "version") else _default(field)
        takes = "read only" if field.extra.get("read_only") or name in ("id", "version") else _takes(field)
        lines.append(f"| `{name}` | {_cell(field.extra.get('description', ''))} | {takes} | {default} |")
    return "\n".join(lines)


def _takes(field: StructField) -> str:
    match field.kind:
        case IntegerKind(low=low, high=high) | NumberKind(low=low, high=high):
            said = f"{low:,} to {high:,}"
        case TextKind(least=least, most=most):
            said = f"text, {least} to {most:,} characters" if least else f"text, at most {most:,} characters"
        case ChoiceKind(options=options):
            said = ", ".join(options)
        case BoolKind():
            said = "true or false"
        case TimeKind():
            said = "RFC 3339"
        case ListKind(most=most):
            said = "list" if most is None else f"list of at most {most:,}"
        case MapKind(most=most):
            said = "object" if most is None else f"object of at most {most:,}"
        case StructKind(of=of):
            said = "object: " + ", ".join(f"`{inner}`" for inner in table(of))
        case AnyKind(of=TextKind() | ChoiceKind() as of):
            said = _takes(replace(field, kind=of, takes_null=False))
        case AnyKind(of=TaggedKind()):
            said = "[schedule](schedules.md)"
        case AnyKind(of=ListKind(of=TaggedKind(), most=most)):
            said = f"list of at most {most} [schedules](schedules.md)"
        case _:
            said = "any JSON"
    return f"{said}; null" if field.takes_null else said


def _default(field: StructField) -> str:
    shown = field.schema(is_body=True)
    return f"`{json.dumps(shown['default'])}`" if "default" in shown else ""


def option_names() -> str:
    """The options of `@app.job` that are fields of a task, as a paragraph."""
    return textwrap.fill(", ".join(f"`{name}`" for name in _option_fields()), 128)


TABLES: dict[str, Callable[[], str]] = {
    "errors": error_table,
    "cli": command_tables,
    "api": task_table,
    "python": option_names,
}
"""By page."""


def job_options() -> str:
    """The same as a TypedDict."""
    return "\n".join(f"    {name}: {_annotation(field)}" for name, field in _option_fields().items())


def _option_fields() -> dict[str, StructField]:
    return {name: field for name, field in table(TaskWrite).items() if name not in NO_OPTIONS}


_OF_OTHERS = {name for kind in TARGET_KINDS if kind is not JOBS for name in kind.fields}
NO_OPTIONS = {"name", "managed_by", "exec_type", "job_type", "skip_next", *_OF_OTHERS}
"""Fields that a job has none of, or that its decorator settles."""


_SAID_SHORTER = {"after": "AfterOption"}
"""Options that take more than their field does, and the names of their types."""


def _annotation(field: StructField) -> str:
    if field.name in _SAID_SHORTER:
        return _SAID_SHORTER[field.name]
    kind = field.kind.of if isinstance(field.kind, AnyKind) and field.kind.of is not None else field.kind
    match kind:
        case IntegerKind():
            said = "int"
        case NumberKind():
            said = "float"
        case TextKind():
            said = "str"
        case ChoiceKind(options=options):
            said = f"Literal[{', '.join(json.dumps(option) for option in options)}]"
        case BoolKind():
            said = "bool"
        case TimeKind():
            said = "datetime | str"
        case ListKind(of=TaggedKind()):
            said = "Sequence[Mapping[str, Any]]"
        case ListKind():
            said = "Sequence[str]"
        case MapKind(of=TextKind()):
            said = "Mapping[str, str]"
        case _:
            said = "Mapping[str, Any]"
    return f"{said} | None" if field.takes_null and name_is_null(field) else said


def name_is_null(field: StructField) -> bool:
    """Whether None says something that leaving the option out does not."""
    return isinstance(field.kind, IntegerKind)


OPTIONS = Path(__file__).parents[1] / "src" / "noonbell" / "app" / "job.py"
CALLS = Path(__file__).parents[1] / "src" / "noonbell" / "client" / "calls.py"
END = "    # End of what is made"


def updated_options(text: str) -> str:
    """`app/job.py` with the fields of a task as they are now."""
    return _between(text, "    # Fields of a task: made by tools/reference.py", job_options())


def updated_calls(text: str) -> str:
    """`client/calls.py` with the endpoints as they are now."""
    made = _between(text, "    # Endpoints: made by tools/reference.py", f"\n{client_types.client_calls()}\n")
    return client_types.formatted(made, CALLS)


def _between(text: str, begin: str, made: str) -> str:
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(END)
    if not found or not found_end:
        raise SystemExit(f"a source file has lost its marker {begin.strip()!r}, or the one that ends it")
    return f"{before}{begin}\n{made}\n{END}{after}"


def updated(name: str, page: str) -> str:
    """The page with a fresh table between its markers. A page without them is refused."""
    begin, end = f"<!-- {name}: made by tools/reference.py -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{name}.md has lost its markers; it needs a line {begin} and, below it, a line {end}")
    return f"{before}{begin}\n{TABLES[name]()}\n{end}{after}"


def _replaced(text: str, _: str) -> str:
    return text


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--write"]):
        raise SystemExit(f"unknown arguments {' '.join(arguments)}; usage: python tools/reference.py [--write]")
    made = {DOCS / f"{name}.md": partial(updated, name) for name in TABLES}
    types = {
        client_types.TYPES / f"{name}.py": partial(_replaced, text)
        for name, text in client_types.type_modules().items()
    }
    for path, update in {**made, OPTIONS: updated_options, CALLS: updated_calls, **types}.items():
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        fresh = update(page)
        if page == fresh:
            continue
        if arguments:
            path.write_text(fresh, encoding="utf-8")
        print(f"{path.name} {'written' if arguments else 'is out of date: python tools/reference.py --write'}")


if __name__ == "__main__":
    main(sys.argv[1:])
