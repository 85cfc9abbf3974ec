"""What the parts of a fan-out make of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.model.task import Fanout
from noonbell.policy.workers import FanoutVerdict, parts, verdict


@pytest.mark.parametrize(
    ("success", "total", "succeeded", "failed", "answer"),
    [
        ("all", 3, 0, 0, "undecided"),
        ("all", 3, 2, 0, "undecided"),
        ("all", 3, 3, 0, "success"),
        ("all", 3, 0, 1, "failed"),
        ("any", 3, 0, 2, "undecided"),
        ("any", 3, 1, 0, "success"),
        ("any", 3, 0, 3, "failed"),
        (2, 3, 1, 1, "undecided"),
        (2, 3, 2, 0, "success"),
        (2, 3, 1, 2, "failed"),
        (2, 3, 0, 2, "failed"),
        (4, 3, 0, 0, "failed"),
        ("all", 0, 0, 0, "undecided"),
    ],
)
def test_a_fan_out_is_decided_as_soon_as_it_cannot_change(success, total, succeeded, failed, answer):
    assert verdict(success, total, succeeded, failed) == answer


@given(success=st.sampled_from(["all", "any", 1, 2, 3, 4, 5]), endings=st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_verdict_once_given_stands_and_the_last_part_always_brings_one(success, endings):
    given_so_far = [
        verdict(success, len(endings), sum(endings[:done]), done - sum(endings[:done]))
        for done in range(len(endings) + 1)
    ]
    decided = [answer for answer in given_so_far if answer is not FanoutVerdict.UNDECIDED]
    assert len(set(decided)) == 1
    assert given_so_far[-1] is decided[0]


def test_a_number_of_workers_is_that_many_parts_for_whoever_comes():
    assert parts(Fanout(workers=3), ["a"]) == 3


def test_all_means_one_part_for_each_worker_alive():
    assert parts(Fanout(workers="all"), ["b", "a", "b"]) == ["a", "b"]


def test_all_of_nobody_has_no_parts_yet():
    assert parts(Fanout(workers="all"), []) == []
