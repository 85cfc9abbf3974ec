"""What a subscription wants, and what a pass sends in which order."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.clock import Instant
from noonbell.model.event import Event
from noonbell.model.run import RunId
from noonbell.model.subscription import WINDOW, Subscription, WebhookDelivery
from noonbell.model.task import TaskId
from noonbell.policy.subscriptions import AT_ONCE, SendPlan, order_key, plan, wants

LABELS = {TaskId(1): {"team": "billing", "tier": "1"}, TaskId(2): {}}


def event(type_: str = "run.failed", **fields: Any) -> Event:
    given = {"task_id": TaskId(1), "run_id": RunId(7), "topic": "bill-eu", "queue": "http", **fields}
    return Event(seq=1, index=0, at=Instant(0), type=type_, **given)


@pytest.mark.parametrize(
    ("fields", "heard", "is_wanted"),
    [
        ({}, event(), True),
        ({"types": ("run",)}, event(), True),
        ({"types": ("run.failed",)}, event(), True),
        ({"types": ("run.fail",)}, event(), False),
        ({"types": ("task", "run.failed")}, event("task.created"), True),
        ({"types": ("task",)}, event(), False),
        ({"tasks": ("bill-*",)}, event(), True),
        ({"tasks": ("bill-eu",)}, event(), True),
        ({"tasks": ("other",)}, event(), False),
        ({"tasks": ("*",)}, event(topic=None, task_id=None), True),
        ({"queues": ("http", "slow")}, event(), True),
        ({"queues": ("slow",)}, event(), False),
        ({"queues": ("slow",)}, event(queue=None), False),
        ({"labels": {"team": "billing"}}, event(), True),
        ({"labels": {"team": "billing", "tier": "2"}}, event(), False),
        ({"labels": {"team": "billing"}}, event(task_id=TaskId(2)), False),
        ({"labels": {"team": "billing"}}, event(task_id=TaskId(9)), False),
        ({"labels": {"team": "billing"}}, event(task_id=None), False),
    ],
)
def test_a_subscription_wants_what_passes_all_its_filters(fields: dict[str, Any], heard: Event, is_wanted: bool):
    given = Subscription(name="s", url="http://x/", **fields)
    assert wants(given, heard, LABELS) is is_wanted


def test_events_are_in_order_by_run_else_by_task_else_by_kind():
    assert order_key(event()) == "run:7"
    assert order_key(event("task.created", run_id=None)) == "task:1"
    assert order_key(event("worker.lost", run_id=None, task_id=None)) == "type:worker"


def waits(seq: int, key: str, next_at: int = 0) -> WebhookDelivery:
    return WebhookDelivery(
        id=seq, subscription="s", event_seq=seq, event_index=0, type="t", order_key=key, next_at=Instant(next_at)
    )


def new(seq: int, key: str) -> WebhookDelivery:
    return WebhookDelivery(subscription="s", event_seq=seq, event_index=0, type="t", order_key=key)


def numbers(found: SendPlan) -> tuple[list[list[int]], list[int], int]:
    return (
        [[one.event_seq for one in group] for group in found.groups],
        [one.event_seq for one in found.held],
        found.taken,
    )


def up(waiting: list[WebhookDelivery], fresh: list[WebhookDelivery], room: int = WINDOW):
    return numbers(plan(waiting, fresh, Instant(100), is_down=False, room=room))


def down(waiting: list[WebhookDelivery], fresh: list[WebhookDelivery], room: int = WINDOW):
    return numbers(plan(waiting, fresh, Instant(100), is_down=True, room=room))


def test_new_events_are_sent_in_the_order_of_their_run():
    assert up([], [new(1, "a"), new(2, "b"), new(3, "a")]) == ([[1, 3], [2]], [], 3)


def test_one_that_waits_and_is_not_due_holds_back_its_own_run_alone():
    waiting = [waits(1, "a", 200), waits(2, "a", 0), waits(3, "b", 100)]
    assert up(waiting, [new(4, "a"), new(5, "c"), new(6, "b")]) == ([[3, 6], [5]], [4], 3)


def test_what_is_due_goes_before_what_is_new_of_the_same_run():
    assert up([waits(1, "a"), waits(2, "a")], [new(3, "a")]) == ([[1, 2, 3]], [], 1)


def test_no_more_is_read_than_may_wait():
    assert up([], [new(1, "a"), new(2, "b"), new(3, "c")], room=2) == ([[1], [2]], [], 2)
    assert up([waits(1, "a")], [new(2, "b")], room=0) == ([[1]], [], 0)


def test_a_pass_is_bounded():
    waiting = [waits(seq, f"k{seq}") for seq in range(AT_ONCE + 20)]
    groups, held, taken = up(waiting, [new(999, "x")])
    assert (len(groups), held, taken) == (AT_ONCE, [], 0)
    (group,), held, taken = up([waits(seq, "a") for seq in range(AT_ONCE + 20)], [new(999, "a")])
    assert (len(group), held, taken) == (AT_ONCE, [999], 1)


def test_a_receiver_that_is_down_is_tried_with_one_that_waits_and_one_that_is_new():
    waiting = [waits(1, "a", 900), waits(2, "b", 0), waits(3, "a", 0)]
    assert down(waiting, [new(4, "a"), new(5, "c"), new(6, "d")]) == ([[1], [5]], [4], 2)
    assert down([waits(1, "a")], [new(2, "a"), new(3, "a")]) == ([[1]], [2, 3], 2)
    assert down([waits(1, "a", 900)], []) == ([[1]], [], 0)
