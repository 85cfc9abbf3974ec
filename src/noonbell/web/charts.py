"""Charts: from rows to rectangles. Pure; the templates draw them as SVG, with a text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.model.run import SUCCEEDED, Run
from noonbell.web.badges import mark_of
from noonbell.when.zones import Zone

STRIP_HEIGHT: Final = 24
_HEIGHTS: Final = {"bad": 24.0, "active": 16.0, "warn": 20.0, "missed": 12.0, "idle": 5.0}


@dataclass(frozen=True, slots=True)
class Cell:
    x: float
    y: float
    width: float
    height: float
    mark: str
    """`ok`, `bad`, `warn`, `active`, `idle`, `missed`: how it is filled."""
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
class Bar:
    x: float
    y: float
    width: float
    height: float
    mark: str


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
        for mark in ("ok", "idle", "active", "warn", "bad"):
            tall = height * counts.get(mark, 0) / levels[0]
            if tall:
                tall = max(tall, 2.0)
                y -= tall
                pieces.append(Bar(round((place + 0.14) * room, 2), y, round(max(1.0, 0.72 * room), 2), tall, mark))
        columns.append(Column(start, counts, pieces))
    return Bars(columns, width, height, most, levels)


def hours(runs: Sequence[Run], now: int, count: int = 24) -> list[tuple[int, dict[str, int]]]:
    """Runs by the hour that they belong to, the present hour last."""
    hour = 3_600_000_000
    last = now // hour
    found: dict[int, dict[str, int]] = {last - back: {} for back in range(count - 1, -1, -1)}
    for run in runs:
        counts = found.get(run.scheduled_time // hour)
        if counts is not None:
            mark = mark_of(run.status)
            mark = "active" if mark == "warn" else mark  # a retry is no ending of its own
            counts[mark] = counts.get(mark, 0) + 1
    return [(start * hour, counts) for start, counts in found.items()]


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    mark: str
    """`bad` is drawn as a cross: told apart by its shape too."""
    run: Run


@dataclass(frozen=True, slots=True)
class Line:
    """Something that the axis of time is marked with."""

    x: float
    version: int
    at: int


@dataclass(frozen=True, slots=True)
class Dots:
    """Each run that ended a dot: when it was due, and how long it took."""

    dots: list[Dot]
    changes: list[Line]
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


def dots(
    runs: Sequence[Run],
    changes: Sequence[tuple[int, int]],
    p95_ms: int | None,
    most: int = 200,
    width: float = 560,
    height: float = 140,
) -> Dots:
    """`runs` newest first; `changes` are version and moment of each change of the task."""
    shown = [run for run in runs if run.duration_ms is not None and mark_of(run.status) in ("ok", "bad")][:most]
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
        [Line(x_of(at), version, at) for version, at in changes if first <= at <= last],
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


def heat(runs: Sequence[Run], zone: Zone) -> list[list[Heat]]:
    """Seven days from Monday on, each with its 24 hours, on the clock of the zone. Only what succeeded or failed."""
    total, failed = [[0] * 24 for _ in range(7)], [[0] * 24 for _ in range(7)]
    for run in runs:
        is_bad = mark_of(run.status) == "bad"
        if is_bad or run.status in SUCCEEDED:
            local = zone.local(run.scheduled_time // 1_000_000)
            total[local.weekday()][local.hour] += 1
            failed[local.weekday()][local.hour] += is_bad
    most = max(max(day) for day in total)
    return [
        [_heat(count, bad, most) for count, bad in zip(*day, strict=True)] for day in zip(total, failed, strict=True)
    ]


def _heat(count: int, bad: int, most: int) -> Heat:
    if not count:
        return Heat()
    return Heat(count, bad, -(-4 * bad // count) if bad else max(1, -(-4 * count // most)))
