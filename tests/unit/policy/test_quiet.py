"""Quiet hours at a moment: a table of stretches, days, zones and changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noonbell.clock import SECOND, Instant, from_datetime, to_datetime
from noonbell.model.calendar import QuietAction, QuietHours
from noonbell.policy.quiet import hours_problems, quiet_at, spread_over


def hours(start: str, end: str, **more: Any) -> QuietHours:
    return QuietHours(from_=start, to=end, **more)


def moment(text: str) -> Instant:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


def told(instant: Instant) -> str:
    return to_datetime(instant).strftime("%Y-%m-%dT%H:%M")


NIGHT = hours("22:00", "06:00")
WEEKEND = hours("00:00", "12:00", days=("sat", "sun"))


@pytest.mark.parametrize(
    ("quiet", "zone", "at", "since", "until"),
    [
        ([NIGHT], "UTC", "2026-01-01T21:59:59", None, None),
        ([NIGHT], "UTC", "2026-01-01T22:00", "2026-01-01T22:00", "2026-01-02T06:00"),
        ([NIGHT], "UTC", "2026-01-02T05:59:59", "2026-01-01T22:00", "2026-01-02T06:00"),
        ([NIGHT], "UTC", "2026-01-02T06:00", None, None),
        ([NIGHT], "Asia/Shanghai", "2026-01-01T14:00", "2026-01-01T14:00", "2026-01-01T22:00"),
        ([hours("22:00", "06:00", timezone="UTC")], "Asia/Shanghai", "2026-01-01T14:00", None, None),
        # by the day on which they begin
        ([WEEKEND], "UTC", "2026-01-02T10:00", None, None),
        ([WEEKEND], "UTC", "2026-01-03T10:00", "2026-01-03T00:00", "2026-01-03T12:00"),
        (
            [hours("22:00", "06:00", days=("fri",))],
            "UTC",
            "2026-01-03T01:00",
            "2026-01-02T22:00",
            "2026-01-03T06:00",
        ),
        ([hours("22:00", "06:00", days=("sat",))], "UTC", "2026-01-03T01:00", None, None),
        # stretches that follow each other are one
        (
            [hours("22:00", "00:00"), hours("00:00", "06:00"), hours("05:00", "07:30")],
            "UTC",
            "2026-01-01T23:00",
            "2026-01-01T22:00",
            "2026-01-02T07:30",
        ),
        # 2026-03-29: Berlin leaves out 02:00 to 03:00; 2026-10-25: it has them twice
        ([hours("22:00", "06:00")], "Europe/Berlin", "2026-03-29T00:30", "2026-03-28T21:00", "2026-03-29T04:00"),
        ([hours("22:00", "06:00")], "Europe/Berlin", "2026-10-25T00:30", "2026-10-24T20:00", "2026-10-25T05:00"),
    ],
)
def test_quiet_hours_hold_from_their_beginning_to_their_end(
    quiet: list[QuietHours], zone: str, at: str, since: str | None, until: str | None
) -> None:
    found = quiet_at(quiet, zone, moment(at))
    if until is None:
        assert found is None
    else:
        assert found is not None
        assert (told(found.since), told(found.until)) == (since, until)


def test_one_stretch_that_skips_is_enough() -> None:
    both = [NIGHT, hours("23:00", "01:00", what=QuietAction.SKIP)]
    early, late = (quiet_at(both, "UTC", moment(f"2026-01-01T{at}")) for at in ("22:30", "23:30"))
    assert early is not None
    assert late is not None
    assert (early.action, late.action) == (QuietAction.HOLD, QuietAction.SKIP)


def test_without_quiet_hours_it_is_never_quiet() -> None:
    assert quiet_at((), "UTC", moment("2026-01-01T23:00")) is None


def test_runs_are_spread_evenly_and_in_order() -> None:
    base = moment("2026-01-02T06:00")
    assert spread_over(base, 60, 4) == [base + seconds * SECOND for seconds in (0, 15, 30, 45)]
    assert spread_over(base, 0, 3) == [base] * 3
    assert spread_over(base, 60, 0) == []


def test_problems_are_named_by_their_fields() -> None:
    wrong = [NIGHT, hours("06:00", "06:00"), hours("01:00", "02:00", timezone="Nowhere/At_All")]
    assert set(hours_problems("quiet", wrong)) == {"quiet[1].to", "quiet[2].timezone"}
