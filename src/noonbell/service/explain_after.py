"""What a task that runs after others waits for, or why nothing followed: by its joins and by the runs of its upstreams.

The sentences are in `locales/`, as `finding.…`; `explain` puts them together with what it finds itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noonbell.clock import Instant
from noonbell.model.join import After, Join, JoinState, Upstream
from noonbell.model.run import FINAL, Run, RunId
from noonbell.model.task import TaskId
from noonbell.policy import joins as policy
from noonbell.ports import Store
from noonbell.service import scope


@dataclass(slots=True)
class UpstreamFinding:
    cause: str
    key: str
    since: Instant | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    more: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    run_id: RunId | None = None
    """The run that the join has made: it says the rest."""


async def names_of(store: Store, after: After) -> dict[int, str]:
    found = await store.tasks_by_id([TaskId(id_) for id_ in after.upstream_ids])
    names = {int(task.id): task.name for task in scope.held(found)}
    return {id_: names[id_] for id_ in after.upstream_ids if id_ in names}


async def nothing_yet(store: Store, after: After) -> UpstreamFinding:
    """A task without a schedule, and without anything that says more: what it runs after."""
    tasks = await store.tasks_by_id([TaskId(id_) for id_ in after.upstream_ids])
    gone = [task.name for task in scope.held(tasks) if task.deleted_at is not None]
    names = ", ".join((await names_of(store, after)).values())
    more = [("and_upstream_deleted", {"names": ", ".join(gone)})] if gone else []
    return UpstreamFinding("not_a_slot", "not_a_slot_after", facts={"names": names}, more=more)


async def open_wait(store: Store, task_id: TaskId, after: After) -> UpstreamFinding | None:
    """What the newest open join of a task waits for."""
    (join, *_) = (await store.joins(task_id, limit=1)) or (None,)
    return None if join is None else _waiting(join, after, await names_of(store, after))


async def at_slot(store: Store, task_id: TaskId, after: After, slot: Instant) -> UpstreamFinding | None:
    """What became, or becomes, of a slot that upstreams have carried on; None where they have none."""
    root = f"slot:{slot}"
    (join, *_) = (await store.joins(task_id, root, 1)) or (None,)
    names = await names_of(store, after)
    if join is not None and join.run_id is not None:
        return UpstreamFinding("ran", "ran", run_id=RunId(join.run_id))
    if join is not None and join.state is JoinState.OPEN:
        return _waiting(join, after, names)
    if join is not None:
        return UpstreamFinding("disabled", "upstream_disabled", facts={"slot": slot})
    return await _before_a_join(store, after, names, slot)


def _waiting(join: Join, after: After, names: Mapping[int, str]) -> UpstreamFinding:
    left = policy.missing(after, join.arrivals)
    on = {each.task: each.on for each in after.tasks}
    facts = {"missing": _listed(names, left), "slot": join.scheduled_time, "until": join.due_at}
    is_slot = join.root.startswith("slot:")
    found = UpstreamFinding("waiting", "waiting_upstream" if is_slot else "waiting_upstream_run", join.first_at, facts)
    for id_, status in left.items():
        if status is not None:
            told = {"name": names.get(id_, id_), "slot": join.scheduled_time, "status": status, "on": on[id_]}
            found.more.append(("and_upstream_ended" if is_slot else "and_upstream_run_ended", told))
    return found


async def _before_a_join(store: Store, after: After, names: Mapping[int, str], slot: Instant) -> UpstreamFinding | None:
    pending: list[int] = []
    for upstream in after.tasks:
        id_ = TaskId(int(upstream.task))
        run = await _run_at(store, id_, slot)
        if run is not None and run.status in FINAL:
            return _unmatched(upstream, names, run, slot)
        dropped = [] if run is not None else await store.dropped(id_, slot, slot)
        if dropped:
            facts = {"name": names.get(id_, id_), "slot": slot, "reason": dropped[0].reason}
            return UpstreamFinding("upstream", "upstream_dropped", dropped[0].at, facts)
        if run is not None or await store.joins(id_, f"slot:{slot}", 1):
            pending.append(id_)
    if not pending:
        return None
    return UpstreamFinding(
        "waiting", "waiting_upstream_first", facts={"missing": _listed(names, pending), "slot": slot}
    )


def _unmatched(upstream: Upstream, names: Mapping[int, str], run: Run, slot: Instant) -> UpstreamFinding:
    facts = {"name": names.get(run.task_id, run.task_id), "slot": slot, "status": run.status, "on": upstream.on}
    return UpstreamFinding("upstream", "upstream_unmatched", run.end_time, {**facts, "blocking": run.id})


async def _run_at(store: Store, task_id: TaskId, slot: Instant) -> Run | None:
    """The run of an upstream that belongs to the slot: its own, or one that follows in turn."""
    (own, *_) = (await store.slot_runs(task_id, slot, slot, 1)) or (None,)
    if own is not None:
        return await store.run(own.run_id)
    (join, *_) = (await store.joins(task_id, f"slot:{slot}", 1)) or (None,)
    return None if join is None or join.run_id is None else await store.run(RunId(join.run_id))


def _listed(names: Mapping[int, str], ids: Any) -> str:
    return ", ".join(str(names.get(id_, id_)) for id_ in ids)
