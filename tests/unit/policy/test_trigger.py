"""Runs outside the schedule: only the limit is asked."""

from __future__ import annotations

import pytest

from noonbell.model.run import SkipReason
from noonbell.model.task import ConcurrencyPolicy, FailureAction, OverlapAction
from noonbell.policy.account import Admit, Refuse, admit, needs_counts
from unit.policy.make import spec

QUEUE, SKIP, PARALLEL = ConcurrencyPolicy.QUEUE, ConcurrencyPolicy.SKIP, ConcurrencyPolicy.PARALLEL
FULL, BUSY = Refuse(SkipReason.QUEUE_FULL), Refuse(SkipReason.CONCURRENCY)
AT_THE_GATE, PAST_THE_GATE = Admit(gated=True), Admit(gated=False)


@pytest.mark.parametrize(
    ("policy", "limit", "running", "waiting", "answer"),
    [
        (QUEUE, None, 9, 9, PAST_THE_GATE),
        (SKIP, None, 9, 9, PAST_THE_GATE),
        (PARALLEL, None, 9, 9, PAST_THE_GATE),
        (QUEUE, 2, 0, 0, AT_THE_GATE),
        (QUEUE, 2, 2, 5, AT_THE_GATE),
        (SKIP, 2, 1, 0, AT_THE_GATE),
        (SKIP, 2, 1, 1, BUSY),
        (SKIP, 2, 2, 0, BUSY),
        (PARALLEL, 2, 1, 0, PAST_THE_GATE),
        (PARALLEL, 2, 2, 2, PAST_THE_GATE),
        (QUEUE, 0, 0, 0, AT_THE_GATE),
        (SKIP, 0, 0, 0, BUSY),
        (PARALLEL, 0, 0, 0, BUSY),
    ],
)
def test_at_the_limit_the_policy_decides(policy, limit, running, waiting, answer):
    task = spec(concurrency_policy=policy, max_concurrency=limit)
    assert admit(task, running + waiting, waiting) == answer


@pytest.mark.parametrize(
    ("limit", "depth", "running", "waiting", "answer"),
    [
        pytest.param(1, 0, 0, 0, AT_THE_GATE, id="a free place needs no queue"),
        pytest.param(1, 0, 1, 0, FULL, id="depth 0 lets nobody wait"),
        pytest.param(1, 1, 1, 0, AT_THE_GATE, id="one may wait"),
        pytest.param(1, 1, 1, 1, FULL, id="but not two"),
        pytest.param(1, 1, 0, 1, AT_THE_GATE, id="one that is about to be claimed is not in the queue"),
        pytest.param(1, 1, 0, 2, FULL, id="the second of two unclaimed is"),
        pytest.param(3, 2, 1, 3, AT_THE_GATE, id="two places free for three"),
        pytest.param(3, 2, 1, 4, FULL, id="two places free for four"),
        pytest.param(1, 1, 3, 0, AT_THE_GATE, id="runs beyond the limit are not in the queue either"),
        pytest.param(0, 1, 0, 0, AT_THE_GATE, id="limit 0 lets one wait"),
        pytest.param(0, 1, 0, 1, FULL, id="limit 0 has a depth too"),
    ],
)
def test_queue_depth_counts_those_that_find_no_place(limit, depth, running, waiting, answer):
    task = spec(max_concurrency=limit, queue_depth=depth)
    assert admit(task, running + waiting, waiting) == answer


def test_overlap_and_failure_are_not_asked():
    task = spec(overlap_action=OverlapAction.SKIP, failure_action=FailureAction.HALF_OPEN)
    assert admit(task, 1, 1) == PAST_THE_GATE
    assert not needs_counts(task)


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, False),
        ({"max_concurrency": 1}, False),
        ({"max_concurrency": 1, "queue_depth": 5}, True),
        ({"max_concurrency": 1, "concurrency_policy": SKIP}, True),
        ({"max_concurrency": 1, "concurrency_policy": PARALLEL}, False),
        ({"concurrency_policy": SKIP}, False),
    ],
)
def test_the_counts_are_asked_for_only_where_they_matter(fields, needed):
    assert needs_counts(spec(**fields)) == needed
