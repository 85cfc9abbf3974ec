"""How a run ends: the wide row is written, the narrow one goes, and whoever follows the run is told.

Follow-ups (the task's round, a fixed delay, ERROR, the parent of a part) are written in the same transaction, so there is
no moment at which a run is over and its consequence could be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noonbell.clock import Instant
from noonbell.model.run import FAILURES, RunBodies, RunStatus
from noonbell.model.task import OnExhausted, TaskSpec, TaskStatus
from noonbell.policy.account import cursor_after_run
from noonbell.stores.sql import fanout, results, rounds
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.earlier import earlier
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.known import known_tasks, load_task, soft_delete, turn_status
from noonbell.stores.sql.live import Live, load_where, remove
from noonbell.stores.sql.place import Flag
from noonbell.stores.sql.rows import Known, TaskView, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, UpdateMany, Work

EVENT_OF = {
    RunStatus.SUCCESS: "run.succeeded",
    RunStatus.CALLBACK_SUCCESS: "run.succeeded",
    RunStatus.FAILED: "run.failed",
    RunStatus.TIMEOUT: "run.failed",
    RunStatus.FAILED_TIMEOUT: "run.failed",
    RunStatus.CANCELED: "run.canceled",
}
_PLAIN_END = (RunStatus.SUCCESS, RunStatus.CALLBACK_SUCCESS)
FINISHED = (
    "status",
    "trouble",
    "start_time",
    "end_time",
    "updated_at",
    "attempt",
    "lost_count",
    "worker_id",
    "next_retry_time",
)
REPORTED = ("response_code", "result", "error_message", "error_details")
BODIES_AT_ONCE = 1 << 20
"""Characters of bodies that go into one statement."""
BODY_COLUMNS = (
    "run_id",
    "attempt",
    "request_headers",
    "request_body",
    "response_headers",
    "response_body",
    "truncated",
)


@dataclass(slots=True, kw_only=True)
class Ending:
    """One run's last transition."""

    live: Live
    status: RunStatus
    start_time: Instant | None
    """Known from the wide row where the lease is gone: a parked run started when it was parked from."""
    report: tuple[int | None, str | None, str | None, str | None] | None = None
    """Values of REPORTED; None keeps what the wide row has."""
    task_version: int | None = None
    bodies: RunBodies | None = None
    replaced: bool = False
    """Canceled by the next round of its own task."""
    note: dict[str, Any] | None = None
    """More for its event than the status."""


def report_of(code: int | None, result: Any, message: str | None, details: Any) -> tuple[Any, ...]:
    return (
        code,
        None if result is None else to_json(result),
        message,
        None if details is None else to_json(details),
    )


def canceled(
    q: Dialect, rows: Collection[Live], message: str, details: Mapping[str, Any], **more: Any
) -> Work[list[Ending]]:
    """The endings of runs that are canceled, in the order of `rows`. When one started, and its answer so far, stay."""
    before = yield from earlier(q, rows)
    return [
        Ending(
            live=row,
            status=RunStatus.CANCELED,
            start_time=before[row.run_id].start_time,
            report=report_of(before[row.run_id].response_code, None, message, details),
            **more,
        )
        for row in rows
    ]


def finish(q: Dialect, cache: TaskView, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    if not endings:
        return
    yield from remove(q, [ending.live for ending in endings])
    yield from _write_history(now, endings)
    yield from write_bodies([(ending.live, ending.bodies) for ending in endings if ending.bodies is not None])
    facts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for ending in endings:
        facts[EVENT_OF[ending.status]].append(_fact(ending))
    yield from tell_all(now, facts)
    yield from _follow_up(q, cache, now, endings)


def _fact(ending: Ending) -> tuple[Any, ...]:
    told = ending.status if ending.note is None else {"status": ending.status, **ending.note}
    return (ending.live.task_id, ending.live.run_id, told)


def write_bodies(bodies: Sequence[tuple[Live, RunBodies]]) -> Work[None]:
    """Together as far as they are small; one alone may be as large as the database takes at once."""
    yield from write_texts([(live.run_id, live.attempt, *texts_of(body)) for live, body in bodies])


def write_texts(bodies: Sequence[tuple[Any, ...]]) -> Work[None]:
    """The same for rows as the table has them: values of BODY_COLUMNS."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in bodies:
        weight = weight_of(row)
        if rows and size + weight > BODIES_AT_ONCE:
            yield InsertMany("bodies", BODY_COLUMNS, rows)
            rows, size = [], 0
        rows.append(row)
        size += weight
    if rows:
        yield InsertMany("bodies", BODY_COLUMNS, rows)


def texts_of(body: RunBodies) -> tuple[str | None, str | None, str | None, str | None, int]:
    """The last five of BODY_COLUMNS."""
    sent, received = body.request_headers, body.response_headers
    return (
        None if sent is None else to_json(sent),
        body.request_body,
        None if received is None else to_json(received),
        body.response_body,
        int(body.truncated),
    )


def weight_of(row: Sequence[Any]) -> int:
    """Characters of the texts at the end of a row of bodies."""
    return sum([len(text) for text in row[-5:-1] if text is not None])


def _write_history(now: Instant, endings: Sequence[Ending]) -> Work[None]:
    reported = [ending for ending in endings if ending.report is not None]
    silent = [ending for ending in endings if ending.report is None]
    if reported:
        rows = [(*_finished(ending, now), *(ending.report or ())) for ending in reported]
        yield UpdateMany("runs", "id", (*FINISHED, *REPORTED), rows)
    if silent:
        yield UpdateMany("runs", "id", FINISHED, [_finished(ending, now) for ending in silent])
    versions = [(e.live.run_id, e.task_version) for e in endings if e.task_version is not None]
    if versions:
        yield UpdateMany("runs", "id", ("task_version",), versions)


def _finished(ending: Ending, now: Instant) -> tuple[Any, ...]:
    live = ending.live
    trouble = None if ending.status in _PLAIN_END else ending.status
    return (
        live.run_id,
        ending.status,
        trouble,
        None if ending.start_time is None else min(ending.start_time, now),  # a local retry may have yet to start
        now,
        now,
        live.attempt,
        live.lost_count,
        live.worker_id,
        None,
    )


def _follow_up(q: Dialect, cache: TaskView, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    ended = [e for e in endings if e.live.flags & Flag.ROUND and e.live.was_claimed]
    if ended:
        yield from rounds.end(q, now, [(e.live, e.status, e.replaced) for e in ended])
    followed = [e for e in endings if e.live.flags & Flag.FOLLOW]
    if followed:
        yield from _follow_tasks(q, cache, now, followed)
    parents = sorted({e.live.parent_id for e in endings if e.live.parent_id is not None})
    for parent_id in parents:
        verdict = yield from fanout.decide(q, cache, parent_id)
        if verdict is not None:
            parent, why = verdict.parent, verdict.why
            others = [Ending(live=live, status=RunStatus.CANCELED, start_time=_started(live)) for live in verdict.rest]
            report = None if why is None else report_of(None, None, why, {"kind": "parts"})
            over = Ending(live=parent, status=verdict.status, start_time=_started(parent), report=report)
            yield from finish_family(q, cache, now, others, over)


def finish_family(q: Dialect, cache: TaskView, now: Instant, parts: Sequence[Ending], parent: Ending) -> Work[None]:
    """The parts first, without asking their parent again; then the parent."""
    if parts:
        yield from remove(q, [part.live for part in parts])
        yield from _write_history(now, parts)
        yield from tell_all(now, {"run.canceled": [_fact(part) for part in parts]})
    yield from finish(q, cache, now, [parent])


def _started(live: Live) -> Instant | None:
    return None if live.claimed_at is None else Instant(live.claimed_at)


def _follow_tasks(q: Dialect, cache: TaskView, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    tasks = yield from known_tasks(q, cache, [e.live.task_id for e in endings])
    yield from results.tell_results(now, [_ended(e, tasks[e.live.task_id]) for e in endings if e.live.task_id in tasks])
    for ending in endings:
        known = tasks.get(ending.live.task_id)
        if known is None or known.task.deleted_at is not None:
            continue
        task, spec = known.task, known.task.spec
        failed = ending.status in FAILURES and ending.status is not RunStatus.CANCELED
        if failed and spec.on_exhausted is OnExhausted.ERROR and task.status is not TaskStatus.ERROR:
            yield from turn_status(q, cache, now, task, TaskStatus.ERROR, by="noonbell")
            yield from _cancel_waiting(q, cache, now, task.id)
        elif known.schedule is not None and known.schedule.is_fixed_delay and task.status is TaskStatus.ENABLED:
            yield from _delay_next(q, cache, now, ending)
        if spec.delete_on_complete and task.status is TaskStatus.COMPLETED:
            others = yield Fetch("select 1 from live where task_id = :task limit 1", {"task": task.id})
            if not others:
                yield from soft_delete(q, cache, now, task, by="noonbell")


def _ended(ending: Ending, known: Known) -> tuple[results.Ended, TaskSpec]:
    live = ending.live
    return (live.run_id, live.task_id, live.worker_id, ending.status, ending.report), known.task.spec


def _cancel_waiting(q: Dialect, cache: TaskView, now: Instant, task_id: int) -> Work[None]:
    """The task has lost its right to run: what still waits does not start; what is under way may finish."""
    rows = yield from load_where(q, "task_id = :task and parent_id is null", task=task_id)
    waiting = [row for row in rows if not row.started]
    endings = yield from canceled(q, waiting, "its task is in ERROR", {"kind": "canceled", "why": "error"})
    yield from finish(q, cache, now, endings)


def _delay_next(q: Dialect, cache: TaskView, now: Instant, ending: Ending) -> Work[None]:
    """The scheduled run of a fixed delay is over: the next slot is one step after its end.

    Triggers do not move it, and neither does a run of an earlier version that was overtaken: only a cursor that waits.
    """
    rows = yield Fetch(
        "select r.slot, c.next_fire_at from runs r join cursors c on c.task_id = r.task_id where r.id = :id",
        {"id": ending.live.run_id},
    )
    if not rows or rows[0][0] is None or rows[0][1] is not None:
        return
    tasks = yield from known_tasks(q, cache, [ending.live.task_id])
    known = tasks[ending.live.task_id]
    if known.schedule is None:
        return
    task = yield from load_task(known.task.id)
    following = None if task is None else cursor_after_run(task, known.schedule, now)
    if following is None:
        yield from turn_status(q, cache, now, known.task, TaskStatus.COMPLETED, by="noonbell")
        return
    yield Execute(
        "update cursors set next_fire_at = :next where task_id = :task and next_fire_at is null",
        {"next": following, "task": known.task.id},
    )
