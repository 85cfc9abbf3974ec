"""Settle: write how attempts ended. Only the holder of the current token can; whoever comes late is told so.

died before the commit   nothing is written; the worker tries again, or the lease runs out and the sweep settles
died after the commit    the same settlement sent again finds its token used up: LOST, and nothing is written twice
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.run import TRANSITIONS, RunStatus
from noonbell.model.settlement import Expect, Move, Settled, Settlement
from noonbell.stores.sql import rounds
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.earlier import earlier
from noonbell.stores.sql.endings import Ending, finish, report_of, write_bodies
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.live import Live, load, move, waits
from noonbell.stores.sql.place import Flag, Place
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import InsertMany, Now, UpdateMany, Work

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
    """What a batch of settlements comes down to."""

    endings: list[Ending] = field(default_factory=list)
    moves: list[tuple[Live, Live]] = field(default_factory=list)
    retried: list[tuple[Any, ...]] = field(default_factory=list)
    parked: list[tuple[Any, ...]] = field(default_factory=list)
    returned: list[tuple[Any, ...]] = field(default_factory=list)
    attempts: list[tuple[Any, ...]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    handed_back: list[Live] = field(default_factory=list)
    facts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def tell(self, type_: str, live: Live, data: dict[str, Any]) -> None:
        self.facts.setdefault(type_, []).append((live.task_id, live.run_id, data))


def settle(q: Dialect, cache: TaskView, settlements: Sequence[Settlement]) -> Work[list[Settled]]:
    rows = yield from load(q, [settlement.run_id for settlement in settlements])
    now = yield Now()
    return (yield from apply(q, cache, now, rows, settlements))


def apply(
    q: Dialect, cache: TaskView, now: Instant, rows: dict[int, Live], settlements: Sequence[Settlement]
) -> Work[list[Settled]]:
    """Settle against rows that the caller holds."""
    answers: list[Settled] = []
    changes = _Changes()
    settled: set[int] = set()
    before = yield from earlier(q, rows.values())
    for settlement in settlements:
        live = rows.get(settlement.run_id)
        if live is None or settlement.run_id in settled or not holds(live, settlement, now):
            answers.append(Settled.LOST)
            fact = (None if live is None else live.task_id, settlement.run_id, {"move": settlement.move})
            changes.facts.setdefault("run.ignored", []).append(fact)
            continue
        settled.add(settlement.run_id)
        answers.append(Settled.DONE)
        start, code = before[live.run_id]
        start = None if start is None else min(start, now)  # one that waits for its local retry has yet to start
        done = settlement if code is None else msgspec.structs.replace(settlement, response_code=code)
        _change(changes, live, done, now, start)
    yield from _write(q, cache, now, changes)
    return answers


def holds(live: Live, settlement: Settlement, now: Instant) -> bool:
    """Whether the run is still what the settlement takes it for."""
    if live.token != settlement.token:
        return False
    if settlement.worker_id is not None and live.worker_id != settlement.worker_id:
        return False
    if live.flags & Flag.BEGUN and settlement.move in _SENDS_AGAIN:
        return False
    if _TARGET.get(settlement.move, settlement.status) not in TRANSITIONS[_status(live)]:
        return False
    leased = live.place == Place.LEASED
    match settlement.expect:
        case Expect.HELD:
            return leased
        case Expect.EXPIRED:
            return leased and live.expires_at is not None and live.expires_at <= now
        case Expect.OVERTIME:
            return leased and live.deadline_at is not None and live.deadline_at <= now
        case Expect.ANSWERED:
            return live.was_claimed and live.place != Place.PARENT
        case Expect.UNANSWERED:
            return live.place == Place.PARKED and live.at is not None and live.at <= now
        case _:
            assert_never(settlement.expect)


def _status(live: Live) -> RunStatus:
    if live.place == Place.PARKED:
        return RunStatus.CALLBACK_PENDING
    if live.started:
        return RunStatus.RUNNING
    return RunStatus.RETRYING if live.flags & Flag.RETRIED else RunStatus.SCHEDULED


_SENDS_AGAIN = (Move.RELEASE, Move.LOSE, Move.RETRY)
"""What at-most-once forbids once an attempt has begun."""
_TARGET = {
    Move.RETRY: RunStatus.RETRYING,
    Move.PARK: RunStatus.CALLBACK_PENDING,
    Move.RELEASE: RunStatus.SCHEDULED,
    Move.LOSE: RunStatus.SCHEDULED,
}


def _change(changes: _Changes, live: Live, done: Settlement, now: Instant, start: Instant | None) -> None:
    match done.move:
        case Move.FINISH:
            losses = live.lost_count + (done.expect is Expect.EXPIRED)
            ending = Ending(
                live=live._replace(lost_count=losses),
                status=done.status or RunStatus.FAILED,
                start_time=start,
                report=report_of(done.response_code, done.result, done.error_message, done.error_details),
                task_version=done.task_version,
                bodies=done.bodies,
            )
            changes.endings.append(ending)
        case Move.RETRY:
            _retry(changes, live, done, now, start)
        case Move.PARK:
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
        case Move.RELEASE:
            _release(changes, live, now)
        case Move.LOSE:
            lost = live.lost_count + 1
            changes.moves.append((live, waits(live)._replace(lost_count=lost)))
            changes.handed_back.append(live)
            changes.returned.append((live.run_id, RunStatus.SCHEDULED, now, live.attempt, lost))
            changes.attempts.append(_attempt_row(live, done, "LOST", now, start))
            changes.tell("run.lost", live, {"worker_id": live.worker_id, "lost_count": lost})
        case _:
            assert_never(done.move)


def _release(changes: _Changes, live: Live, now: Instant) -> None:
    """Back in the queue; or, where a local retry had yet to start, the store retries at the time that was set for it."""
    # Only a local retry starts later than its lease was given, which the token is not before: where the clock was set back,
    # any lease seems to start in the future.
    starts = Instant(live.claimed_at or 0)
    at = starts if starts > max(now, live.token) else None
    status = RunStatus.SCHEDULED if at is None else RunStatus.RETRYING
    back = waits(live, at=at, flags=0 if at is None else Flag.RETRIED)._replace(attempt=live.attempt - 1)
    changes.moves.append((live, back))
    changes.handed_back.append(live)
    changes.returned.append((live.run_id, status, now, live.attempt - 1, live.lost_count))
    changes.tell("run.released", live, {"status": status})


def retry_held(q: Dialect, failed: Settlement, attempt: int, seconds: float) -> Work[bool]:
    """A local retry: the failed attempt is recorded, and the next one counted, while the lease stays where it is.

    died before the commit   the attempt is not recorded; the lease runs out, and the sweep counts a loss
    died after it            the failed attempt and the retry are on record; the sweep finds the next attempt lost
    """
    live = (yield from load(q, [failed.run_id])).get(failed.run_id)
    now = yield Now()
    if live is None or not holds(live, failed, now):
        return False
    if live.attempt != attempt:
        return live.attempt > attempt  # this call was here before, and its answer was lost
    starts, until = (Instant(now + round(span * SECOND)) for span in (failed.delay_seconds, seconds))
    count = live.retry_count + 1
    after = live._replace(
        at=until, attempt=attempt + 1, retry_count=count, claimed_at=starts, expires_at=until, deadline_at=until
    )
    yield from move([(live, after)])
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
    told = {"retry_count": count, "next_retry_time": starts, "local": True}
    yield from tell_all(now, {"run.retrying": [(live.task_id, live.run_id, told)]})
    return True


def _retry(changes: _Changes, live: Live, done: Settlement, now: Instant, start: Instant | None) -> None:
    at = Instant(now + round(done.delay_seconds * SECOND))
    later = at if done.delay_seconds > 0 else None
    count = live.retry_count + 1
    back = waits(live, at=later, flags=Flag.RETRIED)._replace(retry_count=count)
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
    yield from move(changes.moves)
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
    yield from write_bodies(changes.bodies)
    yield from rounds.give_back([live for live in changes.handed_back if live.flags & Flag.ROUND])
    yield from tell_all(now, changes.facts)
    yield from finish(q, cache, now, changes.endings)
