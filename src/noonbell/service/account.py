"""The account of a task over a stretch of time: the outcome of each slot that its versions named, and a page of them.

Runs come one by one; slots that share an outcome (dropped, off, removed by retention) come as ranges, counted and not listed.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, rfc3339, slot_of
from noonbell.fields import FROM_TO, Moment, meta, plain
from noonbell.model.account import CleanedSlots, SlotRun
from noonbell.model.run import DroppedRange, RunId, RunStatus
from noonbell.model.task import Task, TaskId
from noonbell.policy.slot_history import State, VersionSpan, version_spans
from noonbell.ports import Store
from noonbell.when import zones
from noonbell.when.due import first

BATCH: Final = 1_000
"""Runs that are read at once."""


class SlotOutcome(enum.StrEnum):
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
    """No node has planned it yet, though its time has come."""
    PLANNED = "planned"
    """It is to come."""
    CLEANED = "cleaned"
    """It had an outcome, which retention has removed."""
    MISSING = "missing"
    """A hole: must never be."""


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """`count` slots from `first` to `last`, in epoch seconds, that share an outcome."""

    first: int
    last: int
    count: int
    outcome: SlotOutcome
    stretch: VersionSpan
    run: SlotRun | None = None
    dropped: DroppedRange | None = None


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task with all that its account rests on, read together."""

    task: Task
    stretches: tuple[VersionSpan, ...]
    cleaned: CleanedSlots
    now: Instant

    @property
    def planned_to(self) -> int:
        """Up to here its slots have been accounted for."""
        if self.task.next_fire_at is not None:
            return int(slot_of(self.task.next_fire_at)) - 1
        return max(int(slot_of(self.task.accounted_to)), int(slot_of(self.now)))

    def at(self, slot: int) -> VersionSpan | None:
        """The stretch of the task's history that a moment falls into; None before there was one."""
        for stretch in reversed(self.stretches):
            if stretch.names(slot):
                return stretch
        return next((one for one in reversed(self.stretches) if one.after < slot <= one.until), None)


async def task_history(store: Store, task: Task) -> TaskHistory:
    """The task is read again, first: what is planned meanwhile lies beyond its cursor."""
    fresh = await store.task(task.id) or task
    versions = await store.task_versions(task.id)
    return TaskHistory(fresh, tuple(version_spans(fresh, versions)), await store.cleaned(task.id), await store.now())


async def entries(store: Store, history: TaskHistory, since: int, until: int) -> AsyncIterator[SlotEntry]:
    """Every slot in since <= slot <= until, in order, each in one entry."""
    done = since - 1
    for stretch in history.stretches:
        low, high = max(stretch.after, since - 1), min(stretch.until, until)
        if stretch.state is State.ON:
            if low < high:
                async for entry in _on(store, history, stretch, low, high):
                    yield entry
        else:
            for entry in _gap(stretch, max(low, done), high, SlotOutcome(stretch.state)):
                yield entry
        done = max(done, high)


def _gap(
    stretch: VersionSpan, low: int, high: int, outcome: SlotOutcome, most: int | None = None
) -> Iterator[SlotEntry]:
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
        yield SlotEntry(begin, end, count, outcome, stretch)


async def _on(
    store: Store, history: TaskHistory, stretch: VersionSpan, low: int, high: int
) -> AsyncIterator[SlotEntry]:
    """What was recorded, and the gaps between; then what is due or to come."""
    accounted = _accounted_to(history, stretch, low, high)
    at = low
    async for entry in _recorded(store, stretch, low, accounted):
        if _is_anothers(history, stretch, entry.first):
            continue
        for gap in _unrecorded(history, stretch, at, entry.first - 1):
            yield gap
        yield entry
        at = max(at, entry.last)
    left = None if stretch.remaining is None else max(0, stretch.remaining - stretch.count(stretch.after, at))
    for gap in _unrecorded(history, stretch, at, accounted, left):
        yield gap
    if (stretch.is_open or stretch is history.stretches[-1]) and accounted < high:
        for slot in _coming(history, stretch, max(accounted, low)):
            if slot > high:
                return
            is_to_come = stretch.effective(slot) > slot_of(history.now)
            yield SlotEntry(slot, slot, 1, SlotOutcome.PLANNED if is_to_come else SlotOutcome.DUE, stretch)


def _accounted_to(history: TaskHistory, stretch: VersionSpan, low: int, high: int) -> int:
    if stretch.placement is not None:
        return low if stretch.is_open else high
    return min(high, history.planned_to) if stretch is history.stretches[-1] else high


def _is_anothers(history: TaskHistory, stretch: VersionSpan, slot: int) -> bool:
    """After a step back of the clock, a later version may have slots before the end of an earlier one."""
    if stretch.is_chained or stretch.names(slot):
        return False
    return any(one.counts and one.names(slot) for one in history.stretches if one is not stretch)


def _unrecorded(
    history: TaskHistory, stretch: VersionSpan, low: int, high: int, most: int | None = None
) -> Iterator[SlotEntry]:
    edge = min(high, int(slot_of(history.cleaned.last))) if history.cleaned.count else low
    for begin, end, outcome in ((low, edge, SlotOutcome.CLEANED), (max(low, edge), high, SlotOutcome.MISSING)):
        for gap in _gap(stretch, begin, end, outcome, most):
            most = None if most is None else most - gap.count
            yield gap


def _coming(history: TaskHistory, stretch: VersionSpan, after: int) -> Iterator[int]:
    """From the cursor on: only the first for a fixed delay, whose next slots depend on runs to come."""
    cursor = history.task.next_fire_at
    if cursor is None:
        return
    if stretch.is_chained:
        if slot_of(cursor) > after:
            yield int(slot_of(cursor))
        return
    if stretch.placement is not None:
        yield from stretch.slots(after)
        return
    yield from stretch.slots(max(after, int(slot_of(cursor)) - 1))


async def _recorded(store: Store, stretch: VersionSpan, low: int, high: int) -> AsyncIterator[SlotEntry]:
    """Runs and dropped ranges in low < slot <= high, in the order of time."""
    if low >= high or stretch.schedule is None:
        return
    task_id, end = stretch.task_id, instant_of(high)
    ranges = [_dropped(stretch, one, low, high) for one in await store.dropped(task_id, instant_of(low + 1), end)]
    waiting = deque(entry for entry in ranges if entry is not None)
    async for run in runs_between(store, task_id, instant_of(low + 1), end):
        while waiting and waiting[0].first < slot_of(run.slot):
            yield waiting.popleft()
        yield SlotEntry(slot_of(run.slot), slot_of(run.slot), 1, slot_outcome(run), stretch, run=run)
    for entry in waiting:
        yield entry


async def runs_between(
    store: Store, task_id: TaskId, since: Instant, until: Instant, batch: int = BATCH
) -> AsyncIterator[SlotRun]:
    """The runs of the slots from `since` to `until`, in the order of time, read in batches."""
    while since <= until:
        runs = await store.slot_runs(task_id, since, until, batch)
        for run in runs:
            yield run
        if len(runs) < batch:
            return
        since = Instant(runs[-1].slot + 1)


def _dropped(stretch: VersionSpan, one: DroppedRange, low: int, high: int) -> SlotEntry | None:
    """The part of a range that lies in low < slot <= high."""
    begin, end = int(slot_of(one.first)), int(slot_of(one.last))
    if begin > low and end <= high:
        return SlotEntry(begin, end, one.count, SlotOutcome.DROPPED, stretch, dropped=one)
    part = next(_gap(stretch, max(low, begin - 1), min(high, end), SlotOutcome.DROPPED), None)
    return (
        None
        if part is None
        else SlotEntry(part.first, part.last, part.count, SlotOutcome.DROPPED, stretch, dropped=one)
    )


def slot_outcome(run: SlotRun) -> SlotOutcome:
    if run.status is RunStatus.SKIPPED:
        return SlotOutcome.SKIPPED
    if run.status is RunStatus.CANCELED:
        return SlotOutcome.CANCELED
    if run.status is RunStatus.SCHEDULED:
        return SlotOutcome.WAITING
    return SlotOutcome.RAN if run.end_time is not None else SlotOutcome.RUNNING


LARGEST_PAGE: Final = 1_000
DAY: Final = 86_400 * SECOND


class SlotList(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: Annotated[Moment | None, meta("Start of the time range; a day before `to` if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range, also in the future; now if left out.")] = None
    limit: Annotated[int, meta("The most items to return.", ge=1, le=LARGEST_PAGE)] = 100


class ShownSlot(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Slot"

    slot: Annotated[Moment, meta("The first of them.")]
    local: Annotated[str, meta("The same in the task's zone.", examples=["2026-11-15T10:30:00+08:00"])]
    last: Moment
    count: Annotated[int, meta(examples=[1])]
    outcome: Annotated[SlotOutcome, meta(examples=["skipped"])]
    reason: Annotated[str | None, meta("Why it was skipped or dropped.", examples=["overlap"])]
    run_id: Annotated[RunId | None, meta(examples=[7340033])]
    status: Annotated[RunStatus | None, meta(examples=["SKIPPED"])]
    actor: Annotated[str | None, meta("Who disabled the task.", examples=[None])]
    since: Annotated[Moment | None, meta(examples=[None])]
    task_version: Annotated[int, meta(examples=[1])]
    moved_to: Annotated[
        Moment | None, meta("Its day is closed, and the calendar moves it to this time.", examples=[None])
    ]


class SlotPage(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    items: list[ShownSlot]
    since: Moment
    until: Moment
    next_from: Annotated[Moment | None, meta("Where to continue for more.", examples=[None])]


class Slots:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, task: Task, since: Instant | None = None, until: Instant | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """Oldest first. Slots that share an outcome are one item with a count; `next_from` is where the next page begins.

        Left out, `until` is now, and `since` a day before it.
        """
        history = await task_history(self._store, task)
        until = history.now if until is None else until
        since = Instant(until - DAY) if since is None else since
        first, last = -(-since // SECOND), int(slot_of(until))
        found: list[SlotEntry] = []
        more = False
        async for entry in entries(self._store, history, first, last):
            if len(found) == limit:
                more = True
                break
            found.append(entry)
        return {
            "items": [shown(entry) for entry in found],
            "from": rfc3339(since),
            "to": rfc3339(until),
            "next_from": rfc3339(instant_of(found[-1].last + 1)) if more else None,
        }


def _moved_to(entry: SlotEntry) -> Instant | None:
    """Where a calendar has moved one slot. The slots of a range may go to several days."""
    if entry.count != 1 or entry.stretch.placement is None:
        return None
    placed = entry.stretch.placement.place(entry.first)
    return instant_of(placed.at) if placed.is_moved else None


def shown(entry: SlotEntry) -> dict[str, Any]:
    run, dropped, stretch = entry.run, entry.dropped, entry.stretch
    zone = zones.find(stretch.spec.timezone)
    reason = None if run is None else run.skip_reason
    is_off = stretch.state is not State.ON
    return plain(
        ShownSlot(
            slot=instant_of(entry.first),
            local=zone.local(entry.first).isoformat(),
            last=instant_of(entry.last),
            count=entry.count,
            outcome=entry.outcome,
            reason=reason if dropped is None else dropped.reason,
            run_id=None if run is None else run.run_id,
            status=None if run is None else run.status,
            actor=stretch.by if is_off else None,
            since=stretch.since if is_off else None,
            task_version=stretch.version,
            moved_to=_moved_to(entry),
        )
    )
