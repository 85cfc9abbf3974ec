"""Charts: from rows to rectangles. Pure; the templates draw them as SVG, with a text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.model.run import Run
from noonbell.web.badges import mark_of

STRIP_HEIGHT: Final = 24
_LABEL: Final = 16
"""Room above the tallest bar, for its number."""
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


def bars(steps: Sequence[tuple[int, dict[str, int]]], width: float = 720, height: float = 120) -> Bars:
    """Stacked: what is `bad` lies on top, where it is seen."""
    most = max([sum(counts.values()) for _, counts in steps], default=0)
    room, tallest = width / max(1, len(steps)), height - _LABEL
    columns = []
    for place, (start, counts) in enumerate(steps):
        y, pieces = height, []
        for mark in ("ok", "idle", "active", "warn", "bad"):
            tall = tallest * counts.get(mark, 0) / most if most else 0
            if tall:
                tall = max(tall, 2.0)
                y -= tall
                pieces.append(Bar(place * room + 1, y, max(1.0, room - 2), tall, mark))
        columns.append(Column(start, counts, pieces))
    return Bars(columns, width, height, most)


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
