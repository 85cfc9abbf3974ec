"""Preview: what a schedule will do, before anything is saved and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, from_datetime, instant_of, rfc3339, slot_of
from noonbell.fields import FROM_TO, Moment, meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.calendar import MOST_QUIET, Calendar, QuietAction, QuietHours, TaskCalendar
from noonbell.model.task import Task, TaskSpec
from noonbell.model.task_schedule import ClockChanges
from noonbell.policy.account import bounds_of, remaining_of
from noonbell.policy.calendar import Revision, begin, placement_of, placement_under
from noonbell.policy.quiet import hours_problems, quiet_at
from noonbell.ports import Store
from noonbell.service.task_fields import MOST_SCHEDULES, Rules, ScheduleReader, check_calendar, check_zone, read_when
from noonbell.service.translation import language
from noonbell.when.calendar import Placed
from noonbell.when.cron_fields import CronDialect
from noonbell.when.due import Bounds, first, preview_of
from noonbell.when.schedule import Schedule
from noonbell.when.zones import Zone

MOST_FIRES: Final = 1_000
SHOWN_ON_SAVE: Final = 5


class Fire(msgspec.Struct, frozen=True):
    utc: Moment
    local: Annotated[str, meta(examples=["2026-11-15T10:35:00+08:00"])]
    moved_from: Annotated[
        Moment | msgspec.UnsetType,
        meta("Only where a calendar moves it: the slot, whose day is closed.", examples=["2026-11-14T02:35:00Z"]),
    ] = msgspec.UNSET
    quiet: Annotated[
        QuietAction | msgspec.UnsetType,
        meta("Only where it is in quiet hours of the task: whether its run is held or skipped.", examples=["hold"]),
    ] = msgspec.UNSET
    quiet_until: Annotated[
        Moment | msgspec.UnsetType,
        meta("Only where it is in quiet hours of the task: when they end.", examples=["2026-11-15T06:00:00Z"]),
    ] = msgspec.UNSET


class ShownNote(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Note"

    code: Annotated[str, meta("Stable.")]
    message: Annotated[str, meta("In the language of the caller.")]


class PreviewWrite(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    noun: ClassVar[str] = "a preview"
    example: ClassVar[dict[str, Any]] = {"cron_expr": "*/5 * * * *", "timezone": "Asia/Shanghai", "count": 5}

    schedule: Annotated[
        when.ScheduleSpec | None, meta("This, or its short form `cron_expr`.", anything=True, examples=[None])
    ] = None
    cron_expr: Annotated[str | None, meta("Short for a schedule of type cron.", anything=True, max_length=1_024)] = None
    cron_dialect: Annotated[
        CronDialect | None, meta("How `cron_expr` is read: standard, cronjob or quartz.", anything=True, default=None)
    ] = None
    schedules: Annotated[
        tuple[when.ScheduleSpec, ...],
        meta("Several schedules instead of `schedule`.", anything=True, max_length=MOST_SCHEDULES),
    ] = ()
    exclude: Annotated[
        tuple[when.ScheduleSpec, ...],
        meta("Schedules whose slots are left out.", anything=True, max_length=MOST_SCHEDULES),
    ] = ()
    dst: Annotated[ClockChanges | None, meta("What clock changes do to times of day.")] = None
    calendar: Annotated[TaskCalendar | None, meta("As in a task: what happens to slots on closed days.")] = None
    timezone: Annotated[str, meta("An IANA name or an offset such as +08:00.", anything=True)] = "UTC"
    quiet: Annotated[tuple[QuietHours, ...], meta("Quiet hours: slots in them are marked.", max_length=MOST_QUIET)] = ()
    count: Annotated[int, meta("How many slots.", ge=1, le=MOST_FIRES)] = 5
    since: Annotated[Moment | None, meta("Slots after this; now if it is left out.")] = None
    lang: Annotated[
        str | None,
        meta(
            "The language of the sentence, `en` or `zh`; by default from `Accept-Language`.",
            min_length=1,
            max_length=20,
        ),
    ] = None


class PreviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Preview"

    next_fires: list[Fire]
    description: Annotated[str, meta(examples=["Every 5 minutes"])]
    notes: Annotated[list[ShownNote], meta(examples=[[]])]


class SchedulePreview(PreviewAnswer, frozen=True, kw_only=True):
    skipped: Annotated[
        list[Fire] | msgspec.UnsetType,
        meta(
            "Only with a calendar: slots of closed days up to the last of `next_fires`, at most `count`.",
            examples=[[]],
        ),
    ] = msgspec.UNSET


class Previews:
    def __init__(self, store: Store, rules: Rules) -> None:
        self._store = store
        self._rules = rules

    @property
    def cron_dialect(self) -> CronDialect:
        """Of a cron schedule that names none."""
        return self._rules.cron_dialect

    async def of(self, given: Mapping[str, Any], lang: str = "en") -> dict[str, Any]:
        """The answer of `POST /schedules/preview`. Raises InvalidArgument with every wrong field."""
        at = ReadContext(Problems())
        asked = read_into(PreviewWrite, given, at)
        check_zone(given, at)
        if all(given.get(name) is None for name in ("schedule", "cron_expr", "schedules")):
            at.wrong("schedule", "is missing; expected a schedule, or a cron_expr")
        after = await self._store.now() if asked.since is None else asked.since
        found = read_when(given, {}, at, ScheduleReader(asked.timezone, after, self._rules, asked.dst))
        bases = found["schedules"] or tuple(filter(None, (found["schedule"],)))
        if not bases and not at.problems.found:
            at.wrong("schedules", "is empty; expected schedules, or a schedule")
        calendar = None if asked.calendar is None else await self._calendar(asked.calendar, at)
        if bases:
            check_calendar({**found, "calendar": asked.calendar}, at)
        for field, problem in hours_problems("quiet", asked.quiet).items():
            at.wrong(field, problem)
        at.problems.finish()
        schedule = when.compose(bases, found["exclude"], asked.timezone, asked.dst)
        said = language(asked.lang or lang)
        if calendar is None or asked.calendar is None:
            shown = preview_of(schedule, asked.timezone, asked.count, slot_of(after), said).as_json()
        else:
            spec = TaskSpec(name=PreviewWrite.noun, calendar=asked.calendar, timezone=asked.timezone)
            shown = preview_of(schedule, asked.timezone, 0, slot_of(after), said).as_json()
            shown |= fires_under(spec, calendar, schedule, after, asked.count)
        return {**shown, "next_fires": marked(shown["next_fires"], asked.quiet, asked.timezone)}

    async def _calendar(self, asked: TaskCalendar, at: ReadContext) -> Calendar | None:
        if any(name.partition(".")[0] == "calendar" for name in at.problems.found):
            return None
        found = await self._store.calendar(asked.name)
        if found is None:
            at.wrong("calendar.name", "is {value}; there is no such calendar", value=repr(asked.name))
        return found

    def on_save(self, task: Task, lang: str = "en") -> dict[str, Any]:
        """`next_fires` and `notes`, for the answer to a created or changed task; the notes are of the time of that change."""
        return self._shown(task, task.updated_at, lang)

    def _shown(self, task: Task, now: Instant, lang: str) -> dict[str, Any]:
        schedule = when.of_task(task.spec)
        if schedule is None:
            return {"next_fires": [], "notes": []}
        notes = [note.as_json() for note in schedule.notes(language(lang), slot_of(now))]
        return {"next_fires": next_fires(task, SHOWN_ON_SAVE), "notes": notes}

    async def next(self, task: Task, count: int = 5, lang: str = "en") -> dict[str, Any]:
        """The answer of `GET /tasks/{id}/next`: from the cursor on, so what is really going to happen."""
        schedule = when.of_task(task.spec)
        sentence = "" if schedule is None else schedule.describe(language(lang))
        return {
            **self._shown(task, await self._store.now(), lang),
            "next_fires": next_fires(task, count),
            "description": sentence,
        }


def fire(placed: Placed, zone: Zone) -> dict[str, str]:
    shown = {"utc": rfc3339(instant_of(placed.at)), "local": zone.local(placed.at).isoformat()}
    return {**shown, "moved_from": rfc3339(instant_of(placed.slot))} if placed.is_moved else shown


def marked(fires: list[dict[str, str]], hours: Sequence[QuietHours], zone: str) -> list[dict[str, str]]:
    """Those that fall into quiet hours say what becomes of their runs, and when the hours end."""
    return (
        [{**each, **_quiet(hours, zone, from_datetime(datetime.fromisoformat(each["utc"])))} for each in fires]
        if hours
        else fires
    )


def _quiet(hours: Sequence[QuietHours], zone: str, at: Instant) -> dict[str, str]:
    found = quiet_at(hours, zone, at)
    return {} if found is None else {"quiet": str(found.action), "quiet_until": rfc3339(found.until)}


def fires_under(
    spec: TaskSpec, calendar: Calendar, schedule: Schedule, after: Instant, count: int
) -> dict[str, list[dict[str, str]]]:
    """`next_fires` and `skipped` of a task that is created at `after` and keeps to the calendar as it stands."""
    bounds, zone = Bounds(), when.zones.find(spec.timezone)
    begun = begin(spec, Revision(calendar.revision, calendar.rules), schedule, bounds, after)
    if begun.cursor is None or begun.use is None:
        return {"next_fires": [], "skipped": []}
    placed, cursor = placement_of(spec, begun.use, schedule, bounds), int(slot_of(begun.cursor))
    fires = list(islice(placed.open_from(cursor, schedule.repeat), count))
    skipped: list[Placed] = []
    for one in placed.coming(cursor, schedule.repeat):
        if len(skipped) == count or (len(fires) == count and one.at > fires[-1].at):
            break
        if one.is_closed:
            skipped.append(one)
    return {"next_fires": [fire(one, zone) for one in fires], "skipped": [fire(one, zone) for one in skipped]}


def next_fires(task: Task, count: int) -> list[dict[str, str]]:
    """The coming slots of a task: none while it is off, and no more than its repeat count leaves."""
    return marked(_coming(task, count), task.spec.quiet, task.spec.timezone)


def _coming(task: Task, count: int) -> list[dict[str, str]]:
    schedule = when.of_task(task.spec)
    if schedule is None or task.next_fire_at is None:
        return []
    bounds = bounds_of(task.spec)
    left = count if schedule.repeat is None else min(count, schedule.repeat - task.fired)
    zone = when.zones.find(task.spec.timezone)
    if task.calendar_use is not None and not schedule.is_fixed_delay:
        placed = placement_under(task, schedule, bounds)
        found = placed.open_from(int(slot_of(task.next_fire_at)), remaining_of(task, schedule))
        return [fire(one, zone) for one in islice(found, count)]
    fires: list[dict[str, str]] = []
    slot: int | None = int(slot_of(task.next_fire_at))
    while slot is not None and len(fires) < left:
        fires.append({"utc": rfc3339(Instant(slot * 1_000_000)), "local": zone.local(slot).isoformat()})
        slot = first(schedule, bounds, slot)
    return fires
