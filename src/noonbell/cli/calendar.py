"""`noonbell calendar …`: business calendars on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from noonbell.cli.api import Remote, segment
from noonbell.cli.options import confirm, text_of
from noonbell.cli.output import ago, moment_text, output_option, show_list, show_one, talk
from noonbell.cli.root import EXIT_FAILED, NounGroup
from noonbell.errors import InvalidArgument, NotFound
from noonbell.fields import counted

WRITTEN = ("description", "timezone", "closed_weekdays", "closed", "open", "ical")
"""The fields of a calendar that a file has."""
COLUMNS = {
    "name": lambda calendar: calendar["name"],
    "revision": lambda calendar: str(calendar["revision"]),
    "zone": lambda calendar: calendar["timezone"] or "the task's",
    "closed": lambda calendar: str(len(calendar["closed"]) + len(calendar["ical_days"])),
    "open": lambda calendar: str(len(calendar["open"])),
    "tasks": lambda calendar: str(calendar["tasks"]),
    "changed": lambda calendar: ago(calendar["updated_at"]),
    "source": lambda calendar: calendar["ical_error"] or ("" if calendar["ical"] is None else "fetched"),
}


@click.group("calendar", cls=NounGroup)
def calendar_command() -> None:
    """List, show, import, compare and delete business calendars."""


@calendar_command.command("list")
@output_option
def list_calendars(output: str) -> None:
    """List calendars."""
    show_list(Remote.of_environment().get("/calendars")["items"], COLUMNS, output)


@calendar_command.command("show")
@click.argument("name")
@click.option("--days", metavar="N", type=int, default=0, help="Also each of the next N days, open or closed.")
@output_option
def show_calendar(name: str, days: int, output: str) -> None:
    """Show a calendar."""
    remote = Remote.of_environment()
    found = dict(remote.get(f"/calendars/{segment(name)}"))
    if days:
        found["days"] = remote.get(f"/calendars/{segment(name)}/days", {"count": days})["items"]
    show_one(found, output, name="name", lines=_lines)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for field, value in found.items():
        if field == "days":
            for day in value:
                yield f"{day['day']}  {'open' if day['open'] else 'closed'}  {day['why']}"
        elif isinstance(value, list):
            yield f"{field}: {', '.join(str(each) for each in value) or '-'}"
        else:
            yield f"{field}: {'-' if value is None else value}"


@calendar_command.command("import")
@click.argument("file", metavar="FILE.ics|FILE.yaml")
@click.option("--name", metavar="NAME", help="The calendar's name [the file's].")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation if slots move.")
@output_option
def import_calendar(file: str, name: str | None, yes: bool, output: str) -> None:
    """Create or change a calendar from a file: iCal (.ics), or a file with `calendars:`.

    Each all-day event of an iCal file closes its days; the other fields of the calendar are kept.
    """
    remote = Remote.of_environment()
    for each, body in _bodies(remote, file, name):
        found = _preview(remote, each, body)
        if found["moves"] and not yes:
            for line in moves_of(found):
                talk(line)
            confirm(f"Save calendar {each!r}?", refused="nothing saved")
        saved = remote.call("PUT", f"/calendars/{segment(each)}", body)
        show_one(saved, output, name="name", lines=_saved)


def _saved(answer: dict[str, Any]) -> Iterator[str]:
    what = f"saved, revision {answer['revision']}" if answer["changed"] else "unchanged"
    tasks = len(answer["changed_tasks"])
    yield f"{answer['name']}: {what}" + (f"; {counted(tasks, 'task')} changed" if tasks else "")


@calendar_command.command("diff")
@click.argument("file", metavar="FILE.ics|FILE.yaml")
@click.option("--name", metavar="NAME", help="The calendar's name [the file's].")
@click.option("--days", default=92, show_default=True, help="How far ahead slots are compared.")
@output_option
def diff_calendar(file: str, name: str | None, days: int, output: str) -> int:
    """Show which slots of which tasks a file would move. Nothing is saved. Exit code 1: there are differences."""
    remote = Remote.of_environment()
    differs = False
    bodies = _bodies(remote, file, name)
    for each, body in bodies:
        found = _preview(remote, each, body, days)
        differs = differs or found["changes"]
        show_one({"name": each, **found}, output, name="name", lines=moves_of if len(bodies) == 1 else _named_moves)
    return EXIT_FAILED if differs else 0


def _preview(remote: Remote, name: str, body: dict[str, Any], days: int = 92) -> dict[str, Any]:
    try:
        return dict(remote.call("POST", f"/calendars/{segment(name)}/preview", body, query={"days": days}))
    except InvalidArgument as error:
        if not error.details:
            raise
        problems = {f"calendars[{name}].{field}": str(problem) for field, problem in error.details.items()}
        raise InvalidArgument.fields(problems) from None


def _named_moves(found: dict[str, Any]) -> Iterator[str]:
    yield f"calendar {found['name']}:"
    yield from (f"    {line}" for line in moves_of(found))


def moves_of(found: dict[str, Any]) -> Iterator[str]:
    if not found["changes"]:
        yield "unchanged"
        return
    for move in found["moves"]:
        before, after = (moment_text(move[side]) if move[side] else "skipped" for side in ("before", "after"))
        late = " (late: due at once)" if move["is_late"] else ""
        yield f"{move['task_name']}: slot {moment_text(move['slot'])}: {before} → {after}{late}"
    more = ", and others" if found["more"] else ""
    new = "; the calendar is new" if found.get("is_new") else ""
    yield (
        f"{counted(len(found['moves']), 'slot moves', 'slots move')}{more};"
        f" {counted(found['tasks'], 'task uses', 'tasks use')} it{new}"
    )


@calendar_command.command("refresh")
@click.argument("name")
@output_option
def refresh_calendar(name: str, output: str) -> None:
    """Fetch the iCal source of a calendar now."""
    show_one(Remote.of_environment().post(f"/calendars/{segment(name)}/refresh"), output, name="name", lines=_saved)


@calendar_command.command("delete")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def delete_calendar(name: str, yes: bool) -> None:
    """Delete a calendar that no task uses."""
    if not yes:
        confirm(f"Delete calendar {name!r}?", refused="nothing deleted")
    Remote.of_environment().call("DELETE", f"/calendars/{segment(name)}")
    talk(f"deleted {name}")


def _bodies(remote: Remote, file: str, name: str | None) -> list[tuple[str, dict[str, Any]]]:
    text = text_of(file)
    if file.endswith((".yaml", ".yml", ".json")) or (file == "-" and "BEGIN:VCALENDAR" not in text):
        return calendars_in(file, text, name)
    each = name or Path(file).stem
    try:
        stands = remote.get(f"/calendars/{segment(each)}")
    except NotFound:
        stands = {}
    kept = {field: stands[field] for field in WRITTEN if field in stands and field != "ical"}
    return [(each, {**kept, "ics": text})]


def calendars_in(path: str, text: str, only: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The calendars of a file with `calendars:`, by name."""
    from noonbell import yaml_text

    try:
        documents = yaml_text.read_all(text)
    except ValueError as error:
        raise InvalidArgument.field(path, str(error)) from None
    found: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    for document in documents:
        listed = document.get("calendars") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise InvalidArgument.field(path, "has no list of calendars under `calendars:`")
        for number, each in enumerate(listed):
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str):
                problems[f"{path}: calendars[{number}]"] = "is not an object with a name"
            elif name in found:
                problems[f"{path}: calendars[{name}]"] = "is listed twice; names must be unique"
            else:
                found[name] = {field: value for field, value in each.items() if field != "name"}
    if problems:
        raise InvalidArgument.fields(problems)
    wanted = [(name, _with_file(body, path)) for name, body in found.items() if only in (None, name)]
    if not wanted:
        raise InvalidArgument.field(path, f"has no calendar {only!r}" if only else "names no calendar")
    return wanted


def _with_file(body: dict[str, Any], path: str) -> dict[str, Any]:
    """`ical_file` names a file beside this one: its text goes to the server."""
    if "ical_file" not in body:
        return body
    beside = Path(path).parent / str(body["ical_file"])
    rest = {field: value for field, value in body.items() if field != "ical_file"}
    return {**rest, "ics": text_of(str(beside))}
