"""Activity: the audit log (who changed what), and what the system itself tells of. For admins, as in the API."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument, InvalidState, NotFound
from noonbell.model.access import Role
from noonbell.model.task import TaskId
from noonbell.service.naming import BY_NAME
from noonbell.web.activity import system as system_events
from noonbell.web.activity.deeds import GROUPS, actions_of
from noonbell.web.lists import Filters, reader_of
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks.versions import Change, changes
from noonbell.web.times import instant_from
from noonbell.web.visit import Visit, as_json, merged

_SIZE: Final = 50
_MOST_EXPORTED: Final = 10_000
_BATCH: Final = 1_000
_KNOWN: Final = ("actor", "action", "task", "text", "from", "to")
_TASK = re.compile(r"/tasks/(\d{1,15})(?:/|$)")
_WITHIN: Final = 30 * SECOND
"""A change of a task is written down after it was made, at most so much later."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS: Final = ("id", "at", "actor", "action", "subject", "peer", "request_id", "details", "hash")


async def show(visit: Visit) -> Response:
    if visit.query.get("view") == "system":
        return await system_events.show(visit)
    before, narrowed, problem = _before(visit), {}, ""
    try:
        narrowed = await read(visit)
    except InvalidArgument as error:
        problem = error.message
    access = visit.site.access
    entries = [] if access is None or problem else await access.log(before, _SIZE, **narrowed)
    return visit.page(
        "activity.html",
        entries=[Line(entry, _task_of(entry)) for entry in entries],
        filters=Filters(visit.query, _KNOWN, problem),
        groups=GROUPS,
        older=merged(visit.query, before=entries[-1]["id"]) if len(entries) == _SIZE else None,
        newest=merged(visit.query, before=None) if before is not None else None,
        csv=merged(visit.query, before=None),
        is_kept=access is not None,
    )


@dataclass(frozen=True, slots=True)
class Line:
    entry: dict[str, Any]
    task_id: TaskId | None
    """The task that it is about, where it is about one."""

    @property
    def has_versions(self) -> bool:
        """Whether what it did is kept with the task, before and after."""
        return self.task_id is not None and self.entry["action"] in GROUPS["changes"]


def _task_of(entry: dict[str, Any]) -> TaskId | None:
    found = _TASK.search(entry["subject"])
    return None if found is None else TaskId(int(found[1]))


def _before(visit: Visit) -> int | None:
    text = visit.query.get("before", "")
    return int(text) if text.isdecimal() and len(text) < 18 else None


async def read(visit: Visit) -> dict[str, Any]:
    """The filters of the address, as `Access.log` takes them."""
    reader, zone = reader_of(_with_seconds(visit.query), _KNOWN), visit.zone.name
    since, until = reader.moment("from", zone), reader.moment("to", zone)
    task = reader.text("task", None, least=1, most=260)
    narrowed: dict[str, Any] = {
        "actor": reader.text("actor", None, least=1, most=255),
        "actions": actions_of(reader),
        "text": reader.text("text", None, least=1, most=200),
        "since": since,
        "until": until,
    }
    reader.problems.finish()
    if task is not None:
        narrowed["about"] = await _paths_of(visit, task.removeprefix(BY_NAME))
    return narrowed


def _with_seconds(query: dict[str, str]) -> dict[str, str]:
    """A browser's field for a moment leaves seconds out where they are none."""
    times = {
        name: f"{query[name]}:00" for name in ("from", "to") if len(query.get(name, "")) == len("2026-11-15T02:00")
    }
    return {**query, **times}


async def _paths_of(visit: Visit, task: str) -> tuple[str, ...]:
    """Where a task is called: by its id, and by the name that it has."""
    by_id = f"/tasks/{task}" if task.isdecimal() else ""
    named = None if by_id else await visit.site.services.store.task_named(task)
    return tuple(path for path in (by_id, named and f"/tasks/{named.id}", f"/tasks/{BY_NAME}{task}") if path)


# One entry


async def show_one(visit: Visit) -> Response:
    """All that is kept of it; and of the change of a task, what was before and after."""
    entry = await _entry(visit)
    task_id = _task_of(entry)
    change = None if task_id is None else await _change(visit, entry, task_id)
    return visit.page(
        "activity_entry.html", entry=entry, task_id=task_id, change=change, details=as_json(entry["details"])
    )


async def _entry(visit: Visit) -> dict[str, Any]:
    text = visit.piece("number")
    if visit.site.access is None or not text.isdecimal() or len(text) > 17:
        raise NotFound(visit.words("activity.unknown", id=text[:20]))
    entries = await visit.site.access.log(int(text) + 1, 1)
    if not entries or entries[0]["id"] != int(text):
        raise NotFound(visit.words("activity.unknown", id=text))
    return entries[0]


async def _change(visit: Visit, entry: dict[str, Any], task_id: TaskId) -> Change | None:
    """The version that came of it: the newest that was there when it was written down, made by the same one just then."""
    at = Instant(instant_from(entry["at"]))
    versions = await visit.site.services.store.task_versions(task_id)
    for change in changes(versions):
        version = change.version
        if version.valid_from <= at and version.changed_by == entry["actor"]:
            return change if at - version.valid_from <= _WITHIN else None
    return None


# As a file


async def export(visit: Visit) -> Response:
    """What the filters find, as CSV: the newest so many."""
    if visit.site.access is None:
        raise InvalidState(visit.words("activity.not_kept"))
    narrowed, written = await read(visit), io.StringIO()
    writer = csv.writer(written)
    writer.writerow(_COLUMNS)
    before, count = None, 0
    while count < _MOST_EXPORTED:
        entries = await visit.site.access.log(before, _BATCH, **narrowed)
        writer.writerows([cell(entry[name]) for name in _COLUMNS] for entry in entries)
        count += len(entries)
        if len(entries) < _BATCH:
            break
        before = entries[-1]["id"]
    headers = {"content-disposition": 'attachment; filename="noonbell-activity.csv"'}
    return Response(written.getvalue(), headers=headers, media_type="text/csv; charset=utf-8")


def cell(value: Any) -> str:
    """No spreadsheet takes it for a formula."""
    text = "" if value is None else as_json(value) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/activity", show, role=Role.ADMIN),
        Page("/activity.csv", export, role=Role.ADMIN),
        Page("/activity/{number}", show_one, role=Role.ADMIN),
    ]
