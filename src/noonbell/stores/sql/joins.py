"""What follows when runs end: runs of the tasks that come after theirs, and the joins that wait for several of them.

Everything here happens in the transaction in which a run becomes final, or in the sweep's. Which tasks follow is looked up
then, in `edges`, and is never remembered. The cursor of a task that follows is held before its joins are read, so two
upstreams that end at the same moment take turns, and one of them completes the join. Locks are taken in this order: the
narrow rows of runs, the cursors of tasks by id, joins.

died before the commit (K17)   the upstream's run is not final either; its settlement is repeated, or its lease runs out
died after it (K18)            the run that follows is there without a signal; a worker finds it by its poll
two upstreams at once          the second waits for the first, and finds the join as the first has left it
more than MOST_FOLLOWING       the rest has a row in `unfollowed`; the sweep takes it up, on any node

Who follows whom: the upstreams that a task names in `after`, found by name, checked for cycles, and written as edges.

Saving an edge holds the cursors of the task and of everything before it. So of two callers that would close a cycle together
one waits for the other, or the database breaks their deadlock, and the second sees what the first has saved. The unfinished
runs of a new upstream are marked: a settlement that is under way at the same moment either commits before the edge does, or
finds the mark and looks the edge up. So every run that becomes final after the commit of an edge has its follower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.engine import failpoint
from noonbell.errors import InvalidArgument, InvalidState, Sentence
from noonbell.model.call import CALL_TYPE
from noonbell.model.run import Origin, RunId, RunStatus, trace_id_of
from noonbell.model.task import Task, TaskId, TaskSpec, TaskStatus
from noonbell.model.task_schedule import After, Arrival, Follower, Join, JoinState, Upstream, UpstreamOutcome
from noonbell.policy import joins as policy
from noonbell.policy.account import DueRun, Facts, Skip, decide_slot
from noonbell.policy.joins import FinalRun, closed_path
from noonbell.stores.sql.active_runs import STARTED, RunFlag, note_skip_answers
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.insert_runs import NewRun, add_skip_reasons, insert_runs, load_facts
from noonbell.stores.sql.rows import Record, TaskView, known_tasks
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, UpdateMany, Work

FOLLOWS = (TaskStatus.ENABLED, TaskStatus.COMPLETED)
"""A task follows others while it has one of these: a schedule that is used up says nothing about `after`."""

_JOIN = Record(Join, without=("arrivals",))
_ARRIVAL = Record(Arrival)
_CHANGED = ("root", "state", "due_at", "run_id")


class JustEnded(NamedTuple):
    """A run that has just become final, and whose row in `runs` says how."""

    run_id: int
    task_id: int
    replaced: bool = False
    done_to: int = 0
    """The followers up to this task are written already."""
    at: Instant | None = None
    """When it became final, where that was in an earlier transaction: what was saved since does not follow it."""


class _Edge(NamedTuple):
    task_id: int
    version: int
    saved_at: int


@dataclass(slots=True)
class Followed:
    new_runs: list[NewRun] = field(default_factory=list)
    replacing: list[int] = field(default_factory=list)
    """Tasks whose started runs are to be canceled for the new one: overlap_action CANCEL_PREV."""

    @property
    def skipped(self) -> list[JustEnded]:
        """What has become final by this: it may have followers of its own."""
        return [JustEnded(n.id, n.task.id) for n in self.new_runs if n.skip_reason is not None]


@dataclass(slots=True)
class _Wait:
    """A join in this transaction."""

    join: Join
    task: Task
    is_new: bool
    completed_by: FinalRun | None = None
    new_run: NewRun | None = None


def follow(q: Dialect, cache: TaskView, now: Instant, finals: Sequence[JustEnded]) -> Work[Followed]:
    """Bring final runs to the tasks that follow theirs. Runs that are parts of others have no followers."""
    edges = yield from _edges(q, {final.task_id for final in finals})
    followed = [final for final in finals if final.task_id in edges]
    if not followed:
        return Followed()
    tasks = yield from known_tasks(q, cache, {edge.task_id for final in followed for edge in edges[final.task_id]})
    specs = {task_id: known.task for task_id, known in tasks.items()}
    runs = yield from _final_runs(q, followed)
    pairs = [
        (final, runs[final.run_id], edge.task_id)
        for final in sorted(followed)
        if final.run_id in runs
        for edge in edges[final.task_id]
        if edge.task_id > final.done_to
        and (final.at is None or edge.saved_at <= final.at)
        and _may_follow(specs.get(edge.task_id), runs[final.run_id])
    ]
    now_due = yield from _within_the_limit(cache, now, pairs)
    if not now_due:
        return Followed()
    return (yield from _arrive(q, cache, now, now_due))


def _edges(q: Dialect, task_ids: Collection[int]) -> Work[dict[int, list[_Edge]]]:
    """By upstream, in the order of the tasks that follow."""
    rows = yield from q.fetch_by(
        "select upstream_id, task_id, version, saved_at from edges", "upstream_id", task_ids, " order by task_id"
    )
    found: dict[int, list[_Edge]] = defaultdict(list)
    for upstream_id, *edge in rows:
        found[upstream_id].append(_Edge(*edge))
    return found


def _final_runs(q: Dialect, finals: Sequence[JustEnded]) -> Work[dict[int, FinalRun]]:
    rows = yield from q.fetch_by(
        "select id, task_id, status, origin, scheduled_time, root, trace_id from runs",
        "id",
        [final.run_id for final in finals],
        " and parent_id is null",
    )
    replaced = {final.run_id for final in finals if final.replaced}
    found: dict[int, FinalRun] = {}
    for run_id, task_id, status, said, scheduled_time, root, trace_id in rows:
        origin = Origin(said)
        found[run_id] = FinalRun(
            run_id=run_id,
            task_id=task_id,
            status=RunStatus(status),
            root=policy.root_of(run_id, origin, scheduled_time, root),
            scheduled_time=scheduled_time,
            origin=origin,
            replaced=run_id in replaced,
            trace_id=trace_id_of(run_id, scheduled_time, trace_id),
        )
    return found


def _may_follow(task: Task | None, run: FinalRun) -> bool:
    return (
        task is not None
        and task.deleted_at is None
        and task.status in FOLLOWS
        and task.spec.after is not None
        and policy.matters(task.spec.after, run)
    )


_Pair = tuple[JustEnded, FinalRun, int]


def _within_the_limit(cache: TaskView, now: Instant, pairs: Sequence[_Pair]) -> Work[list[_Pair]]:
    """As many as this transaction may still write; of the others, a row for each run says how far it is."""
    taken, left = list(pairs[: cache.may_follow]), pairs[cache.may_follow :]
    cache.may_follow -= len(taken)
    done_to = {final.run_id: task_id for final, _, task_id in taken}
    rest: dict[int, tuple[Any, ...]] = {}
    for final, _, _ in left:
        done = done_to.get(final.run_id, final.done_to)
        rest[final.run_id] = (final.run_id, done, int(final.replaced), final.at or now)
    if rest:
        yield InsertMany("unfollowed", ("run_id", "done_to", "replaced", "at"), list(rest.values()))
    return taken


def _arrive(q: Dialect, cache: TaskView, now: Instant, pairs: Sequence[_Pair]) -> Work[Followed]:
    tasks, versions = yield from _hold(q, cache, pairs)
    arriving = [(run, tasks[task_id]) for _, run, task_id in pairs if (run.task_id, task_id) in versions]
    arriving = [(run, task) for run, task in arriving if _may_follow(task, run)]
    newest = yield from _newest(q, arriving, versions)
    waits: list[_Wait] = []
    standing: dict[tuple[int, int, str], _Wait] = {}
    for run, task in arriving:
        after = _after(task)
        key = (task.id, versions[run.task_id, task.id], policy.join_root(after, run))
        wait = standing.get(key)
        step = policy.arrive(after, newest.get(key) if wait is None else wait.join, run)
        if step is None:
            continue
        if step.is_new:
            wait = _Wait(_opened(now, task, key, run, step), task, is_new=True)
            waits.append(wait)
        elif wait is None:
            wait = _Wait(newest[key], task, is_new=False)
            waits.append(wait)
        wait.join = msgspec.structs.replace(wait.join, arrivals=step.arrivals)
        standing[key] = wait
        if step.is_complete:
            wait.completed_by = run
            wait.join = msgspec.structs.replace(wait.join, state=JoinState.DONE, due_at=None)
            if key[2] == policy.NEXT:  # the next arrival opens another
                newest.pop(key, None)
                del standing[key]
    return (yield from _write(q, cache, now, waits))


def _hold(
    q: Dialect, cache: TaskView, pairs: Sequence[_Pair]
) -> Work[tuple[dict[int, Task], dict[tuple[int, int], int]]]:
    """The tasks that follow, their cursors held; and the version of each edge as it is now, by upstream and follower."""
    ids = {task_id for _, _, task_id in pairs}
    yield from hold_cursors(q, ids)
    known = yield from known_tasks(q, cache, ids)
    edges = yield from _edges(q, {run.task_id for _, run, _ in pairs})
    versions = {
        (upstream_id, edge.task_id): edge.version
        for upstream_id, listed in edges.items()
        for edge in listed
        if edge.task_id in known
    }
    return {task_id: one.task for task_id, one in known.items()}, versions


def _newest(
    q: Dialect, arriving: Sequence[tuple[FinalRun, Task]], versions: Mapping[tuple[int, int], int]
) -> Work[dict[tuple[int, int, str], Join]]:
    """Of each root that something arrives for, the join with the highest redrive."""
    roots = {policy.join_root(_after(task), run) for run, task in arriving}
    if not roots:
        return {}
    found = yield from load_joins(
        q,
        f"{q.ids('task_id', 'tasks')} and {q.names('root', 'roots')} order by redrive",
        tasks=q.pack(sorted({task.id for _, task in arriving})),
        roots=q.pack(sorted(roots)),
    )
    current = {(task_id, version) for (_, task_id), version in versions.items()}
    return {
        (join.task_id, join.edge_version, join.root): join
        for join in found
        if (join.task_id, join.edge_version) in current
    }


def load_joins(q: Dialect, condition: str, **params: Any) -> Work[list[Join]]:
    rows = yield Fetch(f"select {_JOIN.select()} from joins where {condition}", params)
    joins = [_JOIN.read(row) for row in rows]
    rows = yield from q.fetch_by(
        f"select join_id, {_ARRIVAL.select()} from join_runs",
        "join_id",
        [join.id for join in joins],
        " order by upstream_id",
    )
    arrivals: dict[int, list[Arrival]] = defaultdict(list)
    for row in rows:
        arrivals[row[0]].append(_ARRIVAL.read(row[1:]))
    return [msgspec.structs.replace(join, arrivals=tuple(arrivals[join.id])) for join in joins]


def joins(q: Dialect, task_id: TaskId, root: str | None = None, limit: int = 10) -> Work[list[Join]]:
    if root is None:
        which, here = "due_at is not null order by id desc", {}
    else:
        which, here = "root = :root order by edge_version desc, redrive desc", {"root": root}
    return (yield from load_joins(q, f"task_id = :task and {which} limit :limit", task=task_id, limit=limit, **here))


def joins_of_run(q: Dialect, run_id: RunId, limit: int = 100) -> Work[list[Join]]:
    rows = yield Fetch(
        "select join_id from join_runs where run_id = :run order by join_id desc limit :limit",
        {"run": run_id, "limit": limit},
    )
    ids = [row[0] for row in rows]
    if not ids:
        return []
    return (yield from load_joins(q, f"{q.ids('id', 'ids')} order by id desc", ids=q.pack(ids)))


def open_joins() -> Work[int]:
    rows = yield Fetch("select count(*) from joins where due_at is not null")
    return int(rows[0][0])


def _after(task: Task) -> After:
    assert task.spec.after is not None  # noqa: S101 - `_may_follow` has looked
    return task.spec.after


def _opened(now: Instant, task: Task, key: tuple[int, int, str], run: FinalRun, step: policy.JoinStep) -> Join:
    return Join(
        id=0,
        task_id=task.id,
        root=key[2],
        edge_version=key[1],
        redrive=step.redrive,
        state=JoinState.OPEN,
        first_at=now,
        due_at=Instant(now + _after(task).within_seconds * SECOND),
        scheduled_time=run.scheduled_time,
    )


def _write(q: Dialect, cache: TaskView, now: Instant, waits: Sequence[_Wait]) -> Work[Followed]:
    followed = yield from _make_runs(q, cache, now, [wait for wait in waits if wait.completed_by is not None])
    new_ids = iter((yield NewIds(count)) if (count := sum(wait.is_new for wait in waits)) else ())
    for wait in waits:
        id_ = next(new_ids) if wait.is_new else wait.join.id
        ended_by = None if wait.completed_by is None else wait.completed_by.run_id
        root = wait.join.root if ended_by is None else policy.root_when_over(id_, wait.join.root, ended_by)
        run_id = None if wait.new_run is None else wait.new_run.id
        wait.join = msgspec.structs.replace(wait.join, id=id_, root=root, run_id=run_id)
    # One that is over gives its place up before the next one of its task takes it: both may be in this transaction.
    yield from write_joins(q, [wait.join for wait in waits if not wait.is_new], is_new=False)
    yield from write_joins(q, [wait.join for wait in waits if wait.is_new], is_new=True)
    yield from _write_arrivals(q, waits)
    if followed.new_runs:
        failpoint.hit("K17")
    return followed


def write_joins(q: Dialect, joins: Sequence[Join], *, is_new: bool) -> Work[None]:
    del q
    if not joins:
        return
    if is_new:
        yield InsertMany("joins", _JOIN.columns, [_JOIN.row(join) for join in joins])
    else:
        rows = [(join.id, *(getattr(join, column) for column in _CHANGED)) for join in joins]
        yield UpdateMany("joins", "id", _CHANGED, rows)


def _write_arrivals(q: Dialect, waits: Sequence[_Wait]) -> Work[None]:
    yield from q.delete_by("join_runs", "join_id", [wait.join.id for wait in waits if not wait.is_new])
    rows = [(wait.join.id, *_ARRIVAL.row(arrival)) for wait in waits for arrival in wait.join.arrivals]
    if rows:
        yield InsertMany("join_runs", ("join_id", *_ARRIVAL.columns), rows)


def _make_runs(q: Dialect, cache: TaskView, now: Instant, complete: Sequence[_Wait]) -> Work[Followed]:
    """One run for each join that is complete, if the policies of its task let it be; else one that is skipped."""
    followed = Followed()
    if not complete:
        return followed
    facts = yield from load_facts(q, [wait.task for wait in complete])
    answers: dict[int, int] = {}
    for wait in complete:
        # Decided by the time that it is now: the slot that it goes back to may have passed long ago.
        outcome, facts[wait.task.id] = decide_slot(wait.task, slot_of(now), facts.get(wait.task.id, Facts()))
        wait.new_run = _new_run(now, wait, outcome)
        followed.new_runs.append(wait.new_run)
        if isinstance(outcome, Skip):
            if outcome.answers_run_id is not None:
                answers[wait.task.id] = outcome.answers_run_id
        elif outcome.cancel_previous:
            followed.replacing.append(wait.task.id)
    yield from insert_runs(q, cache, now, followed.new_runs)
    yield from add_skip_reasons(q, followed.new_runs)
    yield from note_skip_answers(answers)
    yield from tell_births(followed.new_runs)
    cache.note_followers([n.task.spec.queue for n in followed.new_runs if n.skip_reason is None], len(complete))
    return followed


def _new_run(now: Instant, wait: _Wait, outcome: DueRun | Skip) -> NewRun:
    run, join = wait.completed_by, wait.join
    assert run is not None  # noqa: S101 - only a complete join makes one
    new_run = NewRun(
        task=wait.task,
        origin=Origin.UPSTREAM,
        scheduled_time=run.scheduled_time,
        run_at=now,
        trace_id=run.trace_id,
        root=run.root,
        upstream_run_ids=tuple(arrival.run_id for arrival in join.arrivals if arrival.fills),
        join=(policy.root_when_over(join.id, join.root, run.run_id), join.edge_version, join.redrive),
    )
    if isinstance(outcome, Skip):
        new_run.skip_reason, new_run.blocking_run_id = outcome.reason, outcome.blocking_run_id
        return new_run
    new_run.run_at = Instant(now + outcome.run_at - instant_of(outcome.slot))  # with the task's jitter
    new_run.gated = outcome.gated or wait.task.spec.rate_limit is not None
    new_run.attempt, new_run.retry_of_run_id = outcome.attempt_base, outcome.retry_of_run_id
    return new_run


def tell_births(new_runs: Iterable[NewRun], **more: Any) -> Work[None]:
    """`more`: for the events of those that are skipped."""
    born: list[tuple[Any, ...]] = []
    skipped: list[tuple[Any, ...]] = []
    for new_run in new_runs:
        if new_run.skip_reason is None:
            born.append((new_run.task.id, new_run.id, RunStatus.SCHEDULED))
        else:
            skipped.append((new_run.task.id, new_run.id, {"reason": new_run.skip_reason, **more}))
    yield from tell_all({"run.scheduled": born, "run.skipped": skipped})


def disable_joins(q: Dialect, task_ids: Sequence[int]) -> Work[None]:
    """These tasks do not follow any longer: what they waited for ends without a run."""
    joins = yield from load_joins(q, f"{q.ids('task_id', 'tasks')} and due_at is not null", tasks=q.pack(task_ids))
    ended = [
        msgspec.structs.replace(
            join, state=JoinState.DISABLED, due_at=None, root=policy.root_when_over(join.id, join.root, None)
        )
        for join in joins
    ]
    yield from write_joins(q, ended, is_new=False)


def close_joins(q: Dialect, now: Instant, task_ids: Sequence[int]) -> Work[None]:
    """`after` of these tasks has changed: the sweep ends what waits under its earlier version."""
    yield Execute(
        f"update joins set due_at = :now where {q.ids('task_id', 'tasks')} and due_at is not null",
        {"now": now, "tasks": q.pack(task_ids)},
    )


_NAMED_AT_MOST = 5
"""Followers that an error names."""


def resolve(
    q: Dialect, wanted: Sequence[tuple[TaskSpec, TaskSpec | None]], own: Mapping[str, int]
) -> Work[list[TaskSpec | InvalidArgument]]:
    """Each spec with the ids of its upstreams, or what is wrong with them; each comes with the spec that it replaces.

    `own` are the names that tasks of the same call have or get. The cursors of the upstreams are held from here on, so that none
    is deleted meanwhile. An upstream that stays is not checked again: it may be gone since.
    """
    changed = [new.after for new, old in wanted if new.after is not None and (old is None or new.after != old.after)]
    if not changed:
        return [new for new, _ in wanted]
    listed = [upstream.task for after in changed for upstream in after.tasks]
    names = sorted({name for name in listed if isinstance(name, str) and name not in own})
    ids = {id_ for id_ in listed if isinstance(id_, int)} - set(own.values())
    known = dict(own)
    if names:
        rows = yield Fetch(
            f"select live_name, id from tasks where {q.names('live_name', 'names')}", {"names": q.pack(names)}
        )
        known |= {row[0]: row[1] for row in rows}
        ids |= {row[1] for row in rows}
    yield from hold_cursors(q, ids)
    rows = yield from q.fetch_by("select id, job_type from tasks", "id", ids, " and deleted_at is null")
    there = {row[0] for row in rows} | set(own.values())
    of_calls = {id_ for id_, job_type in rows if job_type == CALL_TYPE}
    return [
        _resolved(new, known, there | _upstreams_of(old), of_calls - _upstreams_of(old))
        if new.after is not None and (old is None or new.after != old.after)
        else new
        for new, old in wanted
    ]


def _upstreams_of(spec: TaskSpec | None) -> set[int]:
    return set() if spec is None or spec.after is None else set(spec.after.upstream_ids)


def hold_cursors(q: Dialect, task_ids: Iterable[int]) -> Work[None]:
    """Until the transaction ends, always in the same order."""
    yield from q.fetch_by("select task_id from cursors", "task_id", task_ids, f" order by task_id{q.lock}")


def _resolved(
    spec: TaskSpec, known: Mapping[str, int], there: set[int], of_calls: set[int]
) -> TaskSpec | InvalidArgument:
    after = spec.after
    assert after is not None  # noqa: S101 - the caller has looked
    problems: dict[str, str] = {}
    found: dict[int, Upstream] = {}
    for index, upstream in enumerate(after.tasks):
        name = upstream.task
        id_ = known.get(name) if isinstance(name, str) else name
        if name == spec.name:
            problems[f"after.tasks[{index}].task"] = Sentence("makes a cycle: {way}", way=f"{spec.name} → {spec.name}")
        elif id_ is None or id_ not in there:
            problems[f"after.tasks[{index}].task"] = Sentence("is {value}; there is no such task", value=repr(name))
        elif id_ in of_calls:
            problems[f"after.tasks[{index}].task"] = Sentence(
                "is {value}, which is built in, for calls; expected another task: a call has a success_url and a failure_url",
                value=repr(name),
            )
        elif id_ in found:
            problems[f"after.tasks[{index}].task"] = Sentence(
                "is {value}, which is named already; expected each task once", value=repr(name)
            )
        else:
            found[id_] = msgspec.structs.replace(upstream, task=id_)
    if problems:
        return InvalidArgument.fields(problems)
    return msgspec.structs.replace(spec, after=msgspec.structs.replace(after, tasks=tuple(found.values())))


def cycle(q: Dialect, saved: Mapping[int, After | None]) -> Work[list[int]]:
    """A cycle that these would close, each task before the one that follows it, the first again at the end; empty if none.

    `saved` are the tasks of one call, with what they follow from now on. All that goes before them is held.
    """
    before = {task_id: list(after.upstream_ids) if after is not None else [] for task_id, after in saved.items()}
    layer = {id_ for ids in before.values() for id_ in ids} - before.keys()
    while layer:
        yield from hold_cursors(q, layer)
        rows = yield from q.fetch_by("select task_id, upstream_id from edges", "task_id", layer)
        found: dict[int, list[int]] = defaultdict(list)
        for task_id, upstream_id in rows:
            found[task_id].append(upstream_id)
        before |= {task_id: found[task_id] for task_id in layer}
        layer = {id_ for ids in found.values() for id_ in ids} - before.keys()
    return closed_path(before, saved)


def refuse_cycles(
    q: Dialect, saved: Mapping[int, After | None], names: Mapping[int, str], places: Mapping[int, str] | None = None
) -> Work[None]:
    """Raises InvalidArgument that names a cycle which these would close. `names` of tasks of the same call; `places`:
    where they are in its list, if it has one.
    """
    path = yield from cycle(q, saved)
    if not path:
        return
    rows = yield from q.fetch_by("select id, name from tasks", "id", path)
    known = {row[0]: row[1] for row in rows} | dict(names)
    place = next((f"{places[id_]}." for id_ in path if id_ in places), "") if places else ""
    way = " → ".join(known.get(id_, str(id_)) for id_ in path)
    raise InvalidArgument.field(f"{place}after", Sentence("makes a cycle: {way}", way=way))


def save(q: Dialect, now: Instant, turned: Sequence[tuple[Task | None, Task]]) -> Work[None]:
    """Write the change from each first version to its second: edges are replaced where `after` changed, joins end
    where the task is off.
    """
    changed = [(old, new) for old, new in turned if (None if old is None else old.spec.after) != new.spec.after]
    replaced = [new.id for old, new in changed if old is not None and old.spec.after is not None]
    if replaced:
        yield from q.delete_by("edges", "task_id", replaced)
        yield from close_joins(q, now, replaced)
    rows = [
        (upstream.task, new.id, str(upstream.on), new.version, now)
        for _, new in changed
        if new.spec.after is not None
        for upstream in new.spec.after.tasks
    ]
    if rows:
        yield InsertMany("edges", ("upstream_id", "task_id", "outcome", "version", "saved_at"), sorted(rows))
        yield from _mark(q, {upstream_id for _, new in changed for upstream_id in _added(new)})
    off = [
        new.id for old, new in turned if old is not None and new.spec.after is not None and new.status not in FOLLOWS
    ]
    if off:
        yield from disable_joins(q, off)


def _added(task: Task) -> Sequence[int]:
    return () if task.spec.after is None else task.spec.after.upstream_ids


def _mark(q: Dialect, task_ids: Iterable[int]) -> Work[None]:
    """Runs of these tasks that have started do not take the short way any longer; those that wait are held for a moment."""
    started = ", ".join(str(int(place)) for place in STARTED)
    yield Execute(
        f"update live set flags = case when place in ({started}) then flags | {RunFlag.FOLLOW} else flags end"
        f" where {q.ids('task_id', 'tasks')} and parent_id is null",
        {"tasks": q.pack(sorted(task_ids))},
    )


def followers(task_id: TaskId, limit: int = 100) -> Work[list[Follower]]:
    rows = yield Fetch(
        "select e.task_id, t.name, e.outcome from edges e join tasks t on t.id = e.task_id"
        " where e.upstream_id = :task and t.deleted_at is null order by t.name, t.id limit :limit",
        {"task": task_id, "limit": limit},
    )
    return [Follower(task_id=id_, name=name, on=UpstreamOutcome(on)) for id_, name, on in rows]


def refuse_followed(q: Dialect, tasks: Sequence[Task]) -> Work[dict[int, InvalidState]]:
    """By place in the list: those that others follow which are not of the list."""
    rows = yield from q.fetch_by(
        "select e.upstream_id, e.task_id, t.name from edges e join tasks t on t.id = e.task_id",
        "e.upstream_id",
        [task.id for task in tasks],
        " and t.deleted_at is null order by t.name",
    )
    going = {task.id for task in tasks}
    followers: dict[TaskId, list[str]] = defaultdict(list)
    for upstream_id, task_id, name in rows:
        if task_id not in going:
            followers[upstream_id].append(name)
    refused: dict[int, InvalidState] = {}
    for index, task in enumerate(tasks):
        names = followers.get(task.id)
        if names:
            told = ", ".join(repr(name) for name in names[:_NAMED_AT_MOST])
            more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
            refused[index] = InvalidState(
                Sentence(
                    "task {task} is followed by {names}; change those first, or delete it with force",
                    task=repr(task.name),
                    names=f"{told}{more}",
                ),
                details={"followers": names[:100]},
            )
    return refused
