"""Deadlines and forecasts of service levels, by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from noonbell.clock import SECOND, Instant, from_datetime
from noonbell.model.rollup import Figures
from noonbell.model.sla import OnBreach, Sla, SlaRule, SlaWatch
from noonbell.policy.sla import (
    RunFacts,
    Usual,
    budget_of,
    default_sla,
    expected_start,
    is_broken,
    judge,
    next_time_of_day,
    watch_of,
)

MINUTE = 60 * SECOND
USUAL = Usual(42 * MINUTE, 50 * MINUTE)


def utc(text: str) -> Instant:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("clock", "zone", "after", "wanted"),
    [
        ("06:00", "UTC", "2026-03-10 02:00", "2026-03-10 06:00"),
        ("06:00", "UTC", "2026-03-10 06:00", "2026-03-11 06:00"),
        ("06:00", "UTC", "2026-03-10 07:00", "2026-03-11 06:00"),
        ("06:00", "Europe/Berlin", "2026-03-28 01:00", "2026-03-28 05:00"),
        ("06:00", "Europe/Berlin", "2026-03-29 00:59", "2026-03-29 04:00"),  # an hour sooner
        ("06:00", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 05:00"),  # an hour later
        ("02:30", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 01:30"),  # left out: 03:30 on the wall
        ("02:30", "Europe/Berlin", "2026-10-24 23:00", "2026-10-25 00:30"),  # twice: the first
        ("02:30", "Europe/Berlin", "2026-10-25 00:30", "2026-10-26 01:30"),
        ("06:00", "Asia/Shanghai", "2026-03-09 23:00", "2026-03-10 22:00"),
        ("00:00", "America/New_York", "2026-03-08 04:59", "2026-03-08 05:00"),
    ],
)
def test_the_next_time_of_day(clock: str, zone: str, after: str, wanted: str):
    assert next_time_of_day(clock, zone, utc(after)) == utc(wanted)
    local = datetime.fromisoformat(wanted).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    assert f"{local:%H:%M}" == clock or wanted == "2026-03-29 01:30"


def test_a_level_without_deadlines_is_not_watched():
    assert watch_of(Sla(success_ratio=0.9), 1, 1, "UTC", Instant(0)) is None
    assert watch_of(Sla(), 1, 1, "UTC", Instant(0)) is None


def watch(**deadlines: int) -> SlaWatch:
    given = {name: None if name not in deadlines else Instant(deadlines[name] * MINUTE) for name in _NAMES}
    return SlaWatch(run_id=1, task_id=1, due_at=Instant(0), on_breach=OnBreach.ALERT, **given)


_NAMES = ("start_by", "finish_within", "finish_by")


def told(found: list) -> list[str]:
    return [str(miss.rule) for miss in found]


@pytest.mark.parametrize(
    ("started", "ended", "now", "breached", "foreseen", "next_at"),
    [
        (None, None, 1, [], [], 18),  # 60 - 42: by then it must have started
        (None, None, 19, [], ["finish_by"], 60),
        (10, None, 11, [], [], 60),  # at the latest at 60, with the p95
        (17, None, 18, [], [], 59),  # its p95 ends at 67: looked at when its usual time is over
        (17, None, 59.5, [], ["finish_by"], 60),
        (19, None, 20, [], ["finish_by"], 60),
        (5, None, 61, ["finish_by"], [], None),
        (5, 60, 61, [], [], None),
        (5, 60.1, 300, ["finish_by"], [], None),
        (None, 30, 31, [], [], None),  # canceled before it started
        (None, None, 60, [], [], 60),  # not yet certain
    ],
)
def test_a_run_that_has_to_end_in_an_hour(started, ended, now, breached, foreseen, next_at):
    facts = RunFacts(*(None if at is None else Instant(round(at * MINUTE)) for at in (started, ended)))
    found = judge(watch(finish_by=60), facts, USUAL, Instant(round(now * MINUTE)))
    assert (told(found.breached), told(found.foreseen)) == (breached, foreseen)
    assert found.next_at == (None if next_at is None else next_at * MINUTE + SECOND)


@pytest.mark.parametrize(
    ("started", "ended", "now", "breached"),
    [(None, None, 9, []), (9, None, 11, []), (None, None, 11, ["start_within_seconds"]), (None, 5, 11, [])],
)
def test_a_run_that_has_to_start_in_ten_minutes(started, ended, now, breached):
    facts = RunFacts(*(None if at is None else Instant(at * MINUTE) for at in (started, ended)))
    assert told(judge(watch(start_by=10), facts, None, Instant(now * MINUTE)).breached) == breached


def test_what_was_told_is_not_foreseen_again():
    late = RunFacts(None, None)
    assert judge(watch(finish_by=60), late, USUAL, Instant(30 * MINUTE), [SlaRule.FINISH_BY]).foreseen == []


def test_nothing_is_foreseen_without_a_usual_time():
    assert judge(watch(finish_by=60), RunFacts(None, None), None, Instant(59 * MINUTE)).foreseen == []


@pytest.mark.parametrize(
    ("ahead", "limit", "started", "minutes"),
    [(0, None, (), 0), (5, None, (), 0), (0, 1, (), 0), (1, 1, (), 42), (0, 1, (-40,), 2), (2, 1, (-40,), 86)]
    + [(2, 2, (-40, -10), 44), (0, 2, (-10,), 0), (0, 1, (-100,), 0)],
)
def test_a_run_starts_when_those_before_it_are_through(ahead, limit, started, minutes):
    begun = [Instant((1000 + at) * MINUTE) for at in started]
    found = expected_start(Instant(1000 * MINUTE), USUAL, ahead=ahead, limit=limit, started=begun)
    assert found == (1000 + minutes) * MINUTE


@pytest.mark.parametrize(
    ("ratio", "good", "bad", "left", "broken"),
    [
        (0.9, 9, 1, 0.0, False),
        (0.9, 8, 2, -1.0, True),
        (0.99, 999, 1, 0.9, False),
        (1.0, 10, 1, -1.0, True),
        (1.0, 10, 0, 1.0, False),
        (0.5, 0, 0, 1.0, False),
    ],
)
def test_the_error_budget(ratio, good, bad, left, broken):
    figures = Figures(counts={"SUCCESS": good, "FAILED": bad})
    assert budget_of(ratio, figures).left == pytest.approx(left)
    assert is_broken(ratio, figures) is broken


def test_the_first_label_that_fits_brings_its_level():
    defaults = {"tier=gold": Sla(start_within_seconds=1), "team=a": Sla(start_within_seconds=2)}
    assert default_sla(defaults, {"team": "a", "tier": "gold"}) == Sla(start_within_seconds=1)
    assert default_sla(defaults, {"team": "a"}) == Sla(start_within_seconds=2)
    assert default_sla(defaults, {"team": "b"}) is None
