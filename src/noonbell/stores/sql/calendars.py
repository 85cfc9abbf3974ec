"""Calendars as rows: reading and changing them, and the revision that a task keeps to.

A task that takes up a calendar holds that calendar's row until its transaction ends, and so reads the newest revision:
a change of the calendar comes before it, or finds the task among those that use it.

A change of what a calendar says is an edit of each task that uses it, in one transaction.

Each of those tasks is accounted for up to now under the old revision, and gets a version that keeps to the new one. What is
accounted for is left out there; a slot that the new revision puts into the past is due at once, and late.

    K36    died before the commit   the calendar, its tasks and their cursors are as they were
    K36:2  died after it            all of them are changed; only the signal to the planners is missing, and polls find it

The row of the calendar is held first, then the cursors of its tasks by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.errors import InvalidArgument, InvalidState, NotFound, Sentence, VersionConflict
from noonbell.model.calendar import Calendar, CalendarChange, CalendarSaved
from noonbell.model.request import TaskChange
from noonbell.model.task import Task, TaskId, TaskSpec
from noonbell.policy.calendar import NO_REVISION, Revision
from noonbell.stores.sql import tasks as task_changes
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.rows import TASK_SELECT, Record, TaskView, rules_from, task_from, to_json
from noonbell.stores.sql.statement import Execute, Fetch, Now, Row, Work, insert, update
from noonbell.stores.sql.statement import delete as delete_rows

_CALENDAR = Record(Calendar, without=("tasks",))
USED = "u.name = {} and exists (select 1 from tasks t where t.id = u.task_id and t.version = u.version and t.deleted_at is null)"
"""For rows of `task_calendars`: those of tasks as they stand."""
_USERS = f"(select count(*) from task_calendars u where {USED.format('k.name')})"
_SELECT = f"select {_CALENDAR.select('k.')}, {_USERS} from calendars k"


def calendar(name: str) -> Work[Calendar | None]:
    rows = yield Fetch(f"{_SELECT} where k.name = :name", {"name": name})
    return _calendar(rows[0]) if rows else None


def calendars(limit: int = 1_000) -> Work[list[Calendar]]:
    """By name."""
    rows = yield Fetch(f"{_SELECT} order by k.name limit :limit", {"limit": limit})
    return [_calendar(row) for row in rows]


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


def _calendar(row: Row) -> Calendar:
    return _CALENDAR.read(row, tasks=row[-1])


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


_AT_ONCE = 250


def save_calendar(q: Dialect, cache: TaskView, change: CalendarChange, *, by: str | None = None) -> Work[CalendarSaved]:
    yield Fetch(f"select revision from calendars where name = :name{q.lock}", {"name": change.name})
    before = yield from calendar(change.name)
    stands = 0 if before is None else before.revision
    if change.expect_revision is not None and change.expect_revision != stands:
        raise VersionConflict(
            f"calendar {change.name!r} is at revision {stands}, not {change.expect_revision}; read it again and repeat the change",
            details={"revision": stands},
        )
    rules = change.rules
    has_changed = before is None or before.rules != rules
    if before is not None and not has_changed and before.spec == change.spec and change.ical_fetched_at is None:
        return CalendarSaved(calendar=before, is_new=False, is_changed=False)
    now = yield Now()
    revision = (yield from _next_revision(change.name)) if has_changed else stands
    if has_changed:
        made = {"rules": to_json(rules), "created_at": now, "changed_by": by}
        yield insert("calendar_revisions", name=change.name, revision=revision, **made)
    yield from _write(change, before, revision, now, by)
    tasks = (yield from _carry_tasks(q, cache, change.name, Revision(revision, rules), by)) if has_changed else []
    facts = {"name": change.name, "revision": revision, "by": by, "tasks": len(tasks)}
    yield from tell("calendar.changed", [(None, None, facts)])
    found = yield from _existing(change.name)
    failpoint.hit("K36")
    return CalendarSaved(calendar=found, is_new=before is None, is_changed=True, tasks=tuple(task.id for task in tasks))


def _existing(name: str) -> Work[Calendar]:
    found = yield from calendar(name)
    if found is None:
        raise NotFound(Sentence("there is no calendar {name}", name=repr(name)))
    return found


def _next_revision(name: str) -> Work[int]:
    """Revisions of a calendar that was deleted are kept, and their numbers are not given again."""
    rows = yield Fetch("select max(revision) from calendar_revisions where name = :name", {"name": name})
    return int(rows[0][0] or 0) + 1


def _write(change: CalendarChange, before: Calendar | None, revision: int, now: Instant, by: str | None) -> Work[None]:
    source = change.spec.ical
    fetched_at = change.ical_fetched_at or (None if before is None else before.ical_fetched_at)
    values = {
        "revision": revision,
        "spec": to_json(change.spec),
        "ical_days": to_json(change.ical_days),
        "ical_fetched_at": fetched_at,
        "ical_checked_at": change.ical_fetched_at or (None if before is None else before.ical_checked_at),
        "ical_error": None,
        "refresh_at": None if source is None else now + source.refresh_seconds * SECOND,
        "updated_at": now,
        "changed_by": by,
    }
    if before is None:
        yield insert("calendars", name=change.name, created_at=now, **values)
    else:
        yield update("calendars", {"name": change.name}, **values)


def _carry_tasks(q: Dialect, cache: TaskView, name: str, revision: Revision, by: str | None) -> Work[list[Task]]:
    """Each task that uses it goes on under the new revision."""
    rows = yield Fetch(
        f"select u.task_id from task_calendars u where {USED.format(':name')} order by u.task_id", {"name": name}
    )
    ids = [TaskId(row[0]) for row in rows]
    if not ids:
        return []
    now = yield from task_changes.hold(q, cache, ids)
    changed: list[Task] = []
    for start in range(0, len(ids), _AT_ONCE):
        tasks = yield from task_changes.load(q, ids[start : start + _AT_ONCE])
        turned = [
            (task, task_changes.changed_by(task, TaskChange(spec=task.spec, status=task.status), now, revision))
            for task in tasks.values()
            if task.deleted_at is None and task.spec.calendar is not None and task.spec.calendar.name == name
        ]
        yield from task_changes.write_versions(q, cache, now, turned, by)
        changed += [after for _, after in turned]
    return changed


def delete_calendar(q: Dialect, name: str, *, by: str | None = None) -> Work[Calendar]:
    """Raises InvalidState while tasks use it. Its revisions stay: the history of tasks names them."""
    yield Fetch(f"select revision from calendars where name = :name{q.lock}", {"name": name})
    found = yield from _existing(name)
    if found.tasks:
        rows = yield Fetch(
            "select k.id, k.name from task_calendars u join tasks k on k.id = u.task_id"
            f" where {USED.format(':name')} order by u.task_id limit 20",
            {"name": name},
        )
        told = ", ".join(repr(row[1]) for row in rows) + (", …" if found.tasks > len(rows) else "")
        raise InvalidState(
            Sentence("calendar {name} is used by {names}; remove it from them first", name=repr(name), names=told),
            details={"tasks": [row[0] for row in rows], "count": found.tasks},
        )
    yield delete_rows("calendars", name=name)
    yield from tell("calendar.deleted", [(None, None, {"name": name, "by": by})])
    return found


def take_refresh(name: str, due_at: Instant, until: Instant) -> Work[bool]:
    """Whether this caller is the one to fetch the source of a calendar that is due since `due_at`: no other does until
    `until`.
    """
    changed = yield Execute(
        "update calendars set refresh_at = :until where name = :name and refresh_at = :due",
        {"until": until, "name": name, "due": due_at},
    )
    return bool(changed == 1)


def note_refresh(name: str, error: str | None, refresh_at: Instant) -> Work[bool]:
    """The source was asked, and nothing changes: the copy is the same, or there is none (`error`). True if events were
    written.
    """
    now = yield Now()
    rows = yield Fetch("select ical_error from calendars where name = :name", {"name": name})
    if not rows:
        return False
    fresh = {} if error is not None else {"ical_fetched_at": now}
    yield update("calendars", {"name": name}, ical_checked_at=now, ical_error=error, refresh_at=refresh_at, **fresh)
    if error is None:
        return False
    yield from tell("calendar.refresh_failed", [(None, None, {"name": name, "error": error})])
    return True
