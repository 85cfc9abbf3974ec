"""Publish: runs outside the schedule, with a key where the caller wants it to be asked for only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidState, NotFound
from noonbell.model.request import IfFinished, Outcome, Publication, Published
from noonbell.model.run import FINAL, SUCCEEDED, RunId, RunStatus
from noonbell.model.task import TaskStatus
from noonbell.policy import trigger
from noonbell.stores.sql import told
from noonbell.stores.sql.births import Newborn, bear, rate_key
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.known import known_tasks
from noonbell.stores.sql.live import Live, load, move
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import Known, TaskView, to_json
from noonbell.stores.sql.statement import Execute, Fetch, Now, Work


@dataclass(slots=True)
class _Holder:
    """The run that a key belongs to."""

    run_id: RunId
    status: RunStatus
    live: Live | None
    newborn: Newborn | None = None
    """Born in this very batch: its id comes with its birth."""

    @property
    def outcome(self) -> Outcome:
        return Outcome.RUNNING if self.live is not None and self.live.was_claimed else Outcome.EXISTS


def publish(q: Dialect, cache: TaskView, publications: Sequence[Publication]) -> Work[list[Published]]:
    tasks = yield from known_tasks(q, cache, [publication.task_id for publication in publications])
    check(tasks, publications)
    counts = yield from _counts(q, tasks)
    holders = yield from _holders(q, publications)
    now = yield Now()
    newborns: list[Newborn] = []
    answers: list[Published | tuple[Newborn, Outcome]] = []
    freed: list[int] = []
    for publication in publications:
        known = tasks[publication.task_id]
        name = (publication.task_id, publication.key)
        holder = holders.get(name) if publication.key is not None else None
        if holder is not None and not _reruns(publication, holder):
            answers.append((yield from _existing(known, now, publication, holder)))
            continue
        newborn = make(known, now, publication, counts)
        if isinstance(newborn, Published):
            answers.append(newborn)
            continue
        if publication.key is not None:
            if holder is not None:
                freed.append(holder.run_id)
            holders[name] = _Holder(RunId(0), RunStatus.SCHEDULED, None, newborn)
        newborns.append(newborn)
        answers.append((newborn, Outcome.CREATED))
    if freed:
        yield Execute(f"update runs set live_key = null where {q.ids('id', 'ids')}", {"ids": q.pack(freed)})
    yield from bear(cache, now, newborns)
    yield from tell(now, "run.scheduled", [(n.task.id, n.id, RunStatus.SCHEDULED) for n in newborns])
    yield from told.after_birth(q, cache, now, newborns)
    return [a if isinstance(a, Published) else Published(a[0].id, a[1]) for a in answers]


def check(tasks: dict[int, Known], publications: Sequence[Publication]) -> None:
    for publication in publications:
        known = tasks.get(publication.task_id)
        if known is None or known.task.deleted_at is not None:
            raise NotFound(f"there is no task {publication.task_id}")
        if known.task.status is TaskStatus.ERROR:
            raise InvalidState(f"task {known.task.name!r} is in ERROR; reset it before it can run again")


def make(known: Known, now: Instant, publication: Publication, counts: dict[int, list[int]]) -> Newborn | Published:
    """The run that a publication asks for, or the refusal of a task at its limit."""
    task, spec = known.task, known.task.spec
    run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    occupied, waiting = counts.get(task.id, (0, 0))
    admitted = trigger.admit(spec, occupied, waiting)
    if isinstance(admitted, trigger.Refuse):
        return Published(None, Outcome.REFUSED, str(admitted.reason))
    if task.id in counts and run_at <= now:
        counts[task.id] = [occupied + 1, waiting + 1]
    return Newborn(
        task=task,
        origin=publication.origin,
        scheduled_time=publication.scheduled_time or now,
        run_at=max(run_at, now) if publication.run_at is None else run_at,
        gated=admitted.gated or spec.rate_limit is not None,
        key=publication.key,
        priority=publication.priority,
        payload=publication.payload,
        overrides=publication.overrides,
        workers=publication.specific_worker_ids,
        retry_of_run_id=publication.retry_of_run_id,
        trace_id=publication.trace_id,
    )


def _counts(q: Dialect, tasks: dict[int, Known]) -> Work[dict[int, list[int]]]:
    """(occupied, waiting) of the tasks whose policy asks for it, their gates held."""
    ids = sorted(task_id for task_id, known in tasks.items() if trigger.needs_counts(known.task.spec))
    if not ids:
        return {}
    rows = yield Fetch(
        f"select task_id, used, waiting, passed from gates where {q.ids('task_id', 'ids')} order by task_id{q.lock}",
        {"ids": q.pack(ids)},
    )
    return {row[0]: [row[1] + row[2] + row[3], row[2] + row[3]] for row in rows}


def _holders(q: Dialect, publications: Sequence[Publication]) -> Work[dict[tuple[int, str | None], _Holder]]:
    keyed = [publication for publication in publications if publication.key is not None]
    if not keyed:
        return {}
    rows = yield Fetch(
        f"select id, task_id, live_key, status from runs where {q.ids('task_id', 'tasks')}"
        f" and {q.names('live_key', 'keys')}{q.lock}",
        {
            "tasks": q.pack(sorted({publication.task_id for publication in keyed})),
            "keys": q.pack(sorted({str(publication.key) for publication in keyed})),
        },
    )
    living = yield from load(q, [row[0] for row in rows if row[3] not in FINAL])
    return {
        (task_id, key): _Holder(RunId(run_id), RunStatus(status), living.get(run_id))
        for run_id, task_id, key, status in rows
    }


def _reruns(publication: Publication, holder: _Holder) -> bool:
    if holder.live is not None or holder.newborn is not None or holder.status not in FINAL:
        return False
    succeeded = holder.status in SUCCEEDED
    return (
        publication.if_finished is IfFinished.RERUN
        or (publication.if_finished is IfFinished.RERUN_FAILED and not succeeded)
        or (publication.if_finished is IfFinished.RERUN_SUCCEEDED and succeeded)
    )


def _existing(
    known: Known, now: Instant, publication: Publication, holder: _Holder
) -> Work[Published | tuple[Newborn, Outcome]]:
    if holder.newborn is not None:
        if not publication.update_waiting:
            return holder.newborn, Outcome.EXISTS
        _update_newborn(holder.newborn, now, publication)
        return holder.newborn, Outcome.UPDATED
    live = holder.live
    if publication.update_waiting and live is not None and not live.was_claimed:
        holder.live = yield from _update_waiting(known, now, publication, live)
        return Published(holder.run_id, Outcome.UPDATED)
    return Published(holder.run_id, holder.outcome)


def _update_newborn(newborn: Newborn, now: Instant, publication: Publication) -> None:
    newborn.run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    newborn.priority = publication.priority
    if publication.payload is not msgspec.UNSET:
        newborn.payload = publication.payload
        newborn.overrides = publication.overrides


def _update_waiting(known: Known, now: Instant, publication: Publication, live: Live) -> Work[Live]:
    spec = known.task.spec
    run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    priority = spec.priority if publication.priority is None else publication.priority
    is_later = run_at > now
    after = live._replace(place=int(Place.LATER if is_later else live.due_place), at=run_at if is_later else None)
    yield from move([(live, after)])
    payload = spec.payload if publication.payload is msgspec.UNSET else publication.payload
    yield Execute(
        "update live set turn = :turn, run_at = :run_at, rate_key = :rate_key where run_id = :id",
        {"turn": -priority, "run_at": run_at, "rate_key": rate_key(spec, payload), "id": live.run_id},
    )
    yield Execute(
        "update runs set priority = :priority, run_at = :run_at, updated_at = :now where id = :id",
        {"priority": priority, "run_at": run_at, "now": now, "id": live.run_id},
    )
    if publication.payload is not msgspec.UNSET:
        yield Execute("delete from inputs where run_id = :id", {"id": live.run_id})
        yield Execute(
            "insert into inputs (run_id, payload, overrides) values (:id, :payload, :overrides)",
            {
                "id": live.run_id,
                "payload": to_json(publication.payload),
                "overrides": None if publication.overrides is None else to_json(publication.overrides),
            },
        )
    return after
