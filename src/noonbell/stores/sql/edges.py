"""Who follows whom: the upstreams that a task names in `after`, found by name, checked for cycles, and written as edges.

Saving an edge holds the cursors of the task and of everything before it. So of two callers that would close a cycle together
one waits for the other, or the database breaks their deadlock, and the second sees what the first has saved. The unfinished
runs of a new upstream are marked: a settlement that is under way at the same moment either commits before the edge does, or
finds the mark and looks the edge up. So every run that becomes final after the commit of an edge has its follower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument, InvalidState, Sentence
from noonbell.model.call import CALL_TYPE
from noonbell.model.join import After, Follower, Upstream, UpstreamOutcome
from noonbell.model.task import Task, TaskId, TaskSpec
from noonbell.policy.joins import closed_path
from noonbell.stores.sql.active_runs import STARTED, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.joins import FOLLOWS, close_joins, disable_joins
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Work

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
    yield from _hold(q, ids)
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


def _hold(q: Dialect, task_ids: Iterable[int]) -> Work[None]:
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
            problems[f"after.tasks[{index}].task"] = f"makes a cycle: {spec.name} → {spec.name}"
        elif id_ is None or id_ not in there:
            problems[f"after.tasks[{index}].task"] = f"is {name!r}; there is no such task"
        elif id_ in of_calls:
            problems[f"after.tasks[{index}].task"] = (
                f"is {name!r}, which is built in, for calls; expected another task: a call has a success_url and a failure_url"
            )
        elif id_ in found:
            problems[f"after.tasks[{index}].task"] = f"is {name!r}, which is named already; expected each task once"
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
        yield from _hold(q, layer)
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
    raise InvalidArgument.field(f"{place}after", f"makes a cycle: {way}")


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
