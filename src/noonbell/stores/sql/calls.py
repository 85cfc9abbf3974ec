"""Calls: telling the outcome of one that asked for it, the queues that they wait on, and sealing their headers again.

The telling is a call itself: a run that is inserted in the transaction in which the call becomes final. It has no
`success_url` and no `failure_url`, so nothing follows from it.

    K28  died before that commits   the call is not final either: it is settled again, or its lease runs out
    K7   died after it              the telling waits for a worker; only the signal is missing, and a poll finds it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noonbell.clock import Instant, rfc3339
from noonbell.engine import failpoint
from noonbell.model.call import CALL, CALL_TYPE, OUTCOME_RETRY, Call, call_of, stored
from noonbell.model.run import SUCCEEDED, Origin, RunStatus, final_status
from noonbell.model.target_kind import HTTP_QUEUE
from noonbell.model.task import SYSTEM_TASK_IDS
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
    " r.error_message, r.error_details, r.trace_id, i.overrides from runs r join inputs i on i.run_id = r.id"
)


def tell_outcomes(q: Dialect, cache: TaskView, now: Instant, answers: Mapping[int, str | None]) -> Work[None]:
    """Of calls that have just become final, by run: what the target answered with. Their history is written already."""
    if not answers:
        return
    rows = yield from q.fetch_by(_ENDED, "r.id", answers)
    tasks = yield from known_tasks(q, cache, {row[1] for row in rows})
    new_runs: list[NewRun] = []
    for row in sorted(rows, key=lambda row: row[0]):
        call = call_of(from_json(row[12]))
        url = None if call is None else call.success_url if row[3] in SUCCEEDED else call.failure_url
        if call is None or url is None or row[1] not in tasks:
            continue
        told = Call(
            url=url,
            headers={"Content-Type": "application/json"},
            timeout_seconds=call.timeout_seconds,
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
    yield from insert_runs(q, cache, now, new_runs)
    yield from tell("run.scheduled", [(new.task.id, new.id, RunStatus.SCHEDULED) for new in new_runs])
    cache.step_queues |= {new.task.spec.queue for new in new_runs}
    if new_runs:
        failpoint.hit("K28")


def _outcome(row: Row, call: Call, answer: str | None) -> dict[str, Any]:
    run_id, _, key, status, _, attempt, started, ended, code, message, details, _, _ = row
    return {
        "run_id": run_id,
        "key": key,
        "url": call.url,
        "method": call.method,
        "labels": call.labels,
        "status": status,
        "final_status": final_status(RunStatus(status)),
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
