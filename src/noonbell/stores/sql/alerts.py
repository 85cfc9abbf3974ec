"""Alerts: rules and channels by name, what they remember, and deliveries, each a compare-and-set.

One node does the watching, under a duty: a lease with a token. A pass writes its states, its deliveries and how far it
has read the events in one transaction that names the token, so that a node which was held up cannot tell twice. A
delivery is claimed by counting its attempt; only who holds that count settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.alert import (
    AlertState,
    AlertStep,
    Channel,
    Delivery,
    DeliveryStatus,
    Duty,
    Notice,
    Rule,
)
from noonbell.stores.sql import events
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Now, Row, Work

Table = Literal["alert_rules", "alert_channels"]
Named = TypeVar("Named", Rule, Channel)

_NAMED = ("name", "managed_by", "created_at", "updated_at", "spec")
_KEPT_OUTSIDE = {"name", "managed_by", "created_at", "updated_at"}

_DELIVERY = (
    *("id", "channel", "rule", "subject", "status", "attempts", "next_at", "created_at", "ended_at"),
    *("response_code", "error", "notice"),
)
_SELECT_DELIVERY = f"select {', '.join(_DELIVERY)} from alert_deliveries"


# Rules and channels


def named(table: Table, kind: type[Named]) -> Work[list[Named]]:
    rows = yield Fetch(f"select {', '.join(_NAMED)} from {table} order by name")
    found = []
    for name, managed_by, created_at, updated_at, spec in rows:
        outside = {"name": name, "managed_by": managed_by, "created_at": created_at, "updated_at": updated_at}
        found.append(msgspec.convert({**from_json(spec), **outside}, kind))
    return found


def put(q: Dialect, table: Table, given: Named) -> Work[Named]:
    rows = yield Fetch(f"select created_at from {table} where name = :name{q.lock}", {"name": given.name})
    now = yield Now()
    kept: Named = msgspec.structs.replace(given, created_at=rows[0][0] if rows else now, updated_at=now)
    fields = msgspec.to_builtins(kept)
    spec = to_json({name: value for name, value in fields.items() if name not in _KEPT_OUTSIDE})
    if rows:
        yield Execute(
            f"update {table} set managed_by = :by, updated_at = :now, spec = :spec where name = :name",
            {"by": kept.managed_by, "now": now, "spec": spec, "name": kept.name},
        )
    else:
        yield InsertMany(table, _NAMED, [(kept.name, kept.managed_by, kept.created_at, now, spec)])
    return kept


def remove_rule(name: str) -> Work[bool]:
    """What it remembers goes with it: a rule that is not there cannot say that all is well again."""
    yield Execute("delete from alert_states where rule = :name", {"name": name})
    return bool((yield Execute("delete from alert_rules where name = :name", {"name": name})))


def remove_channel(name: str) -> Work[bool]:
    """What waits to be sent there goes with it; the log of what was sent stays."""
    yield Execute(
        "delete from alert_deliveries where channel = :name and next_at is not null",
        {"name": name},
    )
    return bool((yield Execute("delete from alert_channels where name = :name", {"name": name})))


# The duty


def take_duty(q: Dialect, name: str, holder: str, seconds: float) -> Work[Duty | None]:
    rows = yield Fetch(
        f"select holder, token, expires_at, position from duties where name = :name{q.lock}", {"name": name}
    )
    now = yield Now()
    until = now + round(seconds * SECOND)
    if not rows:
        position = yield from events.last()
        yield InsertMany(
            "duties", ("name", "holder", "token", "expires_at", "position"), [(name, holder, 1, until, position)]
        )
        return Duty(name=name, token=1, position=position)
    held_by, token, expires_at, position = rows[0]
    if held_by != holder and expires_at > now:
        return None
    token = token if held_by == holder and expires_at > now else token + 1
    yield Execute(
        "update duties set holder = :holder, token = :token, expires_at = :until where name = :name",
        {"holder": holder, "token": token, "until": until, "name": name},
    )
    return Duty(name=name, token=token, position=position)


def leave_duty(name: str, holder: str) -> Work[None]:
    yield Execute(
        "update duties set expires_at = 0 where name = :name and holder = :holder", {"name": name, "holder": holder}
    )


def states() -> Work[list[AlertState]]:
    rows = yield Fetch("select state from alert_states order by rule, subject")
    return [msgspec.convert(from_json(row[0]), AlertState) for row in rows]


def step(q: Dialect, duty: Duty, position: int, given: AlertStep) -> Work[bool]:
    rows = yield Fetch(f"select token, expires_at from duties where name = :name{q.lock}", {"name": duty.name})
    now = yield Now()
    if not rows or rows[0][0] != duty.token or rows[0][1] <= now:
        return False
    yield Execute(
        "update duties set position = :position where name = :name", {"position": position, "name": duty.name}
    )
    for rule, subject in [*given.closed, *((state.rule, state.subject) for state in given.states)]:
        yield Execute(
            "delete from alert_states where rule = :rule and subject = :subject", {"rule": rule, "subject": subject}
        )
    if given.states:
        yield InsertMany(
            "alert_states",
            ("rule", "subject", "state"),
            [(state.rule, state.subject, to_json(state)) for state in given.states],
        )
    yield from _deliver(now, given.notices)
    for what, state in given.told:
        data = {"rule": state.rule, "subject": state.subject, "message": state.message, "count": state.count}
        yield from events.tell(now, what, [(state.task_id, state.run_id, data)])
    return True


# Deliveries


def _deliver(now: Instant, notices: Sequence[tuple[str, Notice]]) -> Work[None]:
    if not notices:
        return
    ids = yield NewIds(len(notices))
    yield InsertMany(
        "alert_deliveries",
        ("id", "channel", "rule", "what", "subject", "status", "attempts", "next_at", "created_at", "notice"),
        [
            (id_, channel, said.rule, said.type, said.subject, DeliveryStatus.PENDING, 0, now, now, to_json(said))
            for id_, (channel, said) in zip(ids, notices, strict=True)
        ],
    )


def note_delivery(
    channel: str, said: Notice, status: DeliveryStatus, error: str | None, response_code: int | None
) -> Work[int]:
    """One that was made past the queue: a test."""
    now = yield Now()
    ids = yield NewIds(1)
    row = (ids[0], channel, said.rule, said.type, said.subject, status, 1, None, now, now, response_code, error)
    columns = (
        *("id", "channel", "rule", "what", "subject", "status", "attempts", "next_at", "created_at", "ended_at"),
        *("response_code", "error", "notice"),
    )
    yield InsertMany("alert_deliveries", columns, [(*row, to_json(said))])
    return int(ids[0])


def claim_deliveries(q: Dialect, limit: int, seconds: float) -> Work[list[Delivery]]:
    now = yield Now()
    rows = yield Fetch(
        f"{_SELECT_DELIVERY} where next_at <= :now order by next_at, id limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    claimed = []
    until = Instant(now + round(seconds * SECOND))
    for row in rows:
        delivery = _delivery(row)
        yield Execute(
            "update alert_deliveries set attempts = :attempts, next_at = :until where id = :id",
            {"attempts": delivery.attempts + 1, "until": until, "id": delivery.id},
        )
        claimed.append(msgspec.structs.replace(delivery, attempts=delivery.attempts + 1, next_at=until))
    return claimed


def next_delivery() -> Work[float | None]:
    now = yield Now()
    rows = yield Fetch("select min(next_at) from alert_deliveries where next_at is not null")
    return None if rows[0][0] is None else max(0, rows[0][0] - now) / SECOND


def settle_delivery(
    q: Dialect,
    delivery: Delivery,
    status: DeliveryStatus,
    delay_seconds: float,
    error: str | None,
    response_code: int | None,
) -> Work[bool]:
    rows = yield Fetch(
        f"select attempts, status from alert_deliveries where id = :id{q.lock}",
        {"id": delivery.id},
    )
    if not rows or tuple(rows[0]) != (delivery.attempts, DeliveryStatus.PENDING):
        return False
    now = yield Now()
    waits = status is DeliveryStatus.PENDING
    yield Execute(
        "update alert_deliveries set status = :status, next_at = :next, ended_at = :ended, response_code = :code,"
        " error = :error where id = :id",
        {
            "status": status,
            "next": now + round(delay_seconds * SECOND) if waits else None,
            "ended": None if waits else now,
            "code": response_code,
            "error": error,
            "id": delivery.id,
        },
    )
    return True


def deliveries(limit: int, before: int | None, channel: str | None) -> Work[list[Delivery]]:
    conditions, params = ["1 = 1"], dict[str, object](limit=limit)
    if before is not None:
        conditions.append("id < :before")
        params["before"] = before
    if channel is not None:
        conditions.append("channel = :channel")
        params["channel"] = channel
    rows = yield Fetch(f"{_SELECT_DELIVERY} where {' and '.join(conditions)} order by id desc limit :limit", params)
    return [_delivery(row) for row in rows]


def forget_deliveries(q: Dialect, before: Instant, limit: int) -> Work[int]:
    rows = yield Fetch("select id, ended_at from alert_deliveries order by id limit :limit", {"limit": limit})
    ids = [row[0] for row in rows if row[1] is not None and row[1] < before]
    if ids:
        yield Execute(f"delete from alert_deliveries where {q.ids('id', 'ids')}", {"ids": q.pack(ids)})
    return len(ids)


def _delivery(row: Row) -> Delivery:
    fields = dict(zip(_DELIVERY, row, strict=True))
    return Delivery(**{**fields, "status": DeliveryStatus(fields["status"]), "notice": from_json(fields["notice"])})
