"""The log on the page of a run: its end, or the page that the address names; narrowed by level and text; the first error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.model.event import LogLine
from noonbell.model.run import RunId
from noonbell.service.workers import Level, from_level
from noonbell.web.context import PageContext

LINES: Final = 1_000
"""Of a log, on one page."""
_ABOVE: Final = 5
"""Lines that are shown above the one that is jumped to."""


@dataclass(frozen=True, slots=True)
class LogPage:
    lines: Sequence[LogLine]
    before: int | None = None
    """Where the page of lines before these begins; None: these are the first."""
    after: int | None = None
    """Where the next page begins; None: these are the last."""
    level: str = ""
    text: str = ""
    is_cut: bool = False
    """Of the narrowed lines there are more, before these."""
    first_error: int | None = None

    @property
    def is_narrowed(self) -> bool:
        return bool(self.level or self.text)

    @property
    def begin_of_error(self) -> int | None:
        """Where the page with the first error begins; None: it is on this one."""
        seq = self.first_error
        is_here = seq is None or any(line.seq == seq for line in self.lines)
        return None if is_here or seq is None else max(0, seq - 1 - _ABOVE)


async def log_page(ctx: PageContext, run_id: RunId) -> LogPage:
    """From the line that the address names, else the end of the log; or the newest lines of a level or with a text."""
    store = ctx.services.store
    level, text = ctx.query.get("level", ""), ctx.wanted("find", 200)
    level = level if level in (*Level,) else ""
    errors = await store.log_lines(run_id, limit=1, levels=from_level(Level.ERROR)) if _is_shown(ctx) else []
    first = errors[0].seq if errors else None
    if level or text:
        levels = from_level(Level(level)) if level else ()
        lines = await store.log_lines(run_id, limit=LINES + 1, levels=levels, text=text or None, newest=True)
        return LogPage(lines[-LINES:], level=level, text=text, is_cut=len(lines) > LINES, first_error=first)
    begin = ctx.number("line")
    if begin is None:
        last = await store.log_lines(run_id, limit=1, newest=True)
        begin = max(0, last[0].seq - LINES) if last else 0
    lines = await store.log_lines(run_id, begin, LINES + 1)
    more = lines[LINES - 1].seq if len(lines) > LINES else None
    return LogPage(lines[:LINES], max(0, begin - LINES) if begin else None, more, first_error=first)


def _is_shown(ctx: PageContext) -> bool:
    """Only then the log is searched for its first error."""
    return ctx.query.get("show", "log") == "log"
