"""Reading: a task, or a page of them, filtered and sorted; one run with all that belongs to it.

Pages are by number, with a total; or by cursor, which stays put while rows are added in front of it.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument
from noonbell.model.access import TokenScope
from noonbell.model.call import CALL_TYPE
from noonbell.model.event import LogLine
from noonbell.model.request import Page, RunInput, TaskQuery, share_of
from noonbell.model.run import MOST_ATTEMPTS, Attempt, DroppedRange, Run, RunBodies, RunId, RunStatus
from noonbell.model.task import SYSTEM_TASK_IDS, Task, TaskId, TaskVersion
from noonbell.model.task_schedule import NEVER
from noonbell.stores.sql.active_runs import Place
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import (
    CALENDAR_COLUMNS,
    CALENDAR_JOIN,
    PAUSE_COLUMNS,
    PAUSE_JOIN,
    TASK_SELECT,
    Record,
    from_json,
    pause_from,
    task_from,
    to_json,
    use_from,
)
from noonbell.stores.sql.statement import Fetch, Row, Work

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SortOrder:
    """`expression` is the sort key, `id` breaks ties. Both are ours, never the caller's text."""

    name: str
    expression: str
    id: str
    descending: bool

    @classmethod
    def read(cls, sort: str, known: Mapping[str, str], id_: str) -> SortOrder:
        name = sort.removeprefix("-")
        if name not in known:
            raise InvalidArgument.field(
                "sort", f"is {sort!r}; expected one of {', '.join(known)}, or one with a leading -"
            )
        return cls(name, known[name], id_, sort.startswith("-"))

    @property
    def clause(self) -> str:
        way = " desc" if self.descending else ""
        if self.expression == self.id:
            return f" order by {self.id}{way}"
        return f" order by {self.expression}{way}, {self.id}{way}"

    def after(self, cursor: str, params: dict[str, Any]) -> str:
        """The condition for what comes after a cursor."""
        value, id_ = _decode(self.name, cursor)
        params["cursor_value"], params["cursor_id"] = value, id_
        than = "<" if self.descending else ">"
        if self.expression == self.id:
            del params["cursor_value"]
            return f"{self.id} {than} :cursor_id"
        return (
            f"({self.expression} {than} :cursor_value or"
            f" ({self.expression} = :cursor_value and {self.id} {than} :cursor_id))"
        )

    def cursor(self, value: Any, id_: int) -> str:
        return base64.urlsafe_b64encode(to_json([self.name, value, id_]).encode()).decode().rstrip("=")


def _decode(name: str, cursor: str) -> tuple[Any, int]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        made_for, value, id_ = msgspec.json.decode(text, type=tuple[str, int | str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidArgument.field("cursor", "is not a cursor of this list") from error
    if made_for != name or isinstance(value, str) is not (name == "name") or not 0 <= id_ <= 1 << 62:
        raise InvalidArgument.field("cursor", "belongs to a list with another sort order")
    return value, id_


def like(text: str) -> str:
    """A pattern for `like … escape '!'`: the text anywhere, its own wildcards taken literally, in lower case."""
    for special in ("!", "%", "_"):
        text = text.replace(special, "!" + special)
    return f"%{text.lower()}%"


def check(page: int, page_size: int) -> None:
    if page < 1:
        raise InvalidArgument.field("page", f"is {page}; expected 1 or more")
    if not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument.field("page_size", f"is {page_size}; expected 1 to {MAX_PAGE}")


def where(conditions: Sequence[str]) -> str:
    return f" where {' and '.join(conditions)}" if conditions else ""


TASK_ORDERS = {
    "id": "t.id",
    "name": "t.name",
    "created_at": "t.created_at",
    "updated_at": "t.updated_at",
    "next_fire_at": "coalesce(c.next_fire_at, 9000000000000000)",
}


def tasks(query: TaskQuery) -> Work[Page[Task]]:
    check(query.page, query.page_size)
    order = SortOrder.read(query.sort, TASK_ORDERS, "t.id")
    params: dict[str, Any] = {}
    conditions = _task_conditions(query, params)
    total: int | None = None
    if query.cursor is None:
        rows = yield Fetch(f"select count(*) from tasks t{where(conditions)}", params)
        total = rows[0][0]
    else:
        conditions.append(order.after(query.cursor, params))
    skip = 0 if query.cursor is not None else (query.page - 1) * query.page_size
    rows = yield Fetch(
        f"{TASK_SELECT}{where(conditions)}{order.clause} limit :limit offset :skip",
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
    elif query.job_type != CALL_TYPE:
        conditions.append("(t.job_type is null or t.job_type <> :call_type)")
        params["call_type"] = CALL_TYPE
    for name in ("status", "queue", "managed_by", "exec_type", "job_type"):
        value = getattr(query, name)
        if value is not None:
            conditions.append(f"t.{name} = :{name}")
            params[name] = value
    if query.name is not None:
        conditions.append("lower(t.name) like :name escape '!'")
        params["name"] = like(query.name)
    if query.meta_key is not None:
        conditions.append("lower(t.meta) like :meta_key escape '!'")
        params["meta_key"] = like(f'"{query.meta_key}')
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
    if query.scope is not None:
        conditions += _held(query.scope, params)
    return conditions


def _held(scope: TokenScope, params: dict[str, Any]) -> list[str]:
    """What `TokenScope.holds_task` says, of the task `t`."""
    conditions = [f"t.id <= {SYSTEM_TASK_IDS}"]
    for index, (name, value) in enumerate(scope.labels):
        params[f"held_label_{index}"], params[f"held_value_{index}"] = name, value
        conditions.append(
            f"t.id in (select task_id from task_labels where name = :held_label_{index} and value = :held_value_{index})"
        )
    if scope.queues:
        conditions.append(f"t.queue in ({_listed('held_queue', scope.queues, params)})")
    if scope.job_types:
        conditions.append(f"t.job_type in ({_listed('held_type', scope.job_types, params)})")
    if scope.has_one_target:
        conditions.append("(t.steps is null or t.steps = '[]')")
    return conditions


def held_runs(scope: TokenScope, params: dict[str, Any]) -> list[str]:
    """What `TokenScope.holds_run` says, of the run `r`."""
    # Said so, the tasks are a list that is made once.
    conditions = [f"(r.task_id in (select t.id from tasks t where {' and '.join(_held(scope, params))})) is true"]
    if scope.queues:
        conditions.append(f"r.queue in ({_listed('held_queue', scope.queues, params)})")
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


def tasks_named(q: Dialect, names: Collection[str]) -> Work[dict[str, Task]]:
    if not names:
        return {}
    sql = f"{TASK_SELECT} where {q.names('t.live_name', 'names')}"
    rows = yield Fetch(sql, {"names": q.pack(sorted(names))})
    return {task.name: task for task in map(task_from, rows)}


_VERSION = Record(TaskVersion, without=("accounted_to", "fired", "calendar_use", "pause"))
_DROPPED = Record(DroppedRange)
_LOG_LINE = Record(LogLine)


def task_versions(task_id: TaskId) -> Work[list[TaskVersion]]:
    rows = yield Fetch(
        f"select {_VERSION.select('v.')}, coalesce(m.accounted_to, {NEVER}), coalesce(m.fired, 0),"
        f" {PAUSE_COLUMNS}, {CALENDAR_COLUMNS}"
        " from task_versions v left join version_marks m on m.task_id = v.task_id and m.version = v.version"
        f"{PAUSE_JOIN.format('v', 'task_id')}{CALENDAR_JOIN.format('v', 'task_id')}"
        " where v.task_id = :id order by v.version",
        {"id": task_id},
    )
    return [_version(row) for row in rows]


def _version(row: Row) -> TaskVersion:
    pause, use = pause_from(row[-9:-5]), use_from(row[-5:])
    return _VERSION.read(row, accounted_to=row[-11], fired=row[-10], pause=pause, calendar_use=use)


def dropped(task_id: TaskId, since: Instant, until: Instant) -> Work[list[DroppedRange]]:
    rows = yield Fetch(
        f"select {_DROPPED.select()} from dropped"
        " where task_id = :id and last >= :since and first <= :until order by first",
        {"id": task_id, "since": since, "until": until},
    )
    return [_DROPPED.read(row) for row in rows]


RUN = Record(Run, without=("task_name", "lease_expires_at", "progress"), long=("result", "error_details"))
_FROM_RUNS = (
    " from runs r join tasks t on t.id = r.task_id"
    " left join live l on l.run_id = r.id left join progress p on p.run_id = r.id"
)
_BESIDE = "t.name, p.data, l.place, l.attempt, l.claimed_at, l.worker_id, l.expires_at"
"""What a run has in other tables than its own; after the columns of `RUN`."""


def run(run_id: RunId) -> Work[Run | None]:
    rows = yield Fetch(f"select {RUN.select('r.')}, {_BESIDE}{_FROM_RUNS} where r.id = :id", {"id": run_id})
    return _run(rows[0], rows[0][len(RUN.fields) :]) if rows else None


def runs_of(q: Dialect, ids: Sequence[int], share: int | None = None) -> Work[list[Run]]:
    """For a list: what is long is left out of it. Without a `share`, the fields of all runs share what a list may have.

    In no order; what was removed meanwhile is missing.
    """
    select = f"select {RUN.select_short(q, 'r.')}, {_BESIDE}{_FROM_RUNS}"
    rows = yield from q.fetch_by(select, "r.id", ids, share=share_of(len(ids)) if share is None else share)
    return [_run(row, row[-_BESIDE.count(",") - 1 :], omitted=RUN.omitted(row)) for row in rows]


def _run(row: Row, beside: Row, **more: Any) -> Run:
    """History, and the narrow row where the run is not final."""
    name, progress, place, attempt, claimed_at, worker_id, expires_at = beside
    values = RUN.values(row)
    if place is not None:
        values["attempt"] = attempt
        if place in (Place.LEASED, Place.PARENT, Place.GATHERING):
            values |= {"status": RunStatus.RUNNING, "start_time": claimed_at, "worker_id": worker_id}
    lease = expires_at if place == Place.LEASED else None
    return Run(task_name=name, lease_expires_at=lease, progress=from_json(progress), **values, **more)


_ATTEMPT = Record(Attempt, without=("bodies",), long=("result", "error_details"))
_BODIES = Record(RunBodies, long=("request_headers", "request_body", "response_headers", "response_body"))
_WAITING = (RunStatus.SCHEDULED, RunStatus.RETRYING, RunStatus.SKIPPED)


def attempts(
    q: Dialect, run_id: RunId, after: int = 0, limit: int = MOST_ATTEMPTS, *, bodies: bool = False
) -> Work[list[Attempt]]:
    """The numbers first: how many attempts there are decides what is too long for the list."""
    rows = yield Fetch(
        "select attempt from attempts where run_id = :id and attempt > :after order by attempt limit :limit",
        {"id": run_id, "after": after, "limit": limit},
    )
    numbers = {int(row[0]) for row in rows}
    (current,) = (yield from runs_of(q, [run_id], share=0)) or (None,)
    if current is None or current.status in _WAITING or current.start_time is None:
        own = None
    else:
        own = current.attempt
        numbers |= {own} if own > after else set()
    wanted = sorted(numbers)[:limit]
    if not wanted:
        return []
    share = share_of(len(wanted))
    here = {"id": run_id, "first": wanted[0], "last": wanted[-1], "share": share}
    within = "where run_id = :id and attempt >= :first and attempt <= :last"
    rows = yield Fetch(f"select {_ATTEMPT.select_short(q)} from attempts {within} order by attempt", here)
    found = [_ATTEMPT.read_short(row) for row in rows]
    if own is not None and own == wanted[-1]:
        (newest,) = (yield from runs_of(q, [run_id], share)) or (current,)
        found = [attempt for attempt in found if attempt.attempt != own]
        told = {name: getattr(newest, name) for name in (*_ATTEMPT.fields, "omitted") if name != "run_id"}
        found.append(Attempt(run_id=run_id, **told))
    if not bodies:
        return found
    rows = yield Fetch(f"select {_BODIES.select_short(q)}, attempt from bodies {within}", here)
    kept = {int(row[-1]): _BODIES.read_short(row) for row in rows}
    return [msgspec.structs.replace(attempt, bodies=kept.get(attempt.attempt)) for attempt in found]


def bodies(run_id: RunId, attempt: int | None = None) -> Work[RunBodies | None]:
    which = "" if attempt is None else " and attempt = :attempt"
    params = {"id": run_id} if attempt is None else {"id": run_id, "attempt": attempt}
    rows = yield Fetch(
        f"select {_BODIES.select()} from bodies where run_id = :id{which} order by attempt desc limit 1", params
    )
    return _BODIES.read(rows[0]) if rows else None


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


def inputs(q: Dialect, run_ids: Sequence[RunId]) -> Work[dict[RunId, RunInput]]:
    rows = yield from q.fetch_by(
        "select r.id, i.payload, t.payload, i.overrides from runs r join tasks t on t.id = r.task_id"
        " left join inputs i on i.run_id = r.id",
        "r.id",
        run_ids,
    )
    return {
        RunId(run_id): RunInput(from_json(of_task if own is None else own), from_json(overrides))
        for run_id, own, of_task, overrides in rows
    }


def log_lines(
    q: Dialect,
    run_id: RunId,
    after: int = 0,
    limit: int = 1000,
    *,
    levels: Sequence[str] = (),
    text: str | None = None,
    newest: bool = False,
) -> Work[list[LogLine]]:
    conditions = ["run_id = :id", "seq > :after"]
    params: dict[str, Any] = {"id": run_id, "after": after, "limit": limit}
    if levels:
        conditions.append(q.names("level", "levels"))
        params["levels"] = q.pack([str(level) for level in levels])
    if text is not None:
        conditions.append("lower(message) like :text escape '!'")
        params["text"] = like(text)
    way = " desc" if newest else ""
    rows = yield Fetch(
        f"select {_LOG_LINE.select()} from run_log{where(conditions)} order by seq{way} limit :limit", params
    )
    found = [_LOG_LINE.read(row) for row in rows]
    return found[::-1] if newest else found
