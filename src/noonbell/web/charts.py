"""What is drawn: charts, from rows to rectangles, with a text for those who cannot see them; statuses as an icon, a word and a
colour each. Pure; the templates draw them as SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from noonbell.clock import SECOND
from noonbell.model.rollup import Figures
from noonbell.model.run import Run
from noonbell.service.translation import Translator
from noonbell.when.zones import Zone

HOUR: Final = 3_600 * SECOND
STRIP_HEIGHT: Final = 24
_HEIGHTS: Final = {"bad": 24.0, "active": 16.0, "warn": 20.0, "missed": 12.0, "idle": 5.0}


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    mark: str
    """`ok`, `bad`, `warn`, `active`, `idle`, `missed`: how it is filled."""


@dataclass(frozen=True, slots=True)
class Cell(Bar):
    run: Run


@dataclass(frozen=True, slots=True)
class Strip:
    """The newest runs of a task, oldest at the left: failures stand out by height, not by colour alone."""

    cells: list[Cell]
    width: float
    height: float
    failed: int
    succeeded: int


def strip(runs: Sequence[Run], most: int = 40, width: float = 5, gap: float = 1.5) -> Strip:
    """`runs` newest first, as lists have them."""
    shown = list(runs[:most])[::-1]
    longest = max([run.duration_ms or 0 for run in shown], default=0)
    cells = []
    for place, run in enumerate(shown):
        mark = mark_of(run.status)
        height = _HEIGHTS.get(mark, 0.0) or 8 + 8 * ((run.duration_ms or 0) / longest if longest else 0)
        cells.append(Cell(place * (width + gap), STRIP_HEIGHT - height, width, height, mark, run))
    return Strip(
        cells,
        max(1.0, len(shown) * (width + gap) - gap),
        STRIP_HEIGHT,
        failed=sum(cell.mark == "bad" for cell in cells),
        succeeded=sum(cell.mark == "ok" for cell in cells),
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One step of a chart of counts."""

    start: int
    counts: dict[str, int]
    bars: list[Bar]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Bars:
    columns: list[Column]
    width: float
    height: float
    most: int
    levels: list[int]
    """What the lines across stand for, the highest first; the last is zero."""


def bars(steps: Sequence[tuple[int, dict[str, int]]], width: float = 720, height: float = 120) -> Bars:
    """Stacked: what is `bad` lies on top, where it is seen."""
    most = max([sum(counts.values()) for _, counts in steps], default=0)
    levels = [*reversed(grid_of(most)), 0]
    room = width / max(1, len(steps))
    columns = []
    for place, (start, counts) in enumerate(steps):
        y, pieces = height, []
        for mark in ("ok", "idle", "waiting", "active", "warn", "bad"):
            tall = height * counts.get(mark, 0) / levels[0]
            if tall:
                tall = max(tall, 2.0)
                y -= tall
                pieces.append(Bar(round((place + 0.14) * room, 2), y, round(max(1.0, 0.72 * room), 2), tall, mark))
        columns.append(Column(start, counts, pieces))
    return Bars(columns, width, height, most, levels)


def hours(ended: Sequence[tuple[int, Figures]], now: Mapping[str, int]) -> list[tuple[int, dict[str, int]]]:
    """How many runs ended in each hour, and how; in the present hour, which is the last, also what executes and waits `now`."""
    found: list[tuple[int, dict[str, int]]] = []
    for start, figures in ended:
        marks = {"ok": figures.succeeded, "bad": figures.failed, "idle": figures.skipped + figures.canceled}
        found.append((start, {mark: count for mark, count in marks.items() if count}))
    found[-1][1].update({mark: count for mark, count in now.items() if count})
    return found


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    mark: str
    """`bad` is drawn as a cross: told apart by its shape too."""
    run: Run


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """Something that the axis of time is marked with."""

    x: float
    version: int
    at: int


@dataclass(frozen=True, slots=True)
class Dots:
    """Each run that ended a dot: when it was due, and how long it took."""

    dots: list[Dot]
    changes: list[ChangeMark]
    grid: list[tuple[float, int]]
    """Height and milliseconds of each line across."""
    p95_y: float | None
    first: int
    last: int
    width: float
    height: float


_EDGE: Final = 8.0
"""Room around the dots, so that none is cut."""
_TOP: Final = 18.0
"""Room above them, for the number of the highest line."""
_MOST_DOTS: Final = 200


def dots(runs: Sequence[Run], changes: Sequence[tuple[int, int]], p95_ms: int | None) -> Dots:
    """`runs` newest first; `changes` are version and moment of each change of the task."""
    width, height = 560.0, 140.0
    shown = [run for run in runs if run.duration_ms is not None and mark_of(run.status) in ("ok", "bad")][:_MOST_DOTS]
    if not shown:
        return Dots([], [], [], None, 0, 0, width, height)
    times = [run.scheduled_time for run in shown]
    first, last = min(times), max(times)
    tops = grid_of(max(run.duration_ms or 0 for run in shown))
    room, tall = width - 2 * _EDGE, height - _EDGE - _TOP
    across, up = room / max(1, last - first), tall / tops[-1]

    def x_of(at: int) -> float:
        return round(_EDGE + (at - first) * across, 1) if last > first else width / 2

    def y_of(ms: int) -> float:
        return round(height - _EDGE - ms * up, 1)

    return Dots(
        [Dot(x_of(run.scheduled_time), y_of(run.duration_ms or 0), mark_of(run.status), run) for run in shown],
        [ChangeMark(x_of(at), version, at) for version, at in changes if first <= at <= last],
        [(y_of(ms), ms) for ms in (0, *tops)],
        None if p95_ms is None else y_of(min(p95_ms, tops[-1])),
        first,
        last,
        width,
        height,
    )


def grid_of(longest: int) -> list[int]:
    """Three or four round numbers of milliseconds, the last not below the longest."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step * 4 >= longest:
                return [factor * step * number for number in range(1, -(-max(1, longest) // (factor * step)) + 1)]
        step *= 10


@dataclass(frozen=True, slots=True)
class Heat:
    """An hour of a weekday."""

    runs: int = 0
    failed: int = 0
    level: int = 0
    """0 for nothing, 1 to 4 by how much there is, or how much of it failed."""


def heat(hours: Sequence[tuple[int, Figures]], zone: Zone) -> list[list[Heat]]:
    """Seven days from Monday on, each with its 24 hours, on the clock of the zone. Only what succeeded or failed."""
    total, failed = [[0] * 24 for _ in range(7)], [[0] * 24 for _ in range(7)]
    for start, figures in hours:
        local = zone.local(start // 1_000_000)
        total[local.weekday()][local.hour] += figures.succeeded + figures.failed
        failed[local.weekday()][local.hour] += figures.failed
    most = max(max(day) for day in total)
    return [
        [_heat(count, bad, most) for count, bad in zip(*day, strict=True)] for day in zip(total, failed, strict=True)
    ]


def _heat(count: int, bad: int, most: int) -> Heat:
    if not count:
        return Heat()
    return Heat(count, bad, -(-4 * bad // count) if bad else max(1, -(-4 * count // most)))


_STATUSES: Final = {
    "scheduled": ("SCHEDULED", "pending"),
    "running": ("RUNNING",),
    "retrying": ("RETRYING",),
    "callback": ("CALLBACK_PENDING",),
    "ok": ("SUCCESS", "CALLBACK_SUCCESS", "ENABLED", "running", "open", "RECEIVED", "well", "delivered"),
    "failed": ("FAILED", "ERROR", "IGNORED", "ill", "failed"),
    "timeout": ("TIMEOUT", "FAILED_TIMEOUT"),
    "canceled": ("CANCELED",),
    "skipped": ("SKIPPED", "COMPLETED"),
    "missed": ("LOST", "lost"),
    "paused": ("DISABLED", "paused"),
    "queued": ("draining", "stopping", "note"),
    "warn": ("care",),
}
"""By tone: of runs, attempts, tasks, workers, queues, callbacks, findings of the doctor and deliveries of alerts."""
TONES: Final = {status: tone for tone, statuses in _STATUSES.items() for status in statuses}

MARKS: Final[dict[str, str]] = {
    "ok": "ok",
    "failed": "bad",
    "timeout": "bad",
    "running": "active",
    "callback": "active",
    "retrying": "warn",
    "scheduled": "waiting",
    "missed": "missed",
}
"""The fill of a tone in a chart; any other is idle."""


def tone_of(status: str) -> str:
    return TONES.get(status, "queued")


def mark_of(status: str) -> str:
    return MARKS.get(tone_of(status), "idle")


def word_of(status: str, words: Translator) -> str:
    return words.get(f"status.{status}", status)


def badge(status: str, words: Translator) -> Markup:
    tone = tone_of(status)
    return Markup('<span class="badge tone-{}" data-status="{}">{}{}</span>').format(
        tone, status, icon(tone), word_of(status, words)
    )


PATHS: Final[dict[str, str]] = {
    # statuses: told apart by shape, not by colour alone
    "scheduled": "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8M8 4.5V8l2.4 1.6",
    "queued": "M3 4.5h10M3 8h10M3 11.5h10",
    "running": "M8 2a6 6 0 1 1-6 6",
    "callback": "M4.5 2h7M4.5 14h7M5 2c0 3.5 6 4.5 6 6s-6 2.500-6 6M11 2c0 3.500-6 4.500-6 6s6 2.500 6 6",
    "retrying": "M13 8a5 5 0 1 1-1.600-3.700M13 2.200v2.800h-2.800",
    "ok": "M3 8.500 6.500 12 13 4.500",
    "failed": "M5.200 1.800h5.600l3.400 3.400v5.600l-3.400 3.400H5.200l-3.400-3.400V5.200zM5.800 5.800l4.400 4.400M10.200 5.800l-4.400 4.400",
    "timeout": "M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800M6 6l4 4M10 6l-4 4",
    "missed": "M8 1.800 14.200 8 8 14.200 1.800 8z",
    "skipped": "M3 8h10",
    "canceled": "M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800M3.800 12.200l8.400-8.400",
    "paused": "M5.500 3v10M10.500 3v10",
    "warn": "M8 2 14.500 13.500h-13zM8 6.500v3M8 11.500v.2",
    # the rooms
    "overview": "M2 8.500 8 3l6 5.500M4 7.500V13h8V7.500",
    "tasks": "M2.500 3.500h2v2h-2zM7 4.500h7M2.500 10.500h2v2h-2zM7 11.500h7",
    "runs": "M5 3l8 5-8 5z",
    "timeline": "M2 3.500h6M5 8h7M9 12.500h5M2 1v14",
    "calls": "M2 8h9M8 4.500 11.500 8 8 11.500M14 3v10",
    "queues": "M2 4h12M2 8h9M2 12h6",
    "workers": "M3 3h10v4H3zM3 9h10v4H3zM5.500 5h.2M5.500 11h.2",
    "activity": "M2 8h3l2-5 3 10 2-5h2",
    "settings": "M8 5.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5M8 1.500v2M8 12.500v2M1.500 8h2M12.500 8h2M3.400 3.400l1.400 1.400"
    "M11.200 11.200l1.400 1.400M3.400 12.600l1.400-1.400M11.200 4.800l1.400-1.400",
    # acts
    "search": "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9M10.300 10.300 13.500 13.500",
    "copy": "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
    "close": "M4 4l8 8M12 4l-8 8",
    "next": "M6 3l5 5-5 5",
    "previous": "M10 3 5 8l5 5",
    "more": "M3 8h.1M8 8h.1M13 8h.1",
    "bell": "M4 11V7.500a4 4 0 0 1 8 0V11l1.500 1.500h-11zM6.800 14h2.400",
}


def icon(name: str) -> Markup:
    """Hidden from those who are read to: a word stands beside it."""
    return Markup('<svg class="icon icon-{}" viewBox="0 0 16 16" aria-hidden="true"><path d="{}"/></svg>').format(
        name, PATHS[name]
    )
