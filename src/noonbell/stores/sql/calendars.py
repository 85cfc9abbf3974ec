"""Calendars as rows: reading them, and the revision that a task keeps to.

A task that takes up a calendar holds that calendar's row until its transaction ends, and so reads the newest revision:
a change of the calendar comes before it, or finds the task among those that use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument
from noonbell.model.calendar import Calendar, CalendarSpec
from noonbell.model.task import Task, TaskSpec
from noonbell.policy.calendar import NO_REVISION, Revision
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TASK_SELECT, from_json, rules_from, task_from
from noonbell.stores.sql.statement import Fetch, Now, Row, Work

_COLUMNS = (
    "k.name, k.revision, k.spec, k.ical_days, k.ical_checked_at, k.ical_fetched_at, k.ical_error, k.created_at,"
    " k.updated_at, k.changed_by"
)
USED = "u.name = {} and exists (select 1 from tasks t where t.id = u.task_id and t.version = u.version and t.deleted_at is null)"
"""For rows of `task_calendars`: those of tasks as they stand."""
_SELECT = f"select {_COLUMNS}, (select count(*) from task_calendars u where {USED.format('k.name')}) from calendars k"


def calendar(name: str) -> Work[Calendar | None]:
    rows = yield Fetch(f"{_SELECT} where k.name = :name", {"name": name})
    return calendar_from(rows[0]) if rows else None


def calendars(limit: int = 1_000) -> Work[list[Calendar]]:
    """By name."""
    rows = yield Fetch(f"{_SELECT} order by k.name limit :limit", {"limit": limit})
    return [calendar_from(row) for row in rows]


def calendar_users(name: str, limit: int = 1_000) -> Work[list[Task]]:
    """The tasks that use a calendar, by id."""
    rows = yield Fetch(
        f"{TASK_SELECT} where u.name = :name and t.deleted_at is null order by t.id limit :limit",
        {"name": name, "limit": limit},
    )
    return [task_from(row) for row in rows]


def due_refreshes(limit: int = 10) -> Work[list[tuple[str, Instant]]]:
    """Calendars whose source is to be fetched again, each with since when."""
    now = yield Now()
    rows = yield Fetch(
        "select name, refresh_at from calendars where refresh_at <= :now order by refresh_at limit :limit",
        {"now": now, "limit": limit},
    )
    return [(name, Instant(at)) for name, at in rows]


def calendar_from(row: Row) -> Calendar:
    name, revision, spec, days, checked_at, fetched_at, error, created_at, updated_at, by, tasks = row
    return Calendar(
        name=name,
        revision=revision,
        spec=msgspec.json.decode(spec, type=CalendarSpec),
        ical_days=tuple(from_json(days)),
        ical_checked_at=checked_at,
        ical_fetched_at=fetched_at,
        ical_error=error,
        tasks=tasks,
        created_at=created_at,
        updated_at=updated_at,
        changed_by=by,
    )


def revisions(q: Dialect, specs: Sequence[TaskSpec]) -> Work[dict[str, Revision]]:
    """The newest revision of each calendar that they name, held until the end of the transaction."""
    names = sorted({spec.calendar.name for spec in specs if spec.calendar is not None})
    if not names:
        return {}
    held = yield Fetch(
        f"select name, revision from calendars where {q.names('name', 'names')} order by name{q.lock}",
        {"names": q.pack(names)},
    )
    found: dict[str, Revision] = {}
    for name, revision in held:
        rows = yield Fetch(
            "select rules from calendar_revisions where name = :name and revision = :revision",
            {"name": name, "revision": revision},
        )
        found[name] = Revision(revision, rules_from(rows[0][0]))
    return found


def unknown(specs: Sequence[TaskSpec], known: Mapping[str, Revision]) -> dict[int, InvalidArgument]:
    """The problems of tasks whose calendar is not there, by their place in the list."""
    return {
        place: InvalidArgument.field("calendar.name", f"is {spec.calendar.name!r}; there is no such calendar")
        for place, spec in enumerate(specs)
        if spec.calendar is not None and spec.calendar.name not in known
    }


def revision_for(spec: TaskSpec, known: Mapping[str, Revision]) -> Revision:
    return NO_REVISION if spec.calendar is None else known[spec.calendar.name]
