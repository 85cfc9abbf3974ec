"""Which due slots count. Ten o'clock is the last pass, five seconds later the next one."""

from __future__ import annotations

import pytest

from noonbell import when
from noonbell.clock import rfc3339
from noonbell.model.run import DropReason
from noonbell.model.task import MisfirePolicy
from noonbell.policy import account
from noonbell.policy.account import Dropped, Misfire
from noonbell.when.due import Bounds, due
from unit.policy.make import EVERY_SECOND, TEN, accounted, spec, told

FIRE_NOW, FIRE_ONCE = MisfirePolicy.FIRE_NOW, MisfirePolicy.FIRE_ONCE
SKIP, CATCH_UP_LIMITED = MisfirePolicy.SKIP, MisfirePolicy.CATCH_UP_LIMITED


def decided(now: int, *, cursor: int = TEN + 1, schedule=EVERY_SECOND, cap: int = 100, **fields) -> Misfire:
    task, rule = spec(schedule=schedule, **fields), when.parse(schedule, "UTC")
    found = due(rule, Bounds(), cursor, now, account.most_kept(task, rule, cap), None)
    return account.decide_misfire(task, rule, found, now)


@pytest.mark.parametrize(
    ("policy", "limit", "kept", "dropped"),
    [
        pytest.param(FIRE_NOW, 0, [1, 2, 3, 4, 5], 0, id="FIRE_NOW runs all five"),
        pytest.param(CATCH_UP_LIMITED, 2, [4, 5], 3, id="CATCH_UP_LIMITED 2 runs the newest two"),
        pytest.param(CATCH_UP_LIMITED, 9, [1, 2, 3, 4, 5], 0, id="CATCH_UP_LIMITED 9 runs what there is"),
        pytest.param(SKIP, 0, [5], 4, id="SKIP runs the newest"),
        pytest.param(FIRE_ONCE, 0, [5], 4, id="FIRE_ONCE runs the newest"),
    ],
)
def test_the_worked_example_of_five_due_seconds(policy, limit, kept, dropped):
    answer = decided(TEN + 5, misfire_policy=policy, catchup_limit=limit)
    assert [slot - TEN for slot in answer.kept] == kept
    assert sum(part.count for part in answer.dropped) == dropped
    if dropped:
        assert answer.dropped == (Dropped(TEN + 1, TEN + dropped, dropped, DropReason.MISFIRE),)


def test_fire_now_is_capped_and_what_the_cap_cuts_says_so():
    answer = decided(TEN + 250, misfire_policy=FIRE_NOW, cap=100)
    assert answer.kept == tuple(range(TEN + 151, TEN + 251))
    assert answer.dropped == (Dropped(TEN + 1, TEN + 150, 150, DropReason.CATCHUP_CAP),)


def test_a_limit_that_the_task_asks_for_is_not_capped():
    assert len(decided(TEN + 250, misfire_policy=CATCH_UP_LIMITED, catchup_limit=120, cap=100).kept) == 120


DAILY = {"type": "cron", "expr": "0 0 10 * * *"}


@pytest.mark.parametrize("policy", [FIRE_NOW, FIRE_ONCE, CATCH_UP_LIMITED])
@pytest.mark.parametrize("late", [0, 1, 10, 11, 3600])
def test_a_single_slot_runs_however_late_unless_the_policy_is_skip(policy, late):
    answer = decided(TEN + late, cursor=TEN, schedule=DAILY, misfire_policy=policy, catchup_limit=1)
    assert answer == Misfire((TEN,), ())


@pytest.mark.parametrize(("late", "runs"), [(0, True), (10, True), (11, False)])
def test_skip_runs_a_slot_up_to_the_grace_and_not_a_second_longer(late, runs):
    answer = decided(TEN + late, cursor=TEN, schedule=DAILY, misfire_policy=SKIP, misfire_grace_seconds=10)
    assert answer.kept == ((TEN,) if runs else ())
    assert answer.dropped == (() if runs else (Dropped(TEN, TEN, 1, DropReason.MISFIRE),))


def test_skip_drops_the_late_newest_slot_together_with_the_older_ones():
    ten_seconds = {"type": "cron", "expr": "*/10 * * * * *"}
    answer = decided(TEN + 29, cursor=TEN, schedule=ten_seconds, misfire_policy=SKIP, misfire_grace_seconds=5)
    assert answer == Misfire((), (Dropped(TEN, TEN + 20, 3, DropReason.MISFIRE),))


@pytest.mark.parametrize("policy", list(MisfirePolicy))
@pytest.mark.parametrize(
    ("run_if_late", "late", "runs"),
    [(True, 0, True), (True, 86_400, True), (False, 10, True), (False, 11, False)],
    ids=["punctual", "a day late", "within the grace", "late and would rather not"],
)
def test_once_asks_run_if_late_and_no_misfire_policy(policy, run_if_late, late, runs):
    once = {"type": "once", "at": rfc3339(TEN * 1_000_000), "run_if_late": run_if_late}
    answer = accounted(now=TEN + late, cursor=TEN, schedule=once, misfire_policy=policy)
    assert told(answer) == (["0 born"] if runs else [])
    assert answer.dropped == (() if runs else (Dropped(TEN, TEN, 1, DropReason.MISFIRE),))
    assert answer.completed
    assert answer.next_fire_at is None
    assert answer.fired == 1
