"""Events: written with the change they tell of, numbered when they are read.

An id handed out before its transaction commits becomes visible out of order, and a reader of "after the last id" loses
what commits late. So an event has no number at first. A reader locks the counter, numbers what is committed by
then, and reads by number: what it has read, it has read whole. Without a reader, numbers are given in upkeep only.

What has no number yet is numbered by time, not by id: nodes reserve ids in blocks, and the claim of a run may have taken its
id before another node published that run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from noonbell.clock import Instant
from noonbell.model.event import Event, EventPage
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Execute, Fetch, InsertEvents, NewIds, Row, UpdateMany, Work

_NUMBER_AT_ONCE = 5_000


def tell(type_: str, facts: Iterable[tuple[Any, ...]]) -> Work[None]:
    """Write one row for all these facts of one type. A fact is (task id, run id, …) as `expand` reads it."""
    listed = list(facts)
    if listed:
        ids = yield NewIds(1)
        yield InsertEvents([(ids[0], type_, to_json(listed))])


def tell_all(facts: Mapping[str, list[tuple[Any, ...]]]) -> Work[None]:
    """Write one row for each type."""
    told = {type_: listed for type_, listed in facts.items() if listed}
    if told:
        ids = yield NewIds(len(told))
        yield InsertEvents(
            [(id_, type_, to_json(listed)) for id_, (type_, listed) in zip(ids, told.items(), strict=True)]
        )


def read(q: Dialect, after: int, limit: int = 1000) -> Work[list[Event]]:
    yield from number(q)
    rows = yield Fetch(_READ, {"after": after, "limit": limit})
    return (yield from _events(q, rows))


def waiting() -> Work[bool]:
    """Whether something is committed that has no number yet."""
    return bool((yield Fetch("select 1 from events where seq is null limit 1")))


def page(q: Dialect, after: int, limit: int, types: Collection[str] | None) -> Work[EventPage]:
    """What is numbered already. `types`: rows of other types are passed over unread."""
    newest = yield from last()  # before the rows: what is numbered in between must not look like a gap
    rows = yield Fetch(_READ, {"after": after, "limit": limit})
    upto = rows[-1][0] if rows else newest
    has_gap = rows[0][0] != after + 1 if rows else newest != after
    wanted = rows if types is None else [row for row in rows if row[2] in types]
    events = yield from _events(q, wanted)
    return EventPage(events=events, upto=upto, newest=newest, is_full=len(rows) >= limit, has_gap=has_gap)


def last() -> Work[int]:
    """The highest number given so far."""
    rows = yield Fetch("select value from counters where name = 'events'")
    return int(rows[0][0])


def forget(q: Dialect, before: Instant, limit: int) -> Work[int]:
    """Remove the oldest events, a batch at most. Only what has a number: a reader then sees that there is a gap."""
    rows = yield Fetch("select id, at from events where seq is not null order by seq limit :limit", {"limit": limit})
    ids = [row[0] for row in rows if row[1] < before]
    if ids:
        yield Execute(f"delete from events where {q.ids('id', 'ids')}", {"ids": q.pack(ids)})
    return len(ids)


def number(q: Dialect) -> Work[int]:
    """Give a number to every event that is committed and has none; how many."""
    waiting = yield Fetch("select 1 from events where seq is null limit 1")
    if not waiting:
        return 0
    rows = yield Fetch("select value from counters where name = 'events'" + q.lock)
    last = int(rows[0][0])
    found = yield Fetch(
        "select id from events where seq is null order by at, id limit :limit", {"limit": _NUMBER_AT_ONCE}
    )
    numbered = [(row[0], last + index) for index, row in enumerate(found, 1)]
    if numbered:
        yield UpdateMany("events", "id", ("seq",), numbered)
        yield Execute("update counters set value = :value where name = 'events'", {"value": last + len(numbered)})
    return len(numbered)


_READ = "select seq, at, type, data from events where seq > :after order by seq limit :limit"


def _events(q: Dialect, rows: Sequence[Row]) -> Work[list[Event]]:
    read = [(row, from_json(row[3])) for row in rows]
    ids = {fact[0] for _, facts in read for fact in facts if fact[0] is not None}
    tasks: dict[int, tuple[str, str]] = {}
    if ids:
        found = yield Fetch(f"select id, name, queue from tasks where {q.ids('id', 'ids')}", {"ids": q.pack(list(ids))})
        tasks = {row[0]: (row[1], row[2]) for row in found}
    return [event for (seq, at, type_, _), facts in read for event in expand(seq, at, type_, facts, tasks)]


def expand(
    seq: int, at: Instant, type_: str, facts: Sequence[Any], tasks: Mapping[int, tuple[str, str]]
) -> list[Event]:
    """The facts of one row. Long rows are runs that changed alike: this is the loop that listening costs."""
    events = []
    for index, (task_id, run_id, *rest) in enumerate(facts):
        told = rest[0] if rest else None
        topic, queue = tasks.get(task_id) or (None, None)
        if isinstance(told, dict):
            data, topic, queue = told, told.get("topic") or topic or told.get("name"), told.get("queue") or queue
        else:
            data = {} if told is None else {"status": told}
        events.append(
            Event(
                seq=seq,
                index=index,
                at=at,
                type=type_,
                task_id=task_id,
                run_id=run_id,
                data=data,
                topic=topic,
                queue=queue,
            )
        )
    return events
