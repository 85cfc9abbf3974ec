"""Calls: telling the outcome of one that asked for it, telling a target that a run was canceled, the queues that calls
wait on, and sealing their headers again.

The telling is a call itself: a run that is inserted in the transaction in which the call, or the run of a task with a
`cancel_url`, becomes final. It has no `success_url` and no `failure_url`, so nothing follows from it.

    K28  died before that commits   the run is not final either: it is settled or canceled again, or its lease runs out
    K7   died after it              the telling waits for a worker; only the signal is missing, and a poll finds it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noonbell.clock import Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.model.call import (
    CALL,
    CALL_TYPE,
    MOST_SECONDS,
    OUTCOME_RETRY,
    OUTCOME_SECONDS,
    Call,
    call_of,
    name_of,
    stored,
)
from noonbell.model.run import SUCCEEDED, Origin, RunStatus, final_status, idempotency_key_of
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import SYSTEM_TASK_IDS, Task, TaskSpec
from noonbell.ports import Reseal
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.insert_runs import NewRun, insert_runs
from noonbell.stores.sql.rows import TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import Fetch, Row, Work, update

LONGEST_ANSWER: Final = 65_536
"""Characters of the target's answer that an outcome carries."""

_ENDED = (
    'select r.id, r.task_id, r."key", r.status, r.priority, r.attempt, r.start_time, r.end_time, r.response_code,'
    " r.error_message, r.error_details, r.trace_id, r.skip_reason, i.overrides from runs r join inputs i on i.run_id = r.id"
)


def tell_outcomes(q: Dialect, cache: TaskView, now: Instant, answers: Mapping[int, str | None]) -> Work[None]:
    """Tell the outcomes of calls that have just become final; their history is written already. `answers`: of the targets, by
    run.
    """
    if not answers:
        return
    rows = yield from q.fetch_by(_ENDED, "r.id", answers)
    tasks = yield from known_tasks(q, cache, {row[1] for row in rows})
    new_runs: list[NewRun] = []
    for row in sorted(rows, key=lambda row: row[0]):
        call = call_of(from_json(row[13]))
        url = None if call is None else call.success_url if row[3] in SUCCEEDED else call.failure_url
        if call is None or url is None or row[1] not in tasks:
            continue
        told = Call(
            url=url,
            headers={"Content-Type": "application/json"},
            timeout_seconds=max(call.timeout_seconds or 0, OUTCOME_SECONDS),
            retry_policy=OUTCOME_RETRY,
            labels=call.labels,
        )
        new_runs.append(
            NewRun(
                task=tasks[row[1]].task,
                origin=Origin.CALL,
                scheduled_time=now,
                run_at=now,
                priority=row[4],
                overrides=stored(told, to_json(_outcome(row, call, answers[row[0]]))),
                trace_id=row[11],
                upstream_run_ids=(row[0],),
            )
        )
    yield from _insert(q, cache, now, new_runs)


_CANCELED = (
    "select id, task_id, priority, attempt, scheduled_time, end_time, error_message, error_details, trace_id,"
    " idempotency_key from runs"
)


def tell_cancels(q: Dialect, cache: TaskView, now: Instant, task_of: Mapping[int, int]) -> Work[None]:
    """Tell the `cancel_url` of its task, where it has one, of each run that has just been canceled while it was under way."""
    if not task_of:
        return
    tasks = yield from known_tasks(q, cache, set(task_of.values()))
    asked = [run_id for run_id, task_id in task_of.items() if task_id in tasks and tasks[task_id].task.spec.cancel_url]
    if not asked:
        return
    found = yield Fetch("select id from tasks where live_name = :name", {"name": name_of(HTTP_QUEUE)})
    calls = yield from known_tasks(q, cache, [row[0] for row in found])
    rows = yield from q.fetch_by(_CANCELED, "id", asked)
    new_runs = [
        NewRun(
            task=known.task,
            origin=Origin.CALL,
            scheduled_time=now,
            run_at=now,
            priority=row[2],
            overrides=stored(_notice_call(tasks[row[1]].task.spec), to_json(_notice(row, tasks[row[1]].task))),
            trace_id=row[8],
            upstream_run_ids=(row[0],),
        )
        for known in calls.values()
        for row in sorted(rows, key=lambda row: row[0])
    ]
    yield from _insert(q, cache, now, new_runs)


def _notice_call(spec: TaskSpec) -> Call:
    return Call(
        url=spec.cancel_url or "",
        headers={"Content-Type": "application/json"},
        timeout_seconds=min(max(spec.timeout_seconds, OUTCOME_SECONDS), MOST_SECONDS),
        retry_policy=OUTCOME_RETRY,
        labels=spec.labels,
    )


def _notice(row: Row, task: Task) -> dict[str, Any]:
    run_id, task_id, _, attempt, scheduled_time, ended, message, details, _, key = row
    return {
        "run_id": run_id,
        "task_id": task_id,
        "task": task.name,
        "attempt": attempt,
        "idempotency_key": idempotency_key_of(run_id, scheduled_time, key),
        "status": RunStatus.CANCELED,
        "reason": message,
        "details": from_json(details),
        "canceled_at": None if ended is None else rfc3339(Instant(ended)),
    }


def _insert(q: Dialect, cache: TaskView, now: Instant, new_runs: list[NewRun]) -> Work[None]:
    yield from insert_runs(q, cache, now, new_runs)
    yield from tell("run.scheduled", [(new.task.id, new.id, RunStatus.SCHEDULED) for new in new_runs])
    cache.step_queues |= {new.task.spec.queue for new in new_runs}
    if new_runs:
        failpoint.hit("K28")


def _outcome(row: Row, call: Call, answer: str | None) -> dict[str, Any]:
    run_id, _, key, status, _, attempt, started, ended, code, message, details, _, reason, _ = row
    return {
        "run_id": run_id,
        "key": key,
        "url": call.url,
        "method": call.method,
        "labels": call.labels,
        "status": status,
        "final_status": final_status(RunStatus(status)),
        "skip_reason": reason,
        "attempts": attempt,
        "start_time": None if started is None else rfc3339(Instant(started)),
        "end_time": None if ended is None else rfc3339(Instant(ended)),
        "response_code": code,
        "response_body": None if answer is None else answer[:LONGEST_ANSWER],
        "error_message": message,
        "error_details": from_json(details),
    }


def call_queues() -> Work[list[str]]:
    rows = yield Fetch(
        "select queue from tasks where id > :system and job_type = :call and queue <> :http order by id",
        {"system": SYSTEM_TASK_IDS, "call": CALL_TYPE, "http": HTTP_QUEUE},
    )
    return [row[0] for row in rows]


def reseal_calls(after: int, limit: int, reseal: Reseal) -> Work[tuple[int | None, int]]:
    rows: Sequence[Row] = yield Fetch(
        "select run_id, overrides from inputs where run_id > :after and overrides is not null"
        " order by run_id limit :limit",
        {"after": after, "limit": limit},
    )
    written = 0
    for run_id, text in rows:
        overrides = from_json(text)
        call = overrides.get(CALL)
        if call is None or not call.get("headers"):
            continue
        headers = reseal({"headers": call["headers"]})["headers"]
        if headers != call["headers"]:
            sealed = to_json({**overrides, CALL: {**call, "headers": headers}})
            written += yield update("inputs", {"run_id": run_id}, overrides=sealed)
    return (rows[-1][0] if len(rows) == limit else None), written
