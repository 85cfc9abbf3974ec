"""Reading the account: the runs of slots, why a run waits, outages; and a look for rows that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.account import (
    Activity,
    CleanedSlots,
    ClockStep,
    Inconsistency,
    InconsistencyKind,
    Outage,
    Pause,
    PendingCallbacks,
    SlotRun,
    Wait,
)
from noonbell.model.run import FINAL, RunId, RunStatus, SkipReason
from noonbell.model.task import RateLimit, TaskId
from noonbell.policy import rate
from noonbell.policy.rate import RateState
from noonbell.stores.sql import keys
from noonbell.stores.sql.active_runs import COLUMNS, HOLDING, STARTED, Live, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.limits import installation_pause, rate_scope
from noonbell.stores.sql.reading import runs_of
from noonbell.stores.sql.rows import Record, from_json
from noonbell.stores.sql.statement import Fetch, Now, Row, Work, insert_new
from noonbell.stores.sql.workers import SCHEDULER

_OUTAGE = Record(Outage)
_STEP = Record(ClockStep)
_SAME_STEP = 60 * SECOND
"""Microseconds within which two nodes that saw the clock step by the same time mean one step."""
_REASON = 500
"""Characters of an outage's reason that are kept."""
_RUNNING = (Place.LEASED, Place.PARENT, Place.GATHERING)
_HOLDING = f"place in ({', '.join(str(int(place)) for place in HOLDING)})"
_UNDER_WAY = (
    f"queue = :value and place in ({int(Place.LEASED)}, {int(Place.PARKED)})"
    f" and (parent_id is null or (flags & {RunFlag.STEP | RunFlag.CHILD}) <> 0)"
)
"""What has one of the places of a queue."""


def slot_runs(task_id: TaskId, since: Instant, until: Instant, limit: int = 1000) -> Work[list[SlotRun]]:
    rows = yield Fetch(
        "select r.slot, r.id, r.status, r.skip_reason, r.created_at, r.end_time, l.place from runs r"
        " left join live l on l.run_id = r.id"
        " where r.task_id = :task and r.slot >= :since and r.slot <= :until order by r.slot limit :limit",
        {"task": task_id, "since": since, "until": until, "limit": limit},
    )
    return [_slot_run(row) for row in rows]


def _slot_run(row: Row) -> SlotRun:
    slot, run_id, status, reason, created_at, end_time, place = row
    return SlotRun(
        slot=slot,
        run_id=RunId(run_id),
        status=RunStatus.RUNNING if place in _RUNNING else RunStatus(status),
        skip_reason=None if reason is None else SkipReason(reason),
        created_at=created_at,
        end_time=end_time,
    )


def slot_counts(since: Instant, until: Instant, seconds: int) -> Work[dict[Instant, int]]:
    """Only `slot` is read, which the index over (task_id, slot) has: the wide rows are left alone."""
    rows = yield Fetch(
        "select slot - slot % :step, count(*) from runs where slot >= :since and slot < :until group by 1",
        {"since": since, "until": until, "step": seconds * SECOND},
    )
    return {Instant(int(start)): int(count) for start, count in sorted(rows)}


def cleaned(task_id: TaskId) -> Work[CleanedSlots]:
    rows = yield Fetch("select last, count from cleaned where task_id = :task", {"task": task_id})
    return CleanedSlots(rows[0][0], rows[0][1]) if rows else CleanedSlots()


def note_outage(seconds: float, node: str, reason: str | None = None) -> Work[Outage]:
    now = yield Now()
    reason = None if reason is None else reason[:_REASON]
    outage = Outage(since=Instant(now - round(seconds * SECOND)), until=now, node=node, reason=reason)
    yield from insert_new("outages", _OUTAGE.columns, [_OUTAGE.row(outage)])
    data = {"node": node, "since": outage.since, "until": outage.until, "reason": reason}
    yield from tell("store.recovered", [(None, None, data)])
    return outage


def outages(since: Instant, until: Instant) -> Work[list[Outage]]:
    rows = yield Fetch(
        f"select {_OUTAGE.select()} from outages where until >= :since and since <= :until order by since limit 1000",
        {"since": since, "until": until},
    )
    return [_OUTAGE.read(row) for row in rows]


def note_clock_step(seconds: float, node: str) -> Work[ClockStep | None]:
    """None: another node has noted it."""
    now = yield Now()
    step = round(seconds * SECOND)
    since, until = sorted((now - step, now))
    found = ClockStep(since=Instant(since), until=Instant(until), step=step, node=node)
    noted = yield Fetch(
        "select step from clock_steps where until >= :since and until <= :until",
        {"since": until - _SAME_STEP, "until": until + _SAME_STEP},
    )
    if any(abs(other - step) < SECOND for (other,) in noted):
        return None
    yield from insert_new("clock_steps", _STEP.columns, [_STEP.row(found)])
    data = {"node": node, "since": found.since, "until": found.until, "seconds": round(seconds, 3)}
    yield from tell("store.clock_stepped", [(None, None, data)])
    return found


def clock_steps(since: Instant, until: Instant) -> Work[list[ClockStep]]:
    rows = yield Fetch(
        f"select {_STEP.select()} from clock_steps where until >= :since and since <= :until order by id limit 1000",
        {"since": since, "until": until},
    )
    return [_STEP.read(row) for row in rows]


# Why a run waits


def wait(run_id: RunId) -> Work[Wait | None]:
    """None for a run that is under way or final."""
    rows = yield Fetch(f"select {COLUMNS} from live where run_id = :run", {"run": run_id})
    if not rows or (live := Live(*rows[0])).started:
        return None
    now = yield Now()
    pins = []
    if live.flags & RunFlag.PINNED:
        pins = yield Fetch("select worker_id from pins where run_id = :run order by worker_id", {"run": run_id})
    had = []
    if live.flags & RunFlag.PART:
        had = yield Fetch(
            "select worker_id from runs where parent_id = :parent and worker_id is not null union"
            " select worker_id from live where parent_id = :parent and worker_id is not null",
            {"parent": live.parent_id},
        )
    needed = []
    if live.flags & RunFlag.LABELED:
        needed = yield Fetch(
            "select pair from needed_labels where task_id = :task order by pair", {"task": live.task_id}
        )
    all_paused = yield from installation_pause()
    found = Wait(
        run_id=run_id,
        all_paused=all_paused,
        until=Instant(live.at) if live.at is not None and live.at > now else None,
        is_quiet=bool(live.flags & RunFlag.AT_REST),
        job_type=live.job_type,
        min_version=live.min_version,
        workers=tuple(row[0] for row in pins),
        labels=tuple(row[0] for row in needed),
        had=tuple(sorted(row[0] for row in had)),
    )
    found = yield from _at_its_key(found, live)
    found = yield from _at_its_gate(found, live, now)
    return (yield from _at_its_queue(found, live, now))


def _at_its_key(found: Wait, live: Live) -> Work[Wait]:
    held = (yield from keys.wait_of(live.run_id)) if live.place == Place.HELD else None
    if held is None:
        return found
    return msgspec.structs.replace(
        found,
        key=held.key,
        key_limit=held.limit,
        key_running=held.used,
        key_before=held.before,
        blocking_run_id=held.blocking_run_id,
    )


def _at_its_gate(found: Wait, live: Live, now: Instant) -> Work[Wait]:
    rows = yield Fetch(
        "select g.lim, g.used, t.rate_limit from gates g join tasks t on t.id = g.task_id where g.task_id = :gate",
        {"gate": live.gate},
    )
    if not rows:
        return found
    limit, used, limit_text = rows[0]
    if limit_text is not None and (live.place == Place.GATED or live.run_at <= now):
        scope = f"task:{live.task_id}" + ("" if live.rate_key is None else f":{live.rate_key}")
        rated_until = yield from _rated_until(scope, limit_text, now)
        found = msgspec.structs.replace(found, rated_until=rated_until)
    if live.place == Place.GATED and limit is not None and used >= limit:
        return (yield from _full(found, limit, "gate = :value and parent_id is null", live.gate))
    return found


def _at_its_queue(found: Wait, live: Live, now: Instant) -> Work[Wait]:
    rows = yield Fetch(
        "select q.paused, q.concurrency, q.rate_limit, p.since, p.paused_by, p.reason from queues q"
        " left join queue_pauses p on p.name = q.name and p.until is null where q.name = :name",
        {"name": live.queue},
    )
    if not rows:
        return found
    paused, limit, limit_text, since, by, reason = rows[0]
    if paused:
        pause = Pause(queue=live.queue, since=Instant(since or 0), by=by, reason=reason or "")
        found = msgspec.structs.replace(found, paused=pause)
    if limit_text is not None and found.rated_until is None and live.run_at <= now:
        rated_until = yield from _rated_until(rate_scope(live), limit_text, now)
        if live.flags & RunFlag.RATED:
            found = msgspec.structs.replace(found, rate_key=live.rate_key)
            is_aside = live.place == Place.LATER and not live.flags & (RunFlag.RETRIED | RunFlag.AT_REST)
            if is_aside and live.at is not None:
                rated_until = Instant(max(rated_until or 0, live.at))
        found = msgspec.structs.replace(found, rated_until=rated_until)
    if limit is not None and found.limit is None:
        counted = yield Fetch(f"select count(*) from live where {_UNDER_WAY}", {"value": live.queue})
        if counted[0][0] >= limit:
            found = yield from _full(found, limit, _UNDER_WAY, live.queue)
            return msgspec.structs.replace(found, is_of_queue=True)
    return found


def _full(found: Wait, limit: int, condition: str, value: object) -> Work[Wait]:
    rows = yield Fetch(f"select min(run_id) from live where {condition} and {_HOLDING}", {"value": value})
    return msgspec.structs.replace(found, limit=limit, blocking_run_id=rows[0][0])


def _rated_until(scope: str, limit_text: str, now: Instant) -> Work[Instant | None]:
    rows = yield Fetch("select tat, log from rates where scope = :scope", {"scope": scope})
    state = RateState(rows[0][0], tuple((at, count) for at, count in from_json(rows[0][1]))) if rows else RateState()
    granted = rate.grant(msgspec.convert(from_json(limit_text), RateLimit), state, now, 1)
    return granted.next_at


# What the runs of tasks are doing


def activity(q: Dialect, task_ids: Sequence[TaskId]) -> Work[dict[TaskId, Activity]]:
    if not task_ids:
        return {}
    here = {"ids": q.pack(sorted(set(task_ids)))}
    newest = yield Fetch(
        "select t.id, (select r.id from runs r where r.task_id = t.id and r.parent_id is null"
        f" order by r.id desc limit 1) from tasks t where {q.ids('t.id', 'ids')}",
        here,
    )
    run_ids = [row[1] for row in newest if row[1] is not None]
    if not run_ids:
        return {}
    last = {run.task_id: run for run in (yield from runs_of(q, run_ids))}
    counted = yield Fetch(
        f"select task_id, place, count(*) from live where {q.ids('task_id', 'ids')} and parent_id is null"
        " group by task_id, place",
        here,
    )
    active: dict[int, int] = {}
    queued: dict[int, int] = {}
    for task_id, place, count in counted:
        counts = active if place in STARTED else queued
        counts[task_id] = counts.get(task_id, 0) + count
    return {
        task_id: Activity(
            last_run_id=run.id,
            last_run_at=run.scheduled_time if run.start_time is None else run.start_time,
            last_run_status=run.status,
            active_runs=active.get(task_id, 0),
            queued_runs=queued.get(task_id, 0),
        )
        for task_id, run in last.items()
    }


def pending_callbacks() -> Work[PendingCallbacks]:
    now = yield Now()
    rows = yield Fetch(
        "select count(*), sum(case when at < :now then 1 else 0 end), min(case when at >= :now then at end) from live"
        f" where place = {int(Place.PARKED)} and parent_id is null",
        {"now": now},
    )
    count, overdue, soonest = rows[0]
    return PendingCallbacks(int(count), int(overdue or 0), None if soonest is None else Instant(int(soonest)))


# Rows that contradict each other


_OVERDUE = 60 * SECOND
"""A node that was alive this long after a join's time ran out must have ended it."""
_FINAL = ", ".join(f"'{status}'" for status in sorted(FINAL))
_OPEN_STEP = "from flow_steps s where s.run_id = l.run_id and s.status in ('WAITING', 'RUNNING')"
_FLOWS_UNDER_WAY = (
    f"select l.run_id, l.task_id from live l join flows f on f.run_id = l.run_id where l.place = {int(Place.PARENT)}"
)
_STEPS = "select s.run_id, p.task_id, s.step_id, s.step_run_id, s.succeeded{} from flow_steps s join runs p on p.id = s.run_id"
"""Of flows that are there: retention removes a flow with its steps; only one that was kept from another flow may outlive its run."""
_JOINS = "select j.run_id, j.task_id, j.id from joins j"


def _told_of_final(run_id: int, _: int, status: str | None) -> str:
    return f"run {run_id} " + ("has no row of its own" if status is None else f"is {status} and waits all the same")


def _told_of_step(run_id: int, _: int, step: str, status: str, kept: int | None) -> str:
    told = f"is {status}" if kept is None else f"was kept from run {kept}"
    return f"step {step!r} of run {run_id} {told}, and was started all the same"


def _told_of_joins(run_id: int, _: int, count: int) -> str:
    return f"run {run_id} was made by " + (
        f"{count} joins" if count else "no join, or by one that has made another run"
    )


class _Question(NamedTuple):
    """What must never be: the sentence, and what answers with a run, its task, and what else the sentence has."""

    told: Callable[..., str]
    sql: str


_QUESTIONS: Mapping[InconsistencyKind, Sequence[_Question]] = {
    InconsistencyKind.PLACE: (
        _Question(
            _told_of_final,
            "select l.run_id, l.task_id, r.status from live l left join runs r on r.id = l.run_id"
            f" where r.id is null or r.status in ({_FINAL})",
        ),
        _Question(
            "run {0} is {2}, and no worker or sweep will ever find it".format,
            "select r.id, r.task_id, r.status from runs r left join live l on l.run_id = r.id"
            f" where l.run_id is null and r.status not in ({_FINAL})",
        ),
        _Question(
            "run {0} waits in {2} places".format,
            "select run_id, null, count(*) from live group by run_id having count(*) > 1",
        ),
        _Question(
            "run {0} is a part of a run that is not there".format,
            "select p.id, p.task_id from runs p left join runs r on r.id = p.parent_id"
            " where p.parent_id is not null and r.id is null and p.origin <> 'spawn'",
        ),
        _Question(
            "run {0} waits for its children, and all of them have ended".format,
            f"select l.run_id, l.task_id from live l where l.place = {int(Place.GATHERING)} and not exists"
            f" (select 1 from live c where c.parent_id = l.run_id and c.place <> {int(Place.READY)})",
        ),
    ),
    InconsistencyKind.FLOW: (
        _Question(
            "every step of run {0} has ended, and it has not".format,
            f"{_FLOWS_UNDER_WAY} and not exists (select 1 {_OPEN_STEP})",
        ),
        _Question(
            "run {0} has steps that have not ended, and none of them is under way".format,
            f"{_FLOWS_UNDER_WAY} and exists (select 1 {_OPEN_STEP})"
            " and not exists (select 1 from live p where p.parent_id = l.run_id)",
        ),
        _Question(
            "run {0} is over, and its step {2!r} is not".format,
            "select s.run_id, null, s.step_id from flow_steps s left join live l on l.run_id = s.run_id"
            " where l.run_id is null and s.status in ('WAITING', 'RUNNING')",
        ),
        _Question(
            "step {2!r} of run {0} was started {3} times".format,
            "select r.parent_id, min(r.task_id), r.step_id, count(*) from runs r"
            " where r.parent_id is not null and r.step_id is not null"
            " group by r.parent_id, r.step_id, r.item_index having count(*) > 1",
        ),
        _Question(
            _told_of_step,
            "select distinct s.run_id, r.task_id, s.step_id, s.status, s.copied_from from flow_steps s"
            " join runs r on r.parent_id = s.run_id and r.step_id = s.step_id"
            " where s.copied_from is not null or s.status in ('WAITING', 'SKIPPED')",
        ),
        _Question(
            "step {2!r} of run {0} was carried out by run {3}, which is not there".format,
            f"{_STEPS.format('')} left join runs r on r.id = s.step_run_id where r.id is null and s.step_run_id is not null"
            " and s.copied_from is null",
        ),
        _Question(
            "step {2!r} of run {0} succeeded {4} times, and has {5} runs".format,
            f"{_STEPS.format(', coalesce(c.number, 0)')} left join (select parent_id, step_id, count(*) as number from runs where step_id is not null"
            " group by parent_id, step_id) c on c.parent_id = s.run_id and c.step_id = s.step_id"
            " where s.step_run_id is null and s.copied_from is null and s.succeeded > coalesce(c.number, 0)",
        ),
    ),
    InconsistencyKind.JOIN: (
        _Question(
            "join {2} was completed, and has no run of its task".format,
            f"{_JOINS} left join runs r on r.id = j.run_id and r.task_id = j.task_id"
            " where j.state in ('done', 'missing') and r.id is null",
        ),
        _Question(
            "join {2} is open, although every place in it is filled".format,
            f"{_JOINS} join (select task_id, version, count(*) as places from edges group by task_id, version) e"
            " on e.task_id = j.task_id and e.version = j.edge_version where j.due_at is not null and e.places ="
            " (select count(*) from join_runs a where a.join_id = j.id and a.fills = 1)",
        ),
        _Question(
            "join {2} is over, and still has a time to wait for; or is open without one".format,
            f"{_JOINS} where (j.state = 'open' and j.due_at is null) or (j.state <> 'open' and j.due_at is not null)",
        ),
        _Question(
            "join {2} was completed by the same runs as an earlier one".format,
            f"{_JOINS} join joins b on b.task_id = j.task_id and b.root = j.root"
            " and b.edge_version = j.edge_version and b.redrive < j.redrive and b.state = 'done'"
            " where j.redrive > 0 and j.state = 'done' and (select count(*) from join_runs a where a.join_id = j.id"
            " and a.fills = 1) = (select count(*) from join_runs a join join_runs c on c.join_id = b.id and c.fills = 1"
            " and c.upstream_id = a.upstream_id and c.run_id = a.run_id where a.join_id = j.id and a.fills = 1)",
        ),
        _Question(
            "join {2} is open, although its time ran out while a node was sweeping".format,
            f"{_JOINS} where j.due_at < (select max(value) from counters where name = '{SCHEDULER}') - {_OVERDUE}",
        ),
        _Question(
            _told_of_joins,
            "select r.id, r.task_id, count(j.id) from runs r left join joins j on j.run_id = r.id where r.origin = 'upstream'"
            " group by r.id, r.task_id having count(j.id) <> 1",
        ),
    ),
}
"""Of joins: each is over in one way, and each run of origin `upstream` is that of one join."""


def flaws(limit: int = 100) -> Work[list[Inconsistency]]:
    """Each question is one statement, so it is answered as of one moment while others write."""
    found: list[Inconsistency] = []
    for kind, questions in _QUESTIONS.items():
        for told, sql in questions:
            rows = yield Fetch(f"{sql} limit :limit", {"limit": limit})
            found += [Inconsistency(kind=kind, message=told(*row), run_id=row[0], task_id=row[1]) for row in rows]
    found += yield from _miscounted(limit)
    found += yield from _key_flaws(limit)
    return found[:limit]


def _key_flaws(limit: int) -> Work[list[Inconsistency]]:
    """Keys whose lines are not what the rows of runs say, that stand still with room, or let in too many."""
    found: list[Inconsistency] = []
    seen = yield Fetch("select max(value) from counters where name = :name", {"name": SCHEDULER})
    before = (seen[0][0] or 0) - _OVERDUE
    for told, sql in keys.FLAWS.items():
        params = {"limit": limit, "before": before} if ":before" in sql else {"limit": limit}
        rows = yield Fetch(f"{sql} limit :limit", params)
        for task_id, key, number in rows:
            message = told.format(key=repr(key), number=number)
            found.append(Inconsistency(kind=InconsistencyKind.KEY, message=message, task_id=task_id))
    return found


def _miscounted(limit: int) -> Work[list[Inconsistency]]:
    """Gates whose counters are not what the rows say: in one statement, nothing is held and nothing is mended."""
    used, waiting, passed = (
        f"coalesce(sum(case when {condition} then 1 else 0 end), 0)"
        for condition in (
            f"l.{_HOLDING}",
            f"l.place = {int(Place.GATED)}",
            f"l.place not in ({', '.join(str(int(p)) for p in (*STARTED, Place.GATED, Place.LATER, Place.HELD))})",
        )
    )
    rows = yield Fetch(
        f"select g.task_id, g.used, g.waiting, g.passed, {used}, {waiting}, {passed} from gates g"
        " left join live l on l.gate = g.task_id group by g.task_id, g.used, g.waiting, g.passed"
        f" having g.used <> {used} or g.waiting <> {waiting} or g.passed <> {passed} limit :limit",
        {"limit": limit},
    )
    return [
        Inconsistency(
            kind=InconsistencyKind.COUNTER,
            message=f"the limit of task {task_id} counts {tuple(counted)} started, waiting, passed; it is {tuple(real)}",
            task_id=TaskId(task_id),
        )
        for task_id, *both in rows
        for counted, real in [(both[:3], [int(value) for value in both[3:]])]
    ]
