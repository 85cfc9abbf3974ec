"""Business calendars over any schedule: where each slot goes whose day is closed, and which slots are due then.

A slot has two times. The *nominal* one is what its schedule says: its identity, and what `repeat`, `start_at` and
`end_at` go by. The *effective* one is when it is due: the nominal one on an open day; the same time of the clock on the
next or previous open day, up to 14 days away, where the calendar moves it. A slot that stays on a closed day is
`closed`: its effective time is its nominal one, and it becomes a skip.

Within one day and one offset of the zone's clock, later slots stay later. So the seconds of such a *piece* of a day
that are due in a stretch of effective time are a stretch of nominal time, and slots can be counted instead of listed.

A version of a task names the slots whose effective time is not before its cursor, without those that it leaves out.
What it leaves out are stretches of nominal time: when a calendar changes, a slot that was accounted for may be moved
into the future (`carried`). The planner, the preview, the timeline and the history all ask `Placement`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from noonbell.clock import EARLIEST, LATEST
from noonbell.errors import ScheduleError
from noonbell.model.calendar import FURTHEST_DAYS, LONGEST_RANGE, CalendarRules, WhenClosed
from noonbell.when.due import Bounds, nth
from noonbell.when.schedule import Schedule
from noonbell.when.zones import DAY, Zone, find

Stretch = tuple[int, int]
"""Both ends included."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_REACH: Final = (FURTHEST_DAYS + 2) * DAY
"""More than any slot is moved by: a clock may change on the way."""
_FAR: Final = LATEST + _REACH
MOST_DAYS: Final = 400
"""Days that have slots which `open_from` looks at for open ones: more than a year of a daily schedule."""


class Placed(NamedTuple):
    """A slot, and when it is due."""

    at: int
    """Its effective time."""
    slot: int
    """Its nominal time."""
    is_closed: bool = False

    @property
    def is_moved(self) -> bool:
        return self.at != self.slot


class Piece(NamedTuple):
    """A part of a day under one offset: each second in first <= s <= last is moved by the same number of days."""

    first: int
    last: int
    offset: int
    shift: int
    is_closed: bool


def merged_stretches(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Sorted, and those that touch put together."""
    found: list[Stretch] = []
    for first, last in sorted(stretches):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(stretches: Iterable[Stretch], cut: Sequence[Stretch]) -> list[Stretch]:
    """The stretches without what `cut`, which is sorted, covers."""
    found: list[Stretch] = []
    for first, last in stretches:
        at = first
        for begin, end in cut:
            if end < at:
                continue
            if begin > last:
                break
            if begin > at:
                found.append((at, begin - 1))
            at = end + 1
        if at <= last:
            found.append((at, last))
    return found


def read_day(text: str) -> tuple[Stretch, None] | tuple[None, tuple[int, int]]:
    """An entry of a list of days: a stretch of day numbers (1970-01-01 is 0), or the month and day of every year.

    ValueError says what is wrong with it.
    """
    if len(text) == 5:
        month, day = int(text[:2]), int(text[3:])
        date(2000, month, day)  # a leap year
        return None, (month, day)
    begin, _, end = text.partition("/")
    first = date.fromisoformat(begin).toordinal() - _EPOCH
    last = date.fromisoformat(end).toordinal() - _EPOCH if end else first
    if last < first:
        raise ValueError("its end is before its start")
    if last - first >= LONGEST_RANGE:
        raise ValueError(f"it has more than {LONGEST_RANGE} days")
    return (first, last), None


class DaySet:
    """Days and days of every year, as a list of entries names them."""

    __slots__ = ("_lasts", "_starts", "_yearly")

    def __init__(self, texts: Iterable[str]) -> None:
        ranges: list[Stretch] = []
        self._yearly: set[tuple[int, int]] = set()
        for text in texts:
            stretch, yearly = read_day(text)
            if stretch is not None:
                ranges.append(stretch)
            elif yearly is not None:
                self._yearly.add(yearly)
        merged = merged_stretches(ranges)
        self._starts = [first for first, _ in merged]
        self._lasts = [last for _, last in merged]

    def has(self, day: int) -> bool:
        place = bisect_right(self._starts, day) - 1
        if place >= 0 and day <= self._lasts[place]:
            return True
        if not self._yearly:
            return False
        when = date.fromordinal(day + _EPOCH)
        return (when.month, when.day) in self._yearly


class BusinessDays:
    """Which days a calendar has open."""

    __slots__ = ("_closed", "_ical", "_open", "_weekdays")

    def __init__(self, rules: CalendarRules) -> None:
        self._weekdays = frozenset(rules.closed_weekdays)
        self._closed, self._ical = DaySet(rules.closed), DaySet(rules.from_ical)
        self._open = DaySet(rules.open)

    def is_open(self, day: int) -> bool:
        return self.why(day) in ("open", "usual")

    def why(self, day: int) -> str:
        """What decides: `open`, `closed`, `ical`, `weekday`; `usual` where nothing is said of it, which is open."""
        if self._open.has(day):
            return "open"
        if self._closed.has(day):
            return "closed"
        if self._ical.has(day):
            return "ical"
        return "weekday" if (day + 4) % 7 in self._weekdays else "usual"


class DayMap:
    """Where the days of a zone's clock go: one calendar under one `when_closed`."""

    __slots__ = ("_business", "_invert", "_mode", "_shifts", "earlier_by", "later_by", "zone")

    def __init__(self, rules: CalendarRules, mode: WhenClosed, invert: bool, zone: Zone) -> None:
        self._business, self._mode, self._invert, self.zone = BusinessDays(rules), mode, invert, zone
        self._shifts: dict[int, int | None] = {}
        self.later_by = _REACH if mode is WhenClosed.NEXT_OPEN_DAY else 0
        """An effective time is no further behind the nominal one."""
        self.earlier_by = _REACH if mode is WhenClosed.PREVIOUS_OPEN_DAY else 0

    def is_open(self, day: int) -> bool:
        return self._business.is_open(day) is not self._invert

    def shift(self, day: int) -> int | None:
        """By how many days the slots of a day are moved. None: they stay, and are closed."""
        if self._mode is WhenClosed.RUN:
            return 0
        if day not in self._shifts:
            if len(self._shifts) > 4_000:
                self._shifts.clear()
            self._shifts[day] = self._found(day)
        return self._shifts[day]

    def _found(self, day: int) -> int | None:
        if self.is_open(day):
            return 0
        if self._mode is WhenClosed.SKIP:
            return None
        step = 1 if self._mode is WhenClosed.NEXT_OPEN_DAY else -1
        for days in range(1, FURTHEST_DAYS + 1):
            if self.is_open(day + step * days):
                return step * days
        return None

    def day_of(self, at: int) -> int:
        return (at + self.zone.stretch(at).offset) // DAY

    def piece(self, at: int) -> Piece:
        """The piece that a second is in."""
        held = self.zone.stretch(at)
        day = (at + held.offset) // DAY
        first, last = max(held.start, day * DAY - held.offset), min(held.stop, (day + 1) * DAY - held.offset) - 1
        shift = self.shift(day)
        return Piece(first, last, held.offset, shift or 0, shift is None)

    def effective(self, piece: Piece, at: int) -> int:
        return at if piece.shift == 0 else self.zone.first_second(at + piece.offset + piece.shift * DAY)

    def place(self, slot: int) -> Placed:
        piece = self.piece(slot)
        return Placed(self.effective(piece, slot), slot, piece.is_closed)

    def clipped(self, piece: Piece, low: int, high: int) -> Stretch | None:
        """The seconds of a piece whose effective time is in low <= at <= high."""
        if piece.shift == 0:
            first, last = max(piece.first, low), min(piece.last, high)
        else:
            first = self._first_from(piece, low)
            last = self._first_from(piece, high + 1) - 1
        return (first, last) if first <= last else None

    def _first_from(self, piece: Piece, at: int) -> int:
        """The first second of a piece that is due at `at` or later; the one behind the piece, if none is."""
        if self.effective(piece, piece.first) >= at:
            return piece.first
        if self.effective(piece, piece.last) < at:
            return piece.last + 1
        seconds = range(piece.first, piece.last + 1)
        return piece.first + bisect_left(seconds, at, key=lambda second: self.effective(piece, second))


@lru_cache(maxsize=512)
def day_map(rules: CalendarRules, mode: WhenClosed, invert: bool, timezone: str) -> DayMap:
    """`timezone` is the task's, for a calendar that has none of its own. A zone that is gone from the zone data counts as UTC."""
    try:
        zone = find(rules.timezone or timezone)
    except ScheduleError:
        zone = find("UTC")
    return DayMap(rules, mode, invert, zone)


UNMOVED: Final = DayMap(CalendarRules(), WhenClosed.RUN, False, find("UTC"))
"""Each slot where it is: what a task without a calendar has."""


@dataclass(frozen=True, slots=True)
class SlotRange:
    """`count` slots on end, from `first` to `last`, in nominal time."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class PlacedDue:
    """What is due, in the order of effective time."""

    newest: tuple[Placed, ...] = ()
    """The newest slots that are not closed, at most `keep`."""
    dropped: tuple[SlotRange, ...] = ()
    """Those before them."""
    closed: tuple[Placed, ...] = ()
    """The newest closed ones, at most `keep_closed`."""
    closed_before: tuple[SlotRange, ...] = ()
    next: int | None = None
    """The effective time of the first slot that is not due yet; None: there is none."""
    used: int = 0
    """What this takes from a repeat count."""
    last: int | None = None
    """The latest effective time among them."""


class _Part(NamedTuple):
    """Seconds of a piece, first <= s <= last, that have a slot."""

    first: int
    last: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Placement:
    """The slots of one version of a task: a schedule under a calendar."""

    schedule: Schedule
    days: DayMap
    bounds: Bounds
    left_out: tuple[Stretch, ...] = ()

    def place(self, slot: int) -> Placed:
        return self.days.place(slot)

    def names(self, slot: int, cursor: int, limit: int | None = None) -> bool:
        """Whether it is a slot that is due at the cursor or later."""
        if not self.bounds.admit(slot) or (limit is not None and slot > limit):
            return False
        if any(first <= slot <= last for first, last in self.left_out):
            return False
        return self.schedule.next(slot - 1) == slot and self.place(slot).at >= cursor

    def first(self, cursor: int, remaining: int | None = None) -> int | None:
        """The effective time of the first slot that is due at the cursor or later."""
        found = next(self.coming(cursor, remaining), None)
        return None if found is None else found.at

    def coming(self, cursor: int, remaining: int | None = None, start: int | None = None) -> Iterator[Placed]:
        """The slots that are due at the cursor or later, by their effective times; only those from `start` on, if it is given.

        `remaining` is what is left of the repeat count at the cursor: it counts slots by their nominal times.
        """
        from_ = cursor if start is None else max(cursor, start)
        return self._merged(self._parts_from(from_, self.limit(cursor, remaining)))

    def open_from(self, cursor: int, remaining: int | None = None, start: int | None = None) -> Iterator[Placed]:
        """As `coming`, without slots that are closed, which cost a step a day here and not one each.

        It ends where `MOST_DAYS` days that have slots were looked at: under some calendars no day is open.
        """
        from_ = cursor if start is None else max(cursor, start)
        parts = islice(self._parts_from(from_, self.limit(cursor, remaining)), MOST_DAYS)
        return self._merged(part for part in parts if not part.piece.is_closed)

    def _parts_from(self, at: int, limit: int | None) -> Iterator[_Part]:
        """Of what is due then or later, up to a nominal limit."""
        return self._parts(at - self.days.later_by, _FAR, at, _FAR, limit)

    def _merged(self, parts: Iterator[_Part]) -> Iterator[Placed]:
        """The slots of parts that come by their nominal times, by their effective ones."""
        upcoming = next(parts, None)
        waiting: list[tuple[int, int, bool, _Part]] = []
        while True:
            while upcoming is not None and (not waiting or upcoming.first <= waiting[0][0] + self.days.earlier_by):
                self._push(waiting, upcoming, upcoming.first - 1)
                upcoming = next(parts, None)
            if not waiting:
                return
            at, slot, is_closed, part = heapq.heappop(waiting)
            yield Placed(at, slot, is_closed)
            self._push(waiting, part, slot)

    def _push(self, waiting: list[tuple[int, int, bool, _Part]], part: _Part, after: int) -> None:
        slot = self.schedule.next(after)
        if slot is not None and slot <= part.last:
            heapq.heappush(waiting, (self.days.effective(part.piece, slot), slot, part.piece.is_closed, part))

    def due(self, cursor: int, until: int, keep: int, keep_closed: int, remaining: int | None = None) -> PlacedDue:
        """Account for the slots whose effective time is in cursor <= at <= until. Costs a step per day that has slots."""
        if remaining is not None and remaining <= 0:
            return PlacedDue()
        until = min(until, LATEST)
        limit = self.limit(cursor, remaining)
        parts = list(self._parts(cursor - self.days.later_by, until + self.days.earlier_by, cursor, until, limit))
        newest, dropped = self._newest([part for part in parts if not part.piece.is_closed], keep)
        closed, closed_before = self._newest([part for part in parts if part.piece.is_closed], keep_closed)
        used = len(newest) + len(closed) + sum(one.count for one in (*dropped, *closed_before))
        last = max((self._last_of(part) for part in parts), default=None)
        left = None if remaining is None else remaining - used
        later = iter(()) if left == 0 else self._merged(self._parts_from(max(cursor, until + 1), limit))
        following = next((placed.at for placed in later), None)
        return PlacedDue(newest, dropped, closed, closed_before, following, used, last)

    def count(self, low: int, high: int, limit: int | None = None) -> int:
        """How many slots are due in low <= at <= high, without closed ones."""
        parts = self._parts(low - self.days.later_by, high + self.days.earlier_by, low, high, limit)
        return sum(self._count(part.first, part.last) for part in parts if not part.piece.is_closed)

    def limit(self, cursor: int, remaining: int | None) -> int | None:
        """The last slot that the repeat count leaves, by its nominal time; None: no limit."""
        if remaining is None:
            return None
        if remaining <= 0:
            return EARLIEST - 1
        edge = cursor + self.days.earlier_by
        for part in self._parts(cursor - self.days.later_by, edge, cursor, _FAR, None):
            count = self._count(part.first, part.last)
            if count >= remaining:
                return self._nth(part.first, part.last, remaining)
            remaining -= count
        # Every slot behind the edge is still to come, but for what is left out.
        start, width = edge + 1, 32 * DAY
        while start <= LATEST:
            stop = min(start + width, LATEST)
            free = without([(start, stop)], self.left_out)
            for first, last in free:
                count = self._count(first, last)
                if count >= remaining:
                    return self._nth(first, last, remaining)
                remaining -= count
            start, width = stop + 1, width * 2
        return None

    def territory(self, low: int, high: int, limit: int | None = None) -> list[Stretch]:
        """The seconds whose effective time is in low <= at <= high, without what is left out, as stretches of nominal time.

        `high` may be LATEST; then the last stretch goes on for ever.
        """
        if low > high:
            return []
        edge_low, edge_high = low - _REACH, high + _REACH
        inner_low, inner_high = low + _REACH, high - _REACH
        found: list[Stretch] = []
        if inner_low <= inner_high or high >= LATEST:
            # In between, wherever a slot is moved to is in the stretch.
            found += self._cut(edge_low, inner_low - 1, low, high)
            if high >= LATEST:
                found.append((inner_low, LATEST))
            else:
                found.append((inner_low, inner_high))
                found += self._cut(inner_high + 1, edge_high, low, high)
        else:
            found += self._cut(edge_low, edge_high, low, high)
        held = without(found, self.left_out)
        if self.bounds.start_at is not None:
            held = without(held, [(EARLIEST - 2 * _REACH, self.bounds.start_at - 1)])
        last = min((edge for edge in (self.bounds.end_at, limit) if edge is not None), default=None)
        if last is not None:
            held = without(held, [(last + 1, _FAR)])
        return merged_stretches(held)

    def _cut(self, first: int, last: int, low: int, high: int) -> list[Stretch]:
        found: list[Stretch] = []
        at = first
        while at <= last:
            piece = self.days.piece(at)
            inside = self.days.clipped(piece, low, high)
            if inside is not None:
                found.append((max(inside[0], first), min(inside[1], last)))
            at = piece.last + 1
        return [one for one in found if one[0] <= one[1]]

    def _parts(self, first: int, last: int, low: int, high: int, limit: int | None) -> Iterator[_Part]:
        """What is due in low <= at <= high among the nominal seconds first <= s <= last, in the order of nominal time."""
        if self.bounds.start_at is not None:
            first = max(first, self.bounds.start_at)
        for edge in (self.bounds.end_at, limit):
            last = last if edge is None else min(last, edge)
        at = max(first, EARLIEST)
        while at <= last:
            slot = self.schedule.next(at - 1)
            if slot is None or slot > last:
                return
            piece = self.days.piece(slot)
            inside = self.days.clipped(piece, low, high)
            if inside is not None:
                begin, end = max(inside[0], slot), min(inside[1], last)
                for some in without([(begin, end)], self.left_out) if begin <= end else ():
                    named = self.schedule.next(some[0] - 1)
                    if named is not None and named <= some[1]:
                        yield _Part(some[0], some[1], piece)
            at = piece.last + 1

    def _newest(self, parts: Sequence[_Part], keep: int) -> tuple[tuple[Placed, ...], tuple[SlotRange, ...]]:
        """The newest slots by effective time, at most `keep`, and those before them as ranges.

        Of each part the kept ones are the last ones.
        """
        kept: list[tuple[int, int, int]] = []
        order = sorted(range(len(parts)), key=lambda place: self._last_of(parts[place]), reverse=True)
        for place in order if keep > 0 else ():
            part = parts[place]
            if len(kept) >= keep and self._last_of(part) < kept[0][0]:
                break
            slot = self.schedule.previous(part.last + 1)
            taken = 0
            while slot is not None and slot >= part.first and taken < keep:
                kept.append((self.days.effective(part.piece, slot), slot, place))
                taken += 1
                slot = self.schedule.previous(slot)
            kept = sorted(kept)[-keep:]
        edges = [part.last for part in parts]
        for _, slot, place in kept:
            edges[place] = min(edges[place], slot - 1)
        found = tuple(Placed(at, slot, parts[place].piece.is_closed) for at, slot, place in kept)
        return found, self._ranges([(part.first, edge) for part, edge in zip(parts, edges, strict=True)])

    def _ranges(self, stretches: Sequence[Stretch]) -> tuple[SlotRange, ...]:
        """The slots of these stretches; stretches without a slot between them are one range."""
        found: list[SlotRange] = []
        for first, last in stretches:
            begin = self.schedule.next(first - 1)
            if first > last or begin is None or begin > last:
                continue
            end, count = self.schedule.previous(last + 1), self._count(first, last)
            if end is None:
                continue
            if found and self.schedule.next(found[-1].last) == begin:
                found[-1] = SlotRange(found[-1].first, end, found[-1].count + count)
            else:
                found.append(SlotRange(begin, end, count))
        return tuple(found)

    def _last_of(self, part: _Part) -> int:
        slot = self.schedule.previous(part.last + 1)
        return self.days.effective(part.piece, part.first if slot is None else slot)

    def _count(self, first: int, last: int) -> int:
        count = getattr(self.schedule, "count", None)
        if count is not None:
            return int(count(first, last + 1))
        total, slot = 0, self.schedule.next(first - 1)
        while slot is not None and slot <= last:
            total, slot = total + 1, self.schedule.next(slot)
        return total

    def _nth(self, first: int, last: int, number: int) -> int:
        return nth(lambda start, stop: self._count(start, stop - 1), first, last, number)


class Carried(NamedTuple):
    cursor: int | None
    """The effective time of the first slot; None: there is none."""
    left_out: tuple[Stretch, ...]


def carried(old: Placement, cursor: int, new: Placement, remaining: int | None = None) -> Carried:
    """The same schedule goes on under another calendar: what was accounted for is left out, and all the rest is to come.

    `old` has accounted for what is due before `cursor`. A slot that is moved to before now is due at once, and late.
    """
    limit = old.limit(cursor, remaining)
    best: int | None = None
    for part in old._parts(cursor - old.days.later_by, _FAR, cursor, _FAR, limit):
        if best is not None and part.first > best + new.days.earlier_by:
            break
        slot = old.schedule.next(part.first - 1)
        while slot is not None and slot <= part.last:
            piece = new.days.piece(slot)
            at = new.days.effective(piece, slot)
            best = at if best is None else min(best, at)
            # Later ones of the same piece are due later.
            slot = old.schedule.next(piece.last)
    return Carried(best, left_out_of(old, cursor, new, cursor if best is None else best))


def started(
    new: Placement, after: int, remaining: int | None = None, old: tuple[Placement, int] | None = None
) -> Carried:
    """A schedule starts: only slots whose nominal and effective times are both later than `after`.

    `remaining` is what the repeat count leaves. `old` is what was before, and its cursor: what is due there before that has
    been accounted for.
    """
    begun = [(after + 1 - _REACH, after)] if new.days.later_by else []
    if old is not None:
        begun += left_out_of(old[0], old[1], new, after + 1)
    left_out = tuple(merged_stretches(begun))
    placed = Placement(new.schedule, new.days, new.bounds, left_out)
    return Carried(placed.first(after + 1, remaining), left_out)


def left_out_of(old: Placement, cursor: int, new: Placement, since: int) -> tuple[Stretch, ...]:
    """What `old` has accounted for, or left out, and `new` would find at `since` or later."""
    found: list[Stretch] = []
    at, last = since - _REACH, cursor + _REACH
    while at <= last:
        before, after = old.days.piece(at), new.days.piece(at)
        end = min(before.last, after.last, last)
        done = old.days.clipped(before, -_FAR * 2, cursor - 1)
        accounted = [] if done is None else [(max(done[0], at), min(done[1], end))]
        accounted += [(max(first, at), min(stop, end)) for first, stop in old.left_out]
        ahead = new.days.clipped(after, since, _FAR)
        if ahead is not None:
            low, high = max(ahead[0], at), min(ahead[1], end)
            found += [(max(first, low), min(stop, high)) for first, stop in accounted]
        at = end + 1
    found += [(max(first, last + 1), stop) for first, stop in old.left_out if stop >= since - _REACH]
    return tuple(merged_stretches(one for one in found if one[0] <= one[1]))
