"""Calendars: reading and saving them, which slots of which tasks a change would move, and fetching their iCal sources.

A source is fetched by one node at a time. Where that fails, the last good copy stays, the calendar says why, and the event
`calendar.refresh_failed` tells of it.

The closed days of an iCal file: each all-day event closes its days. Events with a time of day close none.
Repeated events are followed for some years. What would take long to expand is refused: a file is not trusted.
Needs the extra `noonbell[ical]`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from calendar import isleap
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.engine import failpoint
from noonbell.engine.loop_runner import TimedLoop
from noonbell.errors import InvalidArgument, InvalidId, InvalidState, NoonbellError, NotFound, ScheduleError, Sentence
from noonbell.fields import FROM_TO, Moment, filled, list_of, meta, plain, read_into
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.calendar import (
    MOST_DAYS,
    Calendar,
    CalendarChange,
    CalendarRules,
    CalendarSaved,
    CalendarSpec,
    DayText,
)
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.policy.account import bounds_of, remaining_of
from noonbell.policy.calendar import Revision, carry, days_of, placement_of, placement_under
from noonbell.policy.slot_history import schedule_of
from noonbell.ports import PLAN, Store, Wakeup
from noonbell.when import zones
from noonbell.when.calendar import BusinessDays, Placed, Placement, read_day

logger = logging.getLogger("noonbell.calendars")

MOST_MOVES: Final = 1_000
"""Of one preview."""
MOST_TASKS: Final = 1_000
_SEEN: Final = 5_000
"""Slots of one task that a preview looks at."""
_EPOCH: Final = date(1970, 1, 1)
_FETCHING: Final = 120 * SECOND
"""A node that is to fetch a source has so long; then another one may."""
_POLL: Final = 30.0
"""Seconds between two looks at what is due."""
_TRY_AGAIN: Final = 900
"""Seconds after which a source that could not be fetched is asked again, unless it is asked more often anyway."""


class CalendarWrite(CalendarSpec, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a calendar"
    example: ClassVar[dict[str, Any]] = {
        "timezone": "Asia/Shanghai",
        "closed_weekdays": [0, 6],
        "closed": ["2026-10-01/2026-10-07"],
        "open": ["2026-10-10"],
    }

    ical_days: Annotated[
        tuple[DayText, ...] | None,
        meta(
            "Closed days from an iCal file. Left out: those of `ics`, or of the copy of the source.",
            max_length=MOST_DAYS,
        ),
    ] = None
    ics: Annotated[
        str | None,
        meta(
            "The text of an iCal file, each all-day event of which closes its days. It is not kept.",
            max_length=MOST_BYTES,
            lines=True,
        ),
    ] = None


class CalendarInFile(CalendarWrite, frozen=True, kw_only=True):
    """A calendar as files have it."""

    name: Annotated[str, meta("Unique.", min_length=1, max_length=100)]
    ical_file: Annotated[
        str | None, meta("An iCal file beside this one: its text is sent as `ics`.", min_length=1, max_length=4_096)
    ] = None


class ShownCalendar(CalendarSpec, frozen=True, kw_only=True):
    component: ClassVar[str] = "Calendar"

    name: Annotated[str, meta(examples=["china"])]
    revision: Annotated[int, meta("Increases with each change of its days.", examples=[1])]
    ical_days: Annotated[list[str], meta("Closed days from an iCal file.", examples=[[]])]
    ical_fetched_at: Annotated[Moment | None, meta("When the copy of the source was made.", examples=[None])]
    ical_checked_at: Annotated[Moment | None, meta("When the source was last fetched.", examples=[None])]
    ical_error: Annotated[str | None, meta("Why the source could not be fetched last time.", examples=[None])]
    tasks: Annotated[int, meta("How many use it.", examples=[3])]
    created_at: Moment
    updated_at: Moment
    changed_by: Annotated[str | None, meta(examples=["alice"])]


AllCalendars = list_of("Calendars", ShownCalendar)


class SlotMove(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a calendar does to one slot."""

    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["nightly-report"])]
    slot: Annotated[Moment, meta("Its nominal time, from the schedule.")]
    before: Annotated[Moment | None, meta("When it is due now. Null: it is skipped, its day is closed.")]
    after: Annotated[Moment | None, meta("When it is due then. Null: it is skipped.")]
    is_late: Annotated[bool, meta("It is due at once, because `after` has passed.", examples=[False])]


class CalendarPreview(msgspec.Struct, frozen=True, kw_only=True):
    changes: Annotated[bool, meta("False: the calendar already has this content.", examples=[True])]
    is_new: Annotated[bool, meta("There is no calendar of this name yet.", examples=[False])]
    tasks: Annotated[int, meta("Tasks that use it.", examples=[3])]
    moves: Annotated[list[SlotMove], meta("Slots that move, by task and time.")]
    more: Annotated[bool, meta("There are more.", examples=[False])]
    until: Annotated[Moment, meta("Slots that are due by then are compared.")]


class CalendarAnswer(ShownCalendar, frozen=True, kw_only=True):
    component: ClassVar[str] = "CalendarSaved"

    changed: Annotated[bool, meta("False: it already had this content.", examples=[True])]
    changed_tasks: Annotated[list[int], meta("The tasks that have a new version with it.", examples=[[1]])]


class CalendarDay(msgspec.Struct, frozen=True, kw_only=True):
    day: Annotated[str, meta(examples=["2026-10-01"])]
    open: Annotated[bool, meta(examples=[False])]
    why: Annotated[str, meta("The reason: open, closed, ical, weekday or usual.", examples=["closed"])]


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True):
    items: list[CalendarDay]


class DaysAsked(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: Annotated[str | None, meta("The first day; the first of this month if left out.", max_length=10)] = None
    count: Annotated[int, meta("How many days.", ge=1, le=1_100)] = 62


class PreviewAsked(msgspec.Struct, frozen=True, kw_only=True):
    days: Annotated[int, meta("How far ahead slots are compared, in days.", ge=1, le=366)] = 92


class FetchFile(Protocol):
    def __call__(self, url: str, most_bytes: int) -> Awaitable[bytes]:
        """The file at an address that may be called. Raises NoonbellError."""
        ...


async def _no_fetch(url: str, most_bytes: int) -> bytes:
    del url, most_bytes
    raise InvalidState("this process cannot fetch files")


class Calendars:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        fetch: FetchFile | None = None,
        address_problem: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._store, self._wakeup, self._fetch = store, wakeup, fetch or _no_fetch
        self._address_problem = address_problem

    async def all(self) -> list[Calendar]:
        return await self._store.calendars()

    async def get(self, name: str) -> Calendar:
        found = await self._store.calendar(checked_name(name))
        if found is None:
            raise NotFound("there is no calendar {name}", name=repr(name))
        return found

    async def users(self, name: str) -> list[Task]:
        return await self._store.calendar_users(name, MOST_TASKS)

    async def save(
        self, name: str, given: Mapping[str, Any], *, by: str | None = None, expect_revision: int | None = None
    ) -> CalendarSaved:
        """Make it, or replace it whole. A change of what it says changes each task that uses it, in the same transaction."""
        change = await self._read(name, given)
        change = msgspec.structs.replace(change, expect_revision=expect_revision)
        return await self._saved(change, by)

    async def _saved(self, change: CalendarChange, by: str | None) -> CalendarSaved:
        saved = await self._store.save_calendar(change, by=by)
        failpoint.hit("K36")
        if saved.tasks:
            self._wakeup.signal(PLAN)
        return saved

    async def delete(self, name: str, *, by: str | None = None) -> Calendar:
        return await self._store.delete_calendar(checked_name(name), by=by)

    async def preview(self, name: str, given: Mapping[str, Any], days: int = 92) -> CalendarPreview:
        """Which slots of which tasks would move, were it saved now. Nothing is written."""
        change = await self._read(name, given)
        before = await self._store.calendar(name)
        users = await self.users(name)
        now = await self._store.now()
        until = Instant(now + days * 86_400 * SECOND)
        has_changes = before is None or before.rules != change.rules
        moves: list[SlotMove] = []
        more = False
        for task in users if has_changes else ():
            found, is_cut = moved_slots(task, change.rules, now, until)
            moves += found
            more = more or is_cut
            if len(moves) > MOST_MOVES:
                moves, more = moves[:MOST_MOVES], True
                break
            await asyncio.sleep(0)  # others have their turn
        return CalendarPreview(
            changes=has_changes, is_new=before is None, tasks=len(users), moves=moves, more=more, until=until
        )

    async def days(self, name: str, asked: DaysAsked) -> CalendarDays:
        found = await self.get(name)
        now = datetime.fromtimestamp(await self._store.now() / SECOND, UTC).date()
        try:
            since = now.replace(day=1) if asked.since is None else date.fromisoformat(asked.since)
        except ValueError:
            raise InvalidArgument.field("from", f"is {asked.since!r}; expected a day such as 2026-10-01") from None
        return CalendarDays(items=days_from(found.rules, since, asked.count))

    # iCal

    async def refresh(self, name: str, *, by: str | None = None) -> CalendarSaved:
        """Fetch its source now. Raises InvalidState where it has none, InvalidArgument where it cannot be fetched or read."""
        found = await self.get(name)
        if found.spec.ical is None:
            raise InvalidState("calendar {name} has no iCal source", name=repr(name))
        try:
            return await self._refreshed(found, by)
        except NoonbellError as error:
            problem = _problem_of(error)
            await self._failed(found, problem)
            raise InvalidArgument.field("ical.url", problem) from None

    async def refresh_due(self) -> int:
        """Fetch the sources whose time has come, each on one node; how many this one has fetched."""
        done = 0
        for name, due_at in await self._store.due_refreshes():
            now = await self._store.now()
            if not await self._store.take_refresh(name, due_at, Instant(now + _FETCHING)):
                continue
            found = await self._store.calendar(name)
            if found is None or found.spec.ical is None:
                continue
            done += 1
            try:
                await self._refreshed(found, None)
            except NoonbellError as error:
                problem = _problem_of(error)
                logger.warning("the source of calendar %r could not be fetched: %s", name, problem)
                await self._failed(found, problem)
        return done

    async def _refreshed(self, found: Calendar, by: str | None) -> CalendarSaved:
        source = found.spec.ical
        assert source is not None  # noqa: S101 the caller has looked
        days = await self._fetched(source.url)
        now = await self._store.now()
        if days == found.ical_days:
            await self._store.note_refresh(found.name, None, Instant(now + source.refresh_seconds * SECOND))
            return CalendarSaved(calendar=await self.get(found.name), is_new=False, is_changed=False)
        change = CalendarChange(
            name=found.name,
            spec=found.spec,
            ical_days=days,
            ical_fetched_at=now,
            expect_revision=found.revision,
        )
        return await self._saved(change, by or "ical")

    async def _failed(self, found: Calendar, error: str) -> None:
        often = _TRY_AGAIN if found.spec.ical is None else min(_TRY_AGAIN, found.spec.ical.refresh_seconds)
        at = Instant(await self._store.now() + often * SECOND)
        await self._store.note_refresh(found.name, error[:500], at)

    async def _fetched(self, url: str) -> tuple[str, ...]:
        text = await self._fetch(url, MOST_BYTES)
        return await self._days_of(text, "ical.url")

    async def _days_of(self, text: bytes, field: str) -> tuple[str, ...]:
        today = datetime.fromtimestamp(await self._store.now() / SECOND, UTC).date()
        return await asyncio.to_thread(days_of_file, text, today, field)

    async def _read(self, name: str, given: Mapping[str, Any]) -> CalendarChange:
        checked_name(name)
        at = ReadContext(Problems())
        body = read_into(CalendarWrite, given, at)
        spec = filled(CalendarSpec, body)
        check_days(body, at)
        if spec.ical is not None and not any(name.partition(".")[0] == "ical" for name in at.problems.found):
            if (problem := _address_problem(spec.ical.url)) is not None:
                at.wrong("ical.url", problem)
            elif denied := self._address_problem(spec.ical.url):
                at.wrong("ical.url", "{denied}", denied=denied)
        if body.ics is not None and (spec.ical is not None or body.ical_days is not None):
            at.wrong("ics", "cannot be combined with `ical` or `ical_days`; expected one of them")
        at.problems.finish()
        if body.ics is not None:
            days = await self._days_of(body.ics.encode(), "ics")
            return CalendarChange(name=name, spec=spec, ical_days=days, ical_fetched_at=await self._store.now())
        if spec.ical is None:
            return CalendarChange(name=name, spec=spec, ical_days=body.ical_days or ())
        before = await self._store.calendar(name)
        if before is not None and before.spec.ical is not None and before.spec.ical.url == spec.ical.url:
            return CalendarChange(name=name, spec=spec, ical_days=before.ical_days)
        try:
            days = await self._fetched(spec.ical.url)
        except InvalidArgument:
            raise
        except NoonbellError as error:
            raise InvalidArgument.field("ical.url", f"cannot be fetched: {error.message}") from None
        return CalendarChange(name=name, spec=spec, ical_days=days, ical_fetched_at=await self._store.now())


class CalendarRefresh(TimedLoop):
    """The loop that fetches sources again. Died at any line: another node, or the next tick, finds what is still due."""

    def __init__(self, calendars: Calendars) -> None:
        self._calendars = calendars

    async def tick(self) -> float:
        await self._calendars.refresh_due()
        return _POLL


def checked_name(name: str) -> str:
    if (
        not 1 <= len(name) <= 100
        or unfit(name) is not None
        or "/" in name
        or name != name.strip()
        or not name.strip(".")
    ):
        raise InvalidId(
            "a calendar's name has 1 to 100 characters, not dots alone, no / and none that controls a terminal"
        )
    return name


def check_days(body: CalendarWrite, at: ReadContext) -> None:
    if body.timezone is not None:
        try:
            zones.find(body.timezone)
        except ScheduleError as error:
            at.wrong("timezone", error.sentences["timezone"])
    for field in ("closed", "open", "ical_days"):
        for place, text in enumerate(getattr(body, field) or ()):
            try:
                read_day(text)
            except (ValueError, IndexError) as error:
                at.wrong(f"{field}[{place}]", "is {value}: {error}", value=repr(text), error=error)
                break


def _problem_of(error: NoonbellError) -> str:
    """What is wrong with a source, without the name of the field that has its address."""
    return error.details.get("ical.url", error.message) if isinstance(error, InvalidArgument) else error.message


def _address_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # ValueError for one out of range
    except ValueError:
        return "is no address; expected http://HOST/… or https://HOST/…"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return "is no address that can be fetched; expected http://HOST/… or https://HOST/…, without a password"
    return None


def days_from(rules: CalendarRules, since: date, count: int) -> list[CalendarDay]:
    """Open or closed, and what says so."""
    business = BusinessDays(rules)
    first = (since - _EPOCH).days
    return [
        CalendarDay(day=str(since + timedelta(days=number)), open=business.is_open(day), why=business.why(day))
        for number in range(count)
        for day in (first + number,)
    ]


def moved_slots(task: Task, rules: CalendarRules, now: Instant, until: Instant) -> tuple[list[SlotMove], bool]:
    """The slots of a task that another revision of its calendar puts elsewhere, and whether there may be others."""
    schedule, use = schedule_of(task.spec), task.calendar_use
    if schedule is None or use is None or task.status is not TaskStatus.ENABLED or task.next_fire_at is None:
        return [], False
    bounds = bounds_of(task.spec)
    begun = carry(task, task.spec, Revision(use.revision + 1, rules), schedule, bounds, now, is_on=True)
    remaining = remaining_of(task, schedule)
    old, is_cut = _due_by(placement_under(task, schedule, bounds), task.next_fire_at, remaining, until)
    new: dict[int, Placed] = {}
    is_cut_too = False
    if begun.use is not None and begun.cursor is not None:
        placed = placement_of(task.spec, begun.use, schedule, bounds)
        new, is_cut_too = _due_by(placed, begun.cursor, remaining, until)
    moves = []
    for slot in sorted({*old, *new}):
        before = old.get(slot) or placement_under(task, schedule, bounds).place(slot)
        after = new.get(slot) or days_of(task.spec, rules).place(slot)
        if before != after:
            moves.append(
                SlotMove(
                    task_id=task.id,
                    task_name=task.name,
                    slot=instant_of(slot),
                    before=None if before.is_closed else instant_of(before.at),
                    after=None if after.is_closed else instant_of(after.at),
                    is_late=not after.is_closed and instant_of(after.at) <= now,
                )
            )
    return moves, is_cut or is_cut_too


def _due_by(
    placed: Placement, cursor: Instant, remaining: int | None, until: Instant
) -> tuple[dict[int, Placed], bool]:
    found: dict[int, Placed] = {}
    for one in placed.coming(int(slot_of(cursor)), remaining):
        if instant_of(one.at) > until:
            return found, False
        if len(found) >= _SEEN:
            return found, True
        found[one.slot] = one
    return found, False


def shown(calendar: Calendar) -> dict[str, Any]:
    days = list(calendar.ical_days)
    return plain(filled(ShownCalendar, calendar, **msgspec.structs.asdict(calendar.spec), ical_days=days))


def saved_answer(saved: CalendarSaved) -> dict[str, Any]:
    return {**shown(saved.calendar), "changed": saved.is_changed, "changed_tasks": list(saved.tasks)}


MOST_BYTES: Final = 1 << 20
_MOST_EVENTS: Final = 5_000
_MOST_REPEATED: Final = 200
_MOST_STEPS: Final = 200_000
"""Of one rule; each takes a microsecond or two."""
_MOST_STEPS_IN_ALL: Final = 1_000_000
_MOST_REPETITIONS: Final = 15_000
"""Of all rules, within the years that are read; each takes some 60 microseconds."""
_DAYS_AS_ONE: Final = 300
"""Days of one event that take as long as one more repetition."""
_MOST_VALUES: Final = 100
"""Days, months, weeks and the like that one rule names."""
_YEARS_BACK, _YEARS_AHEAD = 1, 5
_PERIODS: Final = {"DAILY": (1, 1), "WEEKLY": (7, 1), "MONTHLY": (28, 1), "YEARLY": (365, 12)}
"""By frequency: its days, and for how many steps one of them counts."""
_LAST_YEAR: Final = 9_999
_FINER_THAN_DAYS: Final = ("BYHOUR", "BYMINUTE", "BYSECOND")
INSTALL: Final = "pip install 'noonbell[ical]'"


def days_of_file(text: bytes, today: date, field: str = "ics") -> tuple[str, ...]:
    """Sorted, each day or range as a list of days has it. Raises InvalidArgument, naming `field`."""
    try:
        import icalendar
        import recurring_ical_events
    except ModuleNotFoundError:
        raise InvalidArgument.field(
            field, Sentence("needs the extra for iCal files, which is not installed: {install}", install=INSTALL)
        ) from None
    if len(text) > MOST_BYTES:
        raise InvalidArgument.field(
            field, Sentence("has {count} bytes; expected {most} at most", count=len(text), most=MOST_BYTES)
        )
    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = [event for event in calendar.walk("VEVENT") if _is_all_day(event)]
        _check(events, field)
        begin, end = date(today.year - _YEARS_BACK, 1, 1), date(today.year + _YEARS_AHEAD, 12, 31)
        kept = icalendar.Calendar()
        for event in _without_rules(events, begin, end, field):
            kept.add_component(event)
        found = recurring_ical_events.of(kept).between(begin, end + timedelta(days=1))
        days = {day for event in found for day in _days(event)}
    except InvalidArgument:
        raise
    except Exception as error:
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InvalidArgument.field(field, Sentence("is not a readable iCal file: {said}", said=said)) from None
    return in_ranges(days, field)


def in_ranges(days: Iterable[date], field: str = "ics") -> tuple[str, ...]:
    """Days on end as one range."""
    ranges: list[list[date]] = []
    for day in sorted(days):
        if ranges and day - ranges[-1][1] == timedelta(days=1):
            ranges[-1][1] = day
        else:
            ranges.append([day, day])
    if len(ranges) > MOST_DAYS:
        raise InvalidArgument.field(
            field,
            Sentence("closes {count} ranges of days; expected {most} at most", count=len(ranges), most=MOST_DAYS),
        )
    return tuple(str(first) if first == last else f"{first}/{last}" for first, last in ranges)


def _is_all_day(event: Any) -> bool:
    begin = event.get("DTSTART")
    is_day = begin is not None and isinstance(begin.dt, date) and not isinstance(begin.dt, datetime)
    return is_day and str(event.get("STATUS", "")).upper() != "CANCELLED"


def _check(events: list[Any], field: str) -> None:
    if len(events) > _MOST_EVENTS:
        raise InvalidArgument.field(
            field, Sentence("has {count} events; expected {most} at most", count=len(events), most=_MOST_EVENTS)
        )
    rules = [rule for event in events for rule in _rules(event)]
    if len(rules) > _MOST_REPEATED:
        raise InvalidArgument.field(
            field,
            Sentence("has {count} repeated events; expected {most} at most", count=len(rules), most=_MOST_REPEATED),
        )
    for rule in rules:
        often = {str(one).upper() for one in rule.get("FREQ", [])}
        if not often <= _PERIODS.keys() or any(name in rule for name in _FINER_THAN_DAYS):
            raise InvalidArgument.field(field, Sentence("has an all-day event that repeats within a day"))
        if "BYEASTER" in rule:
            raise InvalidArgument.field(
                field, Sentence("has an event that repeats by BYEASTER, which iCal does not have")
            )
        if any(one < 1 for one in rule.get("INTERVAL", [])):  # its days would be looked for without end
            raise InvalidArgument.field(field, Sentence("has an event that repeats with an INTERVAL below 1"))


def _rules(event: Any) -> list[Any]:
    found = event.get("RRULE")
    return found if isinstance(found, list) else [] if found is None else [found]


def _without_rules(events: Iterable[Any], begin: date, end: date, field: str) -> Iterator[Any]:
    """These events with the days that their rules name until `end`, instead of the rules."""
    steps_in_all = repetitions = 0
    for event in events:
        rules, first, length = _rules(event), event["DTSTART"].dt, len(_days(event))
        ends = [min([end, *(_day(until) for until in rule.get("UNTIL", []))]) for rule in rules]
        if rules and max(ends) < first:
            continue
        named: set[date] = set()
        for rule, last in zip(rules, ends, strict=True):
            steps = _steps(rule, first, last)
            steps_in_all += steps
            if max(map(len, rule.values())) > _MOST_VALUES or steps > _MOST_STEPS or steps_in_all > _MOST_STEPS_IN_ALL:
                raise _too_much("takes too long to follow, with those before it", rule, event, field)
            days = [day for day in _named_by(rule, first, last) if day >= begin - timedelta(days=length)]
            named.update(days)
            repetitions += len(days) * (1 + length // _DAYS_AS_ONE)
            if repetitions > _MOST_REPETITIONS:
                raise _too_much("makes too many events, with those before it", rule, event, field)
        if rules:
            del event["RRULE"]
            event.add("RDATE", sorted(named | {first}))
        yield event


def _steps(rule: Any, first: date, last: date) -> int:
    """How many days, weeks or months are looked at, twelve for a year, where a rule names no day after the last one."""
    length, weight = _PERIODS[str(rule["FREQ"][0]).upper()]
    days = (_LAST_YEAR + 1 - first.year - _years_on(first.year, max(first, last).year)) * 365
    return days * weight // (length * int(rule.get("INTERVAL", [1])[0]))


def _named_by(rule: Any, first: date, last: date) -> list[date]:
    """The days that a rule names, in order, as many as its COUNT says.

    A rule that names no further day is followed to the year 9999. So it is followed where that is not far: in later years that
    have the same days of the week.
    """
    from dateutil.rrule import rrulestr  # a dependency of icalendar

    if first > last:
        return []
    more = _years_on(first.year, last.year)
    count = int(rule.get("COUNT", [-1])[0])
    alone = type(rule)({name: value for name, value in rule.items() if name not in ("COUNT", "UNTIL")})
    begin = datetime(first.year + more, first.month, first.day)  # noqa: DTZ001 - days alone
    days = (day.date() for day in rrulestr(alone.to_ical().decode(), dtstart=begin))
    until = last.replace(year=last.year + more)
    named = itertools.takewhile(lambda day: day <= until, itertools.islice(days, count if count >= 0 else None))
    return [day.replace(year=day.year - more) for day in named]


@lru_cache(maxsize=1_000)
def _years_on(first: int, last: int) -> int:
    """The most years by which these years, with those beside them, can be put off and still begin with the same days of the
    week and be as long.
    """
    beside = range(max(1, first - 1), last + 2)
    return next(more for more in range(_LAST_YEAR - last - 1, -1, -1) if all(_is_like(y, y + more) for y in beside))


def _is_like(year: int, other: int) -> bool:
    return isleap(year) == isleap(other) and date(year, 1, 1).weekday() == date(other, 1, 1).weekday()


def _too_much(what: str, rule: Any, event: Any, field: str) -> InvalidArgument:
    name = str(event.get("SUMMARY", event.get("UID", "")))[:100]
    told = Sentence(
        "has the rule {rule} of {name}, which {what}; leave it out", rule=_rule(rule), name=repr(name), what=what
    )
    return InvalidArgument.field(field, told)


def _rule(rule: Any) -> str:
    return str(rule.to_ical().decode())[:200]


def _day(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _days(event: Any) -> list[date]:
    begin = _day(event["DTSTART"].dt)
    end = _day(event["DTEND"].dt) if "DTEND" in event else begin + timedelta(days=1)
    length = min(max(1, (end - begin).days), 3_660)
    return [begin + timedelta(days=number) for number in range(length)]
