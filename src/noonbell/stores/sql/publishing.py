"""Publish and spawn: runs that a caller or a running job asks for.

Publish: runs outside the schedule, with a key where the caller wants it to be asked for only once.

With `dedupe`:

    K27    died before the commit   nothing was made or changed; who asks again is heard as if for the first time
    K27:2  died after it            the run stands, with what was asked for; who asks again is answered with it

Spawn: a running attempt asks for children, under its token.

The position says which child it is: the n-th that the attempt asks for. An attempt that asks again, after it was parked or its
worker was lost, gets the child that is there. A retry of the job keeps the children that succeeded or are under way; one that
failed is made anew. A child that a retry kept is that retry's: if it fails afterwards, the attempt that resumes gets it as it is.

    K31  died before the commit   no child was made; the next attempt asks again
    K31  died after it            the next attempt gets the children that were made
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.errors import ConcurrencyLimit, InvalidState, LeaseLost, NotFound, Sentence
from noonbell.model.call import CALL, CALL_TYPE
from noonbell.model.request import Dedupe, IfFinished, Publication, PublishOutcome, PublishResult
from noonbell.model.run import (
    FINAL,
    MOST_CHILDREN,
    SUCCEEDED,
    ChildRequest,
    Origin,
    RunId,
    RunStatus,
    idempotency_key_of,
)
from noonbell.model.task import TaskStatus
from noonbell.model.task_schedule import NEVER
from noonbell.policy import dedupe
from noonbell.policy.account import Refuse, admit, needs_counts
from noonbell.policy.dedupe import Standing
from noonbell.policy.joins import root_of
from noonbell.stores.sql import finish, keys, sla
from noonbell.stores.sql import ids as run_ids
from noonbell.stores.sql.active_runs import GateChanges, Live, Place, RunFlag, gate_counts, load_active
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.finish import after_birth
from noonbell.stores.sql.insert_runs import NewRun, insert_runs, rate_key
from noonbell.stores.sql.keys import move
from noonbell.stores.sql.rows import Known, TaskView, from_json, json_or_null, known_tasks, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, UpdateMany, Work, delete, insert, update


@dataclass(slots=True)
class _Holder:
    """The run that a key belongs to."""

    run_id: RunId
    status: RunStatus
    live: Live | None
    new_run: NewRun | None = None
    """Born in this very batch: its id comes with its birth."""
    created_at: Instant = NEVER
    until: Instant | None = None
    """How long it holds off others: see `policy.dedupe`."""

    @property
    def standing(self) -> Standing:
        is_final = self.new_run is None and self.live is None and self.status in FINAL
        was_claimed = self.live is not None and self.live.was_claimed
        return Standing(self.created_at, is_final, was_claimed, self.until)

    @property
    def run_at(self) -> Instant | None:
        if self.new_run is not None:
            return self.new_run.run_at
        return None if self.live is None else Instant(self.live.run_at)

    @property
    def outcome(self) -> PublishOutcome:
        return PublishOutcome.RUNNING if self.live is not None and self.live.was_claimed else PublishOutcome.EXISTS


def publish(q: Dialect, cache: TaskView, publications: Sequence[Publication]) -> Work[list[PublishResult]]:
    tasks = yield from known_tasks(q, cache, [publication.task_id for publication in publications])
    check(tasks, publications)
    counts = yield from counts_of(q, tasks)
    holders = yield from _holders(q, publications)
    roots = yield from _roots(q, publications)
    now = yield Now()
    new_runs: list[NewRun] = []
    answers: list[PublishResult | tuple[NewRun, PublishOutcome]] = []
    freed: list[int] = []
    holding: list[tuple[NewRun, Instant]] = []
    for asked in publications:
        known = tasks[asked.task_id]
        name = (asked.task_id, asked.unique_key)
        holder = holders.get(name) if asked.unique_key is not None else None
        publication, until = asked, None
        if asked.dedupe is not None:
            publication, until, is_new = yield from _deduplicated(asked, asked.dedupe, holder, now)
        else:
            is_new = holder is None or _reruns(asked, holder)
        if holder is not None and not is_new:
            answers.append((yield from _existing(q, cache, known, now, publication, holder)))
            continue
        new_run = make(known, now, publication, counts)
        if isinstance(new_run, PublishResult):
            answers.append(new_run)
            continue
        new_run.root = roots.get(publication.retry_of_run_id)
        if name[1] is not None:
            if holder is not None:
                freed.append(holder.run_id)
            holders[name] = _Holder(RunId(0), RunStatus.SCHEDULED, None, new_run, now, until)
        if until is not None:
            holding.append((new_run, until))
        new_runs.append(new_run)
        answers.append((new_run, PublishOutcome.CREATED))
    if freed:
        yield from run_ids.forget(q, freed, ("live_key",))
        yield Execute(f"update runs set live_key = null where {q.ids('id', 'ids')}", {"ids": q.pack(freed)})
    yield from insert_runs(q, cache, now, new_runs)
    if holding:
        yield UpdateMany("runs", "id", ("dedupe_until",), [(new_run.id, until) for new_run, until in holding])
    yield from tell("run.scheduled", [(n.task.id, n.id, RunStatus.SCHEDULED) for n in new_runs])
    yield from finish.after_birth(q, cache, now, new_runs)
    if any(asked.dedupe is not None for asked in publications):
        failpoint.hit("K27")
    return [a if isinstance(a, PublishResult) else PublishResult(a[0].id, a[1]) for a in answers]


def _deduplicated(
    asked: Publication, rule: Dedupe, holder: _Holder | None, now: Instant
) -> Work[tuple[Publication, Instant | None, bool]]:
    """The publication as `dedupe` has it done, how long its run holds others off, and whether it makes one."""
    verdict = dedupe.decide(rule, None if holder is None else holder.standing, now)
    match verdict:
        case dedupe.Make(run_at, until):
            return msgspec.structs.replace(asked, run_at=run_at or asked.run_at), until, True
        case dedupe.Stand(until):
            if until is not None and holder is not None:
                holder.until = until
                if holder.new_run is None:
                    yield update("runs", {"id": holder.run_id}, dedupe_until=until)
            return asked, None, False
        case dedupe.Replace(run_at):
            at = run_at or (None if holder is None else holder.run_at)
            return msgspec.structs.replace(asked, run_at=at, update_waiting=True), None, False
        case _:
            assert_never(verdict)


def _roots(q: Dialect, publications: Sequence[Publication]) -> Work[dict[int | None, str]]:
    """What the runs go back to that are done again."""
    again = [p.retry_of_run_id for p in publications if p.retry_of_run_id is not None]
    rows = yield from q.fetch_by("select id, origin, scheduled_time, root from runs", "id", again)
    return {row[0]: root_of(row[0], Origin(row[1]), *row[2:]) for row in rows}


def check(tasks: dict[int, Known], publications: Sequence[Publication]) -> None:
    for publication in publications:
        known = tasks.get(publication.task_id)
        if known is None or known.task.deleted_at is not None:
            raise NotFound(Sentence("there is no task {task}", task=publication.task_id))
        if known.task.status is TaskStatus.ERROR:
            raise InvalidState(
                Sentence("task {task} is in ERROR; reset it before it can run again", task=repr(known.task.name))
            )
        if known.task.spec.job_type == CALL_TYPE and CALL not in (publication.overrides or {}):
            raise InvalidState(f"task {known.task.name!r} is for calls: POST /api/v1/calls makes a run of it")


def make(known: Known, now: Instant, publication: Publication, counts: dict[int, list[int]]) -> NewRun | PublishResult:
    """The run that a publication asks for, or the refusal of a task at its limit."""
    task, spec = known.task, known.task.spec
    run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    occupied, waiting = counts.get(task.id, (0, 0))
    admitted = admit(spec, occupied, waiting)
    if isinstance(admitted, Refuse):
        return PublishResult(None, PublishOutcome.REFUSED, str(admitted.reason))
    if task.id in counts and run_at <= now:
        counts[task.id] = [occupied + 1, waiting + 1]
    return NewRun(
        task=task,
        origin=publication.origin,
        scheduled_time=publication.scheduled_time or now,
        run_at=max(run_at, now) if publication.run_at is None else run_at,
        gated=admitted.gated or spec.rate_limit is not None,
        key=publication.unique_key,
        priority=publication.priority,
        payload=publication.payload,
        overrides=publication.overrides,
        workers=publication.specific_worker_ids,
        retry_of_run_id=publication.retry_of_run_id,
        trace_id=publication.trace_id,
        expires_in_seconds=publication.expires_in_seconds,
        wanted_by=publication.expires_at,
    )


def counts_of(q: Dialect, tasks: dict[int, Known]) -> Work[dict[int, list[int]]]:
    """(occupied, waiting) of the tasks whose policy asks for it, their gates held."""
    ids = [task_id for task_id, known in tasks.items() if needs_counts(known.task.spec)]
    counts = yield from gate_counts(q, ids)
    return {task_id: [used + waiting, waiting] for task_id, (used, waiting) in counts.items()}


def _holders(q: Dialect, publications: Sequence[Publication]) -> Work[dict[tuple[int, str | None], _Holder]]:
    keyed = [publication for publication in publications if publication.unique_key is not None]
    if not keyed:
        return {}
    which = f"{q.ids('task_id', 'tasks')} and {q.names('live_key', 'keys')}"
    first = f"{run_ids.without_run('live_keys', which)} " if q.has_partitions else ""
    rows = yield Fetch(
        f"{first}select id, task_id, live_key, status, created_at, dedupe_until from runs where {which}{q.lock}",
        {
            "tasks": q.pack(sorted({publication.task_id for publication in keyed})),
            "keys": q.pack(sorted({str(publication.unique_key) for publication in keyed})),
        },
    )
    living = yield from load_active(q, [row[0] for row in rows if row[3] not in FINAL])
    return {
        (task_id, key): _Holder(RunId(run_id), RunStatus(status), living.get(run_id), None, created_at, until)
        for run_id, task_id, key, status, created_at, until in rows
    }


def _reruns(publication: Publication, holder: _Holder) -> bool:
    if holder.live is not None or holder.new_run is not None or holder.status not in FINAL:
        return False
    succeeded = holder.status in SUCCEEDED
    return (
        publication.if_finished is IfFinished.RERUN
        or (publication.if_finished is IfFinished.RERUN_FAILED and not succeeded)
        or (publication.if_finished is IfFinished.RERUN_SUCCEEDED and succeeded)
    )


def _existing(
    q: Dialect, cache: TaskView, known: Known, now: Instant, publication: Publication, holder: _Holder
) -> Work[PublishResult | tuple[NewRun, PublishOutcome]]:
    if holder.new_run is not None:
        if not publication.update_waiting:
            return holder.new_run, PublishOutcome.EXISTS
        _update_new_run(holder.new_run, now, publication)
        return holder.new_run, PublishOutcome.UPDATED
    live = holder.live
    if publication.update_waiting and live is not None and not live.was_claimed:
        holder.live = yield from _update_waiting(q, cache, known, now, publication, live)
        return PublishResult(holder.run_id, PublishOutcome.UPDATED)
    return PublishResult(holder.run_id, holder.outcome)


def _update_new_run(new_run: NewRun, now: Instant, publication: Publication) -> None:
    new_run.run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    new_run.priority = publication.priority
    new_run.expires_in_seconds = publication.expires_in_seconds
    if publication.payload is not msgspec.UNSET:
        new_run.payload = publication.payload
    if _brings_input(publication):
        new_run.overrides = publication.overrides


def _brings_input(publication: Publication) -> bool:
    """Whether what the run is carried out with is the publication's; else it stays the run's."""
    return publication.payload is not msgspec.UNSET or publication.overrides is not None


def _payload_text(publication: Publication, live: Live) -> Work[str | None]:
    """The payload of the run once the publication has changed it, as `inputs` has it; None: that of the task."""
    if publication.payload is not msgspec.UNSET:
        return to_json(publication.payload)
    rows = yield Fetch("select payload from inputs where run_id = :run", {"run": live.run_id})
    return rows[0][0] if rows else None


def _expire_anew(q: Dialect, known: Known, publication: Publication, run_at: Instant, live: Live) -> Work[Live]:
    """The run is due at another time, and so expires at another."""
    given = publication.expires_in_seconds
    seconds = known.task.spec.expires_in_seconds if given is None else given
    at = None if seconds is None else Instant(run_at + seconds * SECOND)
    yield from q.delete_by("expiries", "run_id", [live.run_id])
    if at is not None:
        yield insert("expiries", run_id=live.run_id, at=at)
    yield update("runs", {"id": live.run_id}, expires_at=at)
    return live._replace(flags=live.flags & ~RunFlag.EXPIRES | (0 if at is None else RunFlag.EXPIRES))


def _update_waiting(
    q: Dialect, cache: TaskView, known: Known, now: Instant, publication: Publication, live: Live
) -> Work[Live]:
    """It leaves the line of its key and joins that of the one which it has now; they may be the same."""
    spec = known.task.spec
    run_at = publication.run_at or Instant(now + round(publication.delay_seconds * SECOND))
    priority = spec.priority if publication.priority is None else publication.priority
    is_later = run_at > now
    before, live = live, (yield from _expire_anew(q, known, publication, run_at, live))
    key = yield from keys.leave(q, cache, before)
    payload_text = yield from _payload_text(publication, live)
    payload = spec.payload if payload_text is None else from_json(payload_text)
    if _brings_input(publication):
        key = keys.key_of(spec, payload, publication.overrides)
    after = live._replace(flags=live.flags & ~RunFlag.KEYED | (0 if key is None else RunFlag.KEYED))
    after = after._replace(place=int(Place.LATER if is_later else after.due_place), at=run_at if is_later else None)
    yield from move(q, cache, [(live._replace(flags=live.flags & ~RunFlag.KEYED), after)])
    rated_by = live.rate_key if live.flags & RunFlag.RATED else rate_key(spec, payload)
    yield update("live", {"run_id": live.run_id}, turn=-priority, run_at=run_at, rate_key=rated_by)
    yield update("runs", {"id": live.run_id}, priority=priority, run_at=run_at, updated_at=now)
    yield from sla.watch_anew(cache, known.task, live.run_id, publication.origin, run_at, now)
    if _brings_input(publication):
        yield delete("inputs", run_id=live.run_id)
        given = {"payload": payload_text, "overrides": json_or_null(publication.overrides)}
        yield insert("inputs", run_id=live.run_id, **given)
    if key is not None:
        gates = GateChanges()
        entry = keys.Entry(live.run_id, live.task_id, key, spec.max_per_key, -priority, run_at, not is_later)
        yield from keys.enter(q, cache, [entry], gates)
        yield from gates.write()
        after = (yield from load_active(q, [live.run_id]))[live.run_id]
    return after


def spawn(
    q: Dialect, cache: TaskView, run_id: RunId, token: int, requests: Sequence[ChildRequest]
) -> Work[list[RunId]]:
    """The run of each request."""
    live = (yield from load_active(q, [run_id])).get(run_id)
    if live is None or live.place != Place.LEASED or live.token != token:
        raise LeaseLost(f"run {run_id} is no longer held with this token")
    _check_spawn(live, requests)
    tasks = yield from _child_tasks(q, cache, requests)
    there = yield from _children_there(q, run_id, requests)
    made: dict[int, NewRun] = {}
    kept: list[int] = []
    answers: list[RunId | NewRun] = []
    now = yield Now()
    counts = yield from counts_of(q, {known.task.id: known for known in tasks.values()})
    parent = yield from _parent(run_id)
    for request in requests:
        child = there.get(request.position)
        if child is not None:
            _check_same(request, tasks[request.task], child)
            is_of_before = child.retry_count < live.retry_count
            if not (is_of_before and child.status in FINAL and child.status not in SUCCEEDED):
                answers.append(child.run_id)
                if is_of_before:
                    kept.append(request.position)
                continue
        new_run = _new_child(tasks[request.task], now, request, counts)
        new_run.parent_id, new_run.parent_key = run_id, parent[0]
        new_run.child = (request.position, live.retry_count)
        new_run.trace_id = request.trace_id or parent[1]
        made[request.position] = new_run
        answers.append(new_run)
    if kept:
        yield Execute(
            f"update children set retry_count = :retry_count where run_id = :id and {q.ids('position', 'positions')}",
            {"id": run_id, "retry_count": live.retry_count, "positions": q.pack(sorted(kept))},
        )
    if made:
        yield from _write_children(q, cache, now, live, made, [position for position in made if position in there])
    return [answer.id if isinstance(answer, NewRun) else answer for answer in answers]


class _Child(msgspec.Struct):
    run_id: RunId
    retry_count: int
    task_id: int | None
    status: RunStatus
    payload: Any


def _check_spawn(live: Live, requests: Sequence[ChildRequest]) -> None:
    if live.flags & RunFlag.ONCE:
        raise InvalidState(
            "a job with delivery at_most_once cannot spawn: it would have to be attempted again to get the results"
        )
    if max(request.position for request in requests) >= MOST_CHILDREN:
        raise InvalidState(f"a run spawns at most {MOST_CHILDREN} children")


def _child_tasks(q: Dialect, cache: TaskView, requests: Sequence[ChildRequest]) -> Work[dict[str, Known]]:
    names = sorted({request.task for request in requests})
    rows = yield Fetch(
        f"select live_name, id from tasks where {q.names('live_name', 'names')}", {"names": q.pack(names)}
    )
    ids = dict(rows)
    missing = [name for name in names if name not in ids]
    if missing:
        raise NotFound(f"there is no task {missing[0]!r} for what the job spawns")
    known = yield from known_tasks(q, cache, list(ids.values()))
    check(known, [Publication(task_id=task_id) for task_id in ids.values()])
    return {name: known[task_id] for name, task_id in ids.items()}


def _children_there(q: Dialect, run_id: RunId, requests: Sequence[ChildRequest]) -> Work[dict[int, _Child]]:
    rows = yield Fetch(
        "select c.position, c.child_id, c.retry_count, r.task_id, r.status, i.payload from children c"
        " left join runs r on r.id = c.child_id left join inputs i on i.run_id = c.child_id"
        f" where c.run_id = :id and {q.ids('c.position', 'positions')}",
        {"id": run_id, "positions": q.pack(sorted({request.position for request in requests}))},
    )
    return {
        position: _Child(
            run_id=RunId(child_id),
            retry_count=retry_count,
            task_id=task_id,
            status=RunStatus(status or RunStatus.FAILED),
            payload=msgspec.UNSET if payload is None else from_json(payload),
        )
        for position, child_id, retry_count, task_id, status, payload in rows
    }


def _check_same(request: ChildRequest, known: Known, child: _Child) -> None:
    if child.task_id is None:
        raise InvalidState(f"spawn {request.position + 1} is run {child.run_id}, which is no longer kept")
    if child.task_id != known.task.id:
        what = f"and was a run of another job (run {child.run_id})"
    elif child.payload != request.payload:
        what = f"with another payload than before (run {child.run_id})"
    else:
        return
    raise InvalidState(
        f"spawn {request.position + 1} is {request.task} now, {what}; a resumed job must spawn the same runs in the"
        " same order"
    )


def _new_child(known: Known, now: Instant, request: ChildRequest, counts: dict[int, list[int]]) -> NewRun:
    asked = Publication(
        task_id=known.task.id,
        origin=Origin.SPAWN,
        payload=request.payload,
        delay_seconds=request.delay_seconds,
        run_at=request.run_at,
        priority=request.priority,
        specific_worker_ids=request.specific_worker_ids,
    )
    made = make(known, now, asked, counts)
    if isinstance(made, PublishResult):
        raise ConcurrencyLimit(f"task {known.task.name!r} is at its limit and accepts no more runs ({made.reason})")
    return made


def _parent(run_id: RunId) -> Work[tuple[str, str | None]]:
    """Its idempotency key and its trace."""
    rows = yield Fetch("select scheduled_time, idempotency_key, trace_id from runs where id = :id", {"id": run_id})
    scheduled_time, key, trace_id = rows[0]
    return idempotency_key_of(run_id, scheduled_time, key), trace_id


def _write_children(
    q: Dialect, cache: TaskView, now: Instant, live: Live, made: Mapping[int, NewRun], again: Sequence[int]
) -> Work[None]:
    """`again`: positions whose child is made anew."""
    if not live.flags & RunFlag.SPAWNER:
        yield InsertMany("gathers", ("run_id", "executed"), [(live.run_id, 0)])
        yield UpdateMany("live", "run_id", ("flags",), [(live.run_id, live.flags | RunFlag.SPAWNER)])
    new_runs = list(made.values())
    yield from insert_runs(q, cache, now, new_runs)
    if again:
        yield Execute(
            f"delete from children where run_id = :id and {q.ids('position', 'positions')}",
            {"id": live.run_id, "positions": q.pack(sorted(again))},
        )
    rows = [(live.run_id, position, new_run.id, live.retry_count) for position, new_run in made.items()]
    yield InsertMany("children", ("run_id", "position", "child_id", "retry_count"), rows)
    cache.step_queues |= {new_run.task.spec.queue for new_run in new_runs}
    told = {"status": RunStatus.SCHEDULED, "parent_id": live.run_id}
    yield from tell("run.scheduled", [(new_run.task.id, new_run.id, told) for new_run in new_runs])
    yield from after_birth(q, cache, now, new_runs)
    failpoint.hit("K31")
