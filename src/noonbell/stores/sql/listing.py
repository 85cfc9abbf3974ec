"""Lists of runs: found by id first, along an index, and only then read whole. The work grows with what is shown.

A filter that no index serves may pass by all there is before it has found a page. So whoever shows a list says how many
runs may be looked at (`RunQuery.look`); where that is used up, the page is short, and its cursor leads on from there. Which
indexes are walked is decided in `ways`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.clock import Instant
from noonbell.model.request import Page, RunQuery
from noonbell.model.run import Run
from noonbell.model.task import TaskId
from noonbell.stores.sql import paging
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import instant_floor
from noonbell.stores.sql.rows import RUN_SELECT, run_from
from noonbell.stores.sql.statement import Fetch, Work
from noonbell.stores.sql.ways import Search, Way, search_for

_GLANCE: Final = 5_000
"""Runs that are looked at first: most searches are over by then."""


def runs(q: Dialect, query: RunQuery) -> Work[Page[Run]]:
    paging.check(query.page, query.page_size)
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


def newest(q: Dialect, task_ids: Sequence[TaskId], count: int) -> Work[dict[TaskId, list[Run]]]:
    """The newest runs of each task, newest first: as many questions for a page of tasks as for one."""
    found: dict[TaskId, list[Run]] = {task_id: [] for task_id in task_ids}
    if not task_ids or count < 1:
        return found
    tasks = q.ids("x.id", "tasks")
    last = (
        "select k.id from runs k where k.task_id = x.id and k.parent_id is null order by k.id desc limit 1 offset :last"
    )
    rows = yield Fetch(
        f"select r.id from tasks x cross join runs r where {tasks} and r.task_id = x.id and r.parent_id is null"
        f" and r.id >= coalesce(({last}), 0)",
        {"tasks": q.pack(sorted(set(task_ids))), "last": count - 1},
    )
    for run in (yield from _read(q, sorted((int(row[0]) for row in rows), reverse=True))):
        found[run.task_id].append(run)
    return found


def _read(q: Dialect, ids: Sequence[int]) -> Work[list[Run]]:
    """In the order of the ids. What was removed meanwhile is left out."""
    if not ids:
        return []
    rows = yield Fetch(f"{RUN_SELECT} where {q.ids('r.id', 'ids')}", {"ids": q.pack(list(ids))})
    found = {int(run.id): run for run in map(run_from, rows)}
    return [found[id_] for id_ in ids if id_ in found]


# Along them


def _find(search: Search, limit: int, query: RunQuery) -> Work[tuple[list[int], int | None]]:
    """Ids in order, `limit` at most; and how far was looked, where that was not to the end."""
    start = search.params.get("cursor_id") if not search.after else None
    if query.look is None or search.order.name != "id":
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
    """The last id that may be looked at: where the first of the ways has passed so many; None if none of them has."""
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
    params = {**search.params, "limit": limit, "start": start, "edge": edge, "look": look}
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
            parts.append(_newest(way, stretch, search.order.descending))
        elif look is not None:
            parts.append(way.select_in_order(search.q, stretch, search.falling))
        else:
            parts.append(f"{way.select(search.q, stretch)} order by {way.id}{search.falling} limit :limit")
    rows = yield Fetch(f"{_joined(parts, search.together)} order by id{search.falling} limit :limit", params)
    return [int(row[0]) for row in rows]


def _joined(parts: Sequence[str], together: str, columns: str = "id") -> str:
    return together.join(f"select {columns} from ({part}) w{number}" for number, part in enumerate(parts))


def _newest(way: Way, stretch: Sequence[str], descending: bool) -> str:
    """Of each task what a page of its own would show: the page of all of them is among that."""
    filters = [*way.filters, *stretch]
    own = [condition.replace("r.", "k.") for condition in filters]
    way_of, than, none = (" desc", ">=", 0) if descending else ("", "<=", 1 << 62)
    last = f"select k.id from runs k where k.task_id = x.id and {' and '.join(own)} order by k.id{way_of}"
    return (
        f"select r.id as id from tasks x cross join runs r where x.id in ({way.newest_of}) and r.task_id = x.id"
        f" and {' and '.join(filters)} and r.id {than} coalesce(({last} limit 1 offset :limit), {none})"
        f" order by r.id{way_of} limit :limit"
    )


def _count(search: Search) -> Work[int]:
    """All of them, one by one: for those who must know."""
    if not search.ways:
        return 0
    parts = _joined([way.select(search.q, ()) for way in search.ways], search.together)
    rows = yield Fetch(f"select count(*) from ({parts}) found", search.params)
    return int(rows[0][0])
