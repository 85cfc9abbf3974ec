"""Fan-out: a parent run splits into parts when it starts, and is over when their ends decide it.

The parent keeps one place at its task's gate and has no lease. Parts are runs of their own, each for another worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noonbell.clock import Instant
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.run import FINAL, SUCCEEDED, Origin, RunStatus
from noonbell.policy import fanout as policy
from noonbell.stores.sql import live as narrow
from noonbell.stores.sql.births import Newborn, bear
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.known import known_tasks
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import TaskView, from_json
from noonbell.stores.sql.statement import Fetch, Work


class Verdict(NamedTuple):
    rest: list[Live]
    """The parts still under way: nobody needs them any more."""
    parent: Live
    status: RunStatus
    why: str | None
    """What a parent that failed says of it."""


def split(q: Dialect, cache: TaskView, now: Instant, parent: Live, workers: Sequence[str]) -> Work[list[int] | None]:
    """Make the parts of a parent that starts now, for the `workers` alive on its queue and allowed; the parts' ids.

    None if it must wait: "all" of nobody. The parent's row is taken to PARENT; its attempt is counted by the caller.
    """
    tasks = yield from known_tasks(q, cache, [parent.task_id])
    task = tasks[parent.task_id].task
    if task.spec.fanout is None:
        return None
    chosen: Sequence[str | None]
    if task.spec.fanout.workers == "all":
        chosen = list(workers)
        if not chosen:
            return None
    else:
        chosen = [None] * int(task.spec.fanout.workers)
    rows = yield Fetch(
        "select r.scheduled_time, r.priority, r.idempotency_key, i.payload, i.overrides from runs r"
        " left join inputs i on i.run_id = r.id where r.id = :id",
        {"id": parent.run_id},
    )
    scheduled_time, priority, stored_key, payload, overrides = rows[0]
    parent_key = idempotency_key_of(parent.run_id, scheduled_time, stored_key)
    parts = []
    for index, worker in enumerate(chosen):
        part = Newborn(
            task=task,
            origin=Origin.PUBLISH,
            scheduled_time=scheduled_time,
            run_at=now,
            priority=priority,
            parent_id=parent.run_id,
            shard=(index, len(chosen)),
            parent_key=parent_key,
            workers=task.spec.specific_worker_ids if worker is None else (worker,),
            overrides=from_json(overrides),
        )
        if payload is not None:
            part.payload = from_json(payload)
        parts.append(part)
    yield from bear(cache, now, parts)
    return [part.id for part in parts]


def decide(q: Dialect, cache: TaskView, parent_id: int) -> Work[Verdict | None]:
    """After a part has ended: what becomes of its parent, or None if that is open still."""
    rows = yield from narrow.load(q, [parent_id])
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
    verdict = policy.verdict(rule, total, succeeded, failed)
    if verdict == "undecided":
        return None
    rest = yield from narrow.load_where(q, "parent_id = :parent", parent=parent_id)
    if verdict == "success":
        return Verdict(rest, parent, RunStatus.SUCCESS, None)
    needed = "one" if rule == "any" else rule
    return Verdict(rest, parent, RunStatus.FAILED, f"{failed} of {total} parts failed, and {needed} had to succeed")
