"""Searching runs. A search follows one or more paths; each path walks one index in the order of ids and filters on the way.

    trouble    runs that did not succeed, of all tasks or of one: one path for each status
    live       runs that are not final, by the narrow rows
    task       the runs of one task; or, of a few tasks and without a further filter, the newest of each
    all        every run, by id

An id tells when its run was inserted, and most runs are inserted when they are scheduled. So a range of `scheduled_time` is
a range of ids. Runs that were inserted at another time (a backfill, a retry, a late slot) are in a small index of their
own, `runs_stray`, and are searched there. Nothing here depends on correct clocks: every run is in one of the two.

The search finds ids first and reads only the rows that are shown. A filter without an index may pass every run before it
has found a page, so `RunQuery.look` limits how many runs are passed; the page is then short, and its cursor leads on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noonbell.clock import Instant
from noonbell.model.request import Page, RunQuery
from noonbell.model.run import Origin, Run, RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.stores.migrations.m0005_stray import APART_MS, IS_STRAY
from noonbell.stores.sql import reading
from noonbell.stores.sql.active_runs import STARTED, Place, RunFlag
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import EPOCH_MS, instant_floor
from noonbell.stores.sql.reading import runs_of
from noonbell.stores.sql.statement import Fetch, Work

ORDERS: Final = {"id": "r.id", "scheduled_time": "r.scheduled_time", "created_at": "r.created_at"}
TROUBLES: Final = (
    *(RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT),
    *(RunStatus.CANCELED, RunStatus.SKIPPED),
)
_HELD: Final = {
    RunStatus.RUNNING: (Place.LEASED, Place.PARENT, Place.GATHERING),
    RunStatus.CALLBACK_PENDING: (Place.PARKED,),
}
"""What the place alone says; waiting runs differ by `runs.status`."""
_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_LIVE: Final = (*_HELD, *_WAITING)
_TELLING: Final = frozenset({*TROUBLES, *_LIVE} - {RunStatus.SKIPPED, RunStatus.SCHEDULED})
_NATURAL: Final = IS_STRAY.format("r.").replace(">", "<=")
_LABELED: Final = "select task_id from task_labels where name = :label and value = :label_value"
_NAMED: Final = "select id from tasks where lower(name) like :text escape '!'"
_SEARCHED: Final = (
    *('lower(r."key") like :search', "lower(r.result) like :search", "lower(r.error_message) like :search"),
    "(r.task_id in (select id from tasks where lower(name) like :search escape '!')) is true",
    "(select 1 from inputs i where i.run_id = r.id and lower(i.payload) like :search escape '!') = 1",
    "(select 1 from run_log g where g.run_id = r.id and lower(g.message) like :search escape '!' limit 1) = 1",
)
"""Where a text is searched for. Each subquery reads the rows of one run: with `exists`, PostgreSQL might read the whole table."""
_FEW: Final = 500
"""Up to this number, tasks are looked into one by one; with more of them, the next run of one is never far."""


@dataclass(frozen=True, slots=True)
class Way:
    """One index to walk. `along` is what it serves; `filters` are looked at row by row."""

    along: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    is_live: bool = False
    """Along the narrow rows, each with its wide one beside it."""
    is_stray: bool = False
    """Along the index of stray runs, which is by time: the few that are found are put in order afterwards."""
    newest_of: str = ""
    """Not one index: of each of these tasks, as many of the newest as the page needs."""

    @property
    def id(self) -> str:
        """With a sign before it, no database takes the primary key for the shorter way."""
        return "l.run_id" if self.is_live else "+r.id" if self.is_stray else "r.id"

    def passed(self, q: Dialect, conditions: Sequence[str]) -> str:
        """All that this way passes, by id."""
        table = "live l" if self.is_live else f"runs r{self._pinned(q)}"
        return f"select {self.id} as id from {table}{reading.where([*self.along, *conditions])}"

    def select(self, q: Dialect, conditions: Sequence[str], more: str = "") -> str:
        """What is found on it, by id."""
        table = "live l cross join runs r" if self.is_live else f"runs r{self._pinned(q)}"
        joined = ("r.id = l.run_id",) if self.is_live else ()
        where = reading.where([*joined, *self.along, *self.filters, *conditions])
        return f"select {self.id} as id{more} from {table}{where}"

    def select_in_order(self, q: Dialect, conditions: Sequence[str], falling: str) -> str:
        """The first `:look` that it passes, and of these the first `:limit` that are found.

        PostgreSQL cannot know how rare a value without an index is. Seeing the filters beside the index it may
        believe that another index gets there sooner; so it sees first the one, then the others.
        """
        order = f" order by {self.id}{falling} limit"
        if not q.plans_by_statistics or self.is_live or self.is_stray or not self.along:
            return f"{self.select(q, conditions)}{order} :limit"
        passed = f"select * from runs r{reading.where([*self.along, *conditions])}{order} :look"
        return f"select r.id as id from ({passed}) r{reading.where(self.filters)}{order} :limit"

    def _pinned(self, q: Dialect) -> str:
        return q.indexed_by("runs_stray") if self.is_stray else ""


@dataclass(slots=True)
class Search:
    q: Dialect
    order: reading.SortOrder
    ways: list[Way]
    params: dict[str, Any]
    is_doubled: bool = False
    """A run may be found in two ways."""
    after: list[str] = field(default_factory=list)
    """Where the cursor starts, in an order other than that of ids."""

    @property
    def together(self) -> str:
        return " union " if self.is_doubled else " union all "

    @property
    def falling(self) -> str:
        return " desc" if self.order.descending else ""

    def starting(self, way: Way, start: int | None) -> list[str]:
        """Beyond where the page begins."""
        return [] if start is None else [f"{way.id} {'<' if self.order.descending else '>'} :start"]


def search_for(q: Dialect, query: RunQuery, wanted: int | None) -> Work[Search]:
    """`wanted`: how many runs are to be found; None: all of them."""
    order = reading.SortOrder.read(query.sort, ORDERS, "r.id")
    params: dict[str, Any] = {}
    search = Search(q, order, [], params)
    filters, among = _filters(query, params), ""
    if query.label is not None:
        params["label"], params["label_value"] = query.label
        if query.origin is Origin.CALL:
            filters = (*filters, f"exists (select 1 from inputs i where i.run_id = r.id and {q.call_has_label})")
        else:
            among = _LABELED
    if query.text is None and not among and not filters and (yield from _is_whole_task(q, query, params)):
        search.ways = [Way(("r.task_id = :task_id",))]
    elif query.text is None:
        search.ways = yield from _ways_of(q, query, filters, among, params, wanted)
    else:
        params["text"] = reading.like(query.text)
        named = filters if not among else (*filters, _among(among))
        search.ways = yield from _ways_of(q, query, named, _NAMED, params, wanted)
        search.ways += _told(q, query, named, params)
        search.is_doubled = True
    if query.since is not None or query.until is not None:
        search.ways = [each for way in search.ways for each in _within(q, query, way, params)]
    if query.cursor is not None:
        after = order.after(query.cursor, params)
        search.after = [] if order.name == "id" else [after]
    return search


def _filters(query: RunQuery, params: dict[str, Any]) -> tuple[str, ...]:
    """What is looked at in every run that is passed."""
    found = []
    for name, column in (("queue", "r.queue"), ("key", 'r."key"'), ("origin", "r.origin"), ("step_id", "r.step_id")):
        value = getattr(query, name)
        if value is not None:
            found.append(f"{column} = :{name}")
            params[name] = value
    for name in ("task_id", "parent_id", "worker_id"):
        if getattr(query, name) is not None:
            params[name] = getattr(query, name)
    if query.search is not None:
        params["search"] = reading.like(query.search)
        found.append(f"({' or '.join(_escaped(each) for each in _SEARCHED)})")
    if query.scope is not None:
        found += reading.held_runs(query.scope, params)
    return tuple(found)


def _escaped(condition: str) -> str:
    return f"{condition} escape '!'" if condition.endswith(":search") else condition


def _ways_of(
    q: Dialect, query: RunQuery, filters: tuple[str, ...], among: str, params: dict[str, Any], wanted: int | None
) -> Work[list[Way]]:
    """The ways to the runs of these statuses; `among` gives the tasks that they belong to."""
    is_plain = query.task_id is None and _is_plain(query)
    if among and not filters and is_plain and wanted is not None and wanted <= reading.MAX_PAGE:
        few = yield Fetch(f"select count(*) from ({among} limit {_FEW + 1}) few", params)
        if few[0][0] <= _FEW:
            return [Way(newest_of=among, filters=("r.parent_id is null",))] if few[0][0] else []
    if among:
        filters = (*filters, _among(among))
    if query.status:
        return _by_status(q, query, query.status, filters, params)
    if query.worker_id is None:
        return [_all(query, filters)]
    ended = _all(
        query, (*filters, "r.worker_id = :worker_id", "not exists (select 1 from live h where h.run_id = r.id)")
    )
    return [ended, *_live(q, query, _LIVE, filters, params)]


def _among(tasks: str) -> str:
    """Said so, it is looked up in a list that is made once. A plain `in` may be walked the other way round: from the tasks."""
    return f"(r.task_id in ({tasks})) is true"


def _is_plain(query: RunQuery) -> bool:
    """Whether nothing is asked but which tasks."""
    others = (query.parent_id, query.worker_id, query.since, query.until)
    return not query.status and query.sort.removeprefix("-") == "id" and all(each is None for each in others)


def _is_whole_task(q: Dialect, query: RunQuery, params: dict[str, Any]) -> Work[bool]:
    """Whether the runs of one task are to be counted, and none of them is a part: then its index alone counts them."""
    is_counted = query.cursor is None and (query.count_to is None or query.count_to > query.page_size)
    if query.task_id is None or not (is_counted and _is_plain(query) and q.has_partial_indexes):
        return False
    sql = "select 1 from runs where task_id = :task_id and parent_id is not null limit 1"
    return not (yield Fetch(sql, {"task_id": params["task_id"]}))


def _told(q: Dialect, query: RunQuery, filters: tuple[str, ...], params: dict[str, Any]) -> list[Way]:
    """The ways to what an error message says: only these have one."""
    statuses = tuple(status for status in query.status or tuple(RunStatus) if status in _TELLING)
    return _by_status(q, query, statuses, (*filters, "lower(r.error_message) like :text escape '!'"), params)


def _by_status(
    q: Dialect, query: RunQuery, statuses: tuple[RunStatus, ...], filters: tuple[str, ...], params: dict[str, Any]
) -> list[Way]:
    ways = _live(q, query, statuses, filters, params)
    if query.worker_id is not None:
        filters = (*filters, "r.worker_id = :worker_id")
    troubles = [str(status) for status in statuses if status in TROUBLES]
    has_index = query.parent_id is None and (query.task_id is None or q.has_partial_indexes)
    if troubles and not has_index:
        params["troubles"] = q.pack(troubles)
        ways.append(_all(query, (*filters, q.names("r.trouble", "troubles"))))
    elif troubles:
        of_task = () if query.task_id is None else ("r.task_id = :task_id",)
        for trouble in troubles:
            params[f"is_{trouble.lower()}"] = trouble
            ways.append(Way((*of_task, f"r.trouble = :is_{trouble.lower()}"), ("r.parent_id is null", *filters)))
    ends = [str(status) for status in statuses if status not in TROUBLES and status not in _LIVE]
    if ends:
        params["ends"] = q.pack(ends)
        ways.append(_all(query, (*filters, q.names("r.status", "ends"))))
    return ways


def _all(query: RunQuery, filters: tuple[str, ...]) -> Way:
    """Along the runs of a fan-out, of a task, or all of them."""
    if query.parent_id is not None:
        of_task = () if query.task_id is None else ("r.task_id = :task_id",)
        return Way(("r.parent_id = :parent_id",), (*of_task, *filters))
    along = () if query.task_id is None else ("r.task_id = :task_id",)
    return Way(along, ("r.parent_id is null", *filters))


def _live(
    q: Dialect, query: RunQuery, statuses: tuple[RunStatus, ...], filters: tuple[str, ...], params: dict[str, Any]
) -> list[Way]:
    own = ["l.parent_id is null" if query.parent_id is None else "l.parent_id = :parent_id"]
    if query.task_id is not None:
        own.append("l.task_id = :task_id")
    if query.worker_id is not None:
        own.append("coalesce(l.worker_id, r.worker_id) = :worker_id")
    ways = [
        Way((f"l.place in ({_listed(_HELD[status])})",), (*own, *filters), is_live=True)
        for status in statuses
        if status in _HELD
    ]
    waiting = [str(status) for status in statuses if status in _WAITING]
    if waiting:
        params["waiting"] = q.pack(waiting)
        own.append(q.names("r.status", "waiting"))
        along = [f"l.place not in ({_listed(STARTED)})"]
        if RunStatus.SCHEDULED not in statuses:  # told by the narrow row, so that a long queue is passed by in no time
            along.append(f"(l.flags & {RunFlag.RETRIED}) <> 0")
        ways.append(Way(tuple(along), (*own, *filters), is_live=True))
    return ways


def _listed(places: Sequence[Place]) -> str:
    return ", ".join(str(int(place)) for place in places)


def _within(q: Dialect, query: RunQuery, way: Way, params: dict[str, Any]) -> list[Way]:
    """The same way through a stretch of time: along its ids, and to those who were born at another time."""
    times, born = [], []
    if query.since is not None:
        params["since"], params["first"] = query.since, _id_at(query.since, -APART_MS - 1)
        times.append("r.scheduled_time >= :since")
        born.append("r.id >= :first")
    if query.until is not None:
        params["until"], params["last"] = query.until, _id_at(query.until, APART_MS + 2)
        times.append("r.scheduled_time <= :until")
        born.append("r.id < :last")
    if way.is_live or not q.has_partial_indexes:
        return [replace(way, filters=(*way.filters, *times))]
    natural = replace(way, along=(*way.along, *born), filters=(*way.filters, *times, _NATURAL))
    return [natural, Way((IS_STRAY.format("r."), *times), (*way.along, *way.filters), is_stray=True)]


def _id_at(instant: int, apart_ms: int) -> int:
    """What ids begin with at that many milliseconds from an instant; never below none, nor beyond all."""
    return min(max(0, instant // 1000 - EPOCH_MS + apart_ms) << 12, 1 << 62)


_GLANCE: Final = 5_000
"""Runs that are looked at first: most searches are over by then."""


def runs(q: Dialect, query: RunQuery) -> Work[Page[Run]]:
    reading.check(query.page, query.page_size)
    skip = 0 if query.cursor is not None else (query.page - 1) * query.page_size
    wanted = skip + query.page_size
    total, is_least, cap = None, False, query.count_to
    if query.cursor is None and cap is None:
        total = yield from _count((yield from search_for(q, query, None)))
    elif query.cursor is None and cap is not None:
        wanted = max(wanted, cap)
    search = yield from search_for(q, query, wanted)
    ids, edge = yield from _find(search, wanted + 1, query)
    if query.cursor is None and cap is not None:
        total, is_least = min(len(ids), wanted), len(ids) > wanted or edge is not None
    found = yield from _read(q, ids[skip : skip + query.page_size])
    cursor = None
    if found and len(ids) > skip + query.page_size:
        cursor = search.order.cursor(getattr(found[-1], search.order.name), found[-1].id)
    elif edge is not None:
        cursor = search.order.cursor(edge, edge)
    looked_to = None if edge is None else Instant(instant_floor(edge))
    return Page(found, total, cursor, is_least=is_least, looked_to=looked_to)


def runs_by_id(q: Dialect, run_ids: Sequence[RunId]) -> Work[list[Run]]:
    ids = list(dict.fromkeys(run_ids))
    return (yield from _read(q, ids)) if ids else []


def newest_runs(q: Dialect, task_ids: Sequence[TaskId], count: int) -> Work[dict[TaskId, list[Run]]]:
    """The newest runs of each task, newest first: as many questions for a page of tasks as for one."""
    found: dict[TaskId, list[Run]] = {task_id: [] for task_id in task_ids}
    if not task_ids or count < 1:
        return found
    sql = _newest(q, q.ids("x.id", "tasks"), ("r.parent_id is null",), descending=True)
    rows = yield Fetch(sql, {"tasks": q.pack(sorted(set(task_ids))), "of_each": count, "before_last": count - 1})
    for run in (yield from _read(q, sorted((int(row[0]) for row in rows), reverse=True))):
        found[run.task_id].append(run)
    return found


def _read(q: Dialect, ids: Sequence[int]) -> Work[list[Run]]:
    """In the order of the ids. What was removed meanwhile is left out."""
    found = {int(run.id): run for run in (yield from runs_of(q, ids))}
    return [found[id_] for id_ in ids if id_ in found]


# Along them


def _find(search: Search, limit: int, query: RunQuery) -> Work[tuple[list[int], int | None]]:
    """Ids in order, `limit` at most; and how far was looked, where that was not to the end."""
    start = search.params.get("cursor_id") if not search.after else None
    finds_all = all(not way.filters and not way.newest_of for way in search.ways)
    if query.look is None or search.order.name != "id" or (finds_all and limit <= query.look):
        return (yield from _walk(search, limit, start)), None
    found: list[int] = []
    edge: int | None = None
    share = max(1, query.look // max(1, len(search.ways)))
    for look in (min(_GLANCE, share), max(1, share - _GLANCE)):
        edge = yield from _edge(search, look, start)
        found += yield from _walk(search, limit - len(found), start, edge, look)
        if len(found) >= limit or edge is None:
            return found, None
        start = edge
    return found, edge


def _edge(search: Search, look: int, start: int | None) -> Work[int | None]:
    """The last id that may be looked at: where the first of the ways has passed that number; None if none of them has."""
    parts = [
        f"{way.passed(search.q, search.starting(way, start))} order by {way.id}{search.falling} limit 1 offset :look"
        for way in search.ways
        if not way.newest_of
    ]
    if not parts:
        return None
    rows = yield Fetch(_joined(parts, " union all "), {**search.params, "look": look - 1, "start": start})
    edges = [int(row[0]) for row in rows]
    return (max if search.order.descending else min)(edges) if edges else None


def _walk(
    search: Search, limit: int, start: int | None, edge: int | None = None, look: int | None = None
) -> Work[list[int]]:
    if not search.ways:
        return []
    params = {**search.params, "limit": limit, "of_each": limit, "before_last": limit - 1}
    params |= {"start": start, "edge": edge, "look": look}
    if search.order.name != "id":
        key = f", {search.order.expression} as sorted_by"
        parts = [way.select(search.q, search.after, key) for way in search.ways]
        order = f"sorted_by{search.falling}, id{search.falling}"
        rows = yield Fetch(f"{_joined(parts, search.together, 'id, sorted_by')} order by {order} limit :limit", params)
        return [int(row[0]) for row in rows]
    parts = []
    for way in search.ways:
        stretch = search.starting(way, start)
        if edge is not None:
            stretch.append(f"{way.id} {'>=' if search.order.descending else '<='} :edge")
        if way.newest_of:
            among = f"x.id in ({way.newest_of})"
            of_each = _newest(search.q, among, (*way.filters, *stretch), descending=search.order.descending)
            parts.append(f"{of_each} order by id{search.falling} limit :limit")
        elif look is not None:
            parts.append(way.select_in_order(search.q, stretch, search.falling))
        else:
            parts.append(f"{way.select(search.q, stretch)} order by {way.id}{search.falling} limit :limit")
    rows = yield Fetch(f"{_joined(parts, search.together)} order by id{search.falling} limit :limit", params)
    return [int(row[0]) for row in rows]


def _joined(parts: Sequence[str], together: str, columns: str = "id") -> str:
    return together.join(f"select {columns} from ({part}) w{number}" for number, part in enumerate(parts))


def _newest(q: Dialect, among: str, conditions: Sequence[str], *, descending: bool) -> str:
    """Of each task `x`, the first `:of_each` in this order: a page of all of them is among that.

    PostgreSQL plans by statistics: without a limit in a `lateral` it may read all runs there are where a page has many of the
    tasks. MariaDB and SQLite have no `lateral`, and look up task by task.
    """
    own = " and ".join(condition.replace("r.", "k.") for condition in conditions)
    way, than, none = (" desc", ">=", 0) if descending else ("", "<=", 1 << 62)
    found = f"select k.id from runs k where k.task_id = x.id and {own} order by k.id{way} limit"
    if q.plans_by_statistics:
        return f"select n.id as id from tasks x cross join lateral ({found} :of_each) n where {among}"
    return (
        f"select r.id as id from tasks x cross join runs r where {among} and r.task_id = x.id"
        f" and {' and '.join(conditions)} and r.id {than} coalesce(({found} 1 offset :before_last), {none})"
    )


def _count(search: Search) -> Work[int]:
    """The number of all of them, counted one by one: for callers that must know."""
    if not search.ways:
        return 0
    parts = _joined([way.select(search.q, ()) for way in search.ways], search.together)
    rows = yield Fetch(f"select count(*) from ({parts}) found", search.params)
    return int(rows[0][0])
