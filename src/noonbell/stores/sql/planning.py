"""From slots to runs: take what is due, account for it, write it, move the cursor. One transaction for the lot. And from runs
that wait for their time to those that wait for a worker.

died before the commit   nothing is written; the cursor is still due, and another pass does it again
died after the commit    the runs are there and the cursor has moved; those slots are not planned again
two planners at once     each holds the cursors that it took; the other leaves those alone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import msgspec

from noonbell.clock import Instant, instant_of
from noonbell.engine import failpoint
from noonbell.model.calendar import QuietAction
from noonbell.model.event import is_event_only
from noonbell.model.request import Planned, Promoted
from noonbell.model.run import Origin, RunId, RunStatus, SkipReason
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.policy.account import Account, DueRun, Facts, account
from noonbell.policy.quiet import quiet_at
from noonbell.stores.sql import ids, keys, resting, rollups
from noonbell.stores.sql.active_runs import GateChanges, Place, RunFlag, due_place, note_skip_answers
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.finish import (
    after_birth,
    cancel_started,
    finish_event_only,
    follow,
    soft_delete,
    turn_held,
    turn_status,
)
from noonbell.stores.sql.insert_runs import NewRun, add_skip_reasons, insert_runs, load_facts
from noonbell.stores.sql.joins import JustEnded
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.rows import Known, TaskView, known_tasks
from noonbell.stores.sql.statement import Fetch, InsertMany, Now, UpdateMany, Work

DROPPED_COLUMNS = ("task_id", "first", "last", "count", "reason", "at")


@dataclass(slots=True)
class Accounted:
    """What a pass wrote, for the answer and for the events."""

    new_runs: list[NewRun] = field(default_factory=list)
    misfires: list[tuple[TaskId, int]] = field(default_factory=list)
    canceled: list[RunId] = field(default_factory=list)

    @property
    def born(self) -> list[NewRun]:
        return [new_run for new_run in self.new_runs if new_run.skip_reason is None]


def plan(
    q: Dialect, cache: TaskView, limit: int, cap: int, *, skip: bool = False, careful: bool = False
) -> Work[Planned]:
    now = yield Now()
    rows = yield Fetch(
        "select task_id, version, next_fire_at, fired, skip_next, accounted_to from cursors where next_fire_at <= :now"
        f" and not {PAUSED} order by next_fire_at limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    due: list[tuple[Known, Task]] = []
    tasks = yield from _known(q, cache, [(row[0], row[1]) for row in rows])
    for task_id, _, next_fire_at, fired, skip_next, accounted_to in rows:
        known = tasks[task_id]
        cursor = {"next_fire_at": next_fire_at, "fired": fired, "skip_next": skip_next, "accounted_to": accounted_to}
        due.append((known, msgspec.structs.replace(known.task, **cursor)))
    done = yield from account_for(q, cache, now, due, cap, skip=skip, careful=careful)
    following = yield Fetch(
        "select next_fire_at from cursors where next_fire_at > :now order by next_fire_at limit 1", {"now": now}
    )
    born = done.born
    if born:
        failpoint.hit("K1")
    return Planned(
        now=now,
        tasks=len(rows),
        born=len(born),
        skipped=len(done.new_runs) - len(born),
        dropped=sum(count for _, count in done.misfires),
        skips=tuple((n.task.id, n.skip_reason) for n in done.new_runs if n.skip_reason is not None),
        misfires=tuple(done.misfires),
        canceled=tuple(done.canceled),
        event_only=sum(is_event_only(new_run.task.spec) and new_run.run_at <= now for new_run in born),
        queues=tuple(sorted({new_run.task.spec.queue for new_run in born})),
        next_at=following[0][0] if following else None,
    )


def account_for(
    q: Dialect,
    cache: TaskView,
    now: Instant,
    due: Sequence[tuple[Known, Task]],
    cap: int,
    *,
    skip: bool = False,
    careful: bool = False,
    withheld: SkipReason | None = None,
) -> Work[Accounted]:
    """Account for every slot of these tasks up to now. Their cursors are held by the caller."""
    done = Accounted()
    if not due:
        return done
    facts = yield from load_facts(q, [task for _, task in due])
    cursors: list[tuple[int, int | None, int, int, int]] = []
    dropped: list[tuple[object, ...]] = []
    answers: dict[int, int] = {}
    replacing: list[int] = []
    completed: list[tuple[Task, bool]] = []
    for known, task in due:
        if known.schedule is None:
            # It could be read when it was saved. One such task must not stop the others, nor be tried for ever.
            yield from turn_status(q, cache, now, task, TaskStatus.ERROR, by="noonbell")
            continue
        result = account(task, known.schedule, facts.get(task.id, _AT_REST), now, cap, skip=skip, withheld=withheld)
        done.new_runs.extend(_new_runs(task, result))
        for gone in result.dropped:
            dropped.append((task.id, instant_of(gone.first), instant_of(gone.last), gone.count, gone.reason, now))
            done.misfires.append((task.id, gone.count))
        for outcome in result.outcomes:
            if isinstance(outcome, DueRun):
                if outcome.cancel_previous:
                    replacing.append(task.id)
            elif outcome.answers_run_id is not None:
                answers[task.id] = outcome.answers_run_id
        cursor = (result.next_fire_at, result.fired, result.skip_next, _last_slot(task, result))
        if result.completed:  # its cursor is written with its status
            has_run = any(isinstance(outcome, DueRun) for outcome in result.outcomes)
            completed.append((_moved(task, cursor), not has_run))
        else:
            cursors.append((task.id, *cursor))
    if careful:
        done.new_runs = yield from _not_born_yet(q, done.new_runs)
    for task_id in replacing:
        done.canceled.extend((yield from cancel_started(q, cache, now, task_id)))
    yield from insert_runs(q, cache, now, done.new_runs)
    yield from add_skip_reasons(q, done.new_runs)
    if dropped:
        yield InsertMany("dropped", DROPPED_COLUMNS, dropped)
        yield from rollups.note_dropped(now, done.misfires)
    yield from note_skip_answers(answers)
    if cursors:
        yield UpdateMany("cursors", "task_id", MOVED, sorted(cursors, key=itemgetter(0)))
    yield from _tell(done, dropped)
    yield from _complete(q, cache, now, completed)
    yield from after_birth(q, cache, now, done.new_runs)
    yield from follow(q, cache, now, [JustEnded(n.id, n.task.id) for n in done.new_runs if n.skip_reason is not None])
    return done


MOVED = ("next_fire_at", "fired", "skip_next", "accounted_to")
"""The columns of a cursor."""
_AT_REST = Facts()


def _moved(task: Task, cursor: tuple[int | None, int, int, int]) -> Task:
    return msgspec.structs.replace(task, **dict(zip(MOVED, cursor, strict=True)))


def cursor_of(task: Task) -> tuple[int | None, int, int, int]:
    return (task.next_fire_at, task.fired, task.skip_next, task.accounted_to)


def _last_slot(task: Task, result: Account) -> int:
    if result.accounted_to is not None:
        return max(task.accounted_to, result.accounted_to)
    slots = [outcome.slot for outcome in result.outcomes[-1:]] + [gone.last for gone in result.dropped[-1:]]
    return max((task.accounted_to, *(instant_of(slot) for slot in slots)))


def _known(q: Dialect, cache: TaskView, wanted: Sequence[tuple[int, int]]) -> Work[dict[int, Known]]:
    """By id and version: the cursor carries the version, so a known task costs no query."""
    found: dict[int, Known] = {}
    missing: list[int] = []
    for task_id, version in wanted:
        known = cache.get(task_id, version)  # type: ignore[arg-type]
        if known is None:
            missing.append(task_id)
        else:
            found[task_id] = known
    if missing:
        found.update((yield from known_tasks(q, cache, missing)))
    return found


def _new_runs(task: Task, result: Account) -> list[NewRun]:
    new_runs = []
    for outcome in result.outcomes:
        slot = instant_of(outcome.slot)
        moved_to = None if outcome.at is None else instant_of(outcome.at)
        if isinstance(outcome, DueRun):
            new_run = NewRun(
                task=task,
                origin=Origin.SCHEDULE,
                scheduled_time=slot,
                run_at=outcome.run_at,
                gated=outcome.gated or task.spec.rate_limit is not None,
                attempt=outcome.attempt_base,
                retry_of_run_id=outcome.retry_of_run_id,
                moved_to=moved_to,
                skip_reason=_quiet_skip(task, outcome.run_at),
            )
        else:
            new_run = NewRun(
                task=task,
                origin=Origin.SCHEDULE,
                scheduled_time=slot,
                run_at=moved_to or slot,
                skip_reason=outcome.reason,
                blocking_run_id=outcome.blocking_run_id,
                moved_to=moved_to,
            )
        new_runs.append(new_run)
    return new_runs


def _quiet_skip(task: Task, run_at: Instant) -> SkipReason | None:
    if not task.spec.quiet:
        return None
    quiet = quiet_at(task.spec.quiet, task.spec.timezone, run_at)
    return SkipReason.QUIET if quiet is not None and quiet.action is QuietAction.SKIP else None


def _not_born_yet(q: Dialect, new_runs: Sequence[NewRun]) -> Work[list[NewRun]]:
    """The slots that have no run yet: a cursor that was restored from a backup must not stop the pass."""
    if not new_runs:
        return []
    slots = sorted({new_run.scheduled_time for new_run in new_runs})
    rows = yield from ids.taken_slots(q, sorted({new_run.task.id for new_run in new_runs}), slots)
    taken = {(row[0], row[1]) for row in rows}
    return [new_run for new_run in new_runs if (new_run.task.id, new_run.scheduled_time) not in taken]


def _tell(done: Accounted, dropped: Sequence[tuple[object, ...]]) -> Work[None]:
    born, skipped = [], []
    for new_run in done.new_runs:
        if new_run.skip_reason is None:
            born.append((new_run.task.id, new_run.id, RunStatus.SCHEDULED))
        else:
            skipped.append((new_run.task.id, new_run.id, {"reason": new_run.skip_reason}))
    gone = [(row[0], None, {"first": row[1], "last": row[2], "count": row[3], "reason": row[4]}) for row in dropped]
    yield from tell_all({"run.scheduled": born, "run.skipped": skipped, "task.misfired": gone})


def _complete(q: Dialect, cache: TaskView, now: Instant, ended: Sequence[tuple[Task, bool]]) -> Work[None]:
    """The schedules are used up; each task comes with whether its last slots made no run.

    With nothing left to run, `delete_on_complete` is due at once.
    """
    if not ended:
        return
    ordered = sorted(ended, key=lambda each: each[0].id)
    turned = yield from turn_held(q, cache, now, [task for task, _ in ordered], TaskStatus.COMPLETED, by="noonbell")
    idle = [task for task, (_, alone) in zip(turned, ordered, strict=True) if alone and task.spec.delete_on_complete]
    rows = yield from q.fetch_by("select distinct task_id from live", "task_id", [task.id for task in idle])
    busy = {row[0] for row in rows}
    for task in idle:
        if task.id not in busy:
            yield from soft_delete(q, cache, now, task, by="noonbell")


def promote(q: Dialect, cache: TaskView, limit: int) -> Work[Promoted]:
    """Runs whose time has come wait for a worker now. Those whose quiet hours are over get the moment at which they go on."""
    now = yield Now()
    due = Fetch(
        f"select run_id, flags, gate, min_version from live where place = {int(Place.LATER)} and at <= :now"
        f" and not {PAUSED} order by at limit :limit{q.skip_locked}",
        {"now": now, "limit": limit},
    )
    rows = yield due
    if rested := [row[0] for row in rows if row[1] & RunFlag.AT_REST]:
        yield from resting.let_go(q, cache, now, rested)
        rows = [row for row in (yield due) if not row[1] & RunFlag.AT_REST]
    moved = []
    gates = GateChanges()
    for run_id, flags, gate, min_version in rows:
        place = due_place(flags, gate, min_version)
        moved.append((run_id, int(place), None))
        if gate is not None and place is not Place.HELD:
            (gates.waiting if place is Place.GATED else gates.passed)[gate] += 1
    if moved:
        yield UpdateMany("live", "run_id", ("place", "at"), moved)
        if keyed := [row[0] for row in rows if row[1] & RunFlag.KEYED]:
            yield from keys.come_due(q, cache, keyed, gates)
        yield from gates.write()
        yield from finish_event_only(q, cache, now, [row[0] for row in rows if row[1] & RunFlag.EVENT_ONLY])
    following = yield Fetch(f"select min(at) from live where place = {int(Place.LATER)} and at > :now", {"now": now})
    return Promoted(count=len(moved), next_at=following[0][0])
