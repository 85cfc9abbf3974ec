"""Calendars: what a change of one does to the tasks that use it, and that no slot is lost or planned twice by it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from conformance.store.builders import Node, cron, disable, edit, enable, http, reread, runs_of
from noonbell.clock import SECOND, Instant, ManualClock, from_datetime, rfc3339
from noonbell.errors import InvalidArgument, InvalidState, NotFound, VersionConflict
from noonbell.model.calendar import (
    CalendarChange,
    CalendarSaved,
    CalendarSpec,
    IcalSource,
    TaskCalendar,
    WhenClosed,
)
from noonbell.model.run import RunStatus, SkipReason
from noonbell.model.task import MisfirePolicy, Task, TaskStatus
from noonbell.ports import Store
from noonbell.service.consistency import audit
from noonbell.service.explain import Explain
from noonbell.service.preview import next_fires
from noonbell.service.timeline import coming
from noonbell.stores.sql import calendars

WEEKEND = CalendarSpec(closed_weekdays=(0, 6))
NINE = cron("0 0 9 * * *")


def moment(text: str) -> Instant:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


async def save(store: Store, name: str = "c", spec: CalendarSpec = WEEKEND, **more: Any) -> CalendarSaved:
    return await store.save_calendar(CalendarChange(name=name, spec=spec, **more), by="ann")


def kept(when_closed: WhenClosed, name: str = "c", **more: Any) -> TaskCalendar:
    return TaskCalendar(name=name, when_closed=when_closed, **more)


async def told(store: Store, task: Task) -> list[tuple[str, str]]:
    """(slot, what became of it), in the order of the slots."""
    runs = sorted(await runs_of(store, task), key=lambda run: run.scheduled_time)
    found = []
    for run in runs:
        moved = "" if run.moved_to is None else f" at {_short(run.moved_to)}"
        what = f"skip {run.skip_reason}" if run.status is RunStatus.SKIPPED else "run"
        found.append((_short(run.scheduled_time), what + moved))
    return found


def _short(at: Instant) -> str:
    return rfc3339(at)[5:16].replace("T", " ")


async def walk(store: Store, clock: ManualClock, *times: str) -> None:
    for text in times:
        clock.set(moment(text))
        while (await store.plan(10)).tasks:
            pass


async def is_sound(store: Store) -> None:
    report = await audit(store)
    assert report.is_sound, report.flaws


# 2026-01-01 is a Thursday; the clock stands at 10:00 then.


async def test_a_closed_day_is_a_skip_with_its_reason(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    await walk(store, clock, "2026-01-02T09:00", "2026-01-03T09:00", "2026-01-05T09:00")
    assert await told(store, task) == [
        ("01-02 09:00", "run"),
        ("01-03 09:00", "skip calendar"),
        ("01-04 09:00", "skip calendar"),
        ("01-05 09:00", "run"),
    ]
    await is_sound(store)


async def test_moved_slots_keep_their_identity_and_say_where_they_went(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
    await walk(store, clock, "2026-01-02T09:00", "2026-01-03T12:00")
    assert await told(store, task) == [("01-02 09:00", "run")]
    await walk(store, clock, "2026-01-05T09:00")
    assert await told(store, task) == [
        ("01-02 09:00", "run"),
        ("01-03 09:00", "run at 01-05 09:00"),
        ("01-04 09:00", "run at 01-05 09:00"),
        ("01-05 09:00", "run"),
    ]
    await is_sound(store)


async def test_a_slot_may_be_moved_to_before_its_own_time(store: Store, clock: ManualClock) -> None:
    await save(store)
    monthly = {"type": "monthly", "day": 1, "time": "09:00:00"}
    task = await store.create_task(http(schedule=monthly, calendar=kept(WhenClosed.PREVIOUS_OPEN_DAY)))
    assert task.next_fire_at == moment("2026-01-30T09:00")  # 1 February is a Sunday
    await walk(store, clock, "2026-01-30T09:00")
    assert await told(store, task) == [("02-01 09:00", "run at 01-30 09:00")]
    assert (await reread(store, task)).next_fire_at == moment("2026-02-27T09:00")
    await is_sound(store)


async def test_a_change_leaves_out_what_is_accounted_for(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
    await walk(store, clock, "2026-01-05T09:00")
    done = await told(store, task)
    saved = await save(store, spec=CalendarSpec(closed_weekdays=(0, 6), closed=("2026-01-05",)))
    assert saved.tasks == (task.id,)
    assert saved.calendar.revision == 2
    await walk(store, clock, "2026-01-06T09:00", "2026-01-07T09:00")
    assert await told(store, task) == [*done, ("01-06 09:00", "run"), ("01-07 09:00", "run")]
    await is_sound(store)


async def test_a_change_that_puts_a_slot_into_the_past_plans_it_late(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.PREVIOUS_OPEN_DAY)))
    await walk(store, clock, "2026-01-05T12:00")
    clock.set(moment("2026-01-05T13:00"))
    await save(store, spec=CalendarSpec(closed_weekdays=(0, 6), closed=("2026-01-06",)))
    assert (await reread(store, task)).next_fire_at == moment("2026-01-05T09:00")
    await walk(store, clock, "2026-01-05T13:00")
    assert ("01-06 09:00", "run at 01-05 09:00") in await told(store, task)
    await walk(store, clock, "2026-01-06T12:00", "2026-01-07T12:00")
    assert len({slot for slot, _ in await told(store, task)}) == len(await told(store, task))
    await is_sound(store)


async def test_slots_up_to_now_are_accounted_for_under_the_old_revision(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    clock.set(moment("2026-01-03T12:00"))
    await save(store, spec=CalendarSpec())
    assert await told(store, task) == [("01-02 09:00", "run"), ("01-03 09:00", "skip calendar")]
    await walk(store, clock, "2026-01-04T12:00")
    assert (await told(store, task))[-1] == ("01-04 09:00", "run")
    await is_sound(store)


async def test_a_change_that_is_cut_off_has_changed_neither_the_calendar_nor_a_task(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(Exception):
        """As if the node ended before the commit."""

    def die(name: str) -> None:
        assert name == "K36"
        raise Death

    await save(store)
    tasks = [
        await store.create_task(http(name=name, schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
        for name in ("a", "b")
    ]
    with monkeypatch.context() as patch:
        patch.setattr(calendars.failpoint, "hit", die)
        with pytest.raises(Death):
            await save(store, spec=CalendarSpec(closed=("2026-01-02",)))
    found = await store.calendar("c")
    assert found is not None
    assert (found.revision, found.spec) == (1, WEEKEND)
    assert [await reread(store, task) for task in tasks] == tasks
    await walk(store, clock, "2026-01-02T09:00")
    assert [await told(store, task) for task in tasks] == [[("01-02 09:00", "run")]] * 2
    await is_sound(store)


async def test_a_calendar_taken_away_does_not_run_a_slot_again(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.PREVIOUS_OPEN_DAY)))
    await walk(store, clock, "2026-01-02T09:00")
    assert len(await told(store, task)) == 3
    await edit(store, task, calendar=None)
    await walk(store, clock, "2026-01-03T12:00", "2026-01-04T12:00", "2026-01-05T12:00")
    assert await told(store, task) == [
        ("01-02 09:00", "run"),
        ("01-03 09:00", "run at 01-02 09:00"),
        ("01-04 09:00", "run at 01-02 09:00"),
        ("01-05 09:00", "run"),
    ]
    await is_sound(store)


async def test_an_enabled_task_starts_from_now(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
    await walk(store, clock, "2026-01-02T09:00")
    await disable(store, task)
    clock.set(moment("2026-01-03T12:00"))
    await enable(store, task)
    await walk(store, clock, "2026-01-05T09:00")
    assert await told(store, task) == [
        ("01-02 09:00", "run"),
        ("01-04 09:00", "run at 01-05 09:00"),
        ("01-05 09:00", "run"),
    ]
    await is_sound(store)


async def test_a_change_reaches_a_task_that_is_off(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.PREVIOUS_OPEN_DAY)))
    await walk(store, clock, "2026-01-02T09:00")
    await disable(store, task)
    await save(store, spec=CalendarSpec())
    await enable(store, task)
    await walk(store, clock, "2026-01-03T12:00", "2026-01-05T12:00")
    assert [slot for slot, _ in await told(store, task)] == ["01-02 09:00", "01-03 09:00", "01-04 09:00", "01-05 09:00"]
    assert (await reread(store, task)).calendar_use is not None
    await is_sound(store)


async def test_repeat_counts_nominal_slots(store: Store, clock: ManualClock) -> None:
    await save(store)
    three = {"type": "cron", "expr": "0 0 9 * * *", "repeat": 3}
    task = await store.create_task(http(schedule=three, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
    await walk(store, clock, "2026-01-02T09:00", "2026-01-05T09:00", "2026-01-06T09:00")
    assert [slot for slot, _ in await told(store, task)] == ["01-02 09:00", "01-03 09:00", "01-04 09:00"]
    assert (await reread(store, task)).status is TaskStatus.COMPLETED
    await is_sound(store)


async def test_the_bounds_of_a_task_are_nominal(store: Store, clock: ManualClock) -> None:
    await save(store)
    spec = http(schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY), end_at=moment("2026-01-03T23:00"))
    task = await store.create_task(spec)
    await walk(store, clock, "2026-01-02T09:00", "2026-01-05T09:00", "2026-01-07T09:00")
    assert [slot for slot, _ in await told(store, task)] == ["01-02 09:00", "01-03 09:00"]
    await is_sound(store)


async def test_lateness_goes_by_the_effective_time(store: Store, clock: ManualClock) -> None:
    await save(store)
    spec = http(schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY), misfire_policy=MisfirePolicy.SKIP)
    task = await store.create_task(spec)
    await walk(store, clock, "2026-01-02T09:00:00", "2026-01-05T09:00:05")
    assert await told(store, task) == [("01-02 09:00", "run"), ("01-05 09:00", "run")]
    dropped = await store.dropped(task.id, moment("2026-01-03T00:00"), moment("2026-01-05T00:00"))
    assert [(_short(one.first), _short(one.last), one.count) for one in dropped] == [("01-03 09:00", "01-04 09:00", 2)]
    await is_sound(store)


async def test_a_long_downtime_costs_ranges_and_not_rows(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=cron("0 * * * * *"), calendar=kept(WhenClosed.SKIP)))
    await walk(store, clock, "2026-01-30T09:00")
    found = await told(store, task)
    assert sum(what == "run" for _, what in found) == 100
    assert sum(what == "skip calendar" for _, what in found) == 100
    report = await audit(store)
    assert report.is_sound, report.flaws
    assert report.dropped == 28 * 1440 + 23 * 60 - 200


async def test_a_task_names_a_calendar_that_is_there(store: Store) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    assert list(caught.value.details) == ["calendar.name"]
    task = await store.create_task(http(schedule=NINE))
    with pytest.raises(InvalidArgument):
        await edit(store, task, calendar=kept(WhenClosed.SKIP, name="nowhere"))


async def test_a_used_calendar_is_not_deleted(store: Store) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    with pytest.raises(InvalidState):
        await store.delete_calendar("c")
    await edit(store, task, calendar=None)
    await store.delete_calendar("c")
    assert await store.calendar("c") is None
    with pytest.raises(NotFound):
        await store.delete_calendar("c")
    assert (await save(store)).calendar.revision == 2


async def test_a_change_names_the_revision_that_it_knows(store: Store) -> None:
    await save(store, expect_revision=0)
    with pytest.raises(VersionConflict):
        await save(store, spec=CalendarSpec(), expect_revision=0)
    with pytest.raises(VersionConflict):
        await save(store, spec=CalendarSpec(), expect_revision=2)
    assert (await save(store, spec=CalendarSpec(), expect_revision=1)).calendar.revision == 2


async def test_saving_the_same_writes_nothing(store: Store, clock: ManualClock) -> None:
    await save(store)
    task = await store.create_task(http(schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    saved = await save(store)
    assert (saved.is_changed, saved.tasks, saved.calendar.revision) == (False, (), 1)
    described = await save(store, spec=CalendarSpec(description="more words", closed_weekdays=(0, 6)))
    assert (described.is_changed, described.tasks, described.calendar.revision) == (True, (), 1)
    assert (await reread(store, task)).version == 1


async def test_only_one_node_fetches_a_source(store: Store, another_node: Node, clock: ManualClock) -> None:
    source = IcalSource(url="http://127.0.0.1/x.ics", refresh_seconds=600)
    await save(store, spec=CalendarSpec(ical=source), ical_days=("2026-12-25",))
    assert await store.due_refreshes() == []
    clock.advance(600)
    ((name, due_at),) = await store.due_refreshes()
    node = await another_node()
    until = Instant(await store.now() + 60 * SECOND)
    taken = await asyncio.gather(store.take_refresh(name, due_at, until), node.take_refresh(name, due_at, until))
    assert sorted(taken) == [False, True]
    await store.note_refresh(name, "it returned 500", until)
    found = await store.calendar("c")
    assert found is not None
    assert (found.ical_error, found.ical_days) == ("it returned 500", ("2026-12-25",))


async def test_a_task_that_takes_up_a_calendar_while_it_changes_has_its_newest_revision(
    store: Store, another_node: Node
) -> None:
    await save(store)
    node = await another_node()

    async def change() -> None:
        for number in range(1, 9):
            await save(node, spec=CalendarSpec(closed=(f"2026-03-{number:02d}",)))

    async def take_up() -> list[Task]:
        return [
            await store.create_task(http(f"t{number}", schedule=NINE, calendar=kept(WhenClosed.SKIP)))
            for number in range(8)
        ]

    _, tasks = await asyncio.gather(change(), take_up())
    newest = await store.calendar("c")
    assert newest is not None
    for task in tasks:
        use = (await reread(store, task)).calendar_use
        assert use is not None
        assert use.revision == newest.revision
    await is_sound(store)


async def test_preview_timeline_and_planner_agree(store: Store, clock: ManualClock) -> None:
    await save(store, spec=CalendarSpec(closed_weekdays=(0, 6), closed=("2026-01-06",), open=("2026-01-10",)))
    for number, mode in enumerate(WhenClosed):
        task = await store.create_task(http(f"t{number}", schedule=NINE, calendar=kept(mode)))
        until = moment("2026-01-20T00:00")
        shown = [fire["utc"] for fire in next_fires(task, 100) if fire["utc"] < rfc3339(until)]
        lane = [rfc3339(Instant(at * SECOND)) for at in coming(task, clock.now(), until, 100)]
        assert shown == lane
    clock.set(moment("2026-01-19T23:00"))
    while (await store.plan(10)).tasks:
        pass
    for number in range(len(WhenClosed)):
        planned = await store.task_named(f"t{number}")
        assert planned is not None
        runs = [run for run in await runs_of(store, planned) if run.status is not RunStatus.SKIPPED]
        at = sorted(rfc3339(run.scheduled_time if run.moved_to is None else run.moved_to) for run in runs)
        fresh = await store.task_versions(planned.id)
        assert len(fresh) == 1
        expected = {
            WhenClosed.SKIP: 12,
            WhenClosed.RUN: 18,
        }.get(list(WhenClosed)[number])
        assert expected is None or len(at) == expected
    await is_sound(store)


async def test_explain_says_calendar_and_where_a_slot_moved(store: Store, clock: ManualClock) -> None:
    await save(store)
    moved = await store.create_task(http("moved", schedule=NINE, calendar=kept(WhenClosed.NEXT_OPEN_DAY)))
    closed = await store.create_task(http("closed", schedule=NINE, calendar=kept(WhenClosed.SKIP)))
    explain = Explain(store)
    to_come = await explain.of_task(closed, moment("2026-01-03T09:00"))
    assert (to_come["cause"], to_come["policy"]) == ("calendar", {"calendar": kept(WhenClosed.SKIP)})
    waits = await explain.of_task(moved, moment("2026-01-03T09:00"))
    assert waits["cause"] == "waiting"
    assert "2026-01-03 09:00:00" in waits["message"]
    assert "2026-01-05 09:00:00" in waits["message"]
    await walk(store, clock, "2026-01-05T09:00")
    assert (await explain.of_task(closed, moment("2026-01-03T09:00")))["cause"] == "calendar"
    ran = await explain.of_task(moved, moment("2026-01-04T09:00"))
    assert ran["slot"] == "2026-01-04T09:00:00Z"
    assert "2026-01-05 09:00:00" in ran["message"]


async def test_a_skip_by_calendar_is_no_misfire(store: Store, clock: ManualClock) -> None:
    await save(store)
    spec = http(schedule=NINE, calendar=kept(WhenClosed.SKIP), misfire_policy=MisfirePolicy.FIRE_ONCE)
    task = await store.create_task(spec)
    await walk(store, clock, "2026-01-04T12:00")
    assert await told(store, task) == [
        ("01-02 09:00", "run"),
        ("01-03 09:00", f"skip {SkipReason.CALENDAR}"),
        ("01-04 09:00", f"skip {SkipReason.CALENDAR}"),
    ]
    await is_sound(store)
