"""Events: written with the change they tell of, numbered when somebody reads.

An id handed out before its transaction commits becomes visible out of order, and whoever reads "after the last id" loses
what commits late. So an event has no number at first. A reader locks the counter, numbers whatever is committed by
then, and reads by number: what it has read, it has read whole. With nobody listening, nothing is numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noonbell.clock import Instant
from noonbell.model.event import Event
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, NewIds, Row, UpdateMany, Work

COLUMNS = ("id", "at", "type", "data")
_NUMBER_AT_ONCE = 5_000


def tell(now: Instant, type_: str, facts: Iterable[tuple[Any, ...]]) -> Work[None]:
    """One row for all of them. A fact is (task id, run id, …) as `expand` reads it."""
    listed = list(facts)
    if listed:
        ids = yield NewIds(1)
        yield InsertMany("events", COLUMNS, [(ids[0], now, type_, to_json(listed))])


def tell_all(now: Instant, facts: Mapping[str, list[tuple[Any, ...]]]) -> Work[None]:
    """One row for each type."""
    told = {type_: listed for type_, listed in facts.items() if listed}
    if told:
        ids = yield NewIds(len(told))
        rows = [(id_, now, type_, to_json(listed)) for id_, (type_, listed) in zip(ids, told.items(), strict=True)]
        yield InsertMany("events", COLUMNS, rows)


def read(q: Dialect, after: int, limit: int) -> Work[list[Event]]:
    yield from number(q)
    rows = yield Fetch(
        "select seq, at, type, data from events where seq > :after order by seq limit :limit",
        {"after": after, "limit": limit},
    )
    return [event for row in rows for event in expand(row)]


def number(q: Dialect) -> Work[int]:
    """Give a number to every event that is committed and has none; how many."""
    waiting = yield Fetch("select 1 from events where seq is null limit 1")
    if not waiting:
        return 0
    rows = yield Fetch("select value from counters where name = 'events'" + q.lock)
    last = int(rows[0][0])
    found = yield Fetch("select id from events where seq is null order by id limit :limit", {"limit": _NUMBER_AT_ONCE})
    numbered = [(row[0], last + index) for index, row in enumerate(found, 1)]
    if numbered:
        yield UpdateMany("events", "id", ("seq",), numbered)
        yield Execute("update counters set value = :value where name = 'events'", {"value": last + len(numbered)})
    return len(numbered)


def expand(row: Row) -> list[Event]:
    seq, at, type_, data = row
    events = []
    for index, fact in enumerate(from_json(data)):
        task_id, run_id, *rest = fact
        extra = rest[0] if rest and isinstance(rest[0], dict) else {}
        if rest and isinstance(rest[0], str):
            extra = {"status": rest[0]}
        events.append(
            Event(
                seq=seq,
                index=index,
                at=at,
                type=type_,
                task_id=None if task_id is None else TaskId(task_id),
                run_id=None if run_id is None else RunId(run_id),
                data=extra,
            )
        )
    return events
