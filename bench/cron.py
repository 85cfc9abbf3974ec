"""Cron, measured beside its peers in one run: microseconds per call, and as multiples of ours.

    python bench/cron.py

Ten expressions, from every five seconds to 29 February, each from the same random start times. A row is the median over
the expressions of the best of five rounds. cronsim and croniter are built for one start time, so theirs always includes
parsing; ours is measured with the schedule at hand, as the planner has it, and with the cache of schedules emptied
before each call (fields such as `*` or `1-5`, which all expressions share, stay known).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from random import Random
from statistics import median
from time import perf_counter
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from noonbell.when import _parse_cached, parse

EXPRESSIONS = (
    *("*/5 * * * * *", "* * * * *", "*/5 * * * *", "30 2 * * *", "0 9-17 * * 1-5"),
    *("0 0 1 * *", "0 0 L * *", "15 10 * * 1#2", "0 0 29 2 *", "0 12 1,15 * MON"),
)
STARTS = 60
ROUNDS = 5
Ask = Callable[[int], object]


def ours(expr: str, zone: str) -> Ask:
    return parse({"type": "cron", "expr": expr}, zone).next


def ours_from_text(expr: str, zone: str) -> Ask:
    def ask(start: int) -> object:
        _parse_cached.cache_clear()
        return parse({"type": "cron", "expr": expr}, zone).next(start)

    return ask


def cronsim(expr: str, zone: str) -> Ask:
    held = _zone(zone)
    return lambda start: next(CronSim(expr, datetime.fromtimestamp(start, held)))


def croniter_next(expr: str, zone: str) -> Ask:
    held = _zone(zone)
    # croniter wants seconds last.
    fields = expr.split()
    text = " ".join(fields[1:] + fields[:1]) if len(fields) == 6 else expr
    return lambda start: croniter(text, datetime.fromtimestamp(start, held)).get_next(datetime)


def measured(make: Callable[[str, str], Ask], zone: str) -> float:
    """Median over the expressions, in microseconds per call."""
    random = Random(2026)
    starts = [random.randrange(1_704_067_200, 1_956_528_000) for _ in range(STARTS)]
    found = []
    for expr in EXPRESSIONS:
        ask = make(expr, zone)
        for start in starts:
            ask(start)
        found.append(min(_round(ask, starts) for _ in range(ROUNDS)))
    return median(found) / STARTS * 1e6


def table() -> str:
    """The figures as a Markdown table."""
    rows = [
        "| | noonbell | cronsim | croniter | cronsim ÷ ours | croniter ÷ ours |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for label, make, zone in (
        ("next, UTC", ours, "UTC"),
        ("next, Europe/Berlin", ours, "Europe/Berlin"),
        ("parse + next, UTC", ours_from_text, "UTC"),
        ("parse + next, Europe/Berlin", ours_from_text, "Europe/Berlin"),
    ):
        mine, sim, iter_ = (measured(each, zone) for each in (make, cronsim, croniter_next))
        rows.append(
            f"| {label} | {mine:.1f} µs | {sim:.1f} µs | {iter_:.1f} µs | {sim / mine:.1f} | {iter_ / mine:.1f} |"
        )
    return "\n".join(rows)


def _round(ask: Ask, starts: list[int]) -> float:
    began = perf_counter()
    for start in starts:
        ask(start)
    return perf_counter() - began


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


if __name__ == "__main__":
    print(table())
