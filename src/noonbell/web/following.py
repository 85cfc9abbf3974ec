"""What a task runs after and what runs after it; which runs have started a run, and which it has started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noonbell.clock import Instant
from noonbell.model.run import Run, RunId
from noonbell.model.task import Task, TaskId
from noonbell.model.task_schedule import After, Arrival, Follower, Join, JoinMode, JoinState, UpstreamOutcome
from noonbell.policy.joins import missing
from noonbell.service import scope
from noonbell.service.translation import Translator
from noonbell.web.context import PageContext

_MOST: Final = 100
"""Tasks or runs in one list."""
_WAITS: Final = 10
"""Open joins on the page of a task."""


def words_of(after: Mapping[str, Any] | None, words: Translator) -> str:
    """After which tasks, in words; nothing for a task that follows none. `after` as the service shows it."""
    if after is None:
        return ""
    told = []
    for each in after["tasks"]:
        name, on = each["task"], each["on"]
        told.append(str(name) if on == UpstreamOutcome.SUCCESS else f"{name} ({words(f'after.on.{on}')})")
    between = words("schedule.or" if after["join"] == JoinMode.ANY else "schedule.and")
    return words("schedule.after", names=between.join(told))


@dataclass(frozen=True, slots=True)
class UpstreamTask:
    task_id: int
    name: str
    """Empty: it is deleted."""
    on: str


@dataclass(frozen=True, slots=True)
class OpenWait:
    """A join that waits, as the page tells of it."""

    join: Join
    missing: list[str]
    slot: Instant | None
    arrived: list[tuple[str, Arrival]]
    """The runs that fill a place, each with the name of its task."""


@dataclass(frozen=True, slots=True)
class TaskNeighbours:
    after: After | None
    upstreams: list[UpstreamTask]
    followers: list[Follower]
    is_more: bool
    """There are more followers."""
    waits: list[OpenWait]


async def followers_of(ctx: PageContext, task: Task) -> tuple[list[Follower], bool]:
    """And whether there are more."""
    found = await _held(ctx, await ctx.services.store.followers(task.id, _MOST + 1))
    return found[:_MOST], len(found) > _MOST


async def of_task(ctx: PageContext, task: Task) -> TaskNeighbours | None:
    """None for a task that follows none and that none follows."""
    store, after = ctx.services.store, task.spec.after
    followers, is_more = await followers_of(ctx, task)
    if after is None and not followers:
        return None
    upstreams: list[UpstreamTask] = []
    waits: list[OpenWait] = []
    if after is not None:
        joins, names = await asyncio.gather(
            store.joins(task.id, limit=_WAITS), ctx.services.tasks.upstream_names([task])
        )
        upstreams = [UpstreamTask(int(each.task), names.get(int(each.task), ""), str(each.on)) for each in after.tasks]
        waits = [_wait(join, after, names) for join in joins]
    return TaskNeighbours(after, upstreams, followers, is_more, waits)


async def _held(ctx: PageContext, followers: list[Follower]) -> list[Follower]:
    """Those that the token may see."""
    if ctx.sees_all:
        return followers
    tasks = await ctx.services.store.tasks_by_id([TaskId(each.task_id) for each in followers])
    known = {int(task.id) for task in scope.held(tasks)}
    return [each for each in followers if each.task_id in known]


def _wait(join: Join, after: After, names: Mapping[int, str]) -> OpenWait:
    return OpenWait(
        join,
        [names.get(id_, str(id_)) for id_ in missing(after, join.arrivals)],
        join.scheduled_time if join.root.startswith("slot:") else None,
        [(names.get(each.upstream_id, str(each.upstream_id)), each) for each in join.arrivals if each.fills],
    )


@dataclass(frozen=True, slots=True)
class Downstream:
    """What has become of the end of a run at one task that follows its task."""

    task_id: int
    name: str
    run: Run | None
    since: Instant
    missing: list[str]
    """The tasks that are waited for, where it is open."""
    is_off: bool
    """The task was switched off while it waited."""


@dataclass(frozen=True, slots=True)
class RunNeighbours:
    upstreams: list[Run]
    removed: list[int]
    """Upstream runs that retention has removed."""
    downstreams: list[Downstream]


async def of_run(ctx: PageContext, run: Run) -> RunNeighbours | None:
    """None for a run that no other run has started, and whose end has started none."""
    store = ctx.services.store
    wanted = [RunId(id_) for id_ in run.upstream_run_ids or ()]
    joins = [join for join in await store.joins_of_run(run.id, _MOST) if _is_filled_by(join, run)]
    if not wanted and not joins:
        return None
    made = [RunId(join.run_id) for join in joins if join.run_id is not None]
    tasks = {int(task.id): task for task in scope.held(await _tasks_of(ctx, joins))}
    if not ctx.sees_all:
        joins = [join for join in joins if join.task_id in tasks]
    runs = {each.id: each for each in await _held_runs(ctx, await store.runs_by_id([*wanted, *made]))}
    names = await ctx.services.tasks.upstream_names(tasks.values())
    return RunNeighbours(
        [runs[id_] for id_ in wanted if id_ in runs],
        [id_ for id_ in wanted if id_ not in runs] if ctx.sees_all else [],
        [_downstream(join, tasks.get(join.task_id), runs, names) for join in joins],
    )


async def _held_runs(ctx: PageContext, runs: Sequence[Run]) -> Sequence[Run]:
    """Those that the token may see."""
    held = scope.current()
    if held is None or not runs:
        return runs
    tasks = {task.id: task for task in await ctx.services.store.tasks_by_id(sorted({run.task_id for run in runs}))}
    return [run for run in runs if run.task_id in tasks and held.holds_run(tasks[run.task_id], run.queue)]


def _is_filled_by(join: Join, run: Run) -> bool:
    return any(each.run_id == run.id and each.fills for each in join.arrivals)


async def _tasks_of(ctx: PageContext, joins: Sequence[Join]) -> list[Task]:
    ids = sorted({TaskId(join.task_id) for join in joins})
    return await ctx.services.store.tasks_by_id(ids) if ids else []


def _downstream(join: Join, task: Task | None, runs: Mapping[RunId, Run], names: Mapping[int, str]) -> Downstream:
    after = None if task is None else task.spec.after
    is_open = join.state is JoinState.OPEN and after is not None
    return Downstream(
        join.task_id,
        str(join.task_id) if task is None else task.name,
        None if join.run_id is None else runs.get(RunId(join.run_id)),
        join.first_at,
        [names.get(id_, str(id_)) for id_ in missing(after, join.arrivals)] if is_open and after is not None else [],
        join.state is JoinState.DISABLED,
    )
