"""What becomes of a PostgreSQL store that grows: many tasks, many slots, a long history, and its way into partitions.

    tasks     tasks that are not due: a planning pass, and a node, beside those with 1,000 tasks
    hourly    hourly tasks spread evenly over the hour, and a burst in one second: how late their runs start
    history   pages read from a long history: buffers, beside those with a twentieth of it
    convert   a long history gets partitions while two nodes fire 50 slots a second: what is lost, doubled, and the longest stall

Rows are made by statements in the database, in steps that are written down there: what was cut off goes on where it was. The database of a
part is dropped when it has been measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bench.growth import convert, history, hourly, tasks
from bench.growth.kept import drop, kept
from bench.growth.sizes import BY_SCALE, Sizes
from bench.results import Lines, staged
from bench.rounds import progress
from bench.speed.scale import Scale
from bench.tables import NONE, line


@dataclass(frozen=True)
class Part:
    prepare: Callable[[str, Sizes], None]
    """Makes the rows: idle cores are not needed."""
    measure: Callable[[str, Sizes], Sequence[Sequence[str]]]
    """Makes the rows that are missing, and measures."""


STAGES: Final = {
    "tasks": Part(tasks.prepare, tasks.measure),
    "hourly": Part(hourly.prepare, hourly.measure),
    "history": Part(history.prepare, history.measure),
    "convert": Part(convert.prepare, convert.measure),
}
HEAD: Final = ["part", "what", "size", "found", "wanted"]


def table(lines: Mapping[str, Sequence[str]]) -> str:
    return staged(HEAD, STAGES, lines, right=(2,))


def measure(name: str, scale: Scale, rounds: int) -> list[str]:
    """The lines of one part; of one that failed, that it did."""
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}"
    try:
        rows = take(name, BY_SCALE[scale])
    except Exception as problem:  # the other parts go on
        progress(f"FAILED: growth, {name}: {problem!r}")
        rows = [[name, "–", f"failed: {type(problem).__name__}", NONE]]
    return [*(line([name, *row]) for row in rows), f"- {name}: {began}{scale.said}."]


def take(name: str, sizes: Sizes, *, prepare: bool = False) -> Sequence[Sequence[str]]:
    """The rows of a part; none where it is to be prepared only."""
    progress(f"growth: {name}")
    database = f"nb_bench_growth_{name}_{getattr(sizes, name)}"
    part, url = STAGES[name], kept(database)
    if prepare:
        part.prepare(url, sizes)
        return []
    rows = part.measure(url, sizes)
    drop(database)
    return rows


__all__ = ["HEAD", "STAGES", "Lines", "measure", "table", "take"]
