"""Bulk operations: started as one row, carried out batch by batch by any node, under a lease with a token.

The transaction of a batch makes its changes, moves the place of the operation on and adds to its counts. It names the token of
the lease:

    K44    died before the commit   nothing was changed; the next holder does the same batch
    K44:2  died after it            the next holder goes on behind it
    held up for longer than the     another node has taken the operation and raised the token: what this one writes
    lease, or canceled              is refused, all of it
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.errors import InvalidArgument, InvalidState, NotFound
from noonbell.model.bulk import (
    OPPOSITES,
    TURNS,
    BulkAdvance,
    BulkBatch,
    BulkItem,
    BulkKind,
    BulkLease,
    BulkOperation,
    BulkStatus,
    NewBulk,
)
from noonbell.model.request import Publication, PublishOutcome, TaskChange
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.stores.sql import cleanup, publishing, settle, tasks
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.events import tell
from noonbell.stores.sql.rows import TaskView, from_json, known_tasks, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Now, Row, Work, insert, matching, update

_COLUMNS = (
    *("id", "kind", "status", "created_at", "created_by", "ended_at", "canceled_by"),
    *("total", "total_is_least", "done", "skipped", "reasons", "error"),
)
_SELECT = f"select {', '.join(_COLUMNS)}, spec, place, holder, token, expires_at from bulk_operations"
_REFUSALS = {
    PublishOutcome.REFUSED: "limit",
    PublishOutcome.EXISTS: "exists",
    PublishOutcome.RUNNING: "exists",
}


def _lease(row: Row) -> BulkLease:
    found = dict(zip(_COLUMNS, row, strict=False))
    spec, place, holder, token, expires_at = row[len(_COLUMNS) :]
    said = from_json(spec)
    query, ids = said.pop("query", {}), said.pop("ids", None)
    found |= {**said, "reasons": from_json(found["reasons"]), "total_is_least": bool(found["total_is_least"])}
    operation = msgspec.convert({**found, "listed": None if ids is None else len(ids)}, BulkOperation)
    return BulkLease(operation, query, None if ids is None else tuple(ids), place, holder, token, Instant(expires_at))


def _tell(operation: BulkOperation, type_: str) -> Work[None]:
    facts: dict[str, Any] = {
        name: getattr(operation, name) for name in ("kind", "status", "total", "done", "skipped", "error")
    }
    yield from tell(type_, [(None, None, {"bulk": operation.id, "subject": operation.id, **facts})])


# Reading


def bulk_operation(operation_id: int) -> Work[BulkOperation | None]:
    rows = yield Fetch(f"{_SELECT} where id = :id", {"id": operation_id})
    return _lease(rows[0]).operation if rows else None


def bulk_operations(limit: int, before: int | None = None) -> Work[list[BulkOperation]]:
    which, params = matching(before=("id < :before", before))
    rows = yield Fetch(f"{_SELECT} where {which} order by id desc limit :limit", {**params, "limit": limit})
    return [_lease(row).operation for row in rows]


def bulk_items(operation_id: int, limit: int, after: int = 0, *, changed: bool = False) -> Work[list[BulkItem]]:
    which = "why = ''" if changed else "why <> ''"
    rows = yield Fetch(
        "select item_id, name, why from bulk_items where operation_id = :id and item_id > :after"
        f" and {which} order by item_id limit :limit",
        {"id": operation_id, "after": after, "limit": limit},
    )
    return [BulkItem(*row) for row in rows]


def bulk_under_way() -> Work[int]:
    rows = yield Fetch("select count(*) from bulk_operations where status = 'RUNNING'")
    return int(rows[0][0])


# Starting, taking, ending


def start_bulk(new: NewBulk) -> Work[BulkOperation]:
    (operation_id,) = yield NewIds(1)
    now = yield Now()
    said = {name: getattr(new, name) for name in ("filter", "ids", "undo_of", "change", "query")}
    yield insert(
        "bulk_operations",
        id=operation_id,
        kind=str(new.kind),
        status=str(BulkStatus.RUNNING),
        spec=to_json({name: value for name, value in said.items() if value is not None}),
        created_at=now,
        created_by=new.by,
        total=new.total,
        total_is_least=int(new.total_is_least),
        done=0,
        skipped=0,
        reasons="{}",
        holder="",
        token=0,
        expires_at=0,
    )
    rows = yield Fetch(f"{_SELECT} where id = :id", {"id": operation_id})
    made = _lease(rows[0]).operation
    yield from _tell(made, "bulk.started")
    return made


def take_bulk(q: Dialect, holder: str, seconds: float) -> Work[BulkLease | None]:
    now = yield Now()
    rows = yield Fetch(
        f"{_SELECT} where status = 'RUNNING' and (holder = :holder or expires_at <= :now)"
        f" order by expires_at, id limit 1{q.skip_locked}",
        {"holder": holder, "now": now},
    )
    if not rows:
        return None
    found = _lease(rows[0])
    token, until = found.token + 1, Instant(now + round(seconds * SECOND))
    yield update("bulk_operations", {"id": found.operation.id}, holder=holder, token=token, expires_at=until)
    return dataclasses.replace(found, holder=holder, token=token, expires_at=until)


def leave_bulk(holder: str) -> Work[None]:
    yield Execute(
        "update bulk_operations set expires_at = 0 where status = 'RUNNING' and holder = :holder", {"holder": holder}
    )


def cancel_bulk(q: Dialect, operation_id: int, *, by: str | None = None) -> Work[BulkOperation | None]:
    rows = yield Fetch(f"{_SELECT} where id = :id{q.lock}", {"id": operation_id})
    if not rows:
        return None
    operation = _lease(rows[0]).operation
    if operation.status is not BulkStatus.RUNNING:
        return operation
    return (yield from _end(operation, BulkStatus.CANCELED, canceled_by=by))


def fail_bulk(q: Dialect, lease: BulkLease, error: str) -> Work[BulkOperation | None]:
    held = yield from _held(q, lease)
    return None if held is None else (yield from _end(held.operation, BulkStatus.FAILED, error=error))


def _held(q: Dialect, lease: BulkLease) -> Work[BulkLease | None]:
    """The operation, locked; None where the lease was lost, or the operation has ended."""
    rows = yield Fetch(
        f"{_SELECT} where id = :id and token = :token and status = 'RUNNING'{q.lock}",
        {"id": lease.operation.id, "token": lease.token},
    )
    return _lease(rows[0]) if rows else None


def _end(operation: BulkOperation, status: BulkStatus, **more: Any) -> Work[BulkOperation]:
    """End the operation: what it has handled by now is its total."""
    now = yield Now()
    total = operation.done + operation.skipped
    changes = {"status": str(status), "ended_at": now, "total": total, "total_is_least": 0, **more}
    yield update("bulk_operations", {"id": operation.id}, **changes)
    ended = msgspec.structs.replace(operation, status=status, ended_at=now, total=total, total_is_least=False, **more)
    yield from _tell(ended, "bulk.ended")
    return ended


# A batch


def advance_bulk(
    q: Dialect, cache: TaskView, lease: BulkLease, batch: BulkBatch, seconds: float
) -> Work[BulkAdvance | None]:
    held = yield from _held(q, lease)
    if held is None:
        return None
    kind, by = held.operation.kind, held.operation.created_by
    items = [*batch.skipped, *(yield from _carry_out(q, cache, kind, batch, by))]
    operation = _counted(held.operation, items)
    yield from _keep(operation, items)
    now = yield Now()
    until = Instant(now + round(seconds * SECOND))
    yield update(
        "bulk_operations",
        {"id": operation.id},
        place=batch.next,
        done=operation.done,
        skipped=operation.skipped,
        reasons=to_json(operation.reasons),
        expires_at=until,
    )
    if batch.next is None:
        operation = yield from _end(operation, BulkStatus.DONE)
    else:
        yield from _tell(operation, "bulk.advanced")
    failpoint.hit("K44")
    return BulkAdvance(dataclasses.replace(held, operation=operation, place=batch.next, expires_at=until), items)


def _counted(operation: BulkOperation, items: Sequence[BulkItem]) -> BulkOperation:
    whys = Counter(item.why for item in items if item.why)
    return msgspec.structs.replace(
        operation,
        done=operation.done + len(items) - whys.total(),
        skipped=operation.skipped + whys.total(),
        reasons=dict(Counter(operation.reasons) + whys),
    )


def _keep(operation: BulkOperation, items: Iterable[BulkItem]) -> Work[None]:
    """Those that were skipped; and those that were changed, where that can be undone."""
    can_be_undone = operation.kind in OPPOSITES
    rows = [(operation.id, item.id, item.name, item.why) for item in items if item.why or can_be_undone]
    if rows:
        yield InsertMany("bulk_items", ("operation_id", "item_id", "name", "why"), rows)


def _carry_out(q: Dialect, cache: TaskView, kind: BulkKind, batch: BulkBatch, by: str | None) -> Work[list[BulkItem]]:
    match kind:
        case BulkKind.RETRY_RUNS | BulkKind.REDRIVE_RUNS | BulkKind.TRIGGER_TASKS:
            return (yield from _publish(q, cache, batch.publications))
        case BulkKind.CANCEL_RUNS:
            return (yield from _cancel(q, cache, batch.runs, by))
        case BulkKind.ENABLE_TASKS | BulkKind.DISABLE_TASKS:
            return (yield from _turn(q, cache, batch.tasks, TURNS[kind], by))
        case BulkKind.DELETE_TASKS:
            return (yield from _delete(q, cache, batch.tasks, by))
        case BulkKind.CHANGE_TASKS:
            return (yield from _change(q, cache, batch.tasks, batch.edit, by))


def _publish(q: Dialect, cache: TaskView, publications: Sequence[tuple[int, str, Publication]]) -> Work[list[BulkItem]]:
    known = yield from known_tasks(q, cache, sorted({each.task_id for _, _, each in publications}))
    items: list[BulkItem] = []
    fit: list[tuple[int, str, Publication]] = []
    for item_id, name, each in publications:
        try:
            publishing.check(known, [each])
        except NotFound:
            items.append(BulkItem(item_id, name, "gone"))
        except InvalidState:
            items.append(BulkItem(item_id, name, "error"))
        else:
            fit.append((item_id, name, each))
    answers = (yield from publishing.publish(q, cache, [each for _, _, each in fit])) if fit else []
    for (item_id, name, _), answer in zip(fit, answers, strict=True):
        items.append(BulkItem(item_id, name, _REFUSALS.get(answer.outcome, "")))
    return items


def _cancel(q: Dialect, cache: TaskView, runs: Sequence[tuple[int, str]], by: str | None) -> Work[list[BulkItem]]:
    if not runs:
        return []
    found = yield from settle.cancel(q, cache, [RunId(run_id) for run_id, _ in runs], by=by)
    canceled = {each.run_id: each.canceled for each in found}
    whys = {None: "gone", True: "", False: "final"}
    return [BulkItem(run_id, name, whys[canceled.get(RunId(run_id))]) for run_id, name in runs]


def _turn(
    q: Dialect, cache: TaskView, wanted: Sequence[tuple[int, str]], status: TaskStatus, by: str | None
) -> Work[list[BulkItem]]:
    if not wanted:
        return []
    ids = [TaskId(task_id) for task_id, _ in wanted]
    before = yield from tasks.load(q, ids)
    changed = {task.id for task in (yield from tasks.set_status(q, cache, ids, status, by=by))}

    def why(task_id: int) -> str:
        task = before.get(TaskId(task_id))
        if task_id in changed:
            return ""
        if task is None or task.deleted_at is not None:
            return "gone"
        return "error" if task.status is TaskStatus.ERROR else "already"

    return [BulkItem(task_id, name, why(task_id)) for task_id, name in wanted]


def _delete(q: Dialect, cache: TaskView, wanted: Sequence[tuple[int, str]], by: str | None) -> Work[list[BulkItem]]:
    """All together, so that tasks that follow each other can go; one by one where one of them cannot."""
    if not wanted:
        return []
    try:
        yield from cleanup.delete_all(q, cache, {TaskId(task_id): None for task_id, _ in wanted}, by=by)
    except (NotFound, InvalidState):
        pass  # it refuses before it changes anything
    else:
        return [BulkItem(task_id, name) for task_id, name in wanted]
    items = []
    for task_id, name in wanted:
        why = ""
        try:
            yield from cleanup.delete_task(q, cache, TaskId(task_id), by=by)
        except NotFound:
            why = "gone"
        except InvalidState:
            why = "refused"
        items.append(BulkItem(task_id, name, why))
    return items


def _change(
    q: Dialect,
    cache: TaskView,
    wanted: Sequence[tuple[int, str]],
    edit: Callable[[Task], TaskChange],
    by: str | None,
) -> Work[list[BulkItem]]:
    items = []
    for task_id, name in wanted:
        seen: list[int] = []

        def see_and_edit(task: Task, seen: list[int] = seen) -> TaskChange:
            seen.append(task.version)
            return edit(task)

        try:
            changed = yield from tasks.change(q, cache, TaskId(task_id), see_and_edit, by=by)
            why = "already" if changed.version == seen[-1] else ""
        except NotFound:
            why = "gone"
        except (InvalidState, InvalidArgument):
            why = "unfit"
        items.append(BulkItem(task_id, name, why))
    return items


def forget(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Operations that ended before, with their items."""
    rows = yield Fetch(
        "select id from bulk_operations where status <> 'RUNNING' and ended_at < :before order by id limit :limit",
        {"before": before, "limit": limit},
    )
    ids = [row[0] for row in rows]
    yield from q.delete_by("bulk_items", "operation_id", ids)
    yield from q.delete_by("bulk_operations", "id", ids)
    return len(ids)
