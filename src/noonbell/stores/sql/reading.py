"""Reading: a task, or a page of them, filtered and sorted; one run with all that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.model.event import LogLine
from noonbell.model.request import Input, Page, TaskQuery
from noonbell.model.run import Attempt, DroppedRange, DropReason, Run, RunBodies, RunId, RunStatus
from noonbell.model.task import NEVER, SYSTEM_TASK_IDS, Task, TaskId, TaskSpec, TaskStatus, TaskVersion
from noonbell.stores.sql import paging
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import RUN_SELECT, TASK_SELECT, from_json, run_from, task_from
from noonbell.stores.sql.statement import Fetch, Row, Work

TASK_ORDERS = {
    "id": "t.id",
    "name": "t.name",
    "created_at": "t.created_at",
    "updated_at": "t.updated_at",
    "next_fire_at": "coalesce(c.next_fire_at, 9000000000000000)",
}


def tasks(query: TaskQuery) -> Work[Page[Task]]:
    paging.check(query.page, query.page_size)
    order = paging.Order.read(query.sort, TASK_ORDERS, "t.id")
    params: dict[str, Any] = {}
    conditions = _task_conditions(query, params)
    total: int | None = None
    if query.cursor is None:
        rows = yield Fetch(f"select count(*) from tasks t{paging.where(conditions)}", params)
        total = rows[0][0]
    else:
        conditions.append(order.after(query.cursor, params))
    skip = 0 if query.cursor is not None else (query.page - 1) * query.page_size
    rows = yield Fetch(
        f"{TASK_SELECT}{paging.where(conditions)}{order.clause} limit :limit offset :skip",
        {**params, "limit": query.page_size + 1, "skip": skip},
    )
    found = [task_from(row) for row in rows[: query.page_size]]
    more = len(rows) > query.page_size
    return Page(found, total, order.cursor(_task_key(order.name, found[-1]), found[-1].id) if more else None)


def _task_conditions(query: TaskQuery, params: dict[str, Any]) -> list[str]:
    conditions = []
    if not query.include_deleted:
        conditions.append("t.deleted_at is null")
    if not query.include_system:
        conditions.append(f"t.id <= {SYSTEM_TASK_IDS}")
    for name in ("status", "queue", "managed_by", "exec_type", "job_type"):
        value = getattr(query, name)
        if value is not None:
            conditions.append(f"t.{name} = :{name}")
            params[name] = value
    if query.name is not None:
        conditions.append("lower(t.name) like :name escape '!'")
        params["name"] = paging.like(query.name)
    if query.meta_key is not None:
        conditions.append("lower(t.meta) like :meta_key escape '!'")
        params["meta_key"] = paging.like(f'"{query.meta_key}')
    if query.label is not None:
        conditions.append(_label(query.label, params))
    if query.external_id is not None:
        column = "external_id" if query.include_deleted else "live_external_id"  # the latter has the index
        conditions.append(f"t.{column} = :external_id")
        params["external_id"] = query.external_id
    if query.label_in is not None:
        params["label_in"], values = query.label_in[0], _listed("label", query.label_in[1], params)
        conditions.append(f"t.id in (select task_id from task_labels where name = :label_in and value in ({values}))")
    if query.status_in:
        conditions.append(f"t.status in ({_listed('status', query.status_in, params)})")
    return conditions


def _listed(name: str, values: Sequence[str], params: dict[str, Any]) -> str:
    """Each value as a parameter of its own: for lists that are short."""
    named = {f"{name}_{index}": value for index, value in enumerate(values)}
    params.update(named)
    return ", ".join(f":{each}" for each in named) or "null"


def _label(label: tuple[str, str], params: dict[str, Any]) -> str:
    params["label"], params["label_value"] = label
    return "t.id in (select task_id from task_labels where name = :label and value = :label_value)"


def _task_key(name: str, task: Task) -> Any:
    if name == "next_fire_at":
        return 9_000_000_000_000_000 if task.next_fire_at is None else task.next_fire_at
    return getattr(task, name)


def task_named(name: str) -> Work[Task | None]:
    rows = yield Fetch(f"{TASK_SELECT} where t.live_name = :name", {"name": name})
    return task_from(rows[0]) if rows else None


def task_versions(task_id: TaskId) -> Work[list[TaskVersion]]:
    rows = yield Fetch(
        "select v.version, v.valid_from, v.status, v.deleted, v.changed_by, v.spec, m.accounted_to, m.fired"
        " from task_versions v left join version_marks m on m.task_id = v.task_id and m.version = v.version"
        " where v.task_id = :id order by v.version",
        {"id": task_id},
    )
    return [
        TaskVersion(
            task_id=task_id,
            version=version,
            valid_from=valid_from,
            status=TaskStatus(status),
            deleted=bool(deleted),
            changed_by=changed_by,
            spec=msgspec.json.decode(spec, type=TaskSpec),
            accounted_to=accounted_to or NEVER,
            fired=fired or 0,
        )
        for version, valid_from, status, deleted, changed_by, spec, accounted_to, fired in rows
    ]


def dropped(task_id: TaskId, since: Instant, until: Instant) -> Work[list[DroppedRange]]:
    rows = yield Fetch(
        "select first, last, count, reason, at from dropped"
        " where task_id = :id and last >= :since and first <= :until order by first",
        {"id": task_id, "since": since, "until": until},
    )
    return [
        DroppedRange(task_id=task_id, first=first, last=last, count=count, reason=DropReason(reason), at=at)
        for first, last, count, reason, at in rows
    ]


def run(run_id: RunId) -> Work[Run | None]:
    rows = yield Fetch(f"{RUN_SELECT} where r.id = :id", {"id": run_id})
    return run_from(rows[0]) if rows else None


_ATTEMPT_COLUMNS = (
    "attempt",
    "status",
    "worker_id",
    "start_time",
    "end_time",
    "response_code",
    "result",
    "error_message",
    "error_details",
)


def attempts(run_id: RunId) -> Work[list[Attempt]]:
    rows = yield Fetch(
        f"select {', '.join(_ATTEMPT_COLUMNS)} from attempts where run_id = :id order by attempt", {"id": run_id}
    )
    found = [_attempt(run_id, row) for row in rows]
    current = yield from run(run_id)
    waiting = (RunStatus.SCHEDULED, RunStatus.RETRYING, RunStatus.SKIPPED)
    if current is not None and current.status not in waiting and current.start_time is not None:
        own = {name: getattr(current, name) for name in _ATTEMPT_COLUMNS}
        found = [attempt for attempt in found if attempt.attempt != current.attempt]
        found.append(Attempt(run_id=run_id, **own))
    return found


def _attempt(run_id: RunId, row: Row) -> Attempt:
    fields = dict(zip(_ATTEMPT_COLUMNS, row, strict=True))
    fields["result"] = from_json(fields["result"])
    fields["error_details"] = from_json(fields["error_details"])
    return Attempt(run_id=run_id, **fields)


def bodies(run_id: RunId, attempt: int | None) -> Work[RunBodies | None]:
    which = "" if attempt is None else " and attempt = :attempt"
    params = {"id": run_id} if attempt is None else {"id": run_id, "attempt": attempt}
    rows = yield Fetch(
        "select request_headers, request_body, response_headers, response_body, truncated from bodies"
        f" where run_id = :id{which} order by attempt desc limit 1",
        params,
    )
    if not rows:
        return None
    sent, request_body, received, response_body, truncated = rows[0]
    return RunBodies(
        request_headers=from_json(sent),
        request_body=request_body,
        response_headers=from_json(received),
        response_body=response_body,
        truncated=bool(truncated),
    )


def payload(run_id: RunId) -> Work[Any]:
    rows = yield Fetch(
        "select i.payload, t.payload from runs r join tasks t on t.id = r.task_id"
        " left join inputs i on i.run_id = r.id where r.id = :id",
        {"id": run_id},
    )
    if not rows:
        return None
    own, of_task = rows[0]
    return from_json(of_task if own is None else own)


def inputs(q: Dialect, run_ids: Sequence[RunId]) -> Work[dict[RunId, Input]]:
    rows = yield Fetch(
        "select r.id, i.payload, t.payload, i.overrides from runs r join tasks t on t.id = r.task_id"
        f" left join inputs i on i.run_id = r.id where {q.ids('r.id', 'ids')}",
        {"ids": q.pack(sorted(set(run_ids)))},
    )
    return {
        RunId(run_id): Input(from_json(of_task if own is None else own), from_json(overrides))
        for run_id, own, of_task, overrides in rows
    }


def log_lines(run_id: RunId, after: int, limit: int) -> Work[list[LogLine]]:
    rows = yield Fetch(
        "select seq, at, level, message from run_log where run_id = :id and seq > :after order by seq limit :limit",
        {"id": run_id, "after": after, "limit": limit},
    )
    return [LogLine(run_id=run_id, seq=seq, at=at, level=level, message=text) for seq, at, level, text in rows]
