"""Finish: a run ends. The wide row gets its outcome, the narrow row is deleted, events are appended.

Follow-ups (the task's last run, a fixed delay, ERROR, the parent of a part, the result of a plan, the notice of a
cancel, runs of the tasks that come after) are written in the same transaction, so a run is never over while its
consequence could be lost. Runs that need no worker (the announcements of plans) are inserted, started and finished in
one commit: no worker claims them, so none can be lost or done twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.clock import Instant
from noonbell.model.event import ResultAddress, address_of, is_event_only
from noonbell.model.failure_text import TEXTS
from noonbell.model.run import FAILURES, FINAL, SUCCEEDED, RunBodies, RunId, RunStatus
from noonbell.model.task import OnExhausted, Task, TaskSpec, TaskStatus
from noonbell.policy import workers
from noonbell.policy.account import cursor_after_run
from noonbell.policy.calendar import stopped
from noonbell.stores.sql import calls, children, flows, joins, rollups
from noonbell.stores.sql.active_runs import (
    OF_TASK,
    Live,
    Place,
    RunFlag,
    earlier,
    load_active,
    load_children,
    load_where,
    note_ended,
    waits,
)
from noonbell.stores.sql.children import OPEN_CHILDREN
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell, tell_all
from noonbell.stores.sql.flow_end import FlowEnd
from noonbell.stores.sql.insert_runs import NewRun
from noonbell.stores.sql.joins import JustEnded
from noonbell.stores.sql.keys import move, remove
from noonbell.stores.sql.limits import installation_pause
from noonbell.stores.sql.rows import (
    Known,
    TaskView,
    from_json,
    json_or_null,
    known_tasks,
    load_task,
    lock_task,
    to_json,
)
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, UpdateMany, Work

EVENT_OF = {
    RunStatus.SUCCESS: "run.succeeded",
    RunStatus.CALLBACK_SUCCESS: "run.succeeded",
    RunStatus.FAILED: "run.failed",
    RunStatus.TIMEOUT: "run.failed",
    RunStatus.FAILED_TIMEOUT: "run.failed",
    RunStatus.CANCELED: "run.canceled",
    RunStatus.SKIPPED: "run.skipped",
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
    is_as_leased: bool = False
    """When it started, its attempt, its losses and its worker are as its row in `live` says, and it names its version."""
    replaced: bool = False
    """Canceled by the next round of its own task."""
    note: dict[str, Any] | None = None
    """More for its event than the status."""


def report_of(code: int | None, result: Any, message: str | None, details: Any) -> tuple[Any, ...]:
    return (code, json_or_null(result), message, json_or_null(details))


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
    yield from _write_history(q, now, endings)
    yield from remove(q, cache, [ending.live for ending in endings])
    yield from write_bodies([(ending.live, ending.bodies) for ending in endings if ending.bodies is not None])
    facts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for ending in endings:
        facts[EVENT_OF[ending.status]].append(_fact(ending))
    yield from tell_all(facts)
    yield from _cancel_children(q, cache, now, endings)
    yield from _close_flows(q, cache, now, [e for e in endings if e.live.flags & RunFlag.FLOW])
    yield from _follow_up(q, cache, now, endings)
    yield from calls.tell_outcomes(q, cache, now, _answers(endings))
    stopped = [
        e.live for e in endings if e.status is RunStatus.CANCELED and e.live.place in (Place.LEASED, Place.PARKED)
    ]
    yield from calls.tell_cancels(q, cache, now, {live.run_id: live.task_id for live in stopped})
    whole = [ending for ending in endings if ending.live.parent_id is None]
    yield from follow(q, cache, now, [JustEnded(e.live.run_id, e.live.task_id, e.replaced) for e in whole])


def _answers(endings: Sequence[Ending]) -> dict[int, str | None]:
    """Of the calls whose outcome is to be told: what the target said in the attempt that ended them."""
    told = [ending for ending in endings if ending.live.flags & RunFlag.TELLS]
    return {e.live.run_id: None if e.bodies is None else e.bodies.response_body for e in told}


def follow(q: Dialect, cache: TaskView, now: Instant, finals: Sequence[JustEnded]) -> Work[None]:
    """Runs of the tasks that come after those whose runs have just become final; a skipped one may be followed in turn."""
    while finals:
        followed = yield from joins.follow(q, cache, now, finals)
        for task_id in followed.replacing:
            yield from cancel_started(q, cache, now, task_id)
        yield from after_birth(q, cache, now, followed.new_runs)
        finals = followed.skipped


def cancel_started(q: Dialect, cache: TaskView, now: Instant, task_id: int) -> Work[list[RunId]]:
    """CANCEL_PREV: every run of the task that has started and is not final; none that waits."""
    rows = yield from load_where(q, "round_of = :task", task=task_id)
    started = [row for row in rows if row.started or (row.place == Place.LATER and row.flags & RunFlag.RETRIED)]
    details = {"kind": "canceled", "why": "replaced"}
    endings = yield from canceled(q, started, TEXTS["canceled_replaced"], details, replaced=True)
    yield from finish(q, cache, now, endings)
    return [RunId(row.run_id) for row in started]


def _fact(ending: Ending) -> tuple[Any, ...]:
    told = ending.status if ending.note is None else {"status": ending.status, **ending.note}
    if ending.live.flags & (RunFlag.STEP | RunFlag.CHILD):
        told = {"status": ending.status, **(ending.note or {}), "parent_id": ending.live.parent_id}
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
    sent, received = json_or_null(body.request_headers), json_or_null(body.response_headers)
    return (sent, body.request_body, received, body.response_body, int(body.truncated))


def weight_of(row: Sequence[Any]) -> int:
    """Characters of the texts at the end of a row of bodies."""
    return sum([len(text) for text in row[-5:-1] if text is not None])


def _write_history(q: Dialect, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    """Before their rows in `live` are removed: what they say is taken from there where it can be."""
    yield from _write_leased(q, now, [ending for ending in endings if ending.is_as_leased])
    others = [ending for ending in endings if not ending.is_as_leased]
    reported = [ending for ending in others if ending.report is not None]
    silent = [ending for ending in others if ending.report is None]
    if reported:
        rows = [(*_finished(ending, now), *(ending.report or ())) for ending in reported]
        yield UpdateMany("runs", "id", (*FINISHED, *REPORTED), rows)
    if silent:
        yield UpdateMany("runs", "id", FINISHED, [_finished(ending, now) for ending in silent])
    versions = [(e.live.run_id, e.task_version) for e in others if e.task_version is not None]
    if versions:
        yield UpdateMany("runs", "id", ("task_version",), versions)
    yield from rollups.note(q, [ending.live.run_id for ending in endings])


def _write_leased(q: Dialect, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    """Those that ended alike by one statement; then what else each has to report."""
    alike: dict[tuple[RunStatus, int | None, int | None], list[int]] = defaultdict(list)
    reports: list[tuple[Any, ...]] = []
    for ending in endings:
        report = ending.report or (None,) * len(REPORTED)
        alike[ending.status, ending.task_version, report[0]].append(ending.live.run_id)
        if report[1:] != (None, None, None):
            reports.append((ending.live.run_id, *report))
    for (status, version, code), run_ids in alike.items():
        yield write_alike(q, now, status, version, code, q.pack(run_ids))
    if reports:
        yield UpdateMany("runs", "id", REPORTED, reports)


def write_alike(
    q: Dialect, now: Instant, status: RunStatus, version: int | None, code: int | None, ids: Any
) -> Execute:
    """The history of leased runs that end with the same status and code under the same version. `ids` are packed."""
    return Execute(
        q.from_live(
            {
                "status": ":status",
                "trouble": ":trouble",
                "task_version": ":version",
                "start_time": "l.claimed_at",
                "end_time": ":now",
                "updated_at": ":now",
                "attempt": "l.attempt",
                "lost_count": "l.lost_count",
                "worker_id": "l.worker_id",
                "next_retry_time": "null",
                **dict.fromkeys(REPORTED, "null"),
                "response_code": ":code",
            },
            q.ids("l.run_id", "ids"),
        ),
        {
            "status": status,
            "trouble": None if status in _PLAIN_END else status,
            "version": version,
            "code": code,
            "now": now,
            "ids": ids,
        },
    )


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
    ended = [e for e in endings if e.live.flags & RunFlag.ROUND and e.live.was_claimed]
    if ended:
        yield from note_ended(q, now, [(e.live, e.status, e.replaced) for e in ended])
    followed = [e for e in endings if e.live.flags & RunFlag.FOLLOW]
    if followed:
        yield from _follow_tasks(q, cache, now, followed)
    yield from _advance_flows(q, cache, now, [e for e in endings if e.live.flags & RunFlag.STEP])
    yield from children.wake(q, cache, now, [e.live.parent_id or 0 for e in endings if e.live.flags & RunFlag.CHILD])
    parents = sorted({e.live.parent_id for e in endings if e.live.parent_id and e.live.flags & RunFlag.PART})
    for parent_id in parents:
        verdict = yield from _decide(q, cache, parent_id)
        if verdict is not None:
            parent, why = verdict.parent, verdict.why
            others = [Ending(live=live, status=RunStatus.CANCELED, start_time=_started(live)) for live in verdict.rest]
            report = None if why is None else report_of(None, None, why, {"kind": "parts"})
            over = Ending(live=parent, status=verdict.status, start_time=_started(parent), report=report)
            yield from finish_family(q, cache, now, others, over)


def _advance_flows(q: Dialect, cache: TaskView, now: Instant, ended: Sequence[Ending]) -> Work[None]:
    """After steps of flows have ended: the next ones, or the end of the flow."""
    by_flow: dict[int, dict[int, RunStatus]] = defaultdict(dict)
    for ending in ended:
        by_flow[ending.live.parent_id or 0][ending.live.run_id] = ending.status
    over = yield from flows.advance(q, cache, now, by_flow)
    yield from finish(q, cache, now, [flow_ending(end) for end in over])


def flow_ending(end: FlowEnd) -> Ending:
    return Ending(
        live=end.parent,
        status=end.status,
        start_time=_started(end.parent),
        report=report_of(None, end.result, end.message, end.details),
    )


def _close_flows(q: Dialect, cache: TaskView, now: Instant, ended: Sequence[Ending]) -> Work[None]:
    """These runs of flows are over, however they ended. What was under way in them is canceled."""
    started = [ending.live.run_id for ending in ended if ending.live.place == Place.PARENT]
    rows = yield from load_children(q, started)
    family = yield from canceled(q, rows, TEXTS["canceled_flow"], {"kind": "canceled", "why": "flow"})
    yield from finish(q, cache, now, family)
    yield from flows.close(q, now, started)


def _cancel_children(q: Dialect, cache: TaskView, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    """Cancel what these canceled runs have spawned: nothing waits for it any more."""
    for ending in endings:
        if ending.status is RunStatus.CANCELED and ending.live.flags & RunFlag.SPAWNER:
            rows = yield from load_where(q, OPEN_CHILDREN, parent=ending.live.run_id)
            details = {"kind": "canceled", "why": "parent"}
            family = yield from canceled(q, rows, TEXTS["canceled_parent"], details)
            yield from finish(q, cache, now, family)


class _FanoutEnd(NamedTuple):
    rest: list[Live]
    """The parts still under way: they are not needed any more."""
    parent: Live
    status: RunStatus
    why: str | None
    """What a parent that failed says of it."""


def _decide(q: Dialect, cache: TaskView, parent_id: int) -> Work[_FanoutEnd | None]:
    """After a part has ended: what becomes of its parent, or None if that is open still."""
    rows = yield from load_active(q, [parent_id])
    parent = rows.get(parent_id)
    if parent is None or parent.place != Place.PARENT:
        return None
    tasks = yield from known_tasks(q, cache, [parent.task_id])
    spec = tasks[parent.task_id].task.spec
    ended = yield Fetch(
        "select status, count(*), max(shard_total) from runs where parent_id = :id group by status", {"id": parent_id}
    )
    total = max(row[2] for row in ended)
    succeeded = sum(row[1] for row in ended if row[0] in SUCCEEDED)
    failed = sum(row[1] for row in ended if row[0] in FINAL and row[0] not in SUCCEEDED)
    rule = spec.fanout.success if spec.fanout is not None else "all"
    verdict = workers.verdict(rule, total, succeeded, failed)
    if verdict == "undecided":
        return None
    rest = yield from load_where(q, "parent_id = :parent", parent=parent_id)
    if verdict == "success":
        return _FanoutEnd(rest, parent, RunStatus.SUCCESS, None)
    needed = "one" if rule == "any" else rule
    return _FanoutEnd(rest, parent, RunStatus.FAILED, f"{failed} of {total} parts failed, and {needed} had to succeed")


def finish_family(q: Dialect, cache: TaskView, now: Instant, parts: Sequence[Ending], parent: Ending) -> Work[None]:
    """The parts first, without asking their parent again; then the parent."""
    if parts:
        yield from _write_history(q, now, parts)
        yield from remove(q, cache, [part.live for part in parts])
        yield from tell_all({"run.canceled": [_fact(part) for part in parts]})
        yield from _cancel_children(q, cache, now, parts)
    yield from finish(q, cache, now, [parent])


def _started(live: Live) -> Instant | None:
    return None if live.claimed_at is None else Instant(live.claimed_at)


def _follow_tasks(q: Dialect, cache: TaskView, now: Instant, endings: Sequence[Ending]) -> Work[None]:
    tasks = yield from known_tasks(q, cache, [e.live.task_id for e in endings])
    yield from tell_results([_ended(e, tasks[e.live.task_id]) for e in endings if e.live.task_id in tasks])
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


def _ended(ending: Ending, known: Known) -> tuple[EndedRun, TaskSpec]:
    live = ending.live
    return (live.run_id, live.task_id, live.worker_id, ending.status, ending.report), known.task.spec


def _cancel_waiting(q: Dialect, cache: TaskView, now: Instant, task_id: int) -> Work[None]:
    """Cancel the runs that wait: their task has lost its right to run. What is under way may finish."""
    rows = yield from load_where(q, OF_TASK, task=task_id)
    waiting = [row for row in rows if not row.started]
    endings = yield from canceled(q, waiting, TEXTS["canceled_error"], {"kind": "canceled", "why": "error"})
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


MOST: Final = 16_384
"""Characters of a result that an event carries. Of a longer one the event says where it is: in its run."""

EndedRun = tuple[int, int, str | None, RunStatus, Sequence[Any] | None]
"""Run, task, worker, how it ended, and the values of `endings.REPORTED` where there are any."""


def tell_results(ended: Sequence[tuple[EndedRun, TaskSpec]]) -> Work[None]:
    """Write one event for each run of a task that has its results published; the others are passed over."""
    facts: dict[str, list[tuple[Any, ...]]] = {"run.result": [], "run.published": []}
    for run, spec in ended:
        address = address_of(spec)
        if address is None:
            continue
        run_id, task_id, _, status, _ = run
        if is_event_only(spec) and status is RunStatus.SUCCESS:
            messages = yield from _messages(run_id)
            facts["run.published"].append((task_id, run_id, {**_filed(address), "messages": messages}))
        else:
            data = yield from _result(run, spec, address)
            facts["run.result"].append((task_id, run_id, data))
    yield from tell_all(facts)


def _result(run: EndedRun, spec: TaskSpec, address: ResultAddress) -> Work[dict[str, Any]]:
    run_id, _, worker_id, status, report = run
    _, result, message, _ = report or (None, None, None, None)
    data = {**_filed(address), "status": status, "worker_id": worker_id, **_cut(result)}
    if message is not None:
        data["error_message"] = message[:MOST]
    if spec.fanout is not None:
        data["participants"] = yield from _participants(run_id)
    return data


def _participants(run_id: int) -> Work[list[dict[str, Any]]]:
    """Who took part in a fan-out, and what each of them said."""
    rows = yield Fetch(
        "select worker_id, status, result from runs where parent_id = :id order by shard_index", {"id": run_id}
    )
    return [{"worker_id": worker, "status": status, **_cut(result)} for worker, status, result in rows]


def _messages(run_id: int) -> Work[Any]:
    """What the run carries, whole: its own payload or its task's, and of that the messages."""
    rows = yield Fetch(
        "select coalesce(i.payload, t.payload) from runs r join tasks t on t.id = r.task_id"
        " left join inputs i on i.run_id = r.id where r.id = :id",
        {"id": run_id},
    )
    payload = from_json(rows[0][0])
    return payload.get("messages", payload) if isinstance(payload, dict) else payload


def _filed(address: ResultAddress) -> dict[str, Any]:
    return {"topic": address.topic, "subject": address.subject}


def _cut(text: str | None) -> dict[str, Any]:
    if text is not None and len(text) > MOST:
        return {"result": None, "truncated": True}
    return {"result": from_json(text)}


_DONE: Final = report_of(None, {"published": True}, None, None)


def after_birth(q: Dialect, cache: TaskView, now: Instant, new_runs: Sequence[NewRun]) -> Work[None]:
    """End those of these new runs that are due and need no worker."""
    due = [n.id for n in new_runs if n.skip_reason is None and n.run_at <= now and is_event_only(n.task.spec)]
    yield from finish_event_only(q, cache, now, due)


def finish_event_only(q: Dialect, cache: TaskView, now: Instant, run_ids: Sequence[int]) -> Work[None]:
    """These runs are due, and done by being published. While everything is paused they wait, to be promoted when that is over."""
    if not run_ids:
        return
    rows = yield from load_active(q, run_ids)
    paused = yield from installation_pause()
    if paused is not None:
        yield from move(q, cache, [(row, waits(row, at=now)) for row in rows.values()])
        return
    endings = [
        Ending(live=row._replace(attempt=row.attempt + 1), status=RunStatus.SUCCESS, start_time=now, report=_DONE)
        for row in rows.values()
    ]
    yield from finish(q, cache, now, endings)


_VERSION_COLUMNS = ("task_id", "version", "valid_from", "status", "deleted", "changed_by", "spec")
_MARK_COLUMNS = ("task_id", "version", "accounted_to", "fired")
_PAUSE_COLUMNS = ("task_id", "version", "reason", "until_at", "due_at", "paused_by", "paused_at")
_USE_COLUMNS = ("task_id", "version", "name", "revision", "since", "left_out")


def record_versions(tasks: Sequence[Task], now: Instant, by: str | None = None) -> Work[None]:
    """`by` made them; a first version is its creator's."""
    rows = []
    for task in tasks:
        who = task.created_by if task.version == 1 else by
        rows.append(
            (task.id, task.version, now, task.status, int(task.deleted_at is not None), who, to_json(task.spec))
        )
    yield InsertMany("task_versions", _VERSION_COLUMNS, rows)
    marks = [(task.id, task.version, task.accounted_to, task.fired) for task in tasks]
    yield InsertMany("version_marks", _MARK_COLUMNS, marks)
    uses = [
        (task.id, task.version, use.name, use.revision, use.since, to_json(use.left_out))
        for task in tasks
        if (use := task.calendar_use) is not None
    ]
    if uses:
        yield InsertMany("task_calendars", _USE_COLUMNS, uses)
    pauses = [
        (task.id, task.version, pause.reason, pause.until, pause.until, pause.by, pause.at)
        for task in tasks
        if (pause := task.pause) is not None
    ]
    if pauses:
        yield InsertMany("task_pauses", _PAUSE_COLUMNS, pauses)


def turn_status(
    q: Dialect, cache: TaskView, now: Instant, task: Task, status: TaskStatus, *, by: str | None
) -> Work[Task | None]:
    """COMPLETED or ERROR: no further slot. None if the task has been changed since; then nothing is written."""
    current = yield from lock_task(q, task.id)
    if current is None or current.version != task.version:
        return None
    (turned,) = yield from turn_held(q, cache, now, [current], status, by=by)
    return turned


def turn_held(
    q: Dialect, cache: TaskView, now: Instant, held: Sequence[Task], status: TaskStatus, *, by: str | None
) -> Work[list[Task]]:
    """The same for many, whose cursors the caller holds: each as it stands, with what its cursor is to say."""
    turned = [
        msgspec.structs.replace(
            task,
            status=status,
            version=task.version + 1,
            updated_at=now,
            next_fire_at=None,
            calendar_use=stopped(task, now),
            pause=None,
        )
        for task in held
    ]
    if turned:
        states = [(task.id, str(status), task.version, now) for task in turned]
        yield UpdateMany("tasks", "id", ("status", "version", "updated_at"), states)
        cursors = [(t.id, t.version, None, t.fired, t.skip_next, t.accounted_to) for t in turned]
        columns = ("version", "next_fire_at", "fired", "skip_next", "accounted_to")
        yield UpdateMany("cursors", "task_id", columns, cursors)
        yield from record_versions(turned, now, by)
        yield from tell(f"task.{status.lower()}", [(task.id, None, {"by": by}) for task in turned])
    if status not in joins.FOLLOWS:
        yield from joins.disable_joins(q, [task.id for task in turned if task.spec.after is not None])
    for task in turned:
        cache.put(task)
    return turned


def soft_delete(q: Dialect, cache: TaskView, now: Instant, task: Task, *, by: str | None) -> Work[Task]:
    """The task ends: no further slot, and its name is free. Its runs are the caller's business."""
    current = yield from lock_task(q, task.id)
    (ended,) = yield from end_held(q, cache, now, [current or task], by=by)
    return ended


def end_held(q: Dialect, cache: TaskView, now: Instant, held: Sequence[Task], *, by: str | None) -> Work[list[Task]]:
    """The same for many, whose cursors the caller holds."""
    ended = [
        msgspec.structs.replace(
            task, version=task.version + 1, updated_at=now, deleted_at=now, next_fire_at=None, pause=None
        )
        for task in held
    ]
    if ended:
        columns = ("deleted_at", "version", "updated_at", "live_name", "live_external_id")
        yield UpdateMany("tasks", "id", columns, [(task.id, now, task.version, now, None, None) for task in ended])
        yield UpdateMany("cursors", "task_id", ("version", "next_fire_at"), [(t.id, t.version, None) for t in ended])
        yield from record_versions(ended, now, by)
        yield from tell("task.deleted", [(task.id, None, {"by": by, "name": task.name}) for task in ended])
    following = [task.id for task in ended if task.spec.after is not None]
    yield from joins.disable_joins(q, following)
    yield from q.delete_by("edges", "task_id", following)
    for task in ended:
        cache.put(task)
    return ended
