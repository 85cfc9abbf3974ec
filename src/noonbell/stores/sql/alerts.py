"""Alerts: rules and channels by name, mutes, acknowledgements, what the rules remember, deliveries, and the queries
that rules about lateness ask.

One node does the watching, under a lease with a token. A pass writes its states, its deliveries and how far it has read
the events in one transaction that names the token: a node that was held up cannot send a notice twice. A delivery is
claimed by counting its attempt; only the claim with that count settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final, Literal, TypeVar

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.alert import (
    Acknowledgement,
    AlertDelivery,
    AlertMessage,
    AlertState,
    AlertStep,
    Channel,
    DeliveryStatus,
    LeaderLease,
    Mute,
    OverdueTask,
    Rule,
)
from noonbell.model.calendar import QuietAction
from noonbell.model.failure_text import SAID, failure_text, said_by
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.policy.quiet import let_go_at, quiet_at
from noonbell.stores.sql import events
from noonbell.stores.sql.active_runs import WAITING, Place
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.rows import Record, from_json, to_json
from noonbell.stores.sql.statement import (
    Execute,
    Fetch,
    InsertMany,
    NewIds,
    Now,
    Work,
    delete,
    insert,
    insert_new,
    matching,
    update,
)
from noonbell.stores.sql.workers import SILENCE

Table = Literal["alert_rules", "alert_channels"]
Named = TypeVar("Named", Rule, Channel)

_NAMED = ("name", "managed_by", "created_at", "updated_at", "spec")
_KEPT_OUTSIDE = {"name", "managed_by", "created_at", "updated_at"}

HELD: Final = failure_text("alert_quiet_held")
"""The error of a delivery that quiet hours hold, whatever it failed of before."""
_DELIVERY = Record(AlertDelivery)
_SELECT_DELIVERY = f"select {_DELIVERY.select()} from alert_deliveries"


# Rules and channels


def alert_rules() -> Work[list[Rule]]:
    return _named("alert_rules", Rule)


def alert_channels() -> Work[list[Channel]]:
    return _named("alert_channels", Channel)


def put_alert_rule(q: Dialect, rule: Rule) -> Work[Rule]:
    return _put(q, "alert_rules", rule)


def put_alert_channel(q: Dialect, channel: Channel) -> Work[Channel]:
    """What its quiet hours hold is looked at again, by what they are now."""
    kept = yield from _put(q, "alert_channels", channel)
    yield Execute(
        "update alert_deliveries set next_at = :now where channel = :name and error = :held and next_at > :now",
        {"name": channel.name, "held": HELD, "now": (yield Now())},
    )
    return kept


def _named(table: Table, kind: type[Named]) -> Work[list[Named]]:
    rows = yield Fetch(f"select {', '.join(_NAMED)} from {table} order by name")
    found = []
    for name, managed_by, created_at, updated_at, spec in rows:
        outside = {"name": name, "managed_by": managed_by, "created_at": created_at, "updated_at": updated_at}
        found.append(msgspec.convert({**from_json(spec), **outside}, kind))
    return found


def _put(q: Dialect, table: Table, given: Named) -> Work[Named]:
    rows = yield Fetch(f"select created_at from {table} where name = :name{q.lock}", {"name": given.name})
    now = yield Now()
    kept: Named = msgspec.structs.replace(given, created_at=rows[0][0] if rows else now, updated_at=now)
    fields = msgspec.to_builtins(kept)
    spec = to_json({name: value for name, value in fields.items() if name not in _KEPT_OUTSIDE})
    if rows:
        yield update(table, {"name": kept.name}, managed_by=kept.managed_by, updated_at=now, spec=spec)
    else:
        outside = {"name": kept.name, "managed_by": kept.managed_by, "created_at": now, "updated_at": now}
        yield insert(table, **outside, spec=spec)
    return kept


def remove_alert_rule(name: str) -> Work[bool]:
    """What it remembers goes with it: a rule that is not there cannot say that all is well again."""
    yield delete("alert_states", rule=name)
    yield delete("alert_acks", rule=name)
    return bool((yield delete("alert_rules", name=name)))


def remove_alert_channel(name: str) -> Work[bool]:
    """What waits to be sent there goes with it; the log of what was sent stays."""
    yield Execute("delete from alert_deliveries where channel = :name and next_at is not null", {"name": name})
    return bool((yield delete("alert_channels", name=name)))


# Mutes and acknowledgements


def alert_mutes() -> Work[list[Mute]]:
    now = yield Now()
    rows = yield Fetch("select id, until, spec from alert_mutes where until > :now order by until, id", {"now": now})
    return [msgspec.convert({**from_json(spec), "id": id_, "until": until}, Mute) for id_, until, spec in rows]


def add_alert_mute(mute: Mute) -> Work[Mute]:
    now = yield Now()
    ids = yield NewIds(1)
    kept = msgspec.structs.replace(mute, id=int(ids[0]), created_at=now)
    spec = {name: value for name, value in msgspec.to_builtins(kept).items() if name not in ("id", "until")}
    yield insert("alert_mutes", id=kept.id, until=kept.until, spec=to_json(spec))
    return kept


def remove_alert_mute(id_: int) -> Work[bool]:
    return bool((yield delete("alert_mutes", id=id_)))


def forget_mutes() -> Work[int]:
    now = yield Now()
    removed = yield Execute("delete from alert_mutes where until <= :now", {"now": now})
    return int(removed)


def acknowledgements() -> Work[list[Acknowledgement]]:
    rows = yield Fetch("select rule, subject, at, by_whom, note from alert_acks order by rule, subject")
    return [
        Acknowledgement(rule=rule, subject=subject, at=Instant(at), by=by, note=note)
        for rule, subject, at, by, note in rows
    ]


def acknowledge_alert(
    q: Dialect, rule: str, subject: str, *, by: str | None = None, note: str = ""
) -> Work[Acknowledgement | None]:
    """The row of the alert is held meanwhile: a pass that closes it waits, and removes this with it.

    A pass that goes on with it writes its row anew. A look that has waited for that finds the old row gone: the second
    one finds the new row.
    """
    params = {"rule": rule, "subject": subject}
    sql = f"select state from alert_states where rule = :rule and subject = :subject{q.lock}"
    rows = (yield Fetch(sql, params)) or (yield Fetch(sql, params))
    if not rows or from_json(rows[0][0]).get("raised_at") is None:
        return None
    now = yield Now()
    yield delete("alert_acks", rule=rule, subject=subject)
    made = Acknowledgement(rule=rule, subject=subject, at=now, by=by, note=note)
    yield insert("alert_acks", rule=rule, subject=subject, at=now, by_whom=by, note=note)
    return made


def withdraw_acknowledgement(rule: str, subject: str) -> Work[bool]:
    return bool((yield delete("alert_acks", rule=rule, subject=subject)))


def labels_of_tasks(q: Dialect, task_ids: Iterable[int]) -> Work[dict[int, dict[str, str]]]:
    found: dict[int, dict[str, str]] = {}
    rows = yield from q.fetch_by("select task_id, name, value from task_labels", "task_id", task_ids)
    for task_id, name, value in rows:
        found.setdefault(task_id, {})[name] = value
    return found


# The duty


def take_duty(q: Dialect, name: str, holder: str, seconds: float) -> Work[LeaderLease | None]:
    rows = yield Fetch(
        f"select holder, token, expires_at, position from duties where name = :name{q.lock}", {"name": name}
    )
    now = yield Now()
    until = now + round(seconds * SECOND)
    if not rows:
        position = yield from events.last()
        yield insert("duties", name=name, holder=holder, token=1, expires_at=until, position=position)
        return LeaderLease(name=name, token=1, position=position)
    held_by, token, expires_at, position = rows[0]
    if held_by != holder and expires_at > now:
        return None
    token = token if held_by == holder and expires_at > now else token + 1
    yield update("duties", {"name": name}, holder=holder, token=token, expires_at=until)
    return LeaderLease(name=name, token=token, position=position)


def leave_duty(name: str, holder: str) -> Work[None]:
    yield update("duties", {"name": name, "holder": holder}, expires_at=0)


def alert_states() -> Work[list[AlertState]]:
    rows = yield Fetch("select state from alert_states order by rule, subject")
    return [msgspec.convert(from_json(row[0]), AlertState) for row in rows]


def alert(q: Dialect, duty: LeaderLease, position: int, step: AlertStep) -> Work[bool]:
    rows = yield Fetch(f"select token, expires_at from duties where name = :name{q.lock}", {"name": duty.name})
    now = yield Now()
    if not rows or rows[0][0] != duty.token or rows[0][1] <= now:
        return False
    yield update("duties", {"name": duty.name}, position=position)
    for rule, subject in [*step.closed, *((state.rule, state.subject) for state in step.states)]:
        yield delete("alert_states", rule=rule, subject=subject)
    for rule, subject in step.closed:
        yield delete("alert_acks", rule=rule, subject=subject)
    if step.states:
        rows = [(state.rule, state.subject, to_json(state)) for state in step.states]
        yield InsertMany("alert_states", ("rule", "subject", "state"), rows)
    yield from _deliver(now, step.notices)
    for what, state in step.told:
        data = {"rule": state.rule, "subject": state.subject, "message": state.message, "count": state.count}
        data |= {"code": state.code, "facts": state.facts} if state.code else {}
        yield from events.tell(what, [(state.task_id, state.run_id, data)])
    return True


# Deliveries


def _deliver(now: Instant, notices: Sequence[tuple[str, AlertMessage]]) -> Work[None]:
    if not notices:
        return
    yield from insert_new(
        "alert_deliveries",
        ("channel", "rule", "what", "subject", "status", "attempts", "next_at", "created_at", "notice"),
        [
            (channel, said.rule, said.type, said.subject, DeliveryStatus.PENDING, 0, now, now, to_json(said))
            for channel, said in notices
        ],
    )


def note_delivery(
    channel: str,
    notice: AlertMessage,
    status: DeliveryStatus,
    *,
    error: str | None = None,
    response_code: int | None = None,
) -> Work[int]:
    """Record a delivery that was made past the queue: a test."""
    now = yield Now()
    ids = yield NewIds(1)
    document = {**msgspec.to_builtins(notice), **said_by(error or "")}
    said = {"rule": notice.rule, "what": notice.type, "subject": notice.subject, "notice": to_json(document)}
    words = None if error is None else str(error)
    ended = {"status": status, "attempts": 1, "next_at": None, "response_code": response_code, "error": words}
    yield insert("alert_deliveries", id=ids[0], channel=channel, created_at=now, ended_at=now, **said, **ended)
    return int(ids[0])


def claim_deliveries(q: Dialect, limit: int, seconds: float) -> Work[list[AlertDelivery]]:
    now = yield Now()
    rows = yield Fetch(
        f"{_SELECT_DELIVERY} where next_at <= :now order by next_at, id limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    claimed = []
    until = Instant(now + round(seconds * SECOND))
    for row in rows:
        delivery = _DELIVERY.read(row)
        counted: dict[str, Any] = {"attempts": delivery.attempts + 1, "next_at": until}
        if delivery.error == HELD:  # it is on its way: a change of the channel must not let it go a second time
            counted["error"] = None
        yield update("alert_deliveries", {"id": delivery.id}, **counted)
        claimed.append(msgspec.structs.replace(delivery, **counted))
    return claimed


def next_delivery() -> Work[float | None]:
    now = yield Now()
    rows = yield Fetch("select min(next_at) from alert_deliveries where next_at is not null")
    return None if rows[0][0] is None else max(0, rows[0][0] - now) / SECOND


def settle_delivery(
    q: Dialect,
    delivery: AlertDelivery,
    status: DeliveryStatus,
    *,
    delay_seconds: float = 0,
    error: str | None = None,
    response_code: int | None = None,
    is_counted: bool = True,
) -> Work[bool]:
    rows = yield Fetch(f"select attempts, status from alert_deliveries where id = :id{q.lock}", {"id": delivery.id})
    if not rows or tuple(rows[0]) != (delivery.attempts, DeliveryStatus.PENDING):
        return False
    now = yield Now()
    waits = status is DeliveryStatus.PENDING
    yield update(
        "alert_deliveries",
        {"id": delivery.id},
        status=status,
        attempts=delivery.attempts - (not is_counted),
        next_at=now + round(delay_seconds * SECOND) if waits else None,
        ended_at=None if waits else now,
        response_code=response_code,
        error=None if error is None else str(error),
        notice=to_json(
            {**{name: value for name, value in delivery.notice.items() if name != SAID}, **said_by(error or "")}
        ),
    )
    return True


def rest_delivery(q: Dialect, delivery: AlertDelivery) -> Work[DeliveryStatus | None]:
    """It holds the row of the channel first, as a change of the channel does, which then lets go what is held."""
    yield Fetch(f"select name from alert_channels where name = :name{q.lock}", {"name": delivery.channel})
    channel = next((one for one in (yield from alert_channels()) if one.name == delivery.channel and one.enabled), None)
    now = yield Now()
    quiet = None if channel is None else quiet_at(channel.quiet, "UTC", now)
    if channel is None or quiet is None:
        return None
    if quiet.action is QuietAction.SKIP:
        yield from settle_delivery(q, delivery, DeliveryStatus.SKIPPED, error=failure_text("alert_quiet_skipped"))
        return DeliveryStatus.SKIPPED
    let_go = let_go_at(quiet, channel.spread_seconds, delivery.created_at)
    yield from settle_delivery(
        q,
        delivery,
        DeliveryStatus.PENDING,
        delay_seconds=(let_go - now) / SECOND,
        error=HELD,
        is_counted=False,
    )
    return DeliveryStatus.PENDING


def alert_deliveries(
    limit: int = 100, *, before: int | None = None, channel: str | None = None
) -> Work[list[AlertDelivery]]:
    which, params = matching(before=("id < :before", before), channel=("channel = :channel", channel))
    rows = yield Fetch(f"{_SELECT_DELIVERY} where {which} order by id desc limit :limit", {**params, "limit": limit})
    return [_DELIVERY.read(row) for row in rows]


def forget_deliveries(q: Dialect, before: Instant, limit: int) -> Work[int]:
    rows = yield Fetch("select id, ended_at from alert_deliveries order by id limit :limit", {"limit": limit})
    ids = [row[0] for row in rows if row[1] is not None and row[1] < before]
    yield from q.delete_by("alert_deliveries", "id", ids)
    return len(ids)


_PLACES = ", ".join(str(int(place)) for place in sorted(WAITING))
_ENOUGH = 5
"""Fewer runs than this do not say what is usual."""
_LOOKED_AT = 20
_TASKS = 50
"""Tasks whose history is looked into in one reading."""


def overdue_tasks(seconds: float, limit: int = 100) -> Work[list[OverdueTask]]:
    now = yield Now()
    rows = yield Fetch(
        "select c.task_id, t.name, c.next_fire_at from cursors c join tasks t on t.id = c.task_id"
        f" where c.next_fire_at <= :before and not {PAUSED} order by c.next_fire_at limit :limit",
        {"before": now - round(seconds * SECOND), "limit": limit},
    )
    return [OverdueTask(task_id=TaskId(row[0]), task_name=row[1], since=Instant(row[2])) for row in rows]


def waiting_tasks(seconds: float, limit: int = 100) -> Work[list[OverdueTask]]:
    now = yield Now()
    rows = yield Fetch(
        "select l.task_id, t.name, min(l.run_at), min(l.run_id), count(*) from live l join tasks t on t.id = l.task_id"
        f" where l.place in ({_PLACES}) and l.run_at <= :before"
        f" and l.queue not in (select name from queues where paused = 1) and not {PAUSED}"
        " group by l.task_id, t.name order by 3 limit :limit",
        {"before": now - round(seconds * SECOND), "limit": limit},
    )
    return [
        OverdueTask(task_id=TaskId(row[0]), task_name=row[1], since=Instant(row[2]), run_id=RunId(row[3]), count=row[4])
        for row in rows
    ]


def slow_tasks(seconds: float, factor: float, limit: int = 50) -> Work[list[OverdueTask]]:
    """Runs under way for longer than `seconds`, and `factor` times as long as the median of the last successes."""
    now = yield Now()
    rows = yield Fetch(
        "select l.task_id, t.name, min(l.claimed_at), min(l.run_id) from live l join tasks t on t.id = l.task_id"
        f" where l.place = {int(Place.LEASED)} and l.claimed_at <= :before and l.parent_id is null"
        " group by l.task_id, t.name order by 3 limit :limit",
        {"before": now - round(seconds * SECOND), "limit": min(limit, _TASKS)},
    )
    found = []
    for task_id, name, claimed_at, run_id in rows:
        usual = yield from _usual(task_id)
        if usual is not None and now - claimed_at > factor * usual:
            late = OverdueTask(
                task_id=TaskId(task_id),
                task_name=name,
                since=Instant(claimed_at),
                run_id=RunId(run_id),
                usual_seconds=usual / SECOND,
            )
            found.append(late)
    return found


def _usual(task_id: int) -> Work[float | None]:
    rows = yield Fetch(
        "select end_time - start_time from (select status, start_time, end_time from runs where task_id = :task"
        " order by id desc limit 100) newest where status = 'SUCCESS' and start_time is not null limit :limit",
        {"task": task_id, "limit": _LOOKED_AT},
    )
    return median(row[0] for row in rows) if len(rows) >= _ENOUGH else None


def notice_workers() -> Work[int]:
    """Write an event for each worker that has fallen silent or is back, each once; return how many of both."""
    now = yield Now()
    silent = yield Fetch(
        "select w.id, w.incarnation, w.heartbeat_at from workers w left join worker_losses l on l.worker_id = w.id"
        " where w.heartbeat_at <= :before and l.worker_id is null",
        {"before": now - SILENCE},
    )
    back = yield Fetch(
        "select l.worker_id, w.id from worker_losses l left join workers w on w.id = l.worker_id"
        " where w.id is null or w.heartbeat_at > :before",
        {"before": now - SILENCE},
    )
    for worker_id, incarnation, heartbeat_at in silent:
        yield insert("worker_losses", worker_id=worker_id, incarnation=incarnation, at=now)
        data = {"worker_id": worker_id, "heartbeat_at": heartbeat_at}
        yield from tell("worker.lost", [(None, None, data)])
    for worker_id, is_there in back:
        gone = yield delete("worker_losses", worker_id=worker_id)
        if gone and is_there is not None:
            yield from tell("worker.returned", [(None, None, {"worker_id": worker_id})])
    return len(silent) + len(back)
