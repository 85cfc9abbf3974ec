"""The timeline's drawing: the axis with its labels and clock changes, and the bars of each task. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

from noonbell.clock import SECOND, Instant, rfc3339, slot_of
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.service.timeline import Lane, Load, Off
from noonbell.service.translation import Translator
from noonbell.web import i18n
from noonbell.web.charts import mark_of, word_of
from noonbell.web.i18n import offset
from noonbell.when.zones import Zone

WIDTH: Final = 1_000.0
_STEPS: Final = (60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Seconds between two labels."""
_MOST_TICKS: Final = 9


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str
    is_day: bool
    """A new day begins here."""
    date: date | None = None
    """What stands there in place of a time."""
    is_extra: bool = False
    """Left out where there is little room."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The zone's clock goes forward or back."""

    x: float
    at: Instant
    was: str
    will: str


@dataclass(frozen=True, slots=True)
class Axis:
    since: Instant
    until: Instant
    zone: Zone

    @property
    def length(self) -> int:
        return max(1, self.until - self.since)

    def x(self, at: int) -> float:
        """Within the axis: what lies outside is at its end."""
        place = (min(max(at, self.since), self.until) - self.since) / self.length
        return round(place * WIDTH, 2)

    def width(self, start: int, end: int, least: float = 2.0) -> float:
        return round(max(self.x(end) - self.x(start), least), 2)

    def ticks(self) -> list[Tick]:
        """Whole minutes, hours or days of the zone's clock, also across a change of it."""
        seconds = self.length // SECOND
        step = next((size for size in _STEPS if seconds / size <= _MOST_TICKS), _STEPS[-1])
        found: list[Tick] = []
        for start, stop, shift in self._stretches():
            first = -(-(start + shift) // step) * step - shift
            for at in range(first, stop, step):
                local = self.zone.local(at)
                is_day = (local.hour, local.minute) == (0, 0)
                day = local.date() if is_day or step >= 86_400 else None
                found.append(Tick(self.x(at * SECOND), f"{local:%H:%M}", is_day, day))
        kept = next((place for place, tick in enumerate(found) if tick.is_day), 0) % 2
        return [replace(tick, is_extra=place % 2 != kept) for place, tick in enumerate(found)]

    def changes(self) -> list[OffsetChange]:
        edges = [start for start, _, _ in self._stretches()][1:]
        return [
            OffsetChange(
                self.x(at * SECOND),
                Instant(at * SECOND),
                offset(self.zone.local(at - 1)),
                offset(self.zone.local(at)),
            )
            for at in edges
        ]

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        """Start, stop and offset of each part in which the clock runs evenly, in seconds."""
        at, end = int(self.since // SECOND), int(self.until // SECOND)
        while at < end:
            shift = self.zone.offset(at)
            stop = self.zone.stretch(at).stop
            while stop < end and self.zone.offset(stop) == shift:  # the zone's own pages meet there, nothing changes
                stop = self.zone.stretch(stop).stop
            yield at, min(stop, end), shift
            at = stop


BUCKET: Final = 4.0
"""Marks that lie closer together than this are drawn as one."""
_RANK: Final = ("ok", "idle", "waiting", "missed", "active", "warn", "bad")
"""The worst of several is what is shown of them."""
CROWD: Final = 3
"""Tasks in one minute from which on the page warns."""
_OFTEN: Final = 600
"""Seconds: a task that fires more often meets all others anyway."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened or will: what the table tells, and what marks are made of."""

    at: Instant
    end: Instant
    status: str
    """Of a run; `missed` for slots that were dropped, `planned` for one to come, `skipping` for one to be skipped."""
    run_id: RunId | None = None
    count: int = 1
    retried: bool = False
    took_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineBar:
    x: float
    width: float
    mark: str
    title: str
    run_id: RunId | None = None
    since: str = ""
    """With `until`: where the list of those runs begins, for a bar that stands for several."""
    until: str = ""
    retried: bool = False


@dataclass(frozen=True, slots=True)
class Shade:
    x: float
    width: float
    title: str


@dataclass(slots=True)
class TimelineRow:
    task_id: int
    name: str
    group: str = ""
    past: list[TimelineBar] = field(default_factory=list)
    planned: list[TimelineBar] = field(default_factory=list)
    band: TimelineBar | None = None
    """It fires so often that single slots would not be seen."""
    off: list[Shade] = field(default_factory=list)
    risk: str = ""
    """A run of the usual length would not be over when the next slot comes: what to say of it."""
    ran: int = 0
    coming: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.past or self.planned or self.band)


class Teller:
    """Moments and statuses in the visitor's words."""

    def __init__(self, words: Translator, axis: Axis, now: int) -> None:
        self.words, self.axis, self.now = words, axis, now
        self._today = axis.zone.local(int(slot_of(now)))

    def clock(self, at: int) -> str:
        return i18n.short(self.axis.zone.local(int(slot_of(at))), self._today, self.words)

    def title(self, one: Happening) -> str:
        if one.status in ("planned", "skipping", "missed"):
            said = self.words(f"timeline.{one.status}_at", at=self.clock(one.at), n=one.count)
            return said if one.at == one.end or one.status != "missed" else f"{said} – {self.clock(one.end)}"
        took = i18n.milliseconds(one.took_ms, self.words)
        return " · ".join(filter(None, (word_of(one.status, self.words), self.clock(one.at), took)))

    def several(self, some: Sequence[Happening]) -> str:
        counts = Counter(word_of(each.status, self.words) for each in some)
        marks = self.words.marks
        said = marks.comma.join(f"{word} {count}" for word, count in counts.most_common())
        return f"{self.clock(some[0].at)} – {self.clock(some[-1].at)}{marks.colon}{said}"


def happenings(lane: Lane, now: Instant) -> list[Happening]:
    """All that the lane knows, in the order of time."""
    found = [
        Happening(
            run.start_time or run.scheduled_time,
            run.end_time or (now if run.start_time is not None else run.scheduled_time),
            str(run.status),
            run.id,
            retried=run.retry_count > 0,
            took_ms=run.duration_ms,
        )
        for run in lane.runs
    ]
    found += [Happening(one.slot, one.slot, str(one.status), one.run_id) for one in lane.before]
    found += [Happening(one.first, one.last, "missed", count=one.count) for one in lane.dropped]
    return sorted(found, key=lambda one: one.at)


def to_come(lane: Lane) -> list[Happening]:
    skipped = len(lane.planned) if lane.task.skip_next < 0 else lane.task.skip_next
    return [
        Happening(
            Instant(slot * SECOND),
            Instant(slot * SECOND + (lane.usual or 0)),
            "skipping" if place < skipped else "planned",
        )
        for place, slot in enumerate(lane.planned)
    ]


def row_of(lane: Lane, teller: Teller, group: str = "") -> TimelineRow:
    axis, words = teller.axis, teller.words
    happened, planned = happenings(lane, Instant(teller.now)), to_come(lane)
    row = TimelineRow(lane.task.id, lane.task.name, lane.task.spec.labels.get(group, "") if group else "")
    row.past = list(bars(happened, teller))
    row.ran = sum(one.run_id is not None for one in happened)
    row.coming = len(planned)
    if lane.is_dense or len(planned) * BUCKET > WIDTH / 2:
        end = axis.until if lane.is_dense else planned[-1].at
        title = words("timeline.often", n=len(planned))
        start = planned[0].at
        row.band = TimelineBar(axis.x(start), axis.width(start, end, 3), "planned", title)
    else:
        row.planned = [
            TimelineBar(axis.x(one.at), axis.width(one.at, one.end, 3), one.status, teller.title(one))
            for one in planned
        ]
    row.off = [_shade(each, teller) for each in lane.off if each.since < axis.until]
    if lane.overlaps and lane.usual is not None:
        row.risk = words("timeline.risk", span=i18n.span(lane.usual / SECOND, words))
    return row


def _shade(off: Off, teller: Teller) -> Shade:
    """One that has no end yet goes on to the end of the axis."""
    end = teller.axis.until if off.until is None else off.until
    said = teller.words(f"timeline.off_{off.reason}", since=teller.clock(off.since), by=off.by or "–")
    if off.because:
        said = teller.words("timeline.off_because", what=said, reason=off.because)
    return Shade(teller.axis.x(off.since), teller.axis.width(off.since, end), said)


def bars(happened: Iterable[Happening], teller: Teller) -> Iterable[TimelineBar]:
    """Those that lie too close together are one bar, as bad as the worst of them; a long one stands alone."""
    axis = teller.axis
    close: list[Happening] = []
    for one in happened:
        if close and axis.x(one.at) - axis.x(close[0].at) >= BUCKET:
            yield _bar(close, teller)
            close = []
        close.append(one)
    if close:
        yield _bar(close, teller)


def _bar(some: list[Happening], teller: Teller) -> TimelineBar:
    axis, one = teller.axis, some[0]
    end = max(each.end for each in some)
    if len(some) == 1:
        mark = "missed" if one.status == "missed" else mark_of(one.status)
        width = axis.width(one.at, end, 6 if mark == "missed" else 2)
        return TimelineBar(axis.x(one.at), width, mark, teller.title(one), one.run_id, retried=one.retried)
    marks = ["missed" if each.status == "missed" else mark_of(each.status) for each in some]
    worst = max(marks, key=lambda mark: _RANK.index(mark) if mark in _RANK else 0)
    return TimelineBar(
        axis.x(one.at),
        axis.width(one.at, end, BUCKET - 1),
        worst,
        teller.several(some),
        since=rfc3339(Instant(one.at - SECOND)),
        until=rfc3339(some[-1].at),
        retried=any(each.retried for each in some),
    )


# All tasks together


@dataclass(frozen=True, slots=True)
class LoadColumn:
    """The starts of one step of the axis."""

    x: float
    width: float
    height: float
    """From 0 to 1: of the fullest."""
    count: int
    at: Instant
    is_planned: bool


def columns(counts: dict[int, int], step: int, axis: Axis, now: int) -> list[LoadColumn]:
    """`counts` by the second that a step begins with."""
    most = max(counts.values(), default=0)
    width = max(1.0, step * SECOND / axis.length * WIDTH - 0.5)
    return [
        LoadColumn(axis.x(at * SECOND), round(width, 2), count / most, count, Instant(at * SECOND), at * SECOND >= now)
        for at, count in sorted(counts.items())
        if count and axis.since - step * SECOND <= at * SECOND <= axis.until
    ]


def starts(lanes: Sequence[Lane], now: Instant, until: Instant, step: int) -> dict[int, int]:
    """Past and planned starts of the shown tasks, by steps of `step` seconds."""
    counted: Counter[int] = Counter()
    for lane in lanes:
        moments = [run.start_time or run.scheduled_time for run in lane.runs]
        moments += [one.slot for one in lane.before]
        counted.update(at // SECOND // step * step for at in moments if at <= now)
        if lane.is_dense:
            counted.update(lane.counts(now, until, step))
        else:
            counted.update(slot // step * step for slot in lane.planned)
    return dict(counted)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Tasks that start in the same minute, and that no jitter spreads."""

    minute: Instant
    names: list[tuple[int, str]]

    @property
    def jitter(self) -> int:
        return wanted_jitter(len(self.names))


def wanted_jitter(tasks: int) -> int:
    """Seconds over which jitter would spread these tasks: about five for each."""
    return min(600, max(30, 5 * tasks))


def crowds(load: Load, most: int = 5) -> list[Crowd]:
    """The fullest minutes to come; tasks that meet in several of them are listed once, for the first.

    Tasks that fire every few minutes are left out: they meet all others. So are those with a jitter that is long enough for all that meet there.
    """
    by_minute: dict[int, list[TaskId]] = {}
    for task_id, found in load.slots.items():
        if len(found) > 1 and found[1] - found[0] < _OFTEN:
            continue
        for minute in {slot // 60 for slot in found}:
            by_minute.setdefault(minute, []).append(task_id)
    told: dict[tuple[TaskId, ...], int] = {}
    for minute, met in sorted(by_minute.items()):
        wanted = wanted_jitter(len(met))
        if len(left := tuple(task_id for task_id in met if load.jitters.get(task_id, 0) < wanted)) >= CROWD:
            told.setdefault(left, minute)
    full = sorted(told.items(), key=lambda item: (-len(item[0]), item[1]))
    return [
        Crowd(Instant(minute * 60 * SECOND), [(task_id, load.names[task_id]) for task_id in met])
        for met, minute in full[:most]
    ]
