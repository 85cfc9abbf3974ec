"""The consistency check of a whole store: every slot that was planned has exactly one outcome, and no row contradicts another.

The slots are worked out anew from the versions of each task, and compared with what was recorded, one after the other. So
neither a cursor that went astray nor a lost row can hide. Runs are read in batches; a task that changes during its check is
checked again, and only what is found twice is reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from noonbell.clock import Instant, instant_of, rfc3339, slot_of
from noonbell.model.access import Head
from noonbell.model.account import Inconsistency, InconsistencyKind, SlotRun
from noonbell.model.request import TaskQuery
from noonbell.model.run import FINAL, DroppedRange, RunStatus
from noonbell.model.task import Task, TaskStatus
from noonbell.model.task_schedule import WHEN_FIELDS
from noonbell.policy.audit_chain import LogState
from noonbell.policy.slot_history import State, VersionSpan
from noonbell.ports import Store
from noonbell.service.account import TaskHistory, runs_between, task_history
from noonbell.service.audit_log import AuditLog, in_words
from noonbell.service.filters import every
from noonbell.when.due import first

TOLD: Final = 1_000
"""Flaws that a report lists, at most. They are all counted."""
_BATCH: Final = 5_000
_BEFORE_ALL: Final = Instant(-(1 << 62))


@dataclass(slots=True)
class ConsistencyReport:
    tasks: int = 0
    slots: int = 0
    """That were due under some version of a task that was on."""
    runs: int = 0
    skipped: int = 0
    dropped: int = 0
    cleaned: int = 0
    """Whose runs retention has removed."""
    holes: int = 0
    doubles: int = 0
    others: int = 0
    flaws: list[Inconsistency] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not (self.holes or self.doubles or self.others)

    def add(self, flaw: Inconsistency, slots: int = 1) -> None:
        match flaw.kind:
            case InconsistencyKind.HOLE:
                self.holes += slots
            case InconsistencyKind.DOUBLE:
                self.doubles += slots
            case _:
                self.others += 1
        if len(self.flaws) < TOLD:
            self.flaws.append(flaw)

    def merge(self, other: ConsistencyReport) -> None:
        for name in ("tasks", "slots", "runs", "skipped", "dropped", "cleaned", "holes", "doubles", "others"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flaws += other.flaws[: TOLD - len(self.flaws)]


async def audit(store: Store, tell: Callable[[ConsistencyReport], None] | None = None) -> ConsistencyReport:
    """Check every task, deleted and built-in ones too. `tell` is called with the report after each task."""
    report = ConsistencyReport()
    for flaw in await store.flaws(TOLD):
        report.add(flaw)
    async for task in every(store.tasks, TaskQuery(include_deleted=True, include_system=True)):
        found = await audit_task(store, task)
        if not found.is_sound:
            found = await audit_task(store, task)  # it may have changed under our eyes
        report.merge(found)
        if tell is not None:
            tell(report)
    return report


async def check_log(log: AuditLog, report: ConsistencyReport, expected: Sequence[Head] = ()) -> LogState:
    """Whether the log of who changed what is as it was written, and still has what it had at the expected heads."""
    state = await log.check(expected)
    for flaw in state.flaws:
        report.add(Inconsistency(kind=InconsistencyKind.LOG, message=in_words(flaw)))
    return state


async def audit_task(store: Store, task: Task) -> ConsistencyReport:
    check = _Check(store, await task_history(store, task))
    await check.run()
    return check.report


class _Check:
    """The check of one task."""

    def __init__(self, store: Store, history: TaskHistory) -> None:
        self._store, self._history, self._task = store, history, history.task
        self._gone = 0
        """Slots without an outcome up to where retention has reached."""
        self._newest: SlotRun | None = None
        self._under_calendar: dict[int, tuple[VersionSpan, int]] = {}
        """By version, its last span and its slots with an outcome."""
        self.report = ConsistencyReport(tasks=1)

    async def run(self) -> None:
        born = self._history.stretches[0].after if self._history.stretches else 0
        await self._expect_none(_BEFORE_ALL, instant_of(born))
        for stretch in self._history.stretches:
            if stretch.counts and stretch.is_chained:
                await self._chained(stretch)
            elif stretch.counts:
                await self._counted(stretch)
            else:
                await self._expect_none(instant_of(stretch.after + 1), instant_of(stretch.until))
        for stretch, planned in self._under_calendar.values():
            self._check_fired(stretch, planned)
        self._check_cleaned()
        self._check_cursor()

    # A stretch whose slots can be worked out

    async def _counted(self, stretch: VersionSpan) -> None:
        end = self._end_of(stretch)
        at, left, planned = stretch.after, stretch.remaining, 0
        async for begin, last, record in self._records(stretch, end):
            if begin <= at and stretch.after < begin:
                self._flaw(InconsistencyKind.DOUBLE, f"slot {_told(begin)} has two outcomes")
                continue
            expected = self._next(stretch, at, left)
            if expected is None or (expected != begin and not stretch.names(begin)):
                self._stray(begin, record)
                continue
            if expected < begin:
                planned, left = self._hole(stretch, at, begin - 1, planned, left)
            count = 1 if isinstance(record, SlotRun) else self._range(stretch, record)
            planned, left, at = planned + count, None if left is None else left - count, last
            self._note(record)
        planned, left = self._hole(stretch, at, end, planned, left)
        self.report.slots += planned
        if stretch.placement is None:
            self._check_fired(stretch, planned)
        else:
            known = self._under_calendar.get(stretch.version, (stretch, 0))
            self._under_calendar[stretch.version] = (stretch, known[1] + planned)

    @staticmethod
    def _next(stretch: VersionSpan, at: int, left: int | None) -> int | None:
        if stretch.schedule is None or (left is not None and left <= 0):
            return None
        found = first(stretch.schedule, stretch.bounds, at)
        return found if found is not None and found <= stretch.until else None

    def _hole(
        self, stretch: VersionSpan, low: int, high: int, planned: int, left: int | None
    ) -> tuple[int, int | None]:
        """Slots in low < slot <= high that nothing was recorded of, if there are any."""
        expected = self._next(stretch, low, left)
        if expected is None or expected > high:
            return planned, left
        count = stretch.count(low, high)
        count = count if left is None else min(count, left)
        edge = int(slot_of(self._history.cleaned.last)) if self._history.cleaned.count else low
        removed = min(count, stretch.count(low, min(high, edge))) if edge > low else 0
        self._gone += removed
        if count > removed:
            text = f"{count - removed} slots from {_told(expected)} to {_told(high)} have no outcome"
            self._flaw(InconsistencyKind.HOLE, text, count - removed)
        return planned + count, None if left is None else left - count

    def _range(self, stretch: VersionSpan, one: DroppedRange) -> int:
        real = stretch.count(int(slot_of(one.first)) - 1, int(slot_of(one.last)))
        if real != one.count:
            kind = InconsistencyKind.HOLE if real > one.count else InconsistencyKind.DOUBLE
            text = f"the dropped range from {rfc3339(one.first)} to {rfc3339(one.last)} counts {one.count}, not {real}"
            self._flaw(kind, text, abs(real - one.count))
        return real

    def _end_of(self, stretch: VersionSpan) -> int:
        """Up to here its slots must have an outcome."""
        if stretch.placement is not None:
            return stretch.after if stretch.is_open else stretch.until
        return self._history.planned_to if stretch is self._history.stretches[-1] else stretch.until

    async def _records(self, stretch: VersionSpan, end: int) -> AsyncIterator[tuple[int, int, SlotRun | DroppedRange]]:
        """What was recorded of the stretch, as (first, last, record), in the order of the first slots."""
        since, until = instant_of(stretch.after + 1), instant_of(end)
        ranges = [one for one in await self._store.dropped(self._task.id, since, until) if one.first >= since]
        waiting = iter(ranges)
        next_range = next(waiting, None)
        async for run in runs_between(self._store, self._task.id, since, until, _BATCH):
            while next_range is not None and next_range.first <= run.slot:
                yield int(slot_of(next_range.first)), int(slot_of(next_range.last)), next_range
                next_range = next(waiting, None)
            yield int(slot_of(run.slot)), int(slot_of(run.slot)), run
        while next_range is not None:
            yield int(slot_of(next_range.first)), int(slot_of(next_range.last)), next_range
            next_range = next(waiting, None)

    # A stretch whose slots follow from its runs

    async def _chained(self, stretch: VersionSpan) -> None:
        planned = 0
        async for _, _, record in self._records(stretch, self._end_of(stretch)):
            planned += 1 if isinstance(record, SlotRun) else record.count
            self._note(record)
        self.report.slots += planned
        is_last = stretch is self._history.stretches[-1]
        over = self._newest is None or self._newest.status in FINAL
        if is_last and self._task.next_fire_at is None and over and not self._history.cleaned.count:
            self._flaw(InconsistencyKind.CURSOR, "its last run has ended, but no next slot is set")

    # What must not be there, and numbers that must agree

    async def _expect_none(self, since: Instant, until: Instant) -> None:
        async for run in runs_between(self._store, self._task.id, since, until, _BATCH):
            self._stray(int(slot_of(run.slot)), run)

    def _stray(self, slot: int, record: SlotRun | DroppedRange) -> None:
        """No slot of the stretch at hand. After a step back of the clock it may be one of another."""
        others = [one for one in self._history.stretches if one.counts and one.after < slot <= one.until]
        if any(one.is_chained or one.names(slot) for one in others):
            return
        what = f"run {record.run_id}" if isinstance(record, SlotRun) else "a dropped range"
        self._flaw(InconsistencyKind.STRAY, f"{what} is for {_told(slot)}, which is not a slot of the task")

    def _check_fired(self, stretch: VersionSpan, planned: int) -> None:
        """The repeat count goes on from version to version, unless the schedule or a return starts it anew."""
        if stretch.schedule is None or stretch.schedule.repeat is None:
            return
        later = [one for one in self._history.stretches if one.version > stretch.version]
        told = self._task.fired
        if later:
            following = min(later, key=lambda one: one.version)
            is_other = any(getattr(following.spec, name) != getattr(stretch.spec, name) for name in WHEN_FIELDS)
            if is_other or following.fired < stretch.fired:
                return
            told = following.fired
        if told != stretch.fired + planned:
            text = f"the repeat count says {told} slots; version {stretch.version} makes it {stretch.fired + planned}"
            self._flaw(InconsistencyKind.COUNTER, text)

    def _check_cleaned(self) -> None:
        removed = self._history.cleaned.count
        self.report.cleaned += min(self._gone, removed)
        if self._gone > removed:
            text = f"{self._gone} slots have no outcome where retention removed {removed}"
            self._flaw(InconsistencyKind.HOLE, text, self._gone - removed)

    def _check_cursor(self) -> None:
        task, newest = self._task, self._history.stretches[-1] if self._history.stretches else None
        if newest is None or newest.schedule is None or newest.is_chained:
            return
        if newest.state is State.ON and task.next_fire_at is None:
            self._flaw(InconsistencyKind.CURSOR, "it is enabled, but no next slot is set")
        if task.status is not TaskStatus.ENABLED and task.next_fire_at is not None:
            self._flaw(InconsistencyKind.CURSOR, f"it is {task.status}, and a next slot is set")

    def _note(self, record: SlotRun | DroppedRange) -> None:
        if isinstance(record, DroppedRange):
            self.report.dropped += record.count
            return
        self._newest = record
        if record.status is RunStatus.SKIPPED:
            self.report.skipped += 1
        else:
            self.report.runs += 1

    def _flaw(self, kind: InconsistencyKind, message: str, slots: int = 1) -> None:
        told = f"task {self._task.id} ({self._task.name}): {message}"
        self.report.add(Inconsistency(kind=kind, message=told, task_id=self._task.id), slots)


def _told(slot: int) -> str:
    return rfc3339(instant_of(slot))
