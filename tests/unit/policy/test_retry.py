"""What follows a failed attempt, and a lost one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.model.run import RunStatus
from noonbell.model.task import RETRY_ON, RETRY_ON_DEFAULT, Delivery, OnLost, RetryPolicy, RetryStrategy
from noonbell.policy import retry
from noonbell.policy.retry import Failure, Final, Lose, Retry, decide, delay, lost
from unit.policy.make import spec

MIDDLE = 0.5
"""The random draw that leaves a delay as it is."""

FIXED, EXPONENTIAL = RetryStrategy.FIXED, RetryStrategy.EXPONENTIAL
FAILED, TIMEOUT, FAILED_TIMEOUT = RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT

KINDS = [
    (Failure("connection_refused"), "network", FAILED),
    (Failure("network_unreachable"), "network", FAILED),
    (Failure("host_unreachable"), "network", FAILED),
    (Failure("dns"), "network", FAILED),
    (Failure("connect_timeout"), "network", FAILED),
    (Failure("tls"), "network", FAILED),
    (Failure("connection_lost"), "network", FAILED),
    (Failure("timeout"), "timeout", TIMEOUT),
    (Failure("http_5xx", code=500), "5xx", FAILED),
    (Failure("http_5xx", code=503), "5xx", FAILED),
    (Failure("http_4xx", code=429), "429", FAILED),
    (Failure("http_4xx", code=404), None, FAILED),
    (Failure("http_4xx", code=408), None, FAILED),
    (Failure("http_3xx", code=302), None, FAILED),
    (Failure("too_large"), None, FAILED),
    (Failure("blocked_address"), None, FAILED),
    (Failure("canceled"), None, RunStatus.CANCELED),
    (Failure("fail"), None, FAILED),
    (Failure("error"), "error", FAILED),
    (Failure("something_new"), "error", FAILED),
    (Failure("callback_failed"), "callback_failed", FAILED),
    (Failure("callback_timeout"), "callback_timeout", FAILED_TIMEOUT),
]
BY_NAME = [pytest.param(*row, id=f"{row[0].kind} {row[0].code or ''}".strip()) for row in KINDS]


@pytest.mark.parametrize(("failure", "word", "final"), BY_NAME)
def test_a_failure_is_retried_only_if_its_word_is_in_retry_on(failure, word, final):
    for allowed in RETRY_ON:
        task = spec(retry_policy=RetryPolicy(max_retries=1, retry_on=(allowed,)))
        answer = decide(task, 0, 0, failure, MIDDLE)
        assert answer == (Retry(5) if allowed == word else Final(final, failure.kind)), allowed


@pytest.mark.parametrize(("failure", "word", "final"), BY_NAME)
def test_the_last_attempt_ends_with_the_status_of_its_kind(failure, word, final):
    task = spec(retry_policy=RetryPolicy(max_retries=2, retry_on=RETRY_ON))
    assert decide(task, 2, 0, failure, MIDDLE) == Final(final, failure.kind)


@pytest.mark.parametrize(("failure", "word", "final"), BY_NAME)
def test_by_default_callbacks_are_not_retried_and_everything_else_that_can_be_is(failure, word, final):
    answer = decide(spec(retry_policy=RetryPolicy(max_retries=1)), 0, 0, failure, MIDDLE)
    assert isinstance(answer, Retry) == (word in RETRY_ON_DEFAULT)


def test_three_retries_mean_up_to_four_attempts():
    task = spec(retry_policy=RetryPolicy(max_retries=3))
    answers = [decide(task, done, 0, Failure("error"), MIDDLE) for done in range(4)]
    assert [type(answer) for answer in answers] == [Retry, Retry, Retry, Final]


def test_an_http_task_is_not_retried_unless_it_says_so_and_a_job_is_three_times():
    assert isinstance(decide(spec(), 0, 0, Failure("error"), MIDDLE), Final)
    job = spec(job_type="stats", target_url=None)
    assert isinstance(decide(job, 2, 0, Failure("error"), MIDDLE), Retry)
    assert isinstance(decide(job, 3, 0, Failure("error"), MIDDLE), Final)


@pytest.mark.parametrize("kind", [row[0].kind for row in KINDS])
def test_at_most_once_is_never_retried(kind):
    task = spec(delivery=Delivery.AT_MOST_ONCE, retry_policy=RetryPolicy(max_retries=9, retry_on=RETRY_ON))
    assert isinstance(decide(task, 0, 0, Failure(kind, code=429), MIDDLE), Final)


@pytest.mark.parametrize(
    ("strategy", "seconds"),
    [(FIXED, [5, 5, 5, 5, 5, 5, 5, 5]), (EXPONENTIAL, [5, 10, 20, 40, 80, 160, 300, 300])],
    ids=["fixed", "exponential, capped"],
)
def test_delays_by_retry_count(strategy, seconds):
    policy = RetryPolicy(strategy=strategy)
    assert [delay(policy, count, MIDDLE, None) for count in range(8)] == seconds


def test_a_fixed_delay_is_taken_as_it_is_even_above_max_delay():
    assert delay(RetryPolicy(strategy=FIXED, initial_delay=600), 0, MIDDLE, None) == 600


def test_a_very_high_retry_count_stays_at_the_cap():
    assert delay(RetryPolicy(), 10**9, MIDDLE, None) == 300


@pytest.mark.parametrize(("unit", "seconds"), [(0.0, 8), (0.5, 10), (0.75, 11)])
def test_jitter_spreads_the_delay_to_both_sides(unit, seconds):
    assert delay(RetryPolicy(strategy=FIXED, initial_delay=10, jitter=0.2), 0, unit, None) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (None, 5),
        (2, 5),
        (60, 60),
        (1000, 1000),
        (10**9, 86_400),
        (math.inf, 86_400),
        (-3, 5),
        (math.nan, 5),
    ],
)
def test_retry_after_lengthens_the_delay_and_never_shortens_it(asked, seconds):
    assert delay(RetryPolicy(), 0, MIDDLE, asked) == seconds


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (Failure("http_4xx", code=429, retry_after=60), 60),
        (Failure("http_5xx", code=503, retry_after=60), 60),
        (Failure("http_5xx", code=500, retry_after=60), 5),
    ],
    ids=["429", "503", "500"],
)
def test_retry_after_is_heard_on_429_and_503_only(failure, seconds):
    assert decide(spec(retry_policy=RetryPolicy(max_retries=1)), 0, 0, failure, MIDDLE) == Retry(seconds)


@given(
    count=st.integers(0, 200),
    unit=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    initial=st.floats(0, 1e6),
    asked=st.none() | st.floats(),
    strategy=st.sampled_from(RetryStrategy),
)
def test_a_delay_is_finite_and_never_negative(count, unit, jitter, initial, asked, strategy):
    policy = RetryPolicy(strategy=strategy, initial_delay=initial, jitter=jitter)
    seconds = delay(policy, count, unit, asked)
    assert 0 <= seconds <= max(2 * initial, 600, retry.LONGEST_RETRY_AFTER)


LOST, UNKNOWN = Final(FAILED, "lost"), Final(FAILED, "unknown")


@pytest.mark.parametrize("started", [True, False])
def test_a_lost_run_is_handed_on_until_it_was_lost_too_often(started):
    task = spec(max_lost=3)
    assert [lost(task, before, started=started) for before in range(5)] == [Lose(), Lose(), Lose(), LOST, LOST]


def test_with_max_lost_0_the_first_loss_is_final():
    assert lost(spec(max_lost=0), 0, started=True) == LOST


@pytest.mark.parametrize("started", [True, False])
def test_on_lost_fail_fails_at_the_first_loss(started):
    assert lost(spec(on_lost=OnLost.FAIL), 0, started=started) == LOST


@pytest.mark.parametrize("on_lost", list(OnLost))
def test_at_most_once_a_begun_attempt_is_never_sent_again_and_one_not_begun_is_handed_on(on_lost):
    task = spec(delivery=Delivery.AT_MOST_ONCE, on_lost=on_lost)
    assert lost(task, 0, started=True) == UNKNOWN
    assert lost(task, 0, started=False) == Lose()
    assert lost(task, task.max_lost, started=False) == LOST


def test_a_failure_of_kind_lost_follows_the_rules_of_loss_and_not_of_retry():
    task = spec(retry_policy=RetryPolicy(max_retries=9), max_lost=1)
    assert decide(task, 0, 0, Failure("lost"), MIDDLE) == Lose()
    assert decide(task, 0, 1, Failure("lost"), MIDDLE) == LOST
