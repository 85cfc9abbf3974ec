"""Which slots are due and what remains: the arithmetic between a schedule and a task's cursor; and the preview of a schedule.

An every-second task that was off for a year has 31 million due slots. They are counted, not listed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from noonbell.clock import LATEST
from noonbell.when import normalise, parse
from noonbell.when.composed import Composed
from noonbell.when.schedule import Note, Schedule, rfc3339
from noonbell.when.wall_clock import LocalKind
from noonbell.when.zones import YEAR, find


@dataclass(frozen=True, slots=True)
class Bounds:
    """`start_at` and `end_at` of a task in epoch seconds, both inclusive; None = no limit."""

    start_at: int | None = None
    end_at: int | None = None

    def admit(self, slot: int) -> bool:
        return not (
            (self.start_at is not None and slot < self.start_at) or (self.end_at is not None and slot > self.end_at)
        )


@dataclass(frozen=True, slots=True)
class Due:
    newest: tuple[int, ...]
    """The newest due slots, ascending, at most `keep`."""
    dropped: int
    """How many due slots come before newest[0]."""
    first_dropped: int | None
    last_dropped: int | None
    next: int | None
    """The first slot that is not due yet. None: the schedule is used up, or waits for a run to end (fixed_delay)."""
    complete: bool = True
    """False: the budget ran out. `newest` is empty, the dropped slots are those counted so far, and `next` is the first
    one not counted: record the range, move the cursor there, and ask again."""

    @property
    def used(self) -> int:
        """What this takes from a repeat count."""
        return len(self.newest) + self.dropped


def first(schedule: Schedule, bounds: Bounds, after: int) -> int | None:
    """The first slot inside the bounds that is strictly later than `after`."""
    if bounds.start_at is not None:
        after = max(after, bounds.start_at - 1)
    return _within(schedule.next(after), bounds)


def initial(schedule: Schedule, bounds: Bounds, now: int) -> int | None:
    """The cursor of a task that is created, enabled or rescheduled at `now`.

    Only future slots, except for a single one: its moment counts even if it has passed, or is now.
    """
    if schedule.is_single:
        found = schedule.next(now)
        return _within(schedule.previous(now + 1) if found is None else found, bounds)
    return first(schedule, bounds, now)


def due(
    schedule: Schedule,
    bounds: Bounds,
    cursor: int,
    until: int,
    keep: int,
    remaining: int | None,
    budget: int = 100_000,
) -> Due:
    """Account for the slots from the cursor to `until`, both inclusive.

    `cursor` is the stored `next_fire_at`; it is a slot, unless the rules of its zone have changed since: then it is not
    due, and the slots after it are. `remaining` is what is left of the repeat count: slots beyond it do not exist.
    `budget` limits the steps of a kind that cannot count.
    """
    if schedule.is_fixed_delay:
        return _due_after_run(bounds, cursor, until, keep, remaining)
    if bounds.start_at is not None:
        cursor = max(cursor, bounds.start_at)
    if bounds.end_at is not None:
        until = min(until, bounds.end_at)
    until = min(until, LATEST)
    if remaining is not None and remaining <= 0:
        return Due((), 0, None, None, None)
    # Nearly always the cursor is the only slot that is due.
    if cursor <= until and keep > 0 and schedule.next(cursor - 1) == cursor:
        following = schedule.next(cursor)
        if following is None or following > until:
            return Due((cursor,), 0, None, None, None if remaining == 1 else _within(following, bounds))
    count: Callable[[int, int], int] | None = getattr(schedule, "count", None)
    if count is None:
        return _due_by_walking(schedule, bounds, cursor, until, keep, remaining, budget)
    total = count(cursor, until + 1)
    following = _within(schedule.next(max(until, cursor - 1)), bounds)
    if remaining is not None and total >= remaining:
        until = nth(count, cursor, until, remaining)
        total, following = remaining, None
    newest = _newest(schedule, cursor, until, min(keep, total))
    return _account(schedule, cursor, newest, total - len(newest), following, until)


def jitter(task_id: int, slot: int, jitter_seconds: int) -> float:
    """How many seconds after its slot a run starts: in [0, jitter_seconds), the same on every node and at every call."""
    if jitter_seconds <= 0:
        return 0.0
    digest = blake2b(f"{task_id}:{slot}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48 * jitter_seconds


def shortest_gap(schedule: Schedule, after: int, samples: int = 512) -> int | None:
    """The fewest seconds between two neighbours among the next `samples` slots, and around the next clock change.

    None if there are fewer than two slots.
    """
    if schedule.is_fixed_delay:
        return schedule.after_run(0)
    gaps = _gaps_from(schedule, schedule.next(after), LATEST, samples)
    return min(gaps + _gaps_at_clock_changes(schedule, after) + _gaps_of_parts(schedule, after), default=None)


def _gaps_from(schedule: Schedule, slot: int | None, until: int, most: int) -> list[int]:
    """The seconds between neighbours, from `slot` to the first slot after `until`."""
    gaps: list[int] = []
    while slot is not None and slot <= until and len(gaps) < most:
        following = schedule.next(slot)
        if following is None:
            break
        gaps.append(following - slot)
        slot = following
    return gaps


def _gaps_at_clock_changes(schedule: Schedule, after: int) -> list[int]:
    """A moment of a gap moves nearer to another slot, and the last of an hour that is repeated is near to the first."""
    parts = schedule.parts if isinstance(schedule, Composed) else (schedule,)
    local = next((part.slots for part in parts if isinstance(part, LocalKind)), None)
    gaps: list[int] = []
    for change in [] if local is None else local.changes(after, after + YEAR)[:_CHANGES]:
        reach = abs(change.seen - change.start - change.offset)
        begin = schedule.previous(max(after + 1, change.start - reach) + 1)
        gaps += _gaps_from(schedule, begin, change.start + reach, _AROUND)
        gaps += _gaps_from(schedule, schedule.previous(change.start), change.start, _AROUND)
    return gaps


def _gaps_of_parts(schedule: Schedule, after: int) -> list[int]:
    """Of several schedules: a rare one has its slots between those of the others."""
    gaps: list[int] = []
    for part in schedule.parts if isinstance(schedule, Composed) else ():
        slot = part.next(after)
        for _ in range(_OF_A_PART):
            if slot is None:
                break
            gaps += _gaps_from(schedule, schedule.previous(slot), slot, 2)
            slot = part.next(slot)
    return gaps


_CHANGES, _AROUND, _OF_A_PART = 4, 256, 32
"""Clock changes that are looked at, slots around each of them, and slots of each part of a schedule that is made of others."""


def _within(slot: int | None, bounds: Bounds) -> int | None:
    return slot if slot is not None and bounds.admit(slot) else None


def _due_after_run(bounds: Bounds, cursor: int, until: int, keep: int, remaining: int | None) -> Due:
    """fixed_delay: one slot at a time, and no next one before its run has ended."""
    if not bounds.admit(cursor) or (remaining is not None and remaining <= 0):
        return Due((), 0, None, None, None)
    if cursor > until:
        return Due((), 0, None, None, cursor)
    if keep < 1:
        return Due((), 1, cursor, cursor, None)
    return Due((cursor,), 0, None, None, None)


def nth(count: Callable[[int, int], int], start: int, stop: int, number: int) -> int:
    """The slot that is the `number`-th from `start` on, known to be there and not after `stop`."""
    return start + bisect_left(range(start, stop), number, key=lambda slot: count(start, slot + 1))


def _newest(schedule: Schedule, cursor: int, until: int, keep: int) -> tuple[int, ...]:
    found: list[int] = []
    slot = schedule.previous(until + 1)
    while slot is not None and slot >= cursor and len(found) < keep:
        found.append(slot)
        slot = schedule.previous(slot)
    return tuple(reversed(found))


def _account(
    schedule: Schedule, cursor: int, newest: tuple[int, ...], dropped: int, following: int | None, until: int
) -> Due:
    if not dropped:
        return Due(newest, 0, None, None, following)
    last = schedule.previous(newest[0] if newest else until + 1)
    return Due(newest, dropped, schedule.next(cursor - 1), last, following)


def _due_by_walking(
    schedule: Schedule, bounds: Bounds, cursor: int, until: int, keep: int, remaining: int | None, budget: int
) -> Due:
    """For a kind that cannot count. Only slots that are sure to be dropped are counted before the budget is spent."""
    newest = _newest(schedule, cursor, until, keep)
    edge = newest[0] if newest else until + 1
    most = None if remaining is None else max(0, remaining - keep)
    dropped, first_dropped, last_dropped = 0, None, None
    slot = schedule.next(cursor - 1)
    while slot is not None and slot < edge and dropped != most:
        if dropped >= budget:
            return Due((), dropped, first_dropped, last_dropped, slot, complete=False)
        dropped += 1
        first_dropped, last_dropped = (slot if first_dropped is None else first_dropped), slot
        slot = schedule.next(slot)
    kept: list[int] = []
    while slot is not None and slot <= until and len(kept) < keep and dropped + len(kept) != remaining:
        kept.append(slot)
        slot = schedule.next(slot)
    following = None if dropped + len(kept) == remaining else _within(slot, bounds)
    return Due(tuple(kept), dropped, first_dropped, last_dropped, following)


@dataclass(frozen=True, slots=True)
class Preview:
    next_fires: tuple[tuple[str, str], ...]
    """(UTC, local), both RFC 3339; the local one with the offset of that moment."""
    description: str
    notes: tuple[Note, ...]

    def as_json(self) -> dict[str, Any]:
        """The answer of `POST /api/v1/schedules/preview`, and of `noonbell next -o json`."""
        return {
            "next_fires": [{"utc": utc, "local": local} for utc, local in self.next_fires],
            "description": self.description,
            "notes": [note.as_json() for note in self.notes],
        }


def preview(spec: Mapping[str, Any], timezone: str, count: int, after: int, lang: str = "en") -> Preview:
    """The next `count` slots after `after`, as if the task were created then. Raises like `parse`."""
    return preview_of(parse(normalise(spec, timezone, after), timezone), timezone, count, after, lang)


def preview_of(schedule: Schedule, timezone: str, count: int, after: int, lang: str = "en") -> Preview:
    """The next `count` slots after `after`, as if a task with this schedule were created then.

    Slots of a fixed_delay interval are shown as if runs took no time; a note says so.
    """
    held = find(timezone)
    fires: list[tuple[str, str]] = []
    limit = count if schedule.repeat is None else min(count, schedule.repeat)
    slot = initial(schedule, Bounds(), after)
    while slot is not None and len(fires) < limit:
        fires.append((rfc3339(slot), held.local(slot).isoformat()))
        slot = schedule.next(slot)
    return Preview(tuple(fires), schedule.describe(lang), schedule.notes(lang, after))
