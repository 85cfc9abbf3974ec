"""Webhook subscriptions: which events one wants, what a pass sends and in which order, and what follows from a failure.

Deliveries with the same key (a run's, or a task's where no run is named) are made one after the other; different keys do
not wait for each other. A delivery that failed waits as a row, and later ones of its key wait behind it.

    up      what is due is sent, and what is new
    down    every attempt of the last pass failed: after a pause, one delivery that waits and one that is new are tried
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.event import Event
from noonbell.model.subscription import (
    DeliveryAttempt,
    RetryRules,
    Subscription,
    WebhookDelivery,
    WebhookStatus,
)
from noonbell.model.task import TaskId
from noonbell.policy.alerts import matches

AT_ONCE = 100
"""Deliveries of one pass."""
LONGEST_PROBE_PAUSE = 60.0
"""Seconds between two looks at a receiver that is down, at most."""


def wants(subscription: Subscription, event: Event, labels: Mapping[TaskId, Mapping[str, str]]) -> bool:
    """`labels`: those of the tasks that there are; asked only where the subscription names labels."""
    if subscription.types and not any(
        event.type == wanted or event.type.startswith(f"{wanted}.") for wanted in subscription.types
    ):
        return False
    if subscription.queues and event.queue not in subscription.queues:
        return False
    if subscription.tasks and not matches(subscription.tasks, event.topic or ""):
        return False
    if subscription.labels:
        here = labels.get(event.task_id) if event.task_id is not None else None
        return here is not None and all(here.get(name) == value for name, value in subscription.labels.items())
    return True


def order_key(event: Event) -> str:
    if event.run_id is not None:
        return f"run:{event.run_id}"
    return f"task:{event.task_id}" if event.task_id is not None else f"type:{event.type.partition('.')[0]}"


@dataclass(slots=True)
class SendPlan:
    groups: list[list[WebhookDelivery]] = field(default_factory=list)
    """Each is sent in its order, up to the first that fails; groups do not wait for each other."""
    held: list[WebhookDelivery] = field(default_factory=list)
    """New ones that have to wait behind others of their key."""
    taken: int = 0
    """How many of the new ones are in one of both."""


def plan(
    waiting: Sequence[WebhookDelivery], new: Sequence[WebhookDelivery], now: Instant, *, is_down: bool, room: int
) -> SendPlan:
    """`waiting`: all that wait, in the order of events. `room`: how many more may wait."""
    found = SendPlan()
    keys: dict[str, list[WebhookDelivery]] = {}
    for delivery in waiting:
        keys.setdefault(delivery.order_key, []).append(delivery)
    groups: dict[str, list[WebhookDelivery]] = {}
    count = 0
    for key, members in keys.items():
        if count >= (1 if is_down else AT_ONCE):
            break
        if is_down or members[0].next_at is None or members[0].next_at <= now:
            groups[key] = members[:1] if is_down else members[: AT_ONCE - count]
            count += len(groups[key])
    tried = 0
    for delivery in new[: min(room, AT_ONCE)]:
        key = delivery.order_key
        blocked = key in keys and len(groups.get(key, ())) < len(keys[key])
        if blocked or (is_down and key in groups):
            found.held.append(delivery)
            keys.setdefault(key, []).append(delivery)
        elif (is_down and tried) or (count >= AT_ONCE and key not in groups):
            break
        else:
            groups.setdefault(key, []).append(delivery)
            keys.setdefault(key, []).append(delivery)
            count, tried = count + 1, tried + 1
        found.taken += 1
    found.groups = list(groups.values())
    return found


def pause_after(attempts: int, rules: RetryRules) -> float:
    """Seconds to the next attempt at a delivery that failed: 5, 10, 20 … 600."""
    return float(min(rules.longest_pause, rules.first_pause * 2 ** min(attempts - 1, 30)))


def probe_pause(failures: int, rules: RetryRules) -> float:
    """Seconds to the next look at a receiver that is down."""
    return min(LONGEST_PROBE_PAUSE, pause_after(failures, rules))


def settled(attempt: DeliveryAttempt, now: Instant, rules: RetryRules) -> WebhookDelivery:
    """The delivery as it is written down."""
    delivery, answer = attempt.delivery, attempt.answer
    if answer is None:
        return msgspec.structs.replace(delivery, next_at=delivery.next_at or now)
    tries = delivery.attempts + 1
    told = {
        "attempts": tries,
        "error": answer.error,
        "response_code": answer.response_code,
        "response": answer.response,
        "request_headers": answer.request_headers,
    }
    if answer.error is None:
        return msgspec.structs.replace(
            delivery, status=WebhookStatus.DELIVERED, ended_at=now, next_at=None, first_failed_at=None, **told
        )
    next_at = Instant(now + round(pause_after(tries, rules) * SECOND))
    return msgspec.structs.replace(delivery, next_at=next_at, first_failed_at=delivery.first_failed_at or now, **told)


def has_failed_too_long(deliveries: Collection[WebhookDelivery], now: Instant, rules: RetryRules) -> bool:
    return any(
        each.status is WebhookStatus.PENDING
        and each.first_failed_at is not None
        and now - each.first_failed_at >= rules.window * SECOND
        for each in deliveries
    )
