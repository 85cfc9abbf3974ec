"""What becomes of due slots: telling cases, one by one. The full cross product is in test_account_oracle."""

from __future__ import annotations

import pytest

from noonbell import when
from noonbell.clock import SECOND, instant_of, rfc3339
from noonbell.model.run import DropReason, RunStatus
from noonbell.model.task import (
    Circuit,
    ConcurrencyPolicy,
    FailureAction,
    MisfirePolicy,
    OverlapAction,
    RetryPolicy,
)
from noonbell.policy.account import Dropped, DueRun, Facts, Needs, account, cursor_after_run, needs
from noonbell.when.due import jitter
from unit.policy.make import EVERY_SECOND, TEN, accounted, previous, spec, task, told

RUNNING, RETRYING, CALLBACK_PENDING = RunStatus.RUNNING, RunStatus.RETRYING, RunStatus.CALLBACK_PENDING
FAILED, CANCELED, SUCCESS = RunStatus.FAILED, RunStatus.CANCELED, RunStatus.SUCCESS
QUEUE, SKIP, PARALLEL = ConcurrencyPolicy.QUEUE, ConcurrencyPolicy.SKIP, ConcurrencyPolicy.PARALLEL
UNDER_WAY = [RUNNING, RETRYING, CALLBACK_PENDING]
ENDED_BADLY = [FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT, CANCELED]


def births(answer) -> list[DueRun]:
    return [outcome for outcome in answer.outcomes if isinstance(outcome, DueRun)]


# Which facts are asked for


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        pytest.param({}, (False, False), id="a job by default"),
        pytest.param({"max_concurrency": 1}, (False, False), id="an HTTP task by default"),
        pytest.param({"overlap_action": OverlapAction.SKIP}, (True, True), id="overlap SKIP"),
        pytest.param({"overlap_action": OverlapAction.CANCEL_PREV}, (True, False), id="overlap CANCEL_PREV"),
        pytest.param({"overlap_action": OverlapAction.PARALLEL}, (True, False), id="overlap PARALLEL"),
        pytest.param({"failure_action": FailureAction.RETRY}, (True, False), id="failure RETRY"),
        pytest.param({"failure_action": FailureAction.HALF_OPEN}, (True, True), id="failure HALF_OPEN"),
        pytest.param({"max_concurrency": 1, "queue_depth": 2}, (False, True), id="a queue with a depth"),
        pytest.param({"max_concurrency": 1, "concurrency_policy": SKIP}, (False, True), id="concurrency SKIP"),
        pytest.param({"max_concurrency": 1, "concurrency_policy": PARALLEL}, (False, False), id="PARALLEL"),
    ],
)
def test_only_policies_that_look_at_facts_ask_for_them(fields, asked):
    assert needs(spec(**fields)) == Needs(*asked)


# Cursor, repeat, bounds


def test_nothing_is_due_before_the_cursor():
    answer = accounted(now=TEN, cursor=TEN + 1, fired=3, skip_next=2)
    assert answer.outcomes == answer.dropped == ()
    assert (answer.next_fire_at, answer.fired, answer.skip_next) == (instant_of(TEN + 1), 3, 2)
    assert not answer.completed


def test_without_a_cursor_nothing_happens_and_the_task_is_not_completed_by_it():
    answer = accounted(now=TEN, cursor=None)
    assert answer.outcomes == ()
    assert answer.next_fire_at is None
    assert not answer.completed


def test_a_slot_is_due_in_its_own_second_and_the_cursor_moves_on():
    answer = accounted(now=TEN + 1)
    assert told(answer) == ["1 born"]
    assert answer.next_fire_at == instant_of(TEN + 2)
    assert answer.fired == 1


def test_repeat_counts_every_accounted_slot_and_ends_the_schedule():
    schedule = EVERY_SECOND | {"repeat": 5}
    answer = accounted(now=TEN + 60, schedule=schedule, fired=2, misfire_policy=MisfirePolicy.FIRE_ONCE)
    assert told(answer) == ["3 born"]
    assert answer.dropped == (Dropped(TEN + 1, TEN + 2, 2, DropReason.MISFIRE),)
    assert (answer.fired, answer.completed, answer.next_fire_at) == (5, True, None)


def test_repeat_can_be_used_up_by_slots_that_never_ran():
    schedule = EVERY_SECOND | {"repeat": 3}
    answer = accounted(now=TEN + 60, schedule=schedule, misfire_policy=MisfirePolicy.SKIP)
    assert answer.outcomes == ()
    assert answer.dropped == (Dropped(TEN + 1, TEN + 3, 3, DropReason.MISFIRE),)
    assert answer.completed


def test_end_at_is_inclusive_and_completes_the_task():
    answer = accounted(now=TEN + 9, end_at=instant_of(TEN + 3))
    assert told(answer) == ["1 born", "2 born", "3 born"]
    assert answer.completed


def test_bounds_between_two_seconds_are_rounded_inwards():
    answer = accounted(now=TEN + 9, start_at=instant_of(TEN + 1) + 1, end_at=instant_of(TEN + 3) + 999_999)
    assert told(answer) == ["2 born", "3 born"]


def test_a_year_of_missed_seconds_is_one_range_and_a_hundred_runs():
    year = 365 * 86_400
    schedule = {"type": "interval", "every": 1, "unit": "second", "anchor": rfc3339(instant_of(TEN))}
    answer = accounted(now=TEN + year, schedule=schedule)
    assert len(answer.outcomes) == 100
    assert answer.dropped == (Dropped(TEN + 1, TEN + year - 100, year - 100, DropReason.CATCHUP_CAP),)
    assert answer.fired == year


class Uncountable:
    """A schedule that can only be walked, as a kind of a third party might be."""

    kind, repeat, is_single, is_fixed_delay, run_if_late = "odd", None, False, False, True

    def next(self, after):
        return after + 1 + after % 2

    def previous(self, before):
        return before - 1 - before % 2


def test_when_the_budget_runs_out_the_range_so_far_is_recorded_and_the_cursor_stays_due():
    held, now = task(spec(), cursor=TEN + 1), instant_of(TEN + 1000)
    answers = []
    while held.next_fire_at is not None and held.next_fire_at <= now:
        answer = account(held, Uncountable(), Facts(), now, cap=10, budget=200)
        answers.append(answer)
        held = task(spec(), cursor=answer.next_fire_at // SECOND, fired=answer.fired)
    assert [len(answer.outcomes) for answer in answers] == [0, 0, 10]
    assert [answer.dropped[0].count for answer in answers] == [200, 200, 90]
    assert [answer.completed for answer in answers] == [False, False, False]
    assert held.fired == 500


# Jitter


def test_jitter_moves_only_run_at_and_is_the_same_every_time():
    answer = accounted(now=TEN + 5, jitter_seconds=30)
    for birth in births(answer):
        offset = birth.run_at - instant_of(birth.slot)
        assert offset == round(jitter(7, birth.slot, 30) * SECOND)
        assert 0 <= offset < 30 * SECOND
    assert answer == accounted(now=TEN + 5, jitter_seconds=30)
    assert told(answer) == told(accounted(now=TEN + 5))


# The operator's skip


def test_an_operator_skips_the_next_slots_that_count():
    answer = accounted(now=TEN + 5, skip_next=2)
    assert told(answer) == ["1 skipped: operator", "2 skipped: operator", "3 born", "4 born", "5 born"]
    assert answer.skip_next == 0


def test_dropped_slots_do_not_use_up_an_operators_skip():
    answer = accounted(now=TEN + 5, skip_next=2, misfire_policy=MisfirePolicy.FIRE_ONCE)
    assert told(answer) == ["5 skipped: operator"]
    assert answer.skip_next == 1


def test_minus_one_skips_until_it_is_taken_back():
    answer = accounted(now=TEN + 3, skip_next=-1)
    assert told(answer) == ["1 skipped: operator", "2 skipped: operator", "3 skipped: operator"]
    assert answer.skip_next == -1


def test_an_operators_skip_comes_before_every_policy():
    facts = Facts(round=previous(FAILED), occupied=1, waiting=0)
    answer = accounted(now=TEN + 1, skip_next=1, facts=facts, failure_action=FailureAction.SKIP)
    assert told(answer) == ["1 skipped: operator"]
    assert answer.outcomes[0].answers_run_id is None


# Overlap


@pytest.mark.parametrize("status", UNDER_WAY)
def test_overlap_skip_skips_while_the_previous_round_is_under_way(status):
    facts = Facts(round=previous(status), occupied=1)
    assert told(accounted(now=TEN + 1, facts=facts, overlap_action=OverlapAction.SKIP)) == ["1 skipped: overlap"]


def test_overlap_skip_also_minds_a_run_that_waits_and_so_a_catch_up_makes_one_run():
    answer = accounted(now=TEN + 3, overlap_action=OverlapAction.SKIP)
    assert told(answer) == ["1 born", "2 skipped: overlap", "3 skipped: overlap"]


@pytest.mark.parametrize("status", UNDER_WAY)
def test_cancel_prev_replaces_the_round_under_way_at_attempt_1(status):
    facts = Facts(round=previous(status, attempt=4), occupied=1)
    answer = accounted(
        now=TEN + 2, facts=facts, overlap_action=OverlapAction.CANCEL_PREV, failure_action=FailureAction.RETRY
    )
    first, second = births(answer)
    assert (first.cancel_previous, first.attempt_base) == (True, 0)
    assert (second.cancel_previous, second.attempt_base) == (False, 0)


def test_cancel_prev_cancels_nothing_where_no_run_is_born():
    facts = Facts(round=previous(RUNNING), occupied=2, waiting=1)
    answer = accounted(
        now=TEN + 1,
        facts=facts,
        overlap_action=OverlapAction.CANCEL_PREV,
        concurrency_policy=SKIP,
        max_concurrency=1,
    )
    assert told(answer) == ["1 skipped: concurrency"]


def test_cancel_prev_leaves_a_finished_round_alone():
    facts = Facts(round=previous(SUCCESS))
    (birth,) = births(accounted(now=TEN + 1, facts=facts, overlap_action=OverlapAction.CANCEL_PREV))
    assert not birth.cancel_previous


@pytest.mark.parametrize("policy", [QUEUE, SKIP, PARALLEL])
def test_overlap_parallel_passes_the_limit_by(policy):
    facts = Facts(round=previous(RUNNING), occupied=1)
    answer = accounted(
        now=TEN + 1,
        facts=facts,
        overlap_action=OverlapAction.PARALLEL,
        concurrency_policy=policy,
        max_concurrency=1,
        queue_depth=0,
    )
    (birth,) = births(answer)
    assert not birth.gated


def test_overlap_parallel_does_not_lift_the_limit_without_an_overlap():
    facts = Facts(round=previous(SUCCESS), occupied=1, waiting=1)
    answer = accounted(
        now=TEN + 1,
        facts=facts,
        overlap_action=OverlapAction.PARALLEL,
        concurrency_policy=SKIP,
        max_concurrency=1,
    )
    assert told(answer) == ["1 skipped: concurrency"]


# Failure


@pytest.mark.parametrize("status", ENDED_BADLY)
def test_failure_retry_goes_on_counting(status):
    facts = Facts(round=previous(status, attempt=3, run_id=99))
    (birth,) = births(accounted(now=TEN + 1, facts=facts, failure_action=FailureAction.RETRY))
    assert (birth.attempt_base, birth.retry_of_run_id) == (3, 99)


@pytest.mark.parametrize("action", list(FailureAction))
@pytest.mark.parametrize(
    "last",
    [previous(SUCCESS, failures=0), previous(CANCELED, replaced=True), None],
    ids=["success", "replaced", "first round"],
)
def test_without_a_failure_every_action_starts_a_new_round(action, last):
    (birth,) = births(accounted(now=TEN + 1, facts=Facts(round=last), failure_action=action))
    assert (birth.attempt_base, birth.retry_of_run_id) == (0, None)


@pytest.mark.parametrize("status", ENDED_BADLY)
def test_failure_skip_skips_exactly_one_slot(status):
    facts = Facts(round=previous(status, run_id=99))
    answer = accounted(now=TEN + 3, facts=facts, failure_action=FailureAction.SKIP)
    assert told(answer) == ["1 skipped: failure", "2 born", "3 born"]
    assert answer.outcomes[0].answers_run_id == 99


def test_failure_skip_is_not_repeated_for_a_round_that_was_answered_in_an_earlier_pass():
    facts = Facts(round=previous(FAILED, run_id=99, skipped_run_id=99))
    assert told(accounted(now=TEN + 1, facts=facts, failure_action=FailureAction.SKIP)) == ["1 born"]


def test_failure_skip_answers_a_newer_failure_again():
    facts = Facts(round=previous(FAILED, run_id=99, skipped_run_id=98))
    assert told(accounted(now=TEN + 1, facts=facts, failure_action=FailureAction.SKIP)) == ["1 skipped: failure"]


@pytest.mark.parametrize(
    ("failures", "first_born"),
    [(1, 2), (2, 4), (3, 8), (4, 10), (5000, 10)],
    ids=["one failure", "two", "three", "capped", "capped after very many"],
)
def test_backoff_doubles_with_each_failure_up_to_the_cap(failures, first_born):
    facts = Facts(round=previous(FAILED, end_time=instant_of(TEN), failures=failures))
    answer = accounted(
        now=TEN + 12,
        facts=facts,
        failure_action=FailureAction.BACKOFF,
        retry_policy=RetryPolicy(initial_delay=2, max_delay=10),
    )
    expected = [f"{n} skipped: backoff" if n < first_born else f"{n} born" for n in range(1, 13)]
    assert told(answer) == expected


OPEN = {"failure_action": FailureAction.HALF_OPEN, "circuit": Circuit(failures=3, cool_down_seconds=4)}


def test_below_the_threshold_the_circuit_is_closed():
    facts = Facts(round=previous(FAILED, failures=2, end_time=instant_of(TEN)))
    assert told(accounted(now=TEN + 2, facts=facts, **OPEN)) == ["1 born", "2 born"]


def test_an_open_circuit_skips_for_the_cool_down_then_lets_one_probe_through():
    facts = Facts(round=previous(FAILED, failures=3, end_time=instant_of(TEN)))
    answer = accounted(now=TEN + 6, facts=facts, **OPEN)
    assert told(answer) == [
        "1 skipped: circuit_open",
        "2 skipped: circuit_open",
        "3 skipped: circuit_open",
        "4 born",
        "5 skipped: circuit_open",
        "6 skipped: circuit_open",
    ]


@pytest.mark.parametrize("status", UNDER_WAY)
def test_while_the_probe_is_live_there_is_no_second_one(status):
    facts = Facts(round=previous(status, failures=3), occupied=1)
    assert told(accounted(now=TEN + 9, cursor=TEN + 9, facts=facts, **OPEN)) == ["9 skipped: circuit_open"]


def test_while_the_probe_waits_there_is_no_second_one():
    facts = Facts(round=previous(FAILED, failures=3, end_time=instant_of(TEN - 100)), occupied=1, waiting=1)
    assert told(accounted(now=TEN + 1, facts=facts, **OPEN)) == ["1 skipped: circuit_open"]


def test_a_failed_probe_opens_the_circuit_again():
    facts = Facts(round=previous(FAILED, failures=4, end_time=instant_of(TEN)))
    assert told(accounted(now=TEN + 3, cursor=TEN + 3, facts=facts, **OPEN)) == ["3 skipped: circuit_open"]


def test_a_probe_that_succeeds_closes_the_circuit():
    facts = Facts(round=previous(SUCCESS, failures=0, end_time=instant_of(TEN)))
    assert told(accounted(now=TEN + 2, facts=facts, **OPEN)) == ["1 born", "2 born"]


def test_cancel_prev_replaces_a_probe_by_one_new_probe():
    facts = Facts(round=previous(RUNNING, failures=3), occupied=1)
    answer = accounted(now=TEN + 2, facts=facts, overlap_action=OverlapAction.CANCEL_PREV, **OPEN)
    assert told(answer) == ["1 born", "2 skipped: circuit_open"]
    assert births(answer)[0].cancel_previous


# Concurrency


def test_queue_lets_a_catch_up_wait_at_the_gate():
    answer = accounted(now=TEN + 3, max_concurrency=1)
    assert told(answer) == ["1 born", "2 born", "3 born"]
    assert all(birth.gated for birth in births(answer))


def test_a_full_queue_skips():
    answer = accounted(now=TEN + 5, facts=Facts(occupied=1), max_concurrency=1, queue_depth=2)
    assert told(answer) == ["1 born", "2 born", *(f"{n} skipped: queue_full" for n in (3, 4, 5))]


def test_a_queue_that_is_empty_takes_one_for_the_place_and_the_depth_behind_it():
    answer = accounted(now=TEN + 5, max_concurrency=1, queue_depth=2)
    assert [outcome.slot - TEN for outcome in births(answer)] == [1, 2, 3]


def test_a_catch_up_in_one_pass_cannot_pass_a_limit_that_skips():
    answer = accounted(now=TEN + 3, max_concurrency=2, concurrency_policy=SKIP)
    assert told(answer) == ["1 born", "2 born", "3 skipped: concurrency"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [(QUEUE, "1 born"), (SKIP, "1 skipped: concurrency"), (PARALLEL, "1 skipped: concurrency")],
)
@pytest.mark.parametrize("overlap", [OverlapAction.ALLOW, OverlapAction.PARALLEL])
def test_a_limit_of_0_stops_even_parallel(policy, words, overlap):
    facts = Facts(round=previous(RUNNING), occupied=1)
    answer = accounted(now=TEN + 1, facts=facts, max_concurrency=0, concurrency_policy=policy, overlap_action=overlap)
    assert told(answer) == [words]
    assert all(birth.gated for birth in births(answer))


# The sample task of the founding document

SAMPLE = {
    "schedule": {"type": "cron", "expr": "*/5 * * * * *"},
    "max_concurrency": 1,
    "concurrency_policy": SKIP,
    "overlap_action": OverlapAction.CANCEL_PREV,
    "failure_action": FailureAction.RETRY,
    "misfire_policy": MisfirePolicy.CATCH_UP_LIMITED,
    "catchup_limit": 3,
    "timeout_seconds": 8,
}


def test_the_sample_task_cancels_a_round_under_way_and_starts_the_next_at_once():
    facts = Facts(round=previous(RUNNING), occupied=1)
    answer = accounted(now=TEN + 5, cursor=TEN + 5, facts=facts, **SAMPLE)
    assert told(answer) == ["5 born"]
    assert births(answer)[0].cancel_previous


def test_the_sample_task_raises_the_attempt_after_a_failure():
    facts = Facts(round=previous(FAILED, attempt=2))
    answer = accounted(now=TEN + 5, cursor=TEN + 5, facts=facts, **SAMPLE)
    assert births(answer)[0].attempt_base == 2


def test_the_sample_task_catches_up_three_points_at_most_and_the_limit_skips_two_of_them():
    answer = accounted(now=TEN + 60, cursor=TEN + 5, facts=Facts(round=previous(SUCCESS)), **SAMPLE)
    assert told(answer) == ["50 born", "55 skipped: concurrency", "60 skipped: concurrency"]
    assert answer.dropped == (Dropped(TEN + 5, TEN + 45, 9, DropReason.MISFIRE),)


def test_the_sample_task_skips_over_the_limit_where_nothing_overlaps():
    facts = Facts(round=previous(SUCCESS), occupied=1, waiting=1)
    assert told(accounted(now=TEN + 5, cursor=TEN + 5, facts=facts, **SAMPLE)) == ["5 skipped: concurrency"]


# fixed_delay

MINUTE = {
    "type": "interval",
    "every": 1,
    "unit": "minute",
    "mode": "fixed_delay",
    "anchor": rfc3339(instant_of(TEN - 60)),
}


@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_a_fixed_delay_runs_once_however_late_and_then_has_no_next_slot(policy):
    answer = accounted(now=TEN + 7200, cursor=TEN, schedule=MINUTE, misfire_policy=policy)
    assert told(answer) == ["0 born"]
    assert answer.dropped == ()
    assert (answer.next_fire_at, answer.completed, answer.fired) == (None, False, 1)


def test_a_skipped_fixed_delay_slot_is_followed_one_step_later():
    answer = accounted(now=TEN + 5, cursor=TEN, schedule=MINUTE, skip_next=1)
    assert told(answer) == ["0 skipped: operator"]
    assert answer.next_fire_at == instant_of(TEN + 60)
    assert not answer.completed


def test_a_fixed_delay_that_was_skipped_long_ago_catches_up_with_the_newest_step_only():
    facts = Facts(round=previous(RUNNING), occupied=1)
    answer = accounted(now=TEN + 305, cursor=TEN, schedule=MINUTE, facts=facts, overlap_action=OverlapAction.SKIP)
    assert told(answer) == ["0 skipped: overlap", "300 skipped: overlap"]
    assert answer.dropped == (Dropped(TEN + 60, TEN + 240, 4, DropReason.MISFIRE),)
    assert (answer.fired, answer.next_fire_at) == (6, instant_of(TEN + 360))


def test_a_fixed_delay_can_be_born_right_after_a_skip():
    answer = accounted(now=TEN + 61, cursor=TEN, schedule=MINUTE, skip_next=1)
    assert told(answer) == ["0 skipped: operator", "60 born"]
    assert (answer.next_fire_at, answer.completed) == (None, False)


@pytest.mark.parametrize(("fired", "completed"), [(0, False), (1, True)])
def test_a_fixed_delay_is_completed_by_its_last_birth(fired, completed):
    answer = accounted(now=TEN, cursor=TEN, schedule=MINUTE | {"repeat": 2}, fired=fired)
    assert told(answer) == ["0 born"]
    assert answer.completed == completed


def test_a_fixed_delay_is_completed_by_its_last_skip_and_never_counts_past_its_repeat():
    answer = accounted(now=TEN + 3600, cursor=TEN, schedule=MINUTE | {"repeat": 3}, skip_next=-1)
    assert told(answer) == ["0 skipped: operator", "120 skipped: operator"]
    assert answer.dropped == (Dropped(TEN + 60, TEN + 60, 1, DropReason.MISFIRE),)
    assert (answer.fired, answer.completed) == (3, True)


def test_a_skipped_fixed_delay_is_completed_where_the_next_step_is_past_the_end():
    answer = accounted(now=TEN, cursor=TEN, schedule=MINUTE, skip_next=1, end_at=instant_of(TEN + 59))
    assert answer.completed


@pytest.mark.parametrize(
    ("fields", "fired", "cursor"),
    [
        pytest.param({}, 1, TEN + 68, id="a step after the end, rounded up"),
        pytest.param({"end_at": instant_of(TEN + 68)}, 1, TEN + 68, id="the end belongs to the stretch"),
        pytest.param({"end_at": instant_of(TEN + 67)}, 1, None, id="past end_at"),
        pytest.param({"repeat": 2}, 1, TEN + 68, id="one left"),
        pytest.param({"repeat": 2}, 2, None, id="repeat used up"),
    ],
)
def test_the_end_of_a_fixed_delay_run_names_the_next_slot(fields, fired, cursor):
    schedule = MINUTE | {"repeat": fields.pop("repeat", None)}
    held = task(spec(schedule=schedule, **fields), cursor=None, fired=fired)
    ended = instant_of(TEN + 7) + 1
    found = cursor_after_run(held, when.parse(schedule, "UTC"), ended)
    assert found == (None if cursor is None else instant_of(cursor))
