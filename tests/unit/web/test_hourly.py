"""How busy something was, hour by hour, from sums of runs."""

from __future__ import annotations

from noonbell.clock import SECOND, Instant
from noonbell.model.rollup import HOUR, Fact, Figures, RollUp, stretch_of
from noonbell.web.queues import HOURS, day_of

NOW = Instant(1_000 * HOUR.length + HOUR.length // 2)


def figures(*seconds: float) -> Figures:
    found = Figures()
    for each in seconds:
        found.add(Fact(1, "q", "w", "SUCCESS", 0, NOW, 1, round(each * SECOND), None, None))
    return found


def test_every_hour_of_the_day_is_there_and_the_present_one_counts_as_far_as_it_has_passed():
    stretch = stretch_of(NOW - (HOURS - 1) * HOUR.length, NOW + 1, NOW, HOUR)
    present, before = HOUR.begin(NOW), Instant(HOUR.begin(NOW) - HOUR.length)
    rows = [RollUp("w", present, figures(900, 450)), RollUp("w", before, figures(3_600))]
    day = day_of(rows, stretch, NOW)
    assert len(day.hours) == HOURS
    assert [hour.seconds for hour in day.hours[:2]] == [1_800, 3_600]
    assert [hour.share_of(2) for hour in day.hours[:3]] == [1_350 / 3_600, 0.5, 0.0]
    assert day.total.runs == 3
    assert day.share_of(2) == 4_950 / (2 * (23 * 3_600 + 1_800))


def test_the_time_before_it_began_to_work_does_not_count():
    since = Instant(HOUR.begin(NOW) + 600 * SECOND)
    stretch = stretch_of(since, NOW + 1, NOW, HOUR)
    day = day_of([RollUp("w", HOUR.begin(NOW), figures(600))], stretch, NOW, since)
    assert [hour.seconds for hour in day.hours] == [1_200]
    assert day.share_of(1) == 0.5


def test_a_worker_that_started_again_under_its_name_was_there_from_its_first_run_on():
    """Its figures are those of both processes, and so is the time that they are a share of."""
    present, before, first = (Instant(HOUR.begin(NOW) - n * HOUR.length) for n in range(3))
    rows = [RollUp("w", present, figures(600)), RollUp("w", first, figures(1_800))]
    stretch = stretch_of(first - HOUR.length, NOW + 1, NOW, HOUR)
    for since in (Instant(NOW - 60 * SECOND), Instant(before + HOUR.length // 2)):
        day = day_of(rows, stretch, NOW, since, places=1)
        assert [(hour.at, hour.seconds) for hour in day.hours] == [
            (present, 1_800), (before, 3_600), (first, 3_600), (first - HOUR.length, 0),
        ]  # fmt: skip
        assert day.share_of(1) == 2_400 / 9_000


def test_what_has_no_place_has_no_share():
    stretch = stretch_of(NOW, NOW + 1, NOW, HOUR)
    assert day_of([], stretch, NOW).hours[0].share_of(0) == 0.0
