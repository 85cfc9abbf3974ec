"""The timeline: past runs and coming slots of tasks in a stretch of time, a page of tasks at a time; and its JSON.

The work grows with the tasks of the page, not with all their runs: each task is asked for its newest runs, and what lies
further back is counted from its slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import Annotated, Any, ClassVar, Final, TypeAlias, cast

import msgspec

from noonbell.clock import SECOND, Instant, slot_of
from noonbell.fields import FROM_TO, Moment, filled, meta, plain
from noonbell.model.account import SlotRun
from noonbell.model.request import RunQuery, TaskQuery
from noonbell.model.run import DroppedRange, Origin, Run, RunId, RunStatus
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.policy.account import bounds_of, remaining_of
from noonbell.policy.calendar import placement_under
from noonbell.policy.slot_history import State, schedule_of, version_spans
from noonbell.ports import Store
from noonbell.service.filters import PageNumber, TaskFilter, cursor_at, from_the_top
from noonbell.when.due import first, jitter
from noonbell.when.schedule import Schedule

MOST_RUNS: Final = 100
"""Of one task, each with its own length; those before them are known by their slots."""
MOST_SLOTS: Final = 125
"""Of one task to come: one that fires more often is a band."""
MOST_TASKS: Final = 1_000
"""The nearest of them, whose starts to come are counted."""
LONGEST: Final = 32 * 86_400 * SECOND
"""A stretch that is looked at in one go."""
FAILED: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT)
_OF_SLOTS: Final = (Origin.SCHEDULE, Origin.UPSTREAM)
_FOR_MEDIAN: Final = 20
_AT_ONCE: Final = 8
"""Tasks that are looked into side by side."""
_BUDGET: Final = 30_000
"""Slots that are worked out for one look at the load."""
_FAR: Final = Instant(2**53)

Known: TypeAlias = dict[tuple[Schedule, int], list[int]]
"""Slots that have been worked out, by schedule and cursor."""


@dataclass(frozen=True, slots=True)
class Off:
    """A stretch in which the task, its queue or everything stood still."""

    since: Instant
    until: Instant | None
    reason: str
    """What the task was: `disabled`, `completed`, `error`, `deleted`; or `queue` and `everything`, while that was paused."""
    by: str | None
    because: str = ""
    """Why the task, or everything, was paused."""


@dataclass(slots=True)
class Lane:
    """One task over the stretch."""

    task: Task
    runs: list[Run] = field(default_factory=list)
    """Newest first."""
    before: list[SlotRun] = field(default_factory=list)
    """What the slots became that lie before those runs; oldest first."""
    is_cut: bool = False
    """There is more between `before` and `runs` than anybody wants to read."""
    dropped: list[DroppedRange] = field(default_factory=list)
    off: list[Off] = field(default_factory=list)
    planned: list[int] = field(default_factory=list)
    """Slots to come, in epoch seconds, one more than `MOST_SLOTS` where there are more."""
    usual: int | None = None
    """The median of how long its newest runs took, in microseconds."""

    @property
    def is_dense(self) -> bool:
        return len(self.planned) > MOST_SLOTS

    def counts(self, since: Instant, until: Instant, step: int) -> Mapping[int, int]:
        """How many slots are to come of a task that is too dense to list them, by the second that a step begins with."""
        schedule = schedule_of(self.task.spec)
        if schedule is None:
            return {}
        if self.task.calendar_use is not None:
            return _counts_under_calendar(self.task, schedule, since, until, step)
        soonest = max(-(-since // SECOND), self.planned[0])
        latest = until if self.task.spec.end_at is None else min(until, self.task.spec.end_at)
        return counts_of(schedule, soonest, latest // SECOND, step)

    @property
    def overlaps(self) -> bool:
        """Whether a run of the usual length would not be over when the next slot comes."""
        if self.usual is None or len(self.planned) < 2:
            return False
        gap = min(after - before for before, after in pairwise(self.planned))
        return self.usual > gap * SECOND


@dataclass(frozen=True, slots=True)
class Load:
    """Starts to come, in epoch seconds, moved by the tasks' jitter."""

    slots: dict[TaskId, list[int]]
    """By task; those that fire too often to be listed are left out."""
    counts: dict[int, int]
    """By the second that a step begins with, all tasks together."""
    names: dict[TaskId, str]
    counted: int
    """Tasks that were looked at, the nearest first."""
    total: int
    """Tasks that are on."""
    jitters: dict[TaskId, int] = field(default_factory=dict)
    """Seconds, of those that have a jitter."""


class Timelines:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def lanes(
        self, query: TaskQuery, since: Instant, until: Instant, now: Instant
    ) -> tuple[list[Lane], int | None]:
        """A page of tasks over the stretch, and how many tasks there are in all."""
        page = await self._store.tasks(query)
        queues = sorted({task.spec.queue for task in page.items})
        everything = [
            Off(each.since, each.until, "everything", each.by, each.reason)
            for each in await self._store.installation_pauses(since, until)
        ]
        stood = {
            queue: [
                *(
                    Off(each.since, each.until, "queue", each.by, each.reason)
                    for each in await self._store.pauses(queue, since, until)
                ),
                *everything,
            ]
            for queue in queues
        }
        lately = await self._lately(page.items, since, until, now)
        known: Known = {}
        found: list[Lane] = []
        for start in range(0, len(page.items), _AT_ONCE):
            some = page.items[start : start + _AT_ONCE]
            found += await asyncio.gather(
                *(self._lane(task, lately.get(task.id), stood[task.spec.queue], since, until, now) for task in some)
            )
        if until > now:
            for lane in found:
                lane.planned = _shared(lane.task, max(since, now), until, known)
                await asyncio.sleep(0)  # others have their turn
        return found, page.total

    async def _lately(
        self, tasks: Sequence[Task], since: Instant, until: Instant, now: Instant
    ) -> dict[TaskId, list[Run]]:
        """The newest runs of all of them at once, where it is the newest that are shown."""
        if until < now:
            return {}
        return await self._store.newest_runs([task.id for task in tasks], MOST_RUNS if since < now else _FOR_MEDIAN)

    async def _lane(
        self,
        task: Task,
        lately: list[Run] | None,
        pauses: Sequence[Off],
        since: Instant,
        until: Instant,
        now: Instant,
    ) -> Lane:
        lane = Lane(task)
        if since < now:
            runs = await self._before(task.id, until) if lately is None else lately
            await self._recall(lane, runs, since, min(until, now))
            lane.dropped = await self._store.dropped(task.id, since, until)
            lane.off = await self._stood_still(task, since, until)
            lane.off += pauses
        elif task.next_fire_at is not None:
            lane.usual = usual(lately or ())
        return lane

    async def _before(self, task_id: TaskId, until: Instant) -> list[Run]:
        """The newest of those that were there by then."""
        cursor = from_the_top("-id")
        later = await self._store.slot_runs(task_id, Instant(until + 1), _FAR, 1)
        if later:
            cursor = cursor_at("-id", later[0].run_id, later[0].run_id)
        return (await self._store.runs(RunQuery(task_id=task_id, page_size=MOST_RUNS, cursor=cursor))).items

    async def _recall(self, lane: Lane, runs: Sequence[Run], since: Instant, until: Instant) -> None:
        """What ran: the newest with all that is known of them, those before by their slots."""
        lane.usual = usual(runs)
        lane.runs = [run for run in runs if run.scheduled_time <= until and _touches(run, since)]
        # A retry or a backfill repeats a slot of long ago, and says nothing of how far back these runs go.
        oldest = min((run.scheduled_time for run in runs if run.origin in _OF_SLOTS), default=until)
        if len(runs) == MOST_RUNS and oldest > since:
            lane.before = await self._store.slot_runs(lane.task.id, since, Instant(oldest - 1))
            lane.is_cut = len(lane.before) == 1_000

    async def _stood_still(self, task: Task, since: Instant, until: Instant) -> list[Off]:
        """A task at its first version has been on from the start, or off."""
        if task.version == 1 and task.status is TaskStatus.ENABLED:
            return []
        lived = version_spans(task, await self._store.task_versions(task.id))
        found: dict[Instant, Off] = {}
        for place, stretch in enumerate(lived):
            end = lived[place + 1].valid_from if place + 1 < len(lived) else None
            if stretch.state is not State.ON and stretch.valid_from <= until and (end is None or end >= since):
                known = found.get(stretch.since)
                begin = stretch.since if known is None else known.since
                because = "" if stretch.pause is None else stretch.pause.reason
                found[stretch.since] = Off(begin, end, str(stretch.state), stretch.by, because)
        return list(found.values())

    # All tasks together

    async def load(self, since: Instant, until: Instant, step: int = 3_600) -> Load:
        """The starts to come of the nearest tasks; where that is too much work, of as many as can be done."""
        page = await self._store.tasks(TaskQuery(sort="next_fire_at", page_size=MOST_TASKS, status=TaskStatus.ENABLED))
        slots: dict[TaskId, list[int]] = {}
        counts: Counter[int] = Counter()
        known: Known = {}
        often: Counter[Schedule] = Counter()
        spent, looked = 0, len(page.items)
        for place, task in enumerate(page.items):
            if task.next_fire_at is None or task.next_fire_at > until:  # and none of those behind it
                looked = page.total or 0
                break
            if spent >= _BUDGET:
                looked = place
                break
            found = _shared(task, since, until, known)
            spent += len(found)
            if len(found) > MOST_SLOTS and (schedule := schedule_of(task.spec)) is not None:
                if task.calendar_use is not None:
                    counts.update(_counts_under_calendar(task, schedule, since, until, step))
                else:
                    often[schedule] += 1
            else:
                slots[task.id] = _spread(task, found)
                counts.update(slot // step * step for slot in slots[task.id])
            await asyncio.sleep(0)  # others have their turn: all of it may take seconds
        for schedule, tasks in often.items():
            await asyncio.sleep(0)
            for at, count in counts_of(schedule, -(-since // SECOND), until // SECOND, step).items():
                counts[at] += tasks * count
        names = {task.id: task.name for task in page.items}
        jitters = {task.id: task.spec.jitter_seconds for task in page.items if task.spec.jitter_seconds}
        return Load(slots, dict(counts), names, looked, page.total or 0, jitters)

    async def started(self, since: Instant, until: Instant, seconds: int) -> dict[Instant, int]:
        """How many slots of all tasks became runs or skips, by stretches of `seconds`."""
        return await self._store.slot_counts(since, until, seconds)

    async def planned_by_day(self, edges: Sequence[int]) -> tuple[list[int], int, int]:
        """How many slots lie between one edge (epoch seconds) and the next; of how many tasks, and how many are on."""
        query = TaskQuery(sort="next_fire_at", page_size=MOST_TASKS, status=TaskStatus.ENABLED)
        page = await self._store.tasks(query)
        known: dict[Schedule, list[int]] = {}
        sums = [0] * (len(edges) - 1)
        for task in page.items:
            schedule = schedule_of(task.spec)
            if schedule is None or task.next_fire_at is None:
                continue
            is_plain = task.spec.start_at is None and task.spec.end_at is None and task.calendar_use is None
            if is_plain and schedule.repeat is None:
                if schedule not in known:
                    known[schedule] = [counted(schedule, *pair) for pair in pairwise(edges)]
                each = known[schedule]
            else:
                each = counted_of(task, schedule, edges)
            await asyncio.sleep(0)  # others have their turn: all of it may take seconds
            sums = [sum(pair) for pair in zip(sums, each, strict=True)]
        return sums, len(page.items), page.total or 0


def _touches(run: Run, since: Instant) -> bool:
    """Whether any of it lies in the stretch: a run that is not over reaches until now."""
    if run.scheduled_time >= since:
        return True
    return run.start_time is not None and (run.end_time is None or run.end_time >= since)


def usual(runs: Sequence[Run]) -> int | None:
    """How long it usually takes, in microseconds."""
    times = [run.end_time - run.start_time for run in runs if run.start_time is not None and run.end_time is not None]
    return median_low(times) if times else None


def counted(schedule: Schedule, start: int, stop: int) -> int:
    """Slots in start <= slot < stop. What depends on the end of a run cannot be counted ahead."""
    count = getattr(schedule, "count", None)
    return 0 if count is None or schedule.is_fixed_delay else int(count(start, stop))


def counted_of(task: Task, schedule: Schedule, edges: Sequence[int]) -> list[int]:
    """How many slots of a task lie between one edge and the next, from its cursor on, within bounds and repeat count."""
    if schedule.is_fixed_delay:
        slots = coming(task, Instant(edges[0] * SECOND), Instant(edges[-1] * SECOND - 1), 1)
        return [sum(low <= slot < high for slot in slots) for low, high in pairwise(edges)]
    bounds, cursor = bounds_of(task.spec), int(slot_of(task.next_fire_at or 0))
    if task.calendar_use is not None:
        placed = placement_under(task, schedule, bounds)
        limit = placed.limit(cursor, remaining_of(task, schedule))
        return [placed.count(max(low, cursor), high - 1, limit) for low, high in pairwise(edges)]
    first_edge = cursor if bounds.start_at is None else max(cursor, bounds.start_at)
    last_edge = edges[-1] if bounds.end_at is None else min(edges[-1], bounds.end_at + 1)
    left = None if schedule.repeat is None else _left_at(task, schedule, cursor, edges[0])
    found: list[int] = []
    for low, high in pairwise(edges):
        start, stop = max(low, first_edge), min(high, last_edge)
        count = counted(schedule, start, stop) if start < stop else 0
        if left is not None:
            count = min(count, left)
            left -= count
        found.append(count)
    return found


def _left_at(task: Task, schedule: Schedule, cursor: int, start: int) -> int:
    """What the repeat count leaves for slots from `start` on."""
    return max(0, (schedule.repeat or 0) - task.fired - (counted(schedule, cursor, start) if start > cursor else 0))


def counts_of(schedule: Schedule, start: int, stop: int, step: int) -> Mapping[int, int]:
    """Slots by the second that a step of the clock begins with."""
    return _counts_of(cast("Hashable", schedule), start, stop, step)


@lru_cache(maxsize=64)  # many tasks fire at the same times, and a page asks for each of them
def _counts_of(schedule: Any, start: int, stop: int, step: int) -> Mapping[int, int]:
    return {at: counted(schedule, max(at, start), at + step) for at in range(start // step * step, stop, step)}


def _counts_under_calendar(task: Task, schedule: Schedule, since: Instant, until: Instant, step: int) -> dict[int, int]:
    """Slots by the second that a step of the clock begins with, at the times that the calendar gives them."""
    cursor = int(slot_of(task.next_fire_at or 0))
    placed = placement_under(task, schedule, bounds_of(task.spec))
    limit = placed.limit(cursor, remaining_of(task, schedule))
    start, stop = max(-(-since // SECOND), cursor), until // SECOND
    return {at: placed.count(max(at, start), at + step - 1, limit) for at in range(start // step * step, stop, step)}


def coming(task: Task, since: Instant, until: Instant, most: int) -> list[int]:
    """The slots to come from its cursor on, as the planner will find them: within bounds and the repeat count.

    Under a calendar: when they are due, without those of closed days.
    """
    schedule = schedule_of(task.spec)
    if schedule is None or task.next_fire_at is None:
        return []
    cursor = int(slot_of(task.next_fire_at))
    start = max(cursor, -(-since // SECOND))
    left = None if schedule.repeat is None else _left_at(task, schedule, cursor, start)
    if schedule.is_fixed_delay:  # where it goes from there, its runs decide
        return [cursor] if start == cursor and cursor * SECOND <= until else []
    bounds = bounds_of(task.spec)
    found: list[int] = []
    if task.calendar_use is not None:
        placed = placement_under(task, schedule, bounds)
        for one in placed.open_from(cursor, remaining_of(task, schedule), start):
            if one.at * SECOND > until or len(found) >= most:
                break
            found.append(one.at)
        return found
    slot = first(schedule, bounds, start - 1)
    while slot is not None and slot * SECOND <= until and len(found) < most and left != len(found):
        found.append(slot)
        slot = first(schedule, bounds, slot)
    return found


def _shared(task: Task, since: Instant, until: Instant, known: Known) -> list[int]:
    """The same slots for tasks of the same schedule are worked out once."""
    schedule, spec = schedule_of(task.spec), task.spec
    is_plain = spec.start_at is None and spec.end_at is None and task.calendar_use is None
    if schedule is None or schedule.repeat is not None or not is_plain:
        return coming(task, since, until, MOST_SLOTS + 1)
    key = (schedule, int(task.next_fire_at or 0))
    if key not in known:
        known[key] = coming(task, since, until, MOST_SLOTS + 1)
    return known[key]


def _spread(task: Task, slots: list[int]) -> list[int]:
    most = task.spec.jitter_seconds
    return slots if not most else [slot + int(jitter(task.id, slot, most)) for slot in slots]


LARGEST_PAGE: Final = 200


class TimelineList(TaskFilter, frozen=True, kw_only=True, rename=FROM_TO):
    without: ClassVar[tuple[str, ...]] = ("status", "queue", "managed_by", "include_system")

    since: Annotated[Moment | None, meta("Start of the time range; twelve hours ago if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range, a day after `from` if left out; 32 days at most.")] = (
        None
    )
    page: PageNumber = 1
    page_size: Annotated[int, meta("Tasks per page.", ge=1, le=LARGEST_PAGE)] = 20


class RunOnTimeline(msgspec.Struct, frozen=True, kw_only=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    status: Annotated[RunStatus, meta(examples=["SUCCESS"])]
    scheduled_time: Moment
    start_time: Moment | None
    end_time: Moment | None


class EarlierRuns(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    failed: int
    more: bool


class DroppedSlots(msgspec.Struct, frozen=True, kw_only=True):
    first: Moment
    last: Moment
    count: int
    reason: str


class TimeOff(msgspec.Struct, frozen=True, kw_only=True):
    since: Moment
    until: Moment | None
    reason: str
    by: str | None


class TaskOnTimeline(msgspec.Struct, frozen=True, kw_only=True):
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["nightly-report"])]
    status: TaskStatus
    usual_ms: Annotated[int | None, meta("The median of how long its newest runs took.", examples=[1240])]
    runs: list[RunOnTimeline]
    earlier: Annotated[EarlierRuns, meta("Runs of the time range before those in `runs`.")]
    dropped: Annotated[list[DroppedSlots], meta(examples=[[]])]
    off: Annotated[list[TimeOff], meta("When the task or its queue was paused.", examples=[[]])]
    planned: Annotated[list[Moment], meta(examples=[["2026-11-16T02:00:00Z"]])]
    more_planned: bool
    overlap_risk: Annotated[bool, meta("A run of the usual length would still be running at the next slot.")]


class Timeline(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: Moment
    until: Moment
    items: list[TaskOnTimeline]
    total: Annotated[int | None, meta(examples=[1])]
    page: Annotated[int, meta(examples=[1])]
    page_size: Annotated[int, meta(examples=[20])]


def shown(lane: Lane) -> dict[str, Any]:
    return plain(
        TaskOnTimeline(
            task_id=lane.task.id,
            task_name=lane.task.name,
            status=lane.task.status,
            usual_ms=None if lane.usual is None else lane.usual // 1000,
            runs=[filled(RunOnTimeline, run, run_id=run.id) for run in lane.runs],
            earlier=EarlierRuns(
                count=len(lane.before), failed=sum(one.status in FAILED for one in lane.before), more=lane.is_cut
            ),
            dropped=[filled(DroppedSlots, one) for one in lane.dropped],
            off=[filled(TimeOff, one) for one in lane.off],
            planned=[Instant(slot * SECOND) for slot in lane.planned[:MOST_SLOTS]],
            more_planned=lane.is_dense,
            overlap_risk=lane.overlaps,
        )
    )
