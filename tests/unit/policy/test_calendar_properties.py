"""Under any calendar and any sequence of changes, each slot is accounted for exactly once, when its calendar says so.

Beside the account walks an oracle that knows no cursor: it has the list of all slots, works out the effective time of each with
the standard library, and remembers which are done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell import when
from noonbell.clock import Instant, instant_of, slot_of
from noonbell.model.calendar import CalendarRules, TaskCalendar, WhenClosed
from noonbell.model.request import NewTask, TaskChange
from noonbell.model.run import SkipReason
from noonbell.model.task import MisfirePolicy, Task, TaskId, TaskSpec, TaskStatus
from noonbell.policy.account import DueRun, Facts, account, bounds_of, remaining_of
from noonbell.policy.calendar import Revision, placement_under
from noonbell.stores.sql.tasks import changed_by, new_task
from services.size import size

BEGIN = datetime(
    2026, 3, 6, 12, 0, tzinfo=UTC
)  # a Friday; both sides of the Atlantic change their clocks in the weeks after
DAYS = 40
SCHEDULES = (
    {"type": "cron", "expr": "0 0 9 * * *"},
    {"type": "cron", "expr": "0 30 2 * * *"},
    {"type": "cron", "expr": "0 0 */6 * * *"},
    {"type": "weekly", "weekday": 6, "time": "23:30:00"},
    {"type": "monthly", "day": 1, "time": "00:15:00"},
    {"type": "interval", "every": 90, "unit": "minute", "anchor": "2026-03-01T00:00:00Z"},
)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Shanghai")


def in_zone(wall: datetime, zone: ZoneInfo) -> int:
    """When the clock first shows a wall time; the end of the gap, where it never does. Found by looking at each quarter of an hour."""
    at = int(wall.replace(tzinfo=UTC).timestamp()) - 15 * 3600
    low = at - at % 900
    while datetime.fromtimestamp(low, zone).replace(tzinfo=None) < wall:
        low += 900
    while datetime.fromtimestamp(low - 1, zone).replace(tzinfo=None) == wall - timedelta(seconds=1):
        break
    shown = datetime.fromtimestamp(low, zone).replace(tzinfo=None)
    if shown == wall:
        return low
    for second in range(low - 900, low):
        if datetime.fromtimestamp(second, zone).replace(tzinfo=None) == wall:
            return second
    return low


@dataclass
class Oracle:
    slots: list[int]
    done: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    """Before its beginning, or not its own any more."""

    def is_open(self, day: date, rules: CalendarRules, invert: bool) -> bool:
        text = day.isoformat()
        held = text in rules.open or not (text in rules.closed or (day.isoweekday() % 7) in rules.closed_weekdays)
        return held is not invert

    def place(self, slot: int, spec: TaskSpec, rules: CalendarRules) -> tuple[int, bool]:
        """Its effective time, and whether it is closed."""
        kept = spec.calendar
        if kept is None or kept.when_closed is WhenClosed.RUN:
            return slot, False
        zone = ZoneInfo(rules.timezone or spec.timezone)
        local = datetime.fromtimestamp(slot, zone).replace(tzinfo=None)
        if self.is_open(local.date(), rules, kept.invert):
            return slot, False
        if kept.when_closed is WhenClosed.SKIP:
            return slot, True
        step = 1 if kept.when_closed is WhenClosed.NEXT_OPEN_DAY else -1
        for days in range(1, 15):
            moved = local + timedelta(days=step * days)
            if self.is_open(moved.date(), rules, kept.invert):
                return in_zone(moved, zone), False
        return slot, True

    def waiting(self, repeat_left: int | None) -> list[int]:
        there = [slot for slot in self.slots if slot not in self.done and slot not in self.outside]
        return there if repeat_left is None else there[:repeat_left]

    def start(self, now: int, spec: TaskSpec, rules: CalendarRules) -> None:
        self.outside |= {
            slot
            for slot in self.slots
            if slot not in self.done and (slot <= now or self.place(slot, spec, rules)[0] <= now)
        }


DAY_TEXTS = [(date(2026, 2, 20) + timedelta(days=number)).isoformat() for number in range(75)]
RULES = st.builds(
    CalendarRules,
    timezone=st.sampled_from((None, *ZONES)),
    closed_weekdays=st.sets(st.integers(0, 6), max_size=6).map(lambda days: tuple(sorted(days))),
    closed=st.sets(st.sampled_from(DAY_TEXTS), max_size=30).map(lambda days: tuple(sorted(days))),
    open=st.sets(st.sampled_from(DAY_TEXTS), max_size=8).map(lambda days: tuple(sorted(days))),
)
KEPT = st.one_of(
    st.none(),
    st.builds(TaskCalendar, name=st.just("c"), when_closed=st.sampled_from(WhenClosed), invert=st.booleans()),
)
STEP = st.tuples(
    st.integers(1, 96),  # hours until it
    st.sampled_from(("plan", "plan", "plan", "revise", "revise", "keep", "rename", "off", "on")),
    RULES,
    KEPT,
)


@pytest.mark.longer
@settings(max_examples=size(80, 4_000), deadline=None)
@given(
    schedule=st.sampled_from(SCHEDULES),
    timezone=st.sampled_from(ZONES),
    repeat=st.sampled_from((None, None, 1, 5, 12)),
    rules=RULES,
    kept=KEPT,
    steps=st.lists(STEP, min_size=1, max_size=14),
)
def test_each_slot_is_accounted_for_exactly_once(
    schedule: dict[str, object],
    timezone: str,
    repeat: int | None,
    rules: CalendarRules,
    kept: TaskCalendar | None,
    steps: list[tuple[int, str, CalendarRules, TaskCalendar | None]],
) -> None:
    spec = TaskSpec(
        name="t",
        schedule=when.normalise({**schedule, **({} if repeat is None else {"repeat": repeat})}, timezone),
        timezone=timezone,
        calendar=kept,
        target_url="http://127.0.0.1/",
        misfire_policy=MisfirePolicy.FIRE_NOW,
        max_concurrency=None,
    )
    named = when.parse(spec.schedule or {}, timezone)
    now = int(BEGIN.timestamp())
    oracle, at = Oracle([]), now - 20 * 86_400
    while (slot := named.next(at)) is not None and slot < now + (DAYS + 80) * 86_400:
        oracle.slots.append(slot)
        at = slot
    revision = Revision(1, rules)
    task = new_task(NewTask(spec=spec), TaskId(1), instant_of(now), revision)
    oracle.start(now, spec, rules)
    for hours, what, other_rules, other_kept in steps:
        now += hours * 3600 + 17
        task = _planned(task, oracle, now, revision)
        if task.status is TaskStatus.COMPLETED:
            assert not oracle.waiting(None if repeat is None else repeat - task.fired)
            return
        change = TaskChange(spec=task.spec, status=task.status)
        if what == "revise":
            revision = Revision(revision.number + 1, other_rules)
        elif what == "keep":
            change = TaskChange(spec=msgspec.structs.replace(task.spec, calendar=other_kept), status=task.status)
        elif what == "rename":
            change = TaskChange(spec=msgspec.structs.replace(task.spec, description=f"at {now}"), status=task.status)
        elif what in ("off", "on"):
            wanted = TaskStatus.DISABLED if what == "off" else TaskStatus.ENABLED
            if wanted is TaskStatus.ENABLED and task.status is not wanted:
                oracle.start(now, task.spec, revision.rules)
            change = TaskChange(spec=task.spec, status=wanted)
        if what != "plan":
            is_at = revision if change.spec.calendar is not None else Revision(0, CalendarRules())
            task = changed_by(task, change, instant_of(now), is_at)
        _agree(task, oracle, now, revision, repeat)


def _planned(task: Task, oracle: Oracle, now: int, revision: Revision) -> Task:
    schedule = when.parse(task.spec.schedule or {}, task.spec.timezone)
    if task.status is not TaskStatus.ENABLED:
        return task
    expected = {
        slot: placed
        for slot in oracle.waiting(remaining_of(task, schedule))
        if (placed := oracle.place(slot, task.spec, revision.rules))[0] <= now
    }
    result = account(task, schedule, Facts(), instant_of(now), cap=100_000)
    found = {one.slot: one for one in result.outcomes}
    assert len(found) == len(result.outcomes)
    assert not result.dropped
    assert {
        slot: (one.slot if one.at is None else one.at, not isinstance(one, DueRun)) for slot, one in found.items()
    } == expected
    assert all(isinstance(one, DueRun) or one.reason is SkipReason.CALENDAR for one in result.outcomes)
    oracle.done |= set(found)
    moved = Instant(
        max(
            task.accounted_to,
            result.accounted_to or 0,
            *(instant_of(one.slot) for one in result.outcomes if result.accounted_to is None),
            0,
        )
    )
    return msgspec.structs.replace(
        task,
        next_fire_at=result.next_fire_at,
        fired=result.fired,
        accounted_to=moved if result.outcomes else task.accounted_to,
        status=TaskStatus.COMPLETED if result.completed and task.next_fire_at is not None else task.status,
    )


def _agree(task: Task, oracle: Oracle, now: int, revision: Revision, repeat: int | None) -> None:
    """The cursor, and what a preview shows, are what the oracle expects next."""
    if task.status is not TaskStatus.ENABLED:
        return
    schedule = when.parse(task.spec.schedule or {}, task.spec.timezone)
    left = oracle.waiting(remaining_of(task, schedule))
    expected = sorted((*oracle.place(slot, task.spec, revision.rules), slot) for slot in left)
    assert task.next_fire_at == (instant_of(expected[0][0]) if expected else None)
    if task.next_fire_at is None:
        return
    placed = placement_under(task, schedule, bounds_of(task.spec))
    coming = placed.coming(slot_of(task.next_fire_at), remaining_of(task, schedule))
    horizon = now + 30 * 86_400
    wanted = [(at, slot, is_closed) for at, is_closed, slot in expected if at <= horizon]
    shown = []
    for one in coming:
        if one.at > horizon:
            break
        shown.append((one.at, one.slot, one.is_closed))
    assert shown == sorted(wanted)
    limit = placed.limit(slot_of(task.next_fire_at), remaining_of(task, schedule))
    counted = placed.count(slot_of(task.next_fire_at), horizon, limit)
    assert counted == sum(not is_closed for _, _, is_closed in wanted)
    assert repeat is None or len(left) <= repeat
