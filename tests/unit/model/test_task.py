"""Defaults that depend on the kind of target."""

from __future__ import annotations

import pytest

from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery, RetryPolicy, TaskSpec


def test_an_http_task_has_one_place_ten_seconds_and_no_retry():
    spec = TaskSpec(name="call", target_url="http://target.test/")
    assert spec.exec_type is ExecType.SYNC
    assert (spec.queue, spec.timeout_seconds, spec.max_concurrency) == ("http", 10, 1)
    assert spec.retries.max_retries == 0


def test_a_job_has_no_limit_five_minutes_and_three_retries():
    spec = TaskSpec(name="stats", job_type="stats")
    assert spec.exec_type is ExecType.JOB
    assert (spec.queue, spec.timeout_seconds, spec.max_concurrency) == ("default", 300, None)
    assert spec.retries.max_retries == 3


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_of_zero_or_less_means_the_default(seconds):
    assert TaskSpec(name="call", timeout_seconds=seconds).timeout_seconds == 10


@pytest.mark.parametrize("limit", [None, 0, 5])
def test_a_limit_that_was_given_is_kept(limit):
    assert TaskSpec(name="call", max_concurrency=limit).max_concurrency == limit


def test_at_most_once_has_no_retries_whatever_its_policy_says():
    spec = TaskSpec(name="pay", delivery=Delivery.AT_MOST_ONCE, retry_policy=RetryPolicy(max_retries=5))
    assert spec.retries.max_retries == 0
