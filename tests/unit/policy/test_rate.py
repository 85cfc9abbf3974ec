"""Rate limits: never too many in any stretch, and an even flow for a backlog."""

from __future__ import annotations

import bisect
import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.clock import SECOND
from noonbell.model.task import RateLimit
from noonbell.policy.rate import RateState, grant

START = 1_767_348_000 * SECOND


def most_in_a_stretch(starts: list[int], stretch: int) -> int:
    """Of stretches that include both of their ends."""
    return max(
        (bisect.bisect_right(starts, one + stretch) - bisect.bisect_left(starts, one) for one in starts), default=0
    )


def fewest_in_a_stretch(starts: list[int], stretch: int) -> int:
    """Of stretches that lie between the first and the last start: the emptiest ones begin just after a start."""
    return min(
        bisect.bisect_left(starts, one + 1 + stretch) - bisect.bisect_right(starts, one)
        for one in starts
        if one + 1 + stretch <= starts[-1]
    )


@settings(max_examples=300, deadline=None)
@given(
    most=st.integers(1, 400),
    per=st.sampled_from([0.001, 0.1, 1, 2.5, 60]),
    calls=st.lists(st.tuples(st.floats(0, 0.7), st.integers(0, 300)), max_size=60),
)
def test_no_stretch_ever_sees_more_starts_than_the_limit(most, per, calls):
    limit, state, now, starts = RateLimit(max=most, per_seconds=per), RateState(), START, []
    for pause, wanted in calls:
        now += int(pause * per * SECOND)
        answer = grant(limit, state, now, wanted)
        assert 0 <= answer.count <= wanted
        assert (answer.next_at is None) == (answer.count == wanted)
        assert answer.next_at is None or answer.next_at > now
        state = answer.state
        starts += [now] * answer.count
    assert most_in_a_stretch(starts, math.ceil(per * SECOND)) <= most


@settings(max_examples=200, deadline=None)
@given(
    most=st.integers(1, 200),
    calls=st.lists(st.tuples(st.floats(0, 0.7), st.integers(0, 2 * SECOND), st.integers(1, 99)), max_size=40),
)
def test_a_clock_that_is_set_back_neither_breaks_the_limit_nor_blocks_for_long(most, calls):
    limit, state, real, back, starts = RateLimit(max=most, per_seconds=1), RateState(), START, 0, []
    for pause, step_back, wanted in calls:
        real += int(pause * SECOND)
        back += step_back
        answer = grant(limit, state, real - back, wanted)
        state = answer.state
        starts += [real] * answer.count
        assert answer.next_at is None or answer.next_at <= real - back + SECOND + 1
    assert most_in_a_stretch(starts, SECOND) <= most


@settings(max_examples=150, deadline=None)
@given(most=st.integers(1, 400), wanted=st.integers(1, 500), idle=st.integers(0, 3 * SECOND))
def test_whoever_comes_back_at_next_at_gets_something(most, wanted, idle):
    limit, state, now = RateLimit(max=most, per_seconds=1), RateState(), START
    state = grant(limit, state, now, wanted).state
    now += idle
    for _ in range(12):
        answer = grant(limit, state, now, wanted)
        if answer.next_at is None:
            break
        state, now = answer.state, answer.next_at
        assert grant(limit, state, now, wanted).count > 0


@pytest.mark.parametrize("most", [1, 5, 19])
def test_a_small_limit_allows_its_whole_burst_and_then_waits_for_the_stretch_to_pass(most):
    limit = RateLimit(max=most, per_seconds=60)
    first = grant(limit, RateState(), START, most + 1)
    assert first.count == most
    assert first.next_at == START + 60 * SECOND + 1
    assert grant(limit, first.state, START + 60 * SECOND, 1).count == 0
    assert grant(limit, first.state, START + 60 * SECOND + 1, most + 1).count == most


def test_a_large_limit_starts_with_a_small_burst_and_goes_on_evenly():
    limit = RateLimit(max=100, per_seconds=1)
    first = grant(limit, RateState(), START, 100)
    assert first.count == 7
    assert first.next_at is not None
    assert 25_000 < first.next_at - START < 35_000, "woken for three starts, not for each"
    assert grant(limit, first.state, first.next_at, 100).count == 3


def test_one_who_wants_one_more_is_woken_for_one():
    limit = RateLimit(max=100, per_seconds=1)
    answer = grant(limit, RateState(), START, 8)
    assert answer.next_at is not None
    assert grant(limit, answer.state, answer.next_at, 1).count == 1
    assert grant(limit, answer.state, answer.next_at - 1, 1).count == 0


def test_a_limit_of_0_grants_nothing():
    answer = grant(RateLimit(max=0, per_seconds=1), RateState(), START, 5)
    assert answer.count == 0
    assert answer.next_at == START + SECOND, "not at once: nobody should spin on it"


def test_wanting_nothing_changes_nothing():
    assert grant(RateLimit(max=5, per_seconds=1), RateState(), START, 0).next_at is None


def test_a_limit_that_is_lowered_counts_what_was_granted_before():
    state = grant(RateLimit(max=10, per_seconds=1), RateState(), START, 10).state
    assert grant(RateLimit(max=5, per_seconds=1), state, START + 1, 5).count == 0


def test_a_limit_that_is_raised_from_very_slow_leaves_no_debt_behind():
    state = grant(RateLimit(max=20, per_seconds=86_400), RateState(), START, 20).state
    answer = grant(RateLimit(max=1000, per_seconds=1), state, START + 2 * SECOND, 1000)
    assert answer.count > 0 or answer.next_at < START + 3 * SECOND


def test_the_log_stays_small_when_starts_come_one_by_one():
    limit, state, granted = RateLimit(max=20_000, per_seconds=60), RateState(), 0
    for now in range(START, START + 60 * SECOND, 5_000):
        answer = grant(limit, state, now, 1)
        state, granted = answer.state, granted + answer.count
    assert granted == 12_000
    assert len(state.log) <= 130


def test_starts_that_share_an_entry_weigh_until_the_later_one_is_out_of_the_stretch():
    limit, bucket = RateLimit(max=12_800, per_seconds=1), SECOND // 128
    early = START // bucket * bucket
    state = grant(limit, RateState(), early, 3).state
    assert grant(limit, state, early + bucket - 1, 2).state.log == ((early + bucket - 1, 5),)
    assert grant(limit, state, early + bucket, 2).state.log == ((early, 3), (early + bucket, 2))


def saturated(limit: RateLimit, *, callers: int, late: tuple[int, int], seconds: int, wanted: int) -> list[int]:
    """The starts of callers who always want more and come back a little late. `late` is in microseconds."""
    draw, state, starts = random.Random(7), RateState(), []
    coming = [(START + draw.randrange(1000), caller) for caller in range(callers)]
    heapq.heapify(coming)
    while coming[0][0] < START + seconds * SECOND:
        now, caller = heapq.heappop(coming)
        answer = grant(limit, state, now, wanted)
        state = answer.state
        starts += [now] * answer.count
        again = now + 500 if answer.next_at is None else answer.next_at
        heapq.heappush(coming, (again + draw.randint(*late), caller))
    return starts


@pytest.mark.parametrize(
    ("callers", "late", "wanted"),
    [
        pytest.param(4, (0, 10_000), 50, id="four callers, up to 10 ms late"),
        pytest.param(4, (5_000, 5_000), 50, id="four callers, 5 ms late"),
        pytest.param(4, (0, 0), 50, id="four punctual callers"),
        pytest.param(1, (0, 10_000), 50, id="one caller"),
        pytest.param(4, (0, 10_000), 1, id="four callers who take one at a time"),
        pytest.param(16, (0, 10_000), 3, id="sixteen callers"),
    ],
)
def test_a_saturated_limit_flows_evenly_in_every_second(callers, late, wanted):
    starts = saturated(RateLimit(max=100, per_seconds=1), callers=callers, late=late, seconds=30, wanted=wanted)
    assert most_in_a_stretch(starts, SECOND) <= 100
    assert fewest_in_a_stretch(starts, SECOND) >= 90
    assert len(starts) >= 0.97 * 100 * 30


@pytest.mark.parametrize("wanted", [1, 50])
def test_once_the_first_burst_has_worn_off_the_flow_keeps_clear_of_the_limit(wanted):
    starts = saturated(RateLimit(max=100, per_seconds=1), callers=4, late=(0, 10_000), seconds=40, wanted=wanted)
    settled = [one for one in starts if one > START + 10 * SECOND]
    assert fewest_in_a_stretch(settled, SECOND) >= 94


@pytest.mark.parametrize("most", [20, 200, 1000, 20_000])
def test_other_limits_reach_their_flow_too(most):
    starts = saturated(RateLimit(max=most, per_seconds=1), callers=4, late=(0, 10_000), seconds=10, wanted=300)
    assert most_in_a_stretch(starts, SECOND) <= most
    assert fewest_in_a_stretch(starts, SECOND) >= 0.9 * most
    assert len(starts) >= 0.97 * most * 10
