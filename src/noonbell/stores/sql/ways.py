"""Which ways lead to the runs that somebody asks for. Each walks one index in the order of ids and looks at what it passes.

    trouble    runs that ended otherwise, by the index over `trouble`: one way for each status
    live       what is not over, by the narrow rows
    task       the runs of one task; or, of a few tasks and without a further filter, the newest of each
    all        every run, by id

Ids tell when a run was born, and most runs are born when they are scheduled. So a stretch of `scheduled_time` is a
stretch of ids. What was born at another time (a backfill, a retry, what was caught up on) is in a small index of its own,
`runs_stray`, and is looked for there. Nothing here rests on clocks that go right: every run is in one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noonbell.model.request import RunQuery
from noonbell.model.run import RunStatus
from noonbell.stores.migrations.m0005_stray import APART_MS, IS_STRAY
from noonbell.stores.sql import paging
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import EPOCH_MS
from noonbell.stores.sql.place import STARTED, Flag, Place
from noonbell.stores.sql.statement import Fetch, Work

ORDERS: Final = {"id": "r.id", "scheduled_time": "r.scheduled_time", "created_at": "r.created_at"}
TROUBLES: Final = (
    *(RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT),
    *(RunStatus.CANCELED, RunStatus.SKIPPED),
)
_HELD: Final = {RunStatus.RUNNING: (Place.LEASED, Place.PARENT), RunStatus.CALLBACK_PENDING: (Place.PARKED,)}
"""What the place alone tells; those who wait are told apart by `runs.status`."""
_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_LIVE: Final = (*_HELD, *_WAITING)
_TELLING: Final = frozenset({*TROUBLES, *_LIVE} - {RunStatus.SKIPPED, RunStatus.SCHEDULED})
_NATURAL: Final = IS_STRAY.format("r.").replace(">", "<=")
_LABELED: Final = "select task_id from task_labels where name = :label and value = :label_value"
_NAMED: Final = "select id from tasks where lower(name) like :text escape '!'"
_FEW: Final = 500
"""So many tasks are looked into one by one; with more of them, the next run of one is never far."""


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
        return f"select {self.id} as id from {table}{paging.where([*self.along, *conditions])}"

    def select(self, q: Dialect, conditions: Sequence[str], more: str = "") -> str:
        """What is found on it, by id."""
        table = "live l cross join runs r" if self.is_live else f"runs r{self._pinned(q)}"
        joined = ("r.id = l.run_id",) if self.is_live else ()
        where = paging.where([*joined, *self.along, *self.filters, *conditions])
        return f"select {self.id} as id{more} from {table}{where}"

    def select_in_order(self, q: Dialect, conditions: Sequence[str], falling: str) -> str:
        """The first `:look` that it passes, and of these the first `:limit` that are found.

        PostgreSQL cannot know how rare a thing is that nobody has indexed. Seeing the filters beside the index it may
        believe that another index gets there sooner; so it sees first the one, then the others.
        """
        order = f" order by {self.id}{falling} limit"
        if not q.plans_by_statistics or self.is_live or self.is_stray or not self.along:
            return f"{self.select(q, conditions)}{order} :limit"
        passed = f"select * from runs r{paging.where([*self.along, *conditions])}{order} :look"
        return f"select r.id as id from ({passed}) r{paging.where(self.filters)}{order} :limit"

    def _pinned(self, q: Dialect) -> str:
        return q.indexed_by("runs_stray") if self.is_stray else ""


@dataclass(slots=True)
class Search:
    q: Dialect
    order: paging.Order
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
    order = paging.Order.read(query.sort, ORDERS, "r.id")
    params: dict[str, Any] = {}
    search = Search(q, order, [], params)
    filters, among = _filters(query, params), ""
    if query.label is not None:
        params["label"], params["label_value"] = query.label
        among = _LABELED
    if query.text is None:
        search.ways = yield from _ways_of(q, query, filters, among, params, wanted)
    else:
        params["text"] = paging.like(query.text)
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
    for name, column in (("queue", "r.queue"), ("key", 'r."key"'), ("origin", "r.origin")):
        value = getattr(query, name)
        if value is not None:
            found.append(f"{column} = :{name}")
            params[name] = value
    for name in ("task_id", "parent_id", "worker_id"):
        if getattr(query, name) is not None:
            params[name] = getattr(query, name)
    return tuple(found)


def _ways_of(
    q: Dialect, query: RunQuery, filters: tuple[str, ...], among: str, params: dict[str, Any], wanted: int | None
) -> Work[list[Way]]:
    """The ways to the runs of these statuses; `among` gives the tasks that they belong to."""
    if among and not filters and _is_plain(query) and wanted is not None and wanted <= paging.MAX_PAGE:
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
    others = (query.task_id, query.parent_id, query.worker_id, query.since, query.until)
    return not query.status and query.sort.removeprefix("-") == "id" and all(each is None for each in others)


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
    if troubles and (query.task_id is not None or query.parent_id is not None):
        params["troubles"] = q.pack(troubles)
        ways.append(_all(query, (*filters, q.names("r.trouble", "troubles"))))
    elif troubles:
        for trouble in troubles:
            params[f"is_{trouble.lower()}"] = trouble
            ways.append(Way((f"r.trouble = :is_{trouble.lower()}",), ("r.parent_id is null", *filters)))
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
            along.append(f"(l.flags & {Flag.RETRIED}) <> 0")
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
