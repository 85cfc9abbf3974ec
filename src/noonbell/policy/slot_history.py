"""The past of a task: which slots each of its versions named, told from the versions alone.

A version names the slots after the moment that it began, up to the moment that the next one began: a change of a task
accounts for its slots up to now first. A version that is enabled, or has another schedule, starts from its own moment; any
other goes on where the one before it stopped. No version names a slot that was accounted for when it began: the clock may
have been set back, and the account never is.

    version 1 ENABLED      2 DISABLED          3 ENABLED                4 deleted
    ├── its slots count ───┼── off ────────────┼── its slots count ─────┼── deleted ──▶

The slots of a fixed delay follow from its runs; what was recorded of them is all that can be known.

Under a calendar a version names slots by their effective times, which are not in the order of the nominal ones. Its part of the
history is then several spans, each of which is a stretch of nominal time; those whose slots are still to come are `is_open`.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from noonbell import when
from noonbell.clock import LATEST, Instant, slot_of
from noonbell.errors import ScheduleError
from noonbell.model.task import Task, TaskId, TaskPause, TaskSpec, TaskStatus, TaskVersion
from noonbell.model.task_schedule import WHEN_FIELDS
from noonbell.policy.account import bounds_of
from noonbell.policy.calendar import placement_of
from noonbell.when.calendar import Placement
from noonbell.when.due import Bounds, first
from noonbell.when.schedule import Schedule


class State(enum.StrEnum):
    """What a task was in a stretch of its life."""

    ON = "on"
    OFF = "disabled"
    COMPLETED = "completed"
    ERROR = "error"
    DELETED = "deleted"


_STATES = {
    TaskStatus.ENABLED: State.ON,
    TaskStatus.DISABLED: State.OFF,
    TaskStatus.COMPLETED: State.COMPLETED,
    TaskStatus.ERROR: State.ERROR,
}


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """One version's part of a task's life. Its slots are those in after < slot <= until, in epoch seconds."""

    task_id: TaskId
    version: int
    state: State
    spec: TaskSpec
    since: Instant
    """When it began to be in this state, which may be versions ago."""
    by: str | None
    """Who brought it into this state."""
    valid_from: Instant
    """When this version began."""
    changed_by: str | None
    after: int
    until: int
    fired: int
    """What the repeat count stood at when it began."""
    schedule: Schedule | None
    """None on demand, and where it can no longer be read."""
    bounds: Bounds
    placement: Placement | None = None
    """Where a calendar puts its slots; None: each is where its schedule has it."""
    is_open: bool = False
    """Under a calendar: its slots are still to come."""
    pause: TaskPause | None = None
    """What was said of the pause that it is."""

    @property
    def counts(self) -> bool:
        """Whether each of its slots must have an outcome."""
        return self.state is State.ON and self.schedule is not None

    @property
    def is_chained(self) -> bool:
        """Its slots follow from its runs."""
        return self.schedule is not None and self.schedule.is_fixed_delay

    @property
    def remaining(self) -> int | None:
        """How many slots its repeat count left; None = for ever. Off, a schedule names what it would have named."""
        if self.schedule is None or self.schedule.repeat is None or self.state is not State.ON:
            return None
        if self.placement is not None:
            return None  # the span ends where the repeat count does
        return max(0, self.schedule.repeat - self.fired)

    def names(self, slot: int) -> bool:
        """Whether this is one of its slots, its repeat count aside."""
        return self.after < slot <= self.until and self.would_name(slot)

    def would_name(self, slot: int) -> bool:
        """Whether its schedule names this moment, whenever the version was in force."""
        if self.schedule is None or self.is_chained:
            return False
        return first(self.schedule, self.bounds, slot - 1) == slot

    def effective(self, slot: int) -> int:
        """When a slot of it is due."""
        return slot if self.placement is None else self.placement.place(slot).at

    def slots(self, after: int | None = None) -> Iterator[int]:
        """Its slots later than `after`, in order; all of them where that is None. None of a chained schedule."""
        if self.schedule is None or self.is_chained:
            return
        left = self.remaining
        if after is not None and after > self.after:
            left = None if left is None else max(0, left - self.count(self.after, after))
        at = first(self.schedule, self.bounds, max(self.after, self.after if after is None else after))
        while at is not None and at <= self.until and left != 0:
            yield at
            left = None if left is None else left - 1
            at = first(self.schedule, self.bounds, at)

    def count(self, after: int, until: int) -> int:
        """How many slots the schedule names in after < slot <= until, its repeat count aside."""
        if self.schedule is None or self.is_chained:
            return 0
        start, stop = max(after, self.after) + 1, min(until, self.until) + 1
        if self.bounds.start_at is not None:
            start = max(start, self.bounds.start_at)
        if self.bounds.end_at is not None:
            stop = min(stop, self.bounds.end_at + 1)
        return self.schedule.count(start, stop) if stop > start else 0  # type: ignore[attr-defined]

    def previous(self, before: int) -> int | None:
        """Its last slot earlier than `before`."""
        if self.schedule is None or self.is_chained:
            return None
        end = self.until if self.bounds.end_at is None else min(self.until, self.bounds.end_at)
        at = self.schedule.previous(min(before, end + 1))
        return at if at is not None and at > self.after and self.bounds.admit(at) else None


def version_spans(task: Task, versions: Sequence[TaskVersion]) -> list[VersionSpan]:
    """The life of a task, version by version, oldest first; the newest goes on for ever.

    The newest version's slots up to, but without, `task.next_fire_at` have been accounted for.
    """
    known = [version for version in versions if version.version <= task.version]
    found: list[VersionSpan] = []
    for number, version in enumerate(known):
        before = found[-1] if found else None
        use = version.calendar_use
        later = known[number + 1] if number + 1 < len(known) else None
        state = State.DELETED if version.deleted else _STATES[version.status]
        continued = before is not None and before.state is state
        found.append(
            VersionSpan(
                task_id=task.id,
                version=version.version,
                state=state,
                spec=version.spec,
                since=before.since if continued and before is not None else version.valid_from,
                by=before.by if continued and before is not None else version.changed_by,
                valid_from=version.valid_from,
                changed_by=version.changed_by,
                after=_after(version, known[number - 1] if number else None, before)
                if use is None or state is not State.ON
                else use.since - 1,
                until=LATEST if later is None else max(slot_of(later.valid_from), slot_of(later.accounted_to)),
                fired=version.fired,
                schedule=schedule_of(version.spec),
                bounds=bounds_of(version.spec),
                pause=version.pause,
            )
        )
    if all(version.calendar_use is None for version in known):
        return found
    parts: list[VersionSpan] = []
    for version, span in zip(known, found, strict=True):
        parts += _parts(task, version, span, is_newest=version is known[-1])
    return sorted(parts, key=lambda one: (one.after, one.version))


def _parts(task: Task, version: TaskVersion, span: VersionSpan, *, is_newest: bool) -> list[VersionSpan]:
    """A span of effective time as spans of nominal time."""
    use, schedule = version.calendar_use, span.schedule
    if use is None or schedule is None or span.state is not State.ON or schedule.is_fixed_delay:
        return [span]
    placed = placement_of(version.spec, use, schedule, span.bounds)
    remaining = None if schedule.repeat is None else max(0, schedule.repeat - span.fired)
    limit = placed.limit(use.since, remaining)
    cursor = None if not is_newest or task.next_fire_at is None else int(slot_of(task.next_fire_at))
    found: list[VersionSpan] = []
    last = span.until if cursor is None else cursor - 1
    for begin, end in _joined(placed.territory(use.since, last, limit), schedule):
        found.append(replace(span, after=begin - 1, until=end, placement=placed))
    if cursor is not None:
        for begin, end in _joined(placed.territory(cursor, LATEST, limit), schedule):
            found.append(replace(span, after=begin - 1, until=end, placement=placed, is_open=True))
    return found or [replace(span, after=span.until, placement=placed)]


def _joined(stretches: Sequence[tuple[int, int]], schedule: Schedule) -> list[tuple[int, int]]:
    """Those between which the schedule has no slot are one."""
    found: list[tuple[int, int]] = []
    for begin, last in stretches:
        following = schedule.next(found[-1][1]) if found else None
        if found and (following is None or following >= begin):
            found[-1] = (found[-1][0], last)
        else:
            found.append((begin, last))
    return found


def _after(version: TaskVersion, old: TaskVersion | None, before: VersionSpan | None) -> int:
    """Where the slots of a version begin: see `stores.sql.tasks.first_slot`, which puts the cursor there."""
    rescheduled = old is None or any(getattr(old.spec, name) != getattr(version.spec, name) for name in WHEN_FIELDS)
    enabled = old is None or old.status is not TaskStatus.ENABLED
    if before is not None and not rescheduled and not enabled:
        return max(before.after, before.until)
    accounted = slot_of(version.accounted_to)
    if (version.spec.schedule or {}).get("type") == "once" and version.status is not TaskStatus.DISABLED:
        return accounted  # its moment counts even if it has passed
    return max(slot_of(version.valid_from), accounted)


def schedule_of(spec: TaskSpec) -> Schedule | None:
    """None on demand, and where it can no longer be read."""
    with contextlib.suppress(ScheduleError):
        return when.of_task(spec)
    return None
