"""The account of a task over a stretch of time: what became of each slot that its versions named.

Runs come one by one; slots that share a fate (dropped, off, removed by retention) come as ranges, counted and not listed.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from noonbell.clock import Instant, instant_of, slot_of
from noonbell.model.account import Cleaned, SlotRun
from noonbell.model.run import DroppedRange, RunStatus
from noonbell.model.task import Task
from noonbell.policy.past import State, Stretch, stretches
from noonbell.ports import Store
from noonbell.when.due import first

BATCH: Final = 1_000
"""Runs that are read at once."""


class Fate(enum.StrEnum):
    """What became of a slot."""

    RAN = "ran"
    RUNNING = "running"
    WAITING = "waiting"
    """Its run has been planned and has not started."""
    CANCELED = "canceled"
    SKIPPED = "skipped"
    DROPPED = "dropped"
    DISABLED = "disabled"
    COMPLETED = "completed"
    ERROR = "error"
    DELETED = "deleted"
    DUE = "due"
    """Nobody has planned it yet, though its time has come."""
    PLANNED = "planned"
    """It is to come."""
    CLEANED = "cleaned"
    """It had an outcome, which retention has removed."""
    MISSING = "missing"
    """A hole: must never be."""


_OFF = {
    State.OFF: Fate.DISABLED,
    State.COMPLETED: Fate.COMPLETED,
    State.ERROR: Fate.ERROR,
    State.DELETED: Fate.DELETED,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """`count` slots from `first` to `last`, in epoch seconds, that share a fate."""

    first: int
    last: int
    count: int
    fate: Fate
    stretch: Stretch
    run: SlotRun | None = None
    dropped: DroppedRange | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """A task with all that its account rests on, read together."""

    task: Task
    stretches: tuple[Stretch, ...]
    cleaned: Cleaned
    now: Instant

    @property
    def planned_to(self) -> int:
        """Up to here its slots have been accounted for."""
        if self.task.next_fire_at is not None:
            return int(slot_of(self.task.next_fire_at)) - 1
        return max(int(slot_of(self.task.accounted_to)), int(slot_of(self.now)))

    def at(self, slot: int) -> Stretch | None:
        """The stretch of the task's life that a moment falls into; None before there was one."""
        for stretch in reversed(self.stretches):
            if stretch.names(slot):
                return stretch
        return next((one for one in reversed(self.stretches) if one.after < slot <= one.until), None)


async def life_of(store: Store, task: Task) -> Life:
    """The task is read again, first: what is planned meanwhile lies beyond its cursor."""
    fresh = await store.task(task.id) or task
    versions = await store.task_versions(task.id)
    return Life(fresh, tuple(stretches(fresh, versions)), await store.cleaned(task.id), await store.now())


async def entries(store: Store, life: Life, since: int, until: int) -> AsyncIterator[Entry]:
    """Every slot in since <= slot <= until, in order, each in one entry."""
    done = since - 1
    for stretch in life.stretches:
        low, high = max(stretch.after, since - 1), min(stretch.until, until)
        if stretch.state is State.ON:
            if low < high:
                async for entry in _on(store, life, stretch, low, high):
                    yield entry
        else:
            for entry in _off(stretch, max(low, done), high):
                yield entry
        done = max(done, high)


def _off(stretch: Stretch, low: int, high: int) -> Iterator[Entry]:
    """The slots that the schedule would have named, in one piece."""
    yield from _gap(stretch, low, high, _OFF[stretch.state])


def _gap(stretch: Stretch, low: int, high: int, fate: Fate, most: int | None = None) -> Iterator[Entry]:
    """The slots in low < slot <= high as one entry, if there are any; `most` is what a repeat count leaves."""
    if low >= high or stretch.schedule is None or stretch.is_chained:
        return
    count = stretch.count(low, high)
    if most is not None and count > most:
        count = max(0, most)
    if not count:
        return
    begin = first(stretch.schedule, stretch.bounds, max(low, stretch.after))
    end = stretch.previous(high + 1)
    if begin is not None and end is not None:
        yield Entry(begin, end, count, fate, stretch)


async def _on(store: Store, life: Life, stretch: Stretch, low: int, high: int) -> AsyncIterator[Entry]:
    """What was recorded, with whatever lies between; then what is due or to come."""
    accounted = min(high, life.planned_to) if stretch is life.stretches[-1] else high
    at = low
    async for entry in _recorded(store, stretch, low, accounted):
        if _is_anothers(life, stretch, entry.first):
            continue
        for gap in _unrecorded(life, stretch, at, entry.first - 1):
            yield gap
        yield entry
        at = max(at, entry.last)
    left = None if stretch.remaining is None else max(0, stretch.remaining - stretch.count(stretch.after, at))
    for gap in _unrecorded(life, stretch, at, accounted, left):
        yield gap
    if stretch is life.stretches[-1] and accounted < high:
        for slot in _coming(life, stretch, max(accounted, low)):
            if slot > high:
                return
            yield Entry(slot, slot, 1, Fate.PLANNED if slot > slot_of(life.now) else Fate.DUE, stretch)


def _is_anothers(life: Life, stretch: Stretch, slot: int) -> bool:
    """After a step back of the clock, a later version may have slots before the end of an earlier one."""
    if stretch.is_chained or stretch.names(slot):
        return False
    return any(one.counts and one.names(slot) for one in life.stretches if one is not stretch)


def _unrecorded(life: Life, stretch: Stretch, low: int, high: int, most: int | None = None) -> Iterator[Entry]:
    edge = min(high, int(slot_of(life.cleaned.last))) if life.cleaned.count else low
    for begin, end, fate in ((low, edge, Fate.CLEANED), (max(low, edge), high, Fate.MISSING)):
        for gap in _gap(stretch, begin, end, fate, most):
            most = None if most is None else most - gap.count
            yield gap


def _coming(life: Life, stretch: Stretch, after: int) -> Iterator[int]:
    """From the cursor on: only the first for a fixed delay, whose next slots nobody can know."""
    cursor = life.task.next_fire_at
    if cursor is None:
        return
    if stretch.is_chained:
        if slot_of(cursor) > after:
            yield int(slot_of(cursor))
        return
    yield from stretch.slots(max(after, int(slot_of(cursor)) - 1))


async def _recorded(store: Store, stretch: Stretch, low: int, high: int) -> AsyncIterator[Entry]:
    """Runs and dropped ranges in low < slot <= high, in the order of time."""
    if low >= high or stretch.schedule is None:
        return
    task_id, end = stretch.task_id, instant_of(high)
    ranges = [_dropped(stretch, one, low, high) for one in await store.dropped(task_id, instant_of(low + 1), end)]
    waiting = deque(entry for entry in ranges if entry is not None)
    since = instant_of(low + 1)
    while True:
        runs = await store.slot_runs(task_id, since, end, BATCH)
        for run in runs:
            while waiting and waiting[0].first < slot_of(run.slot):
                yield waiting.popleft()
            yield Entry(slot_of(run.slot), slot_of(run.slot), 1, fate_of(run), stretch, run=run)
        if len(runs) < BATCH:
            break
        since = Instant(runs[-1].slot + 1)
    for entry in waiting:
        yield entry


def _dropped(stretch: Stretch, one: DroppedRange, low: int, high: int) -> Entry | None:
    """The part of a range that lies in low < slot <= high."""
    begin, end = int(slot_of(one.first)), int(slot_of(one.last))
    if begin > low and end <= high:
        return Entry(begin, end, one.count, Fate.DROPPED, stretch, dropped=one)
    part = next(_gap(stretch, max(low, begin - 1), min(high, end), Fate.DROPPED), None)
    return None if part is None else Entry(part.first, part.last, part.count, Fate.DROPPED, stretch, dropped=one)


def fate_of(run: SlotRun) -> Fate:
    if run.status is RunStatus.SKIPPED:
        return Fate.SKIPPED
    if run.status is RunStatus.CANCELED:
        return Fate.CANCELED
    if run.status is RunStatus.SCHEDULED:
        return Fate.WAITING
    return Fate.RAN if run.end_time is not None else Fate.RUNNING
