"""From when to when the timeline shows, how its views lead to each other, and what all of them have in their frame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidArgument, ScheduleError
from noonbell.service.reader import Problems, Reader
from noonbell.service.timeline import LONGEST
from noonbell.web.timeline.axis import WIDTH, Axis
from noonbell.web.visit import Visit, merged
from noonbell.when import zones

SPANS: Final = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""How much is shown, in seconds: a half of it past, a half to come, unless the address says from when to when."""
VIEWS: Final = ("lanes", "table", "load", "calendar")
_MINUTES: Final = re.compile(r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)$", re.ASCII)
"""A browser's field for date and time leaves out seconds that are none."""
_SHORTEST: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Window:
    since: Instant
    until: Instant
    span: str
    """The zoom that it is; empty where somebody chose both ends."""
    is_now: bool

    def moved(self, parts: int) -> dict[str, str]:
        """From when to when, by so many halves of its length."""
        by = parts * (self.until - self.since) // 2
        return {"from": rfc3339(Instant(self.since + by)), "to": rfc3339(Instant(self.until + by))}


def take_zone(visit: Visit) -> None:
    """A link may say on which clock it is to be read."""
    if name := visit.query.get("zone"):
        try:
            visit.zone = zones.find(name)
        except ScheduleError as error:
            raise InvalidArgument.fields({"zone": error.details["timezone"]}) from None


def read_window(visit: Visit) -> Window:
    span = visit.query.get("span", "24h")
    if span not in SPANS:
        raise InvalidArgument.field("span", f"is {span[:20]!r}; expected {', '.join(SPANS)}")
    view = visit.query.get("view", "lanes")
    if view not in VIEWS:
        raise InvalidArgument.field("view", f"is {view[:20]!r}; expected {', '.join(VIEWS)}")
    since, until = read_ends(visit.query, visit.zone.name)
    half = SPANS[span] * SECOND // 2
    if since is None and until is None:
        return Window(Instant(visit.now - half), Instant(visit.now + half), span, is_now=True)
    since = Instant((until or visit.now) - 2 * half) if since is None else since
    until = Instant(since + 2 * half) if until is None else until
    if not _SHORTEST <= until - since <= LONGEST:
        raise InvalidArgument.field("to", "expected from one minute to 32 days after from")
    return Window(since, until, span if until - since == 2 * half else "", is_now=False)


def read_ends(given: Mapping[str, str], zone: str) -> tuple[Instant | None, Instant | None]:
    """RFC 3339, or what a browser's field for date and time says, on the clock of the chosen zone."""
    problems = Problems()
    told = {name: _MINUTES.sub(r"\1:00", given[name].strip()) for name in ("from", "to") if given.get(name)}
    reader = Reader(told, problems)
    since, until = reader.moment("from", zone), reader.moment("to", zone)
    problems.finish()
    return since, until


def frame(visit: Visit, window: Window | None = None, axis: Axis | None = None) -> dict[str, Any]:
    """What every view has: its tabs, its way back and forth, its axis."""
    kept = {name: visit.query[name] for name in ("name", "label", "group", "zone") if name in visit.query}
    view: dict[str, Any] = {"kept": kept, "width": WIDTH, "spans": list(SPANS), "view": _name(visit, window)}
    if window is None or axis is None:
        return view
    here = {name: visit.query[name] for name in (*kept, "view", "span") if name in visit.query}
    view |= {
        "here": here,
        "window": window,
        "since": _local(visit, window.since),
        "until": _local(visit, window.until),
        "earlier": merged({**here, **window.moved(-1)}),
        "later": merged({**here, **window.moved(1)}),
        "ticks": axis.ticks(),
        "changes": axis.changes(),
        "now_x": axis.x(visit.now) if window.since <= visit.now <= window.until else None,
    }
    return view


def _name(visit: Visit, window: Window | None) -> str:
    view = visit.query.get("view", "lanes")
    if view != "lanes" or window is None:
        return view
    return "week" if window.until - window.since > 3 * 86_400 * SECOND else "day"


def _local(visit: Visit, at: Instant) -> str:
    """As a browser's field for date and time takes it."""
    return f"{visit.zone.local(int(at // SECOND)):%Y-%m-%dT%H:%M}"
