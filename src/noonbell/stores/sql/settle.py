"""Settle, callback, cancel, and starting a run early: how a run that is not final changes its state, apart from its claim.

Only the current token can settle; a late caller gets LOST. A callback is always recorded, and settles its run where the run
still awaits one.

died before the commit   nothing is written; the worker tries again, or the lease runs out and the sweep settles
died after the commit    the same settlement sent again finds its token used up: LOST, and nothing is written twice
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.model.callback_refusal import refused
from noonbell.model.event import Callback
from noonbell.model.request import CallbackSubject, Canceled, IncomingCallback, share_of
from noonbell.model.run import FINAL, TRANSITIONS, Precondition, RunId, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import TaskId
from noonbell.stores.sql import children
from noonbell.stores.sql.active_runs import (
    Live,
    Place,
    RunFlag,
    earlier,
    load_active,
    load_where,
    note_given_back,
    waits,
)
from noonbell.stores.sql.claim import made_at, token_hash
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell, tell_all
from noonbell.stores.sql.finish import (
    Ending,
    canceled,
    finish,
    finish_event_only,
    finish_family,
    report_of,
    write_bodies,
)
from noonbell.stores.sql.keys import move
from noonbell.stores.sql.limits import installation_pause
from noonbell.stores.sql.rows import Record, TaskView
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Now, UpdateMany, Work

ATTEMPT_COLUMNS = (
    "run_id",
    "attempt",
    "status",
    "worker_id",
    "start_time",
    "end_time",
    "response_code",
    "result",
    "error_message",
    "error_details",
)


@dataclass(slots=True)
class _Changes:
    """What a batch of settlements changes, collected to be written together."""

    endings: list[Ending] = field(default_factory=list)
    moves: list[tuple[Live, Live]] = field(default_factory=list)
    retried: list[tuple[Any, ...]] = field(default_factory=list)
    parked: list[tuple[Any, ...]] = field(default_factory=list)
    returned: list[tuple[Any, ...]] = field(default_factory=list)
    attempts: list[tuple[Any, ...]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    handed_back: list[Live] = field(default_factory=list)
    gathered: list[tuple[Live, Instant]] = field(default_factory=list)
    """Those that wait for their children, and until when they executed."""
    facts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def tell(self, type_: str, live: Live, data: dict[str, Any]) -> None:
        self.facts.setdefault(type_, []).append((live.task_id, live.run_id, data))


def settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[SettleResult]]:
    rows = yield from load_active(q, [settlement.run_id for settlement in settlements])
    now = yield Now()
    return (yield from apply(q, cache, now, rows, settlements))


def apply(
    q: Dialect, cache: TaskView, now: Instant, rows: dict[int, Live], settlements: Sequence[Settlement]
) -> Work[list[SettleResult]]:
    """Settle runs whose rows the caller has locked."""
    answers: list[SettleResult] = []
    changes = _Changes()
    settled: set[int] = set()
    before = yield from earlier(q, rows.values())
    parents = [s.run_id for s in settlements if s.transition is Transition.GATHER]
    waiting = (yield from children.with_open(q, parents)) if parents else set[int]()
    for settlement in settlements:
        live = rows.get(settlement.run_id)
        if live is None or settlement.run_id in settled or not holds(live, settlement, now):
            answers.append(SettleResult.LOST)
            fact = (None if live is None else live.task_id, settlement.run_id, {"move": settlement.transition})
            changes.facts.setdefault("run.ignored", []).append(fact)
            continue
        settled.add(settlement.run_id)
        answers.append(SettleResult.DONE)
        start, code = before[live.run_id]
        start = None if start is None else min(start, now)  # one that waits for its local retry has yet to start
        done = settlement if code is None else msgspec.structs.replace(settlement, response_code=code)
        _change(changes, live, done, now, start, is_waiting=live.run_id in waiting)
    yield from _write(q, cache, now, changes)
    return answers


def holds(live: Live, settlement: Settlement, now: Instant) -> bool:
    """Whether the run is still what the settlement takes it for."""
    if live.token != settlement.token:
        return False
    if settlement.worker_id is not None and live.worker_id != settlement.worker_id:
        return False
    if live.flags & RunFlag.BEGUN and settlement.transition in _SENDS_AGAIN:
        return False
    if settlement.transition is Transition.GATHER:  # RUNNING before and after
        return live.place == Place.LEASED and bool(live.flags & RunFlag.SPAWNER)
    if _TARGET.get(settlement.transition, settlement.status) not in TRANSITIONS[_status(live)]:
        return False
    leased = live.place == Place.LEASED
    match settlement.precondition:
        case Precondition.HELD:
            return leased
        case Precondition.EXPIRED:
            return leased and live.expires_at is not None and live.expires_at <= now
        case Precondition.OVERTIME:
            has_deadline = leased or live.place == Place.PARENT
            return has_deadline and live.deadline_at is not None and live.deadline_at <= now
        case Precondition.ANSWERED:
            return live.was_claimed and live.place not in (Place.PARENT, Place.GATHERING)
        case Precondition.UNANSWERED:
            return live.place == Place.PARKED and live.at is not None and live.at <= now
        case _:
            assert_never(settlement.precondition)


def _status(live: Live) -> RunStatus:
    if live.place == Place.PARKED:
        return RunStatus.CALLBACK_PENDING
    if live.started:
        return RunStatus.RUNNING
    return RunStatus.RETRYING if live.flags & RunFlag.RETRIED else RunStatus.SCHEDULED


_SENDS_AGAIN = (Transition.RELEASE, Transition.LOSE, Transition.RETRY)
"""What at-most-once forbids once an attempt has begun."""
_TARGET = {
    Transition.RETRY: RunStatus.RETRYING,
    Transition.PARK: RunStatus.CALLBACK_PENDING,
    Transition.RELEASE: RunStatus.SCHEDULED,
    Transition.LOSE: RunStatus.SCHEDULED,
}


def _change(
    changes: _Changes, live: Live, done: Settlement, now: Instant, start: Instant | None, *, is_waiting: bool
) -> None:
    """`is_waiting`: it has children that are not final."""
    match done.transition:
        case Transition.FINISH:
            losses = live.lost_count + (done.precondition is Precondition.EXPIRED)
            ending = Ending(
                live=live._replace(lost_count=losses),
                status=done.status or RunStatus.FAILED,
                start_time=start,
                report=report_of(done.response_code, done.result, done.error_message, done.error_details),
                task_version=done.task_version,
                bodies=done.bodies,
                is_as_leased=(
                    live.place == Place.LEASED
                    and done.precondition is Precondition.HELD
                    and done.task_version is not None
                    and start == live.claimed_at
                ),
            )
            changes.endings.append(ending)
        case Transition.RETRY:
            _retry(changes, live, done, now, start)
        case Transition.PARK:
            deadline = Instant(now + round(done.delay_seconds * SECOND))
            parked = live._replace(
                place=int(Place.PARKED), at=deadline, claimed_at=None, expires_at=None, deadline_at=None
            )
            changes.moves.append((live, parked))
            row = (live.run_id, RunStatus.CALLBACK_PENDING, now, deadline, live.attempt, start, live.worker_id)
            changes.parked.append((*row, done.response_code))
            changes.tell("run.accepted", live, {"status": RunStatus.CALLBACK_PENDING})
            if done.bodies is not None:
                changes.bodies.append((live, done.bodies))
        case Transition.GATHER:
            changes.gathered.append((live, now))
            changes.attempts.append(_attempt_row(live, done, "PARKED", now, start))
            changes.tell("run.parked", live, {"status": RunStatus.RUNNING})
            if is_waiting:
                changes.moves.append((live, children.parked(live)))
            else:  # the last of them has ended since it looked
                changes.moves.append((live, waits(live)))
                changes.handed_back.append(live)
                changes.returned.append((live.run_id, RunStatus.SCHEDULED, now, live.attempt, live.lost_count))
        case Transition.RELEASE:
            _release(changes, live, now)
        case Transition.LOSE:
            lost = live.lost_count + 1
            changes.moves.append((live, waits(live)._replace(lost_count=lost)))
            changes.handed_back.append(live)
            changes.returned.append((live.run_id, RunStatus.SCHEDULED, now, live.attempt, lost))
            changes.attempts.append(_attempt_row(live, done, "LOST", now, start))
            changes.tell("run.lost", live, {"worker_id": live.worker_id, "lost_count": lost})
        case _:
            assert_never(done.transition)


def _release(changes: _Changes, live: Live, now: Instant) -> None:
    """Back in the queue; or, where a local retry had yet to start, the store retries at the time that was set for it."""
    # Only a local retry starts later than its lease was given, which the token is not before: where the clock was set back,
    # any lease seems to start in the future.
    starts = Instant(live.claimed_at or 0)
    at = starts if starts > max(now, live.token) else None
    status = RunStatus.SCHEDULED if at is None else RunStatus.RETRYING
    back = waits(live, at=at, flags=0 if at is None else RunFlag.RETRIED)._replace(attempt=live.attempt - 1)
    changes.moves.append((live, back))
    changes.handed_back.append(live)
    changes.returned.append((live.run_id, status, now, live.attempt - 1, live.lost_count))
    changes.tell("run.released", live, {"status": status})


def retry_held(q: Dialect, cache: TaskView, failed: Settlement, attempt: int, seconds: float) -> Work[bool]:
    """A local retry: the failed attempt is recorded, and the next one counted, while the lease stays where it is.

    While everything is paused, the run is retried as any other: it gives its lease up, and waits.

    died before the commit   the attempt is not recorded; the lease runs out, and the sweep counts a loss
    died after it            the failed attempt and the retry are on record; the sweep finds the next attempt lost
    """
    live = (yield from load_active(q, [failed.run_id])).get(failed.run_id)
    now = yield Now()
    if live is None or not holds(live, failed, now):
        return False
    if live.attempt != attempt:
        return live.attempt > attempt  # this call was here before, and its answer was lost
    if (yield from installation_pause()) is not None:
        yield from settle(q, cache, [failed])
        return False
    starts, until = (Instant(now + round(span * SECOND)) for span in (failed.delay_seconds, seconds))
    count = live.retry_count + 1
    after = live._replace(
        at=until, attempt=attempt + 1, retry_count=count, claimed_at=starts, expires_at=until, deadline_at=until
    )
    yield from move(q, cache, [(live, after)])
    yield UpdateMany(
        "runs",
        "id",
        ("updated_at", "retry_count", "next_retry_time", "attempt"),
        [(live.run_id, now, count, starts, attempt + 1)],
    )
    (start, _) = (yield from earlier(q, [live]))[live.run_id]
    row = _attempt_row(live, failed, failed.status or RunStatus.FAILED, now, start)
    yield InsertMany("attempts", ATTEMPT_COLUMNS, [row])
    if failed.bodies is not None:
        yield from write_bodies([(live, failed.bodies)])
    yield from children.forget_executed([live])
    told = {"retry_count": count, "next_retry_time": starts, "local": True}
    yield from tell_all({"run.retrying": [(live.task_id, live.run_id, told)]})
    return True


def _retry(changes: _Changes, live: Live, done: Settlement, now: Instant, start: Instant | None) -> None:
    at = Instant(now + round(done.delay_seconds * SECOND))
    later = at if done.delay_seconds > 0 else None
    count = live.retry_count + 1
    back = waits(live, at=later, flags=RunFlag.RETRIED)._replace(retry_count=count)
    changes.moves.append((live, back))
    report = report_of(done.response_code, done.result, done.error_message, done.error_details)
    changes.retried.append((live.run_id, RunStatus.RETRYING, now, count, at, live.attempt, start, None, *report))
    changes.attempts.append(_attempt_row(live, done, done.status or RunStatus.FAILED, now, start))
    changes.tell("run.retrying", live, {"retry_count": count, "next_retry_time": at})
    if done.bodies is not None:
        changes.bodies.append((live, done.bodies))


def _attempt_row(live: Live, done: Settlement, status: str, now: Instant, start: Instant | None) -> tuple[Any, ...]:
    report = report_of(done.response_code, done.result, done.error_message, done.error_details)
    return (live.run_id, live.attempt, status, live.worker_id, start, now, *report)


def _write(q: Dialect, cache: TaskView, now: Instant, changes: _Changes) -> Work[None]:
    yield from move(q, cache, changes.moves)
    if changes.retried:
        columns = ("status", "updated_at", "retry_count", "next_retry_time", "attempt", "start_time")
        report = ("response_code", "result", "error_message", "error_details")
        yield UpdateMany("runs", "id", (*columns, "callback_deadline", *report), changes.retried)
    if changes.parked:
        parked = ("status", "updated_at", "callback_deadline", "attempt", "start_time", "worker_id", "response_code")
        yield UpdateMany("runs", "id", parked, changes.parked)
    if changes.returned:
        yield UpdateMany("runs", "id", ("status", "updated_at", "attempt", "lost_count"), changes.returned)
    if changes.attempts:
        yield InsertMany("attempts", ATTEMPT_COLUMNS, changes.attempts)
    yield from children.note_executed(changes.gathered)
    yield from children.forget_executed([live for live, after in changes.moves if after.flags & RunFlag.RETRIED])
    yield from write_bodies(changes.bodies)
    yield from note_given_back([live for live in changes.handed_back if live.flags & RunFlag.ROUND])
    yield from tell_all(changes.facts)
    if changes.gathered:
        # Those whose children have all ended since they looked wait for a worker already.
        cache.step_queues |= {live.queue for live, _ in changes.gathered}
        failpoint.hit("K19")
    yield from finish(q, cache, now, changes.endings)


_CALLBACK = Record(Callback, long=("headers", "body"))

UNKNOWN_KEPT = 1_000
"""Callbacks that found no run, of which a record is kept."""
REPEATS_KEPT = 10
"""Callbacks that a final run ignored, of which a record is kept."""
_LONGEST_UNKNOWN = 4_000
"""Characters of the body of an ignored callback."""


def callback(
    q: Dialect, cache: TaskView, callback: IncomingCallback, decide: Callable[[CallbackSubject], Settlement | str]
) -> Work[tuple[CallbackSubject | None, Callback]]:
    run_id, reason = yield from _find(callback)
    if run_id is None:
        now = yield Now()
        return None, (yield from _record(now, callback, None, None, reason))
    rows = yield from load_active(q, [run_id])
    now = yield Now()
    live = rows.get(run_id)
    found = yield Fetch("select task_id, status, start_time from runs where id = :id", {"id": run_id})
    if not found:
        return None, (yield from _record(now, callback, None, None, refused("no_run")))
    task_id, stored = TaskId(found[0][0]), RunStatus(found[0][1])
    began_at = None if live is None else live.claimed_at if live.place == Place.LEASED else found[0][2]
    subject = msgspec.structs.replace(
        _subject(RunId(run_id), task_id, stored, live),
        at=now,
        attempt_began_at=began_at if live is not None and live.started else None,
        token_made_at=None if callback.token is None else made_at(callback.token),
    )
    if live is None or subject.status in FINAL:
        recorded = yield from _refuse(now, callback, run_id, task_id, refused("over", status=subject.status))
        yield from _forget_repeats(run_id)
        return subject, recorded
    answer = decide(subject)
    if answer == "":
        return subject, (yield from _record(now, callback, run_id, task_id, None))
    if isinstance(answer, str):
        return subject, (yield from _refuse(now, callback, run_id, task_id, answer))
    spoken = msgspec.structs.replace(answer, precondition=Precondition.ANSWERED, worker_id=None)
    settled = yield from apply(q, cache, now, rows, [spoken])
    reason = "" if settled[0] is SettleResult.DONE else refused("not_open", status=subject.status, verb="takes")
    standing = yield Fetch("select status from runs where id = :id", {"id": run_id})
    if settled[0] is SettleResult.DONE:
        subject = msgspec.structs.replace(subject, status=RunStatus(standing[0][0]), settlement=spoken)
    return subject, (yield from _record(now, callback, run_id, task_id, reason or None))


def callback_run(token: str) -> Work[RunId | None]:
    rows = yield Fetch("select run_id from callback_tokens where hash = :hash", {"hash": token_hash(token)})
    return RunId(rows[0][0]) if rows else None


def _find(given: IncomingCallback) -> Work[tuple[int | None, str]]:
    if given.token is not None:
        run_id = yield from callback_run(given.token)
        return run_id, "" if run_id is not None else refused("unknown")
    rows = yield Fetch("select task_id from runs where id = :id", {"id": given.run_id})
    if not rows:
        return None, refused("no_run")
    if rows[0][0] != given.task_id:
        return None, refused("elsewhere")
    return given.run_id, ""


def _subject(run_id: RunId, task_id: TaskId, stored: RunStatus, live: Live | None) -> CallbackSubject:
    running = live is not None and live.place == Place.LEASED
    return CallbackSubject(
        run_id=run_id,
        task_id=task_id,
        status=RunStatus.RUNNING if running else stored,
        token=0 if live is None else live.token,
        retry_count=0 if live is None else live.retry_count,
        lost_count=0 if live is None else live.lost_count,
        worker_id=None if live is None else live.worker_id,
        is_step=live is not None and bool(live.flags & RunFlag.STEP),
    )


def _refuse(now: Instant, given: IncomingCallback, run_id: int, task_id: TaskId, reason: str) -> Work[Callback]:
    """An event says it at once: a target that calls in vain needs a person to look."""
    yield from tell("run.ignored", [(task_id, run_id, {"move": "callback", "reason": reason})])
    return (yield from _record(now, given, run_id, task_id, reason))


def _record(
    now: Instant, given: IncomingCallback, run_id: int | None, task_id: TaskId | None, reason: str | None
) -> Work[Callback]:
    is_kept = run_id is not None or given.keep_unknown
    (id_,) = (yield NewIds(1)) if is_kept else (0,)
    recorded = Callback(
        id=id_,
        run_id=None if run_id is None else RunId(run_id),
        task_id=task_id,
        received_at=now,
        status="RECEIVED" if reason is None else "IGNORED",
        reason=reason,
        headers=given.headers,
        body=given.body if run_id is not None else given.body[:_LONGEST_UNKNOWN],
    )
    if is_kept:
        yield InsertMany("callbacks", _CALLBACK.columns, [_CALLBACK.row(recorded)])
    if is_kept and run_id is None:
        yield from _forget_unknown()
    return recorded


def _forget_unknown() -> Work[None]:
    """Any caller can send callbacks that find no run: the newest of those are kept."""
    rows = yield Fetch(
        "select id from callbacks where run_id is null order by id desc limit 1 offset :kept", {"kept": UNKNOWN_KEPT}
    )
    if rows:
        yield Execute("delete from callbacks where run_id is null and id <= :id", {"id": rows[0][0]})


def _forget_repeats(run_id: int) -> Work[None]:
    """A token can be used for as long as its run is kept: of what a final run ignored, the newest are kept."""
    rows = yield Fetch(
        "select id from callbacks where run_id = :run and status = 'IGNORED' order by id desc limit 1 offset :kept",
        {"run": run_id, "kept": REPEATS_KEPT},
    )
    if rows:
        yield Execute(
            "delete from callbacks where run_id = :run and status = 'IGNORED' and id <= :id",
            {"run": run_id, "id": rows[0][0]},
        )


def extend_callback(q: Dialect, run_id: RunId, seconds: float) -> Work[bool]:
    rows = yield from load_active(q, [run_id])
    live = rows.get(run_id)
    if live is None or live.place != Place.PARKED:
        return False
    now = yield Now()
    deadline = now + round(seconds * SECOND)
    yield UpdateMany("live", "run_id", ("at",), [(run_id, deadline)])
    yield UpdateMany("runs", "id", ("callback_deadline", "updated_at"), [(run_id, deadline, now)])
    return True


def callbacks(q: Dialect, run_id: RunId | None, limit: int = 100, before: int | None = None) -> Work[list[Callback]]:
    """The ids first: how many there are decides what is too long for the list."""
    conditions = ["run_id is null" if run_id is None else "run_id = :run"]
    params = {"limit": limit} if run_id is None else {"run": run_id, "limit": limit}
    if before is not None:
        conditions.append("id < :before")
        params["before"] = before
    rows = yield Fetch(
        f"select id from callbacks where {' and '.join(conditions)} order by id desc limit :limit", params
    )
    ids = [int(row[0]) for row in rows]
    select = f"select {_CALLBACK.select_short(q)} from callbacks"
    rows = yield from q.fetch_by(select, "id", ids, " order by id desc", share=share_of(len(ids)))
    return [_CALLBACK.read_short(row) for row in rows]


def cancel(
    q: Dialect, cache: TaskView, run_ids: Sequence[RunId], *, by: str | None = None, reason: str = ""
) -> Work[list[Canceled]]:
    rows = yield from load_active(q, run_ids)
    now = yield Now()
    message = reason or (f"canceled by {by}" if by else "canceled")
    details = {"kind": "canceled"} | ({"by": by} if by else {})
    note = {"by": by, "reason": reason}
    listed = yield from canceled(q, rows.values(), message, details, note=note)
    endings = {ending.live.run_id: ending for ending in listed}
    for row in rows.values():
        if row.place == Place.PARENT:
            parts = yield from load_where(q, "parent_id = :parent", parent=row.run_id)
            family = yield from canceled(q, parts, message, details, note=note)
            yield from finish_family(q, cache, now, family, endings.pop(row.run_id))
            for part in parts:
                endings.pop(part.run_id, None)
    yield from finish(q, cache, now, list(endings.values()))
    found = yield from q.fetch_by("select id, status, task_id from runs", "id", run_ids)
    standing = {row[0]: (RunStatus(row[1]), row[2]) for row in found}
    late = [(task_id, run_id, {"move": "cancel"}) for run_id, (_, task_id) in standing.items() if run_id not in rows]
    yield from tell("run.ignored", late)
    return [
        Canceled(run_id, standing[run_id][0], run_id in rows) for run_id in dict.fromkeys(run_ids) if run_id in standing
    ]


def promote_run(q: Dialect, cache: TaskView, run_id: RunId) -> Work[bool]:
    rows = yield from load_active(q, [run_id])
    live = rows.get(run_id)
    if live is None or live.place != Place.LATER:
        return False
    now = yield Now()
    after = live._replace(place=int(live.due_place), at=None, flags=live.flags & ~(RunFlag.AT_REST | RunFlag.QUIET))
    yield from move(q, cache, [(live, after)])
    yield UpdateMany("runs", "id", ("run_at", "updated_at"), [(run_id, now, now)])
    yield UpdateMany("live", "run_id", ("run_at",), [(run_id, now)])
    yield from tell("run.promoted", [(live.task_id, run_id, {})])
    yield from finish_event_only(q, cache, now, [run_id] if live.flags & RunFlag.EVENT_ONLY else [])
    return True
