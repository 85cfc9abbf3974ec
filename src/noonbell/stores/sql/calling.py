"""Callbacks: found by token or by task and run, recorded whatever they say, settled where they may."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.event import Callback
from noonbell.model.request import CallbackIn, CallbackSubject
from noonbell.model.run import FINAL, RunId, RunStatus
from noonbell.model.settlement import Expect, Settled, Settlement
from noonbell.model.task import TaskId
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.leasing import made_at, token_hash
from noonbell.stores.sql.live import Live, load
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import TaskView, from_json, to_json
from noonbell.stores.sql.settling import apply
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Now, UpdateMany, Work

_COLUMNS = ("id", "run_id", "task_id", "received_at", "status", "reason", "headers", "body")

UNKNOWN_KEPT = 1_000
"""Callbacks that found no run, of which a record is kept."""
REPEATS_KEPT = 10
"""Callbacks that a final run ignored, of which a record is kept."""
_LONGEST_UNKNOWN = 4_000
"""Characters of the body of such a one."""


def callback(
    q: Dialect, cache: TaskView, given: CallbackIn, decide: Callable[[CallbackSubject], Settlement | str]
) -> Work[tuple[CallbackSubject | None, Callback]]:
    run_id, reason = yield from _find(given)
    if run_id is None:
        now = yield Now()
        return None, (yield from _record(now, given, None, None, reason))
    rows = yield from load(q, [run_id])
    now = yield Now()
    live = rows.get(run_id)
    found = yield Fetch("select task_id, status, start_time from runs where id = :id", {"id": run_id})
    if not found:
        return None, (yield from _record(now, given, None, None, "unknown run"))
    task_id, stored = TaskId(found[0][0]), RunStatus(found[0][1])
    began_at = None if live is None else live.claimed_at if live.place == Place.LEASED else found[0][2]
    subject = msgspec.structs.replace(
        _subject(RunId(run_id), task_id, stored, live),
        at=now,
        attempt_began_at=began_at if live is not None and live.started else None,
        token_made_at=None if given.token is None else made_at(given.token),
    )
    if live is None or subject.status in FINAL:
        recorded = yield from _refuse(now, given, run_id, task_id, f"the run is {subject.status} already")
        yield from _forget_repeats(run_id)
        return subject, recorded
    answer = decide(subject)
    if answer == "":
        return subject, (yield from _record(now, given, run_id, task_id, None))
    if isinstance(answer, str):
        return subject, (yield from _refuse(now, given, run_id, task_id, answer))
    spoken = msgspec.structs.replace(answer, expect=Expect.ANSWERED, worker_id=None)
    settled = yield from apply(q, cache, now, rows, [spoken])
    reason = "" if settled[0] is Settled.DONE else f"the run is {subject.status} and takes no callback"
    standing = yield Fetch("select status from runs where id = :id", {"id": run_id})
    after = msgspec.structs.replace(
        subject, status=RunStatus(standing[0][0]) if settled[0] is Settled.DONE else subject.status
    )
    return after, (yield from _record(now, given, run_id, task_id, reason or None))


def callback_run(token: str) -> Work[RunId | None]:
    rows = yield Fetch("select run_id from callback_tokens where hash = :hash", {"hash": token_hash(token)})
    return RunId(rows[0][0]) if rows else None


def _find(given: CallbackIn) -> Work[tuple[int | None, str]]:
    if given.token is not None:
        run_id = yield from callback_run(given.token)
        return run_id, "" if run_id is not None else "unknown token"
    rows = yield Fetch("select task_id from runs where id = :id", {"id": given.run_id})
    if not rows:
        return None, "unknown run"
    if rows[0][0] != given.task_id:
        return None, "the run is not of this task"
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
    )


def _refuse(now: Instant, given: CallbackIn, run_id: int, task_id: TaskId, reason: str) -> Work[Callback]:
    """Whoever listens hears of it at once: a target that calls in vain waits for somebody to look."""
    yield from tell(now, "run.ignored", [(task_id, run_id, {"move": "callback", "reason": reason})])
    return (yield from _record(now, given, run_id, task_id, reason))


def _record(
    now: Instant, given: CallbackIn, run_id: int | None, task_id: TaskId | None, reason: str | None
) -> Work[Callback]:
    body, id_ = given.body if run_id is not None else given.body[:_LONGEST_UNKNOWN], 0
    status = "RECEIVED" if reason is None else "IGNORED"
    if run_id is not None or given.keep_unknown:
        (id_,) = yield NewIds(1)
        row = (id_, run_id, task_id, now, status, reason, to_json(given.headers), body)
        yield InsertMany("callbacks", _COLUMNS, [row])
    if run_id is None and id_:
        yield from _forget_unknown()
    return Callback(
        id=id_,
        run_id=None if run_id is None else RunId(run_id),
        task_id=task_id,
        received_at=now,
        status=status,
        reason=reason,
        headers=given.headers,
        body=body,
    )


def _forget_unknown() -> Work[None]:
    """Anybody can send what finds no run: of that, the newest are kept."""
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
    rows = yield from load(q, [run_id])
    live = rows.get(run_id)
    if live is None or live.place != Place.PARKED:
        return False
    now = yield Now()
    deadline = now + round(seconds * SECOND)
    yield UpdateMany("live", "run_id", ("at",), [(run_id, deadline)])
    yield UpdateMany("runs", "id", ("callback_deadline", "updated_at"), [(run_id, deadline, now)])
    return True


def callbacks(run_id: RunId | None, limit: int) -> Work[list[Callback]]:
    condition = "run_id is null" if run_id is None else "run_id = :run"
    params = {"limit": limit} if run_id is None else {"run": run_id, "limit": limit}
    rows = yield Fetch(
        f"select {', '.join(_COLUMNS)} from callbacks where {condition} order by id desc limit :limit", params
    )
    found = []
    for row in rows:
        fields = dict(zip(_COLUMNS, row, strict=True))
        fields["headers"] = from_json(fields["headers"])
        found.append(Callback(**fields))
    return found
