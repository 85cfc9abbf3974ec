"""The log of a run, a page of lines at a time: from its end, unless the address says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from noonbell.model.event import LogLine
from noonbell.model.run import Run, RunId
from noonbell.web.visit import Visit

LINES: Final = 1_000
"""Of a log, on one page."""


@dataclass(frozen=True, slots=True)
class LogPage:
    lines: list[LogLine]
    before: int | None
    """Where the page of lines before these begins; None: these are the first."""
    after: int | None
    """Where the next page begins; None: these are the last."""


async def log_page(visit: Visit, run: Run) -> LogPage:
    """From the line that the address names, else the end of the log."""
    text = visit.query.get("line", "")
    begin = int(text) if text.isdecimal() and len(text) < 10 else None
    if begin is None:
        begin = max(0, await last_line(visit, run.id) - LINES)
    lines = await visit.site.services.store.log_lines(run.id, begin, LINES + 1)
    more = lines[LINES - 1].seq if len(lines) > LINES else None
    return LogPage(lines[:LINES], max(0, begin - LINES) if begin else None, more)


async def last_line(visit: Visit, run_id: RunId) -> int:
    """The number of a log's last line, found in a few looks: lines are numbered from 1, without a gap."""

    async def has(number: int) -> bool:
        return bool(await visit.site.services.store.log_lines(run_id, number - 1, 1))

    if not await has(LINES + 1):
        return LINES  # they all fit
    low, high = LINES + 1, 2 * LINES
    while await has(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await has(middle) else (low, middle)
    return low
