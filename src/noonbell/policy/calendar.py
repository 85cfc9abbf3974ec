"""Tasks under calendars: where the slots of a version lie, and where the next version begins when a task or its calendar changes.

created, enabled, rescheduled    from now: slots whose nominal and effective times are both to come
another calendar or revision     what is accounted for is left out; everything else goes to where the new one puts it
anything else                    as it was
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noonbell.clock import Instant, instant_of, slot_of
from noonbell.model.calendar import CalendarRules, CalendarUse, TaskCalendar
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.model.task_schedule import NEVER
from noonbell.when import due
from noonbell.when.calendar import UNMOVED, DayMap, Placement, carried, day_map, started
from noonbell.when.due import Bounds
from noonbell.when.schedule import Schedule


class Revision(NamedTuple):
    """What a calendar says, as of one of its revisions."""

    number: int
    rules: CalendarRules


NO_REVISION = Revision(0, CalendarRules())


class Beginning(NamedTuple):
    """Where a version of a task begins."""

    cursor: Instant | None
    use: CalendarUse | None


def days_of(spec: TaskSpec, rules: CalendarRules) -> DayMap:
    if spec.calendar is None:
        return UNMOVED
    return day_map(rules, spec.calendar.when_closed, spec.calendar.invert, spec.timezone)


def placement_of(spec: TaskSpec, use: CalendarUse, schedule: Schedule, bounds: Bounds) -> Placement:
    return Placement(schedule, days_of(spec, use.rules), bounds, use.left_out)


def placement_under(task: Task, schedule: Schedule, bounds: Bounds) -> Placement:
    """Of a task with or without a calendar."""
    if task.calendar_use is None:
        return Placement(schedule, UNMOVED, bounds)
    return placement_of(task.spec, task.calendar_use, schedule, bounds)


def keeps_map(before: TaskCalendar | None, after: TaskCalendar | None, use: CalendarUse | None, new: Revision) -> bool:
    """Whether each slot stays where it was."""
    if before is None or after is None:
        return before is after
    return before == after and use is not None and use.revision == new.number


def begin(
    spec: TaskSpec,
    new: Revision,
    schedule: Schedule,
    bounds: Bounds,
    now: Instant,
    before: Task | None = None,
    old_schedule: Schedule | None = None,
    fired: int = 0,
) -> Beginning:
    """A task is created, enabled or rescheduled. `fired`: what its repeat count stands at."""
    accounted_to = NEVER if before is None else before.accounted_to
    use = None if before is None else before.calendar_use
    placed = Placement(schedule, days_of(spec, new.rules), bounds)
    if schedule.is_fixed_delay:
        return Beginning(None, None)
    if schedule.is_single:
        return _once(spec, new, placed, now, accounted_to, use)
    after = slot_of(now) if accounted_to == NEVER else max(slot_of(now), slot_of(accounted_to))
    old = None
    if before is not None and use is not None:
        done = use.since if before.status is not TaskStatus.ENABLED else after + 1
        old = (placement_of(before.spec, use, old_schedule or schedule, bounds), done)
    remaining = None if schedule.repeat is None else max(0, schedule.repeat - fired)
    found = started(placed, after, remaining, old)
    return _beginning(spec, new, found.cursor, found.left_out, after + 1)


def stopped(task: Task, now: Instant) -> CalendarUse | None:
    """Of a task that is turned off: from then on, `since` says up to where its slots were accounted for."""
    use = task.calendar_use
    if use is None or task.status is not TaskStatus.ENABLED:
        return use
    return msgspec.structs.replace(use, since=_cursor(task, now))


def _cursor(task: Task, now: Instant) -> int:
    """Slots that are due before this have been accounted for."""
    if task.next_fire_at is not None:
        return slot_of(task.next_fire_at)
    if task.status is not TaskStatus.ENABLED and task.calendar_use is not None:
        return task.calendar_use.since
    return slot_of(now if task.accounted_to == NEVER else task.accounted_to) + 1


def _once(
    spec: TaskSpec, new: Revision, placed: Placement, now: Instant, accounted_to: Instant, use: CalendarUse | None
) -> Beginning:
    """Its moment counts even if it has passed, unless it is accounted for."""
    left_out = () if use is None else use.left_out
    slot = due.initial(placed.schedule, placed.bounds, slot_of(now))
    if slot is None or any(first <= slot <= last for first, last in left_out):
        return _beginning(spec, new, None, left_out, slot_of(now) + 1)
    at = placed.place(slot).at
    if accounted_to != NEVER and at <= slot_of(accounted_to):
        return _beginning(spec, new, None, left_out, slot_of(now) + 1)
    return _beginning(spec, new, at, left_out, at)


def carry(
    task: Task, spec: TaskSpec, new: Revision, schedule: Schedule, bounds: Bounds, now: Instant, *, is_on: bool
) -> Beginning:
    """The same schedule goes on under another calendar, another revision, or none. Accounted for up to now.

    Of a task that is off, the same is worked out as if it were on: it has no cursor, and its use remembers where that would be.
    """
    old = placement_under(task, schedule, bounds)
    placed = Placement(schedule, days_of(spec, new.rules), bounds)
    remaining = None if schedule.repeat is None else max(0, schedule.repeat - task.fired)
    cursor = _cursor(task, now)
    found = carried(old, cursor, placed, remaining if is_on else None)
    begun = _beginning(spec, new, found.cursor, found.left_out, cursor)
    return begun if is_on else Beginning(None, begun.use)


def _beginning(
    spec: TaskSpec, new: Revision, cursor: int | None, left_out: tuple[tuple[int, int], ...], otherwise: int
) -> Beginning:
    since = otherwise if cursor is None else cursor
    return Beginning(None if cursor is None else instant_of(cursor), _use(spec, new, since, left_out))


def _use(spec: TaskSpec, new: Revision, since: int, left_out: tuple[tuple[int, int], ...]) -> CalendarUse | None:
    if spec.calendar is None and not left_out:
        return None
    name = None if spec.calendar is None else spec.calendar.name
    return CalendarUse(name=name, revision=new.number, rules=new.rules, since=since, left_out=left_out)
