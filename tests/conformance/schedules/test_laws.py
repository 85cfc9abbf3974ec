"""The laws of a schedule, for every kind in every sort of zone. A new kind joins by adding its specs here."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from conformance.schedules.expressions import SINCE, ZONES, clock_changes, random_expression, random_start
from noonbell.errors import ScheduleError
from noonbell.model.task_schedule import ClockChanges, GapRule, RepeatedTimeRule
from noonbell.when import KINDS, LATEST, Schedule, compose, normalise, parse
from noonbell.when.due import Bounds, Due, due, first, shortest_gap
from noonbell.when.zones import YEAR
from services.size import size

pytestmark = pytest.mark.longer

NOW = SINCE + YEAR

times = st.builds(
    "{:02d}:{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from((0, 15, 30, 59)), st.sampled_from((0, 0, 5))
)
repeats = st.sampled_from((None, -1, 1, 7))
crons = st.builds(
    lambda seed, second: {"type": "cron", "expr": second + random_expression(Random(seed))},
    st.integers(0, 10**9),
    st.sampled_from(("", "0 ", "*/20 ", "7,9 ")),
)
specs: st.SearchStrategy[dict[str, Any]] = st.one_of(
    crons,
    crons.map(lambda spec: {**spec, "dialect": "cronjob"}),
    crons.map(lambda spec: {**spec, "dst": "wall"}),
    st.fixed_dictionaries({"type": st.just("weekly"), "weekday": st.integers(0, 6), "time": times, "repeat": repeats}),
    st.fixed_dictionaries({"type": st.just("monthly"), "day": st.integers(-31, 31), "time": times, "repeat": repeats}),
    st.fixed_dictionaries(
        {
            "type": st.just("interval"),
            "every": st.integers(1, 400),
            "unit": st.sampled_from(("second", "minute", "hour", "day")),
            "repeat": repeats,
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("once"), "at": st.just("2026-03-29T02:30:00"), "run_if_late": st.booleans()}
    ),
)
parts = specs.filter(lambda spec: spec["type"] != "once").map(lambda spec: {**spec, "repeat": None})
compositions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "schedules": st.lists(parts.filter(lambda spec: "dst" not in spec), min_size=1, max_size=3),
        "exclude": st.lists(parts.filter(lambda spec: "dst" not in spec), max_size=2),
        "dst": st.none()
        | st.fixed_dictionaries(
            {
                "gap": st.sampled_from((None, *GapRule)),
                "repeat": st.sampled_from((None, *RepeatedTimeRule)),
            }
        ),
    }
)
"""As the fields of a task have them; a single schedule with a rule for clock changes is one too."""
rules = st.one_of(specs, compositions)
zones = st.sampled_from((*ZONES, "Africa/Casablanca", "+05:45"))
CHANGES = {tz: clock_changes(tz, SINCE, SINCE + 8 * YEAR) for tz in (*ZONES, "Africa/Casablanca", "+05:45")}
seeds = st.integers(0, 10**9)

law = settings(max_examples=size(120, 600), derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def schedule_of(spec: dict[str, Any], tz: str) -> Schedule:
    """As it is stored: with the time of creation filled in."""
    try:
        if "schedules" not in spec:
            return parse(normalise(spec, tz, NOW), tz)
        changes = None if spec["dst"] is None else ClockChanges(**spec["dst"])
        named, taken = (
            [normalise(each, tz, NOW, changes=changes) for each in spec[name]] for name in ("schedules", "exclude")
        )
        return compose(named, taken, tz, changes)
    except ScheduleError as bad:
        assume("never fires" not in bad.message)
        raise


def walk(schedule: Schedule, after: int, until: int, most: int) -> list[int]:
    found: list[int] = []
    slot = schedule.next(after)
    while slot is not None and slot <= until and len(found) < most:
        found.append(slot)
        slot = schedule.next(slot)
    return found


def test_every_kind_is_under_these_laws() -> None:
    assert set(KINDS) == {"cron", "weekly", "monthly", "interval", "once"}


@law
@given(rules, zones, seeds)
def test_next_is_later_and_previous_is_its_mirror(spec: dict[str, Any], tz: str, seed: int) -> None:
    schedule = schedule_of(spec, tz)
    start = random_start(Random(seed), CHANGES[tz])
    slots = walk(schedule, start, LATEST, 5)
    assert slots == sorted(set(slots))
    assert all(slot > start for slot in slots)
    for earlier, later in itertools.pairwise(slots):
        assert schedule.previous(later) == earlier
        assert schedule.previous(earlier + 1) == earlier
        assert schedule.next(later - 1) == later
    if slots:
        before = schedule.previous(slots[0])
        assert before is None or (before <= start and schedule.next(before) == slots[0])


@law
@given(specs, zones, seeds)
def test_the_stored_form_reads_back_as_itself(spec: dict[str, Any], tz: str, seed: int) -> None:
    schedule = schedule_of(spec, tz)
    stored = normalise(spec, tz, NOW)
    assert normalise(stored, tz, NOW + seed) == stored
    assert parse(stored, tz) == schedule
    assert hash(parse(dict(reversed(stored.items())), tz)) == hash(schedule)
    assert schedule.describe("en")
    assert schedule.describe("zh") != schedule.describe("en")
    assert {note.code for note in schedule.notes("en", NOW)} == {note.code for note in schedule.notes("zh", NOW)}


@law
@given(rules, zones, seeds)
def test_counting_is_the_same_as_walking(spec: dict[str, Any], tz: str, seed: int) -> None:
    schedule = schedule_of(spec, tz)
    start = random_start(Random(seed), CHANGES[tz])
    slots = walk(schedule, start, start + YEAR, 800)
    assume(slots)
    assert schedule.count(start + 1, slots[-1] + 1) == len(slots)  # type: ignore[attr-defined]
    assert schedule.count(slots[0], slots[-1]) == len(slots) - 1  # type: ignore[attr-defined]


class WithoutCount:
    """A schedule that can only walk."""

    def __init__(self, schedule: Schedule) -> None:
        self.next, self.previous, self.is_fixed_delay = schedule.next, schedule.previous, schedule.is_fixed_delay


def slow_due(
    schedule: Schedule, bounds: Bounds, cursor: int, until: int, keep: int, remaining: int | None
) -> tuple[list[int], list[int], int | None]:
    """(newest, dropped, next) by listing everything."""
    slots = [slot for slot in walk(schedule, cursor - 1, until, 10_000) if bounds.admit(slot)][:remaining]
    cut = max(0, len(slots) - keep)
    following = schedule.next(until)
    if len(slots) == remaining or following is None or not bounds.admit(following):
        following = None
    return slots[cut:], slots[:cut], following


def told(account: Due) -> tuple[list[int], int, int | None, int | None, int | None, int]:
    return (
        list(account.newest),
        account.dropped,
        account.first_dropped,
        account.last_dropped,
        account.next,
        account.used,
    )


@law
@given(
    rules,
    zones,
    seeds,
    st.integers(0, 300),
    st.sampled_from((0, 1, 2, 100)),
    st.sampled_from((None, 1, 2, 50, 10_000)),
    st.booleans(),
)
def test_due_accounts_for_every_slot(
    spec: dict[str, Any], tz: str, seed: int, many: int, keep: int, remaining: int | None, ends: bool
) -> None:
    schedule = schedule_of(spec, tz)
    slots = walk(schedule, random_start(Random(seed), CHANGES[tz]), LATEST, many + 1)
    assume(slots)
    until = slots[-1] + seed % 2
    bounds = Bounds(None, slots[len(slots) // 2] if ends else None)
    newest, dropped, following = slow_due(schedule, bounds, slots[0], until, keep, remaining)
    if ends:
        following = None if bounds.end_at is not None and until >= bounds.end_at else following
    expected = (
        newest,
        len(dropped),
        dropped[0] if dropped else None,
        dropped[-1] if dropped else None,
        following,
        len(newest) + len(dropped),
    )
    assert told(due(schedule, bounds, slots[0], until, keep, remaining)) == expected
    walker: Any = WithoutCount(schedule)
    assert told(due(walker, bounds, slots[0], until, keep, remaining)) == expected


@law
@given(rules, zones, seeds, st.sampled_from((0, 3, 100)), st.sampled_from((None, 4, 90)))
def test_a_small_budget_gives_the_same_account_in_pieces(
    spec: dict[str, Any], tz: str, seed: int, keep: int, remaining: int | None
) -> None:
    schedule = schedule_of(spec, tz)
    slots = walk(schedule, random_start(Random(seed), CHANGES[tz]), LATEST, 120)
    assume(len(slots) > 1)
    whole = due(schedule, Bounds(), slots[0], slots[-1], keep, remaining)
    walker: Any = WithoutCount(schedule)
    cursor: int | None = slots[0]
    left, dropped = remaining, 0
    while True:
        assert cursor is not None
        piece = due(walker, Bounds(), cursor, slots[-1], keep, left, budget=10)
        dropped += piece.dropped
        if piece.complete:
            break
        assert piece.newest == ()
        assert 0 < piece.dropped <= 10
        cursor, left = piece.next, None if left is None else left - piece.used
    assert (piece.newest, dropped, piece.next) == (whole.newest, whole.dropped, whole.next)


@law
@given(rules, zones, seeds)
def test_bounds_are_inclusive(spec: dict[str, Any], tz: str, seed: int) -> None:
    schedule = schedule_of(spec, tz)
    slots = walk(schedule, random_start(Random(seed), CHANGES[tz]), LATEST, 3)
    assume(len(slots) == 3)
    early, middle, late = slots
    assert first(schedule, Bounds(middle, None), early - 1) == middle
    assert first(schedule, Bounds(middle + 1, None), early - 1) == late
    assert first(schedule, Bounds(None, middle), early) == middle
    assert first(schedule, Bounds(None, middle - 1), early) is None


@law
@given(rules, zones, seeds)
def test_no_two_slots_are_nearer_than_the_shortest_gap(spec: dict[str, Any], tz: str, seed: int) -> None:
    schedule = schedule_of(spec, tz)
    start = random_start(Random(seed), CHANGES[tz])
    slots = walk(schedule, start, LATEST, 100)
    assume(len(slots) > 1)
    gap = shortest_gap(schedule, start)
    assert gap is not None
    assert gap <= min(later - earlier for earlier, later in itertools.pairwise(slots))
