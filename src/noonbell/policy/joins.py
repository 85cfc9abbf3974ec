"""What a final run means to the tasks that follow its task: nothing, a place filled in a join, or the join's completion.

    no join of its root yet     it opens one; where nothing is to be waited for, only a run that matches does
    an open join                it takes its upstream's place; one that matches fills it, and stays there
    a join that is over         a run that does the root again (a redrive, or another run of the upstream that filled a place;
                                a backfill where it was not completed) opens the next one, with the others' places as they were

With `same_slot` the root is the slot, or the run that all goes back to. Without it, runs of several upstreams that must all
have come share the one open join of the task; otherwise each run that matches is a root of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import FAILURES, SUCCEEDED, Origin, RunStatus
from noonbell.model.task_schedule import After, Arrival, Join, JoinMode, JoinState, UpstreamOutcome

_BELONG_TO_A_SLOT = (Origin.SCHEDULE, Origin.BACKFILL)
N = TypeVar("N", bound=int | str)
NEXT = ""
"""The root of the one open join of a task without `same_slot`."""


@dataclass(frozen=True, slots=True)
class FinalRun:
    """A run that has become final, as those that follow it see it."""

    run_id: int
    task_id: int
    status: RunStatus
    root: str
    scheduled_time: Instant
    origin: Origin
    replaced: bool = False
    """Canceled by the next round of its own task: that is no failure."""
    trace_id: str | None = None


def root_of(run_id: int, origin: Origin, scheduled_time: Instant, stored: str | None) -> str:
    """The slot that a run belongs to, or the run that it goes back to. `stored` is what its birth has noted of that."""
    if stored is not None:
        return stored
    return f"slot:{scheduled_time}" if origin in _BELONG_TO_A_SLOT else f"run:{run_id}"


def matches(on: UpstreamOutcome, status: RunStatus, *, replaced: bool = False) -> bool:
    if on is UpstreamOutcome.ANY:
        return True
    if status in SUCCEEDED:
        return on is UpstreamOutcome.SUCCESS
    if status is RunStatus.SKIPPED:
        return on is UpstreamOutcome.SKIPPED
    return on is UpstreamOutcome.FAILURE and status in FAILURES and not replaced


def waits(after: After) -> bool:
    """Whether a run that does not match can still matter: the others of its root, or a redrive of it, may complete a join."""
    return len(after.tasks) > 1 and (after.same_slot or after.join is JoinMode.ALL)


def matters(after: After, ended: FinalRun) -> bool:
    """Whether the task that follows has to look at this run at all."""
    return waits(after) or _fits(after, ended)


def join_root(after: After, ended: FinalRun) -> str:
    if after.same_slot:
        return ended.root
    return NEXT if waits(after) else f"run:{ended.run_id}"


def root_when_over(join_id: int, root: str, completing_run_id: int | None) -> str:
    """A join without a root gives its place up when it is over: the next one has it."""
    if root != NEXT:
        return root
    return f"join:{join_id}" if completing_run_id is None else f"run:{completing_run_id}"


@dataclass(frozen=True, slots=True)
class JoinStep:
    is_new: bool
    redrive: int
    arrivals: tuple[Arrival, ...]
    is_complete: bool


def arrive(after: After, newest: Join | None, ended: FinalRun) -> JoinStep | None:
    """What a final run does to the newest join of its root; None if nothing."""
    fits = _fits(after, ended)
    arrival = Arrival(upstream_id=ended.task_id, run_id=ended.run_id, status=ended.status, fills=fits)
    if newest is None:
        return _step(after, (arrival,), is_new=True) if fits or waits(after) else None
    known = {each.upstream_id: each for each in newest.arrivals}
    place = known.get(ended.task_id)
    if newest.state is JoinState.OPEN:
        if place is not None and place.fills and not fits:
            return None
        return _step(after, _with(newest.arrivals, arrival), redrive=newest.redrive)
    if not fits or not _does_again(newest, place, ended):
        return None
    others = newest.arrivals
    if after.join is JoinMode.ANY:  # only the run that completes it fills a place
        others = tuple(msgspec.structs.replace(each, fills=False) for each in others)
    return _step(after, _with(others, arrival), is_new=True, redrive=newest.redrive + 1)


def _does_again(newest: Join, place: Arrival | None, ended: FinalRun) -> bool:
    """Whether a join that is over is to be done again for this run. A backfill mends what went missing, and else is a
    first run.
    """
    if ended.origin is Origin.RETRY or (ended.origin is Origin.BACKFILL and newest.state is not JoinState.DONE):
        return True
    return place is not None and place.fills and place.run_id != ended.run_id


def missing(after: After, arrivals: tuple[Arrival, ...]) -> dict[int, str | None]:
    """The upstreams whose place is empty, each with how its newest run ended; None if none has."""
    filled = {each.upstream_id for each in arrivals if each.fills}
    ended = {each.upstream_id: each.status for each in arrivals}
    return {id_: ended.get(id_) for id_ in after.upstream_ids if id_ not in filled}


def _fits(after: After, ended: FinalRun) -> bool:
    wanted = (upstream.on for upstream in after.tasks if upstream.task == ended.task_id)
    return any(matches(on, ended.status, replaced=ended.replaced) for on in wanted)


def _step(after: After, arrivals: tuple[Arrival, ...], *, is_new: bool = False, redrive: int = 0) -> JoinStep:
    left = missing(after, arrivals)
    is_complete = not left if after.join is JoinMode.ALL else len(left) < len(after.tasks)
    return JoinStep(is_new, redrive, arrivals, is_complete)


def _with(arrivals: tuple[Arrival, ...], arrival: Arrival) -> tuple[Arrival, ...]:
    others = (each for each in arrivals if each.upstream_id != arrival.upstream_id)
    return tuple(sorted((*others, arrival), key=lambda each: each.upstream_id))


def closed_path(before: Mapping[N, Sequence[N]], starts: Iterable[N]) -> list[N]:
    """A cycle, each task before the one that follows it, the first again at the end; empty if there is none.

    `before`: what each task follows. A task that is not there follows nothing.
    """
    done: set[N] = set()
    for start in starts:
        path: list[N] = []
        left = [(start, iter(before[start]))] if start not in done else []
        while left:
            name, rest = left[-1]
            if not path or path[-1] != name:
                path.append(name)
            following = next((each for each in rest if each not in done), None)
            if following is None:
                done.add(name)
                left.pop()
                path.pop()
            elif following in path:
                return [following, *path[path.index(following) :][::-1]]
            else:
                left.append((following, iter(before.get(following, ()))))
    return []
