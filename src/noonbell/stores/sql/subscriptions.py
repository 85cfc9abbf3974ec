"""Webhook subscriptions: how far each has read the events, who delivers for it, and its deliveries.

A subscription is held by one node, under a lease with a token. A pass of the holder ends in one transaction, which names
the token and writes the deliveries that were made, those that wait, and how far the events were read:

    died before it                nothing is written; the next holder reads the same events and sends them again
    died after it                 the next holder goes on behind them
    held up, then goes on         its token is old: what it writes is refused, and another has sent the same events

Every change of a subscription, and every move of its position, raises the token: a pass that began before is void.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.event import WHOLE, Position
from noonbell.model.failure_text import GIVEN_UP
from noonbell.model.subscription import (
    DeliveryStep,
    HeldSubscription,
    RetryRules,
    Subscription,
    SubscriptionState,
    WebhookDelivery,
    WebhookStatus,
)
from noonbell.policy import subscriptions as policy
from noonbell.stores.sql import events
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import Record, from_json, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertMany,
    NewIds,
    Now,
    Row,
    Work,
    delete,
    insert,
    matching,
    update,
)

_STATE = Record(SubscriptionState)
_SELECT = f"select name, created_at, updated_at, active, spec, {_STATE.select()} from subscriptions"
_KEPT_OUTSIDE = {"name", "created_at", "updated_at", "active"}

_DELIVERY = Record(WebhookDelivery)
_SELECT_DELIVERY = f"select {_DELIVERY.select()} from webhook_deliveries"
_SHORT = Record(WebhookDelivery, without=("request_headers", "body", "response"))
_SELECT_SHORT = f"select {_SHORT.select()} from webhook_deliveries"
_WAITS = "subscription = :name and status = 'PENDING'"
_REPLAYED = "replay:"


# Subscriptions


def subscriptions() -> Work[list[HeldSubscription]]:
    rows = yield Fetch(f"{_SELECT} order by name")
    return [_held(row) for row in rows]


def _held(row: Row) -> HeldSubscription:
    name, created_at, updated_at, active, spec = row[:5]
    outside = {"name": name, "created_at": created_at, "updated_at": updated_at, "active": bool(active)}
    subscription = msgspec.convert({**from_json(spec), **outside}, Subscription)
    return HeldSubscription(subscription=subscription, state=_STATE.read(row[5:]))


def _spec(subscription: Subscription) -> str:
    fields = msgspec.to_builtins(subscription)
    return to_json({name: value for name, value in fields.items() if name not in _KEPT_OUTSIDE})


def put_subscription(q: Dialect, subscription: Subscription) -> Work[HeldSubscription]:
    name = subscription.name
    rows = yield Fetch(f"{_SELECT} where name = :name{q.lock}", {"name": name})
    now = yield Now()
    if not rows:
        position = yield from _newest(q)
        made = {"created_at": now, "updated_at": now, "active": int(subscription.active), "spec": _spec(subscription)}
        begins = {"position": position, "position_index": WHOLE, "missed": 0}
        idle = {"holder": "", "token": 1, "expires_at": 0, "failures": 0, "pending": 0}
        yield insert("subscriptions", name=name, **made, **begins, **idle)
        yield from _tell("subscription.created", name)
    else:
        there = _held(rows[0])
        changes = {"spec": _spec(subscription), "updated_at": now, "active": int(subscription.active)}
        free = {"token": there.state.token + 1, "holder": "", "expires_at": 0}
        yield update("subscriptions", {"name": name}, **changes, **free)
        if subscription.active and not there.subscription.active:
            yield from _begin_anew(name, now, there.state.pending)
            yield from _tell("subscription.enabled", name)
        else:
            yield from _tell("subscription.changed", name)
    rows = yield Fetch(f"{_SELECT} where name = :name", {"name": name})
    return _held(rows[0])


def _newest(q: Dialect) -> Work[int]:
    while (yield from events.number(q)):
        pass
    return (yield from events.last())


def _begin_anew(name: str, now: Instant, pending: int) -> Work[None]:
    """What waits is due now, and has as much time as at first."""
    yield Execute(
        f"update webhook_deliveries set next_at = :now, first_failed_at = null where {_WAITS}",
        {"name": name, "now": now},
    )
    well = {"failures": 0, "failing_since": None, "disabled_at": None, "disabled_reason": None}
    yield update("subscriptions", {"name": name}, next_at=now if pending else None, **well)


def remove_subscription(name: str) -> Work[bool]:
    gone = bool((yield delete("subscriptions", name=name)))
    if gone:
        yield delete("webhook_deliveries", subscription=name)
        yield from _tell("subscription.removed", name)
    return gone


def _tell(type_: str, name: str, **data: object) -> Work[None]:
    yield from events.tell(type_, [(None, None, {"subscription": name, **data})])


# Holding and delivering


def take_subscriptions(q: Dialect, holder: str, seconds: float) -> Work[list[HeldSubscription]]:
    now = yield Now()
    rows = yield Fetch(
        f"{_SELECT} where active = 1 and (holder = :holder or expires_at <= :now) order by name{q.lock}",
        {"holder": holder, "now": now},
    )
    held = []
    until = now + round(seconds * SECOND)
    for row in rows:
        found = _held(row)
        ours = yield Execute(
            "update subscriptions set expires_at = :until where name = :name and holder = :holder and expires_at > :now",
            {"until": until, "name": found.subscription.name, "holder": holder, "now": now},
        )
        if not ours:
            token = found.state.token + 1
            yield update(
                "subscriptions", {"name": found.subscription.name}, holder=holder, token=token, expires_at=until
            )
            found = HeldSubscription(
                subscription=found.subscription, state=msgspec.structs.replace(found.state, token=token)
            )
        held.append(found)
    return held


def leave_subscriptions(holder: str) -> Work[None]:
    yield update("subscriptions", {"holder": holder}, expires_at=0)


def waiting_deliveries(name: str) -> Work[list[WebhookDelivery]]:
    rows = yield Fetch(f"{_SELECT_SHORT} where {_WAITS} order by event_seq, event_index, id", {"name": name})
    return [_SHORT.read(row) for row in rows]


def webhook_bodies(q: Dialect, ids: Sequence[int]) -> Work[dict[int, str]]:
    rows = yield from q.fetch_by("select id, body from webhook_deliveries", "id", ids)
    return {row[0]: row[1] for row in rows}


def settle_deliveries(
    q: Dialect, held: HeldSubscription, step: DeliveryStep, rules: RetryRules
) -> Work[SubscriptionState | None]:
    name = held.subscription.name
    rows = yield Fetch(f"{_SELECT} where name = :name{q.lock}", {"name": name})
    if not rows or (there := _held(rows[0])).state.token != held.state.token or not there.subscription.active:
        return None
    now = yield Now()
    settled = [policy.settled(attempt, now, rules) for attempt in step.attempts]
    yield from _write(now, settled)
    state = yield from _state_after(name, there.state, step, settled, now, rules)
    fields = msgspec.structs.asdict(state)
    if state.disabled_at is not None:
        fields |= {"active": 0, "holder": "", "expires_at": 0}
        yield from _tell("subscription.disabled", name, reason=state.disabled_reason, since=state.failing_since)
    if step.missed:
        yield from _tell("subscription.missed", name, count=step.missed)
    yield update("subscriptions", {"name": name}, **fields)
    return state


def _write(now: Instant, settled: Sequence[WebhookDelivery]) -> Work[None]:
    new = [delivery for delivery in settled if not delivery.id]
    if new:
        ids = yield NewIds(len(new))
        rows = [
            _DELIVERY.row(msgspec.structs.replace(delivery, id=id_, created_at=now))
            for id_, delivery in zip(ids, new, strict=True)
        ]
        yield InsertMany("webhook_deliveries", _DELIVERY.columns, rows)
    for delivery in settled:
        if delivery.id:
            changed = dict(zip(_DELIVERY.columns, _DELIVERY.row(delivery), strict=True))
            fields = {column: changed[column] for column in _CHANGED}
            yield update("webhook_deliveries", {"id": delivery.id}, **fields)


_CHANGED = (
    *("status", "attempts", "next_at", "first_failed_at", "ended_at", "response_code", "error", "request_headers"),
    "response",
)


def _state_after(
    name: str,
    state: SubscriptionState,
    step: DeliveryStep,
    settled: Sequence[WebhookDelivery],
    now: Instant,
    rules: RetryRules,
) -> Work[SubscriptionState]:
    delivered = any(each.status is WebhookStatus.DELIVERED for each in settled)
    failed = any(attempt.answer is not None and attempt.answer.error is not None for attempt in step.attempts)
    failures = 0 if delivered else state.failures + 1 if failed else state.failures
    waiting = yield from _waiting(name)
    next_at = waiting.next_at
    if failures:
        next_at = Instant(now + round(policy.probe_pause(failures, rules) * SECOND)) if failed else state.next_at
    given_up = policy.has_failed_too_long(settled, now, rules)
    last_error = next((each.error for each in settled if each.error is not None), None)
    return msgspec.structs.replace(
        state,
        position=step.read_to.seq,
        position_index=step.read_to.index,
        failures=failures,
        pending=waiting.count,
        next_at=next_at,
        delivered_at=now if delivered else state.delivered_at,
        failing_since=waiting.failing_since,
        missed=state.missed + step.missed,
        disabled_at=now if given_up else None,
        disabled_reason=GIVEN_UP.format(seconds=f"{rules.window:g}", error=last_error)[:1_000] if given_up else None,
    )


class _Waiting(msgspec.Struct):
    count: int
    next_at: Instant | None
    """When the first of a key is due: those that wait behind it are not due before it is."""
    failing_since: Instant | None


def _waiting(name: str) -> Work[_Waiting]:
    rows = yield Fetch(
        f"select order_key, next_at, first_failed_at, created_at from webhook_deliveries where {_WAITS}"
        " order by event_seq, event_index, id",
        {"name": name},
    )
    first: dict[str, Instant] = {}
    for key, next_at, _, created_at in rows:
        first.setdefault(key, Instant(next_at or created_at))
    failing = [Instant(row[2]) for row in rows if row[2] is not None]
    return _Waiting(len(rows), min(first.values(), default=None), min(failing, default=None))


# Deliveries, as people look at them


def webhook_deliveries(
    name: str, limit: int = 100, *, before: int | None = None, status: WebhookStatus | None = None
) -> Work[list[WebhookDelivery]]:
    which, params = matching(
        name=("subscription = :name", name), before=("id < :before", before), status=("status = :status", status)
    )
    rows = yield Fetch(f"{_SELECT_SHORT} where {which} order by id desc limit :limit", {**params, "limit": limit})
    return [_SHORT.read(row) for row in rows]


def webhook_delivery(name: str, delivery_id: int) -> Work[WebhookDelivery | None]:
    rows = yield Fetch(f"{_SELECT_DELIVERY} where id = :id and subscription = :name", {"id": delivery_id, "name": name})
    return _DELIVERY.read(rows[0]) if rows else None


def note_webhook(delivery: WebhookDelivery) -> Work[WebhookDelivery]:
    now = yield Now()
    ids = yield NewIds(1)
    made = msgspec.structs.replace(delivery, id=ids[0], created_at=now, ended_at=now)
    yield InsertMany("webhook_deliveries", _DELIVERY.columns, [_DELIVERY.row(made)])
    return made


def replay_delivery(q: Dialect, name: str, delivery_id: int) -> Work[WebhookDelivery | None]:
    rows = yield Fetch(f"select pending, next_at from subscriptions where name = :name{q.lock}", {"name": name})
    found = yield from webhook_delivery(name, delivery_id)
    if not rows or found is None:
        return None
    now = yield Now()
    ids = yield NewIds(1)
    made = WebhookDelivery(
        id=ids[0],
        subscription=name,
        event_seq=found.event_seq,
        event_index=found.event_index,
        type=found.type,
        order_key=f"{_REPLAYED}{ids[0]}",
        next_at=now,
        created_at=now,
        body=found.body,
        replay_of=found.id,
    )
    yield InsertMany("webhook_deliveries", _DELIVERY.columns, [_DELIVERY.row(made)])
    due = now if rows[0][1] is None else min(now, rows[0][1])
    yield update("subscriptions", {"name": name}, pending=rows[0][0] + 1, next_at=due, failures=0)
    return made


def move_subscription(q: Dialect, name: str, to: Position | Instant | None) -> Work[SubscriptionState | None]:
    rows = yield Fetch(f"{_SELECT} where name = :name{q.lock}", {"name": name})
    if not rows:
        return None
    state = _held(rows[0]).state
    now = yield Now()
    newest = yield from _newest(q)
    if to is None:
        to = Position(newest)
    elif not isinstance(to, Position):
        to = Position((yield from _last_before(to, newest)))
    to = min(to, Position(newest))
    here = {"name": name, "seq": to.seq, "index": to.index, "now": now}
    behind = "(event_seq > :seq or (event_seq = :seq and event_index > :index))"
    yield Execute(
        f"delete from webhook_deliveries where {_WAITS} and replay_of is null and {behind}",
        {key: here[key] for key in ("name", "seq", "index")},
    )
    if to > state.read_to:
        passed = "update webhook_deliveries set status = 'FAILED', ended_at = :now, next_at = null, error = :error"
        error = "it was passed over: the position of the subscription was moved past it"
        yield Execute(f"{passed} where {_WAITS}", {"name": name, "now": now, "error": error})
    waiting = yield from _waiting(name)
    moved = msgspec.structs.replace(
        state,
        position=to.seq,
        position_index=to.index,
        token=state.token + 1,
        failures=0,
        pending=waiting.count,
        next_at=waiting.next_at,
        failing_since=waiting.failing_since,
        missed=0,  # who says where it goes on has seen what it passed over
    )
    yield update("subscriptions", {"name": name}, **msgspec.structs.asdict(moved), holder="", expires_at=0)
    yield from _tell("subscription.moved", name, to=to.seq)
    return moved


def _last_before(at: Instant, newest: int) -> Work[int]:
    """The number of the last event before a moment. Numbers follow the time, so halving finds it."""
    rows = yield Fetch("select min(seq) from events where seq is not null")
    if rows[0][0] is None:
        return newest
    low, high = int(rows[0][0]), newest + 1
    while low < high:  # the first number whose event is not before the moment
        middle = (low + high) // 2
        rows = yield Fetch("select at from events where seq >= :seq order by seq limit 1", {"seq": middle})
        if rows and rows[0][0] < at:
            low = middle + 1
        else:
            high = middle
    return low - 1


def forget_webhooks(q: Dialect, name: str, before: Instant, keep: int, limit: int) -> Work[int]:
    beyond = yield Fetch(
        "select id from webhook_deliveries where subscription = :name order by id desc limit 1 offset :keep",
        {"name": name, "keep": keep},
    )
    last = beyond[0][0] if beyond else -1
    rows = yield Fetch(
        "select id, status, created_at from webhook_deliveries where subscription = :name order by id limit :limit",
        {"name": name, "limit": limit},
    )
    ids = [row[0] for row in rows if row[1] != WebhookStatus.PENDING and (row[2] < before or row[0] <= last)]
    yield from q.delete_by("webhook_deliveries", "id", ids)
    return len(ids)
