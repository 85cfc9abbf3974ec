"""Ids of runs, and what else is unique among all of them.

Ids: below 2^53, roughly ordered by time, unique over all nodes.

One counter row is the source. A node takes a block of ids at a time, so that a batch costs no trip of its own. A block
starts at the present: its upper 41 bits are the milliseconds since 2025, which leaves 4,096 ids to each, and room until
2094. What a node has not used of its block after two seconds is thrown away, so that ids stay in order to about that.

What an index cannot see to, on PostgreSQL, which has runs in partitions:

    run_slots   (task, slot): a slot has one run
    live_keys   (task, key): the newest run of a key holds it

A row whose run is gone, because it was deleted by hand, holds nothing: it is removed where it would stand in the way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from noonbell.clock import SECOND, read_monotonic
from noonbell.errors import StoreUnavailable
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Now, Row, Work, update

EPOCH_MS = 1_735_689_600_000
"""2025-01-01T00:00:00Z."""

FRESH_SECONDS = 2.0
_LEAST = 256


def floor_at(now: int) -> int:
    """The smallest id that a block taken at this instant may have."""
    return max(0, now // 1000 - EPOCH_MS) << 12


def instant_floor(run_id: int) -> int:
    """The instant that an id was taken at, to about two seconds."""
    return ((run_id >> 12) + EPOCH_MS) * 1000


class IdBlock:
    """What is left of the block in hand. Not shared between threads."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._taken_at = 0.0
        self._last_size = 0

    def take(self, count: int) -> range | None:
        """`count` ids in a row, or None: then get a new block first."""
        if self._end - self._next < count or read_monotonic() - self._taken_at > FRESH_SECONDS:
            return None
        start = self._next
        self._next += count
        return range(start, start + count)

    def give_back(self, ids: range) -> None:
        """The next `take` gives these once more. They are the last that were taken."""
        self._next, self._taken_at = ids.start, read_monotonic()

    def size_for(self, count: int) -> int:
        """How large the next block should be: twice as large as the last where that was used up while it was fresh."""
        hungry = read_monotonic() - self._taken_at <= FRESH_SECONDS
        grown = min(self._last_size * 2, 65_536) if hungry else _LEAST
        return max(count, grown, _LEAST)

    def fill(self, end: int, size: int) -> None:
        """The block that ends with `end` is ours."""
        self._next, self._end = end - size + 1, end + 1
        self._last_size = size
        self._taken_at = read_monotonic()

    def drop(self) -> None:
        """The transaction that took the block was rolled back: its ids are not used."""
        self._next = self._end = 0


class IdSource:
    """Ids for the tasks of one event loop. A new block is taken outside of the caller's transaction: no other
    transaction waits for it.
    """

    def __init__(self, reserve: Callable[[int], Awaitable[int]]) -> None:
        """`reserve` adds a size to the counter, and returns the sum."""
        self._reserve, self._block, self._reserving = reserve, IdBlock(), asyncio.Lock()
        self._failed: tuple[float, StoreUnavailable] | None = None
        """When (monotonic) and how the last reservation failed."""

    async def take(self, count: int) -> range:
        taken = self._block.take(count)
        asked = read_monotonic()
        while taken is None:
            async with self._reserving:
                taken = self._block.take(count)
                if taken is None:
                    await self._refill(count, asked)
                    taken = self._block.take(count)
        return taken

    async def _refill(self, count: int, asked: float) -> None:
        if self._failed is not None and self._failed[0] >= asked:
            raise StoreUnavailable(self._failed[1].message)  # callers that wait in line do not each wait for the store
        size = self._block.size_for(count)
        try:
            self._block.fill(await self._reserve(size), size)
        except StoreUnavailable as error:
            self._failed = (read_monotonic(), error)
            raise


IDS = "ids"
RESERVE = "update counters set value = (case when value > :floor then value else :floor end) + :size where name = :name"
RESERVED = "select value from counters where name = :name"


def reserve(counter: str, size: int) -> Work[int]:
    """Add a size to a counter, from the present on where it is that of ids; the sum."""
    floor = floor_at((yield Now())) if counter == IDS else 0
    yield Execute(RESERVE, {"name": counter, "floor": floor, "size": size})
    rows = yield Fetch(RESERVED, {"name": counter})
    return int(rows[0][0])


def read() -> Work[str | None]:
    rows = yield Fetch("select id from installation where one = 1")
    return str(rows[0][0]) if rows else None


def ensure() -> Work[str]:
    """The id; made now if there is none. Raises Conflict if another node made one at the same moment."""
    found = yield from read()
    if found is not None:
        return found
    made, now = random_installation(), (yield Now())
    yield Execute("insert into installation (one, id, made_at) values (1, :id, :now)", {"id": made, "now": now})
    return made


def replace() -> Work[str]:
    """Give the installation another id, for a copy that is to run beside its original. Runs that are there keep their
    keys.
    """
    yield from ensure()
    made, now = random_installation(), (yield Now())
    yield update("installation", {"one": 1}, id=made, made_at=now)
    return made


def random_installation() -> str:
    return secrets.token_hex(8)


TABLES: Final = {"slot": "run_slots", "live_key": "live_keys"}
"""By their column, which `runs` has too."""
_EARLIEST: Final = 15 * 86_400 * SECOND


def with_unique(insert: InsertMany) -> list[InsertMany]:
    """Rows of `runs`, and those that say what they take; of other tables the rows alone."""
    found = [insert]
    if insert.table == "runs":
        id_, task = insert.columns.index("id"), insert.columns.index("task_id")
        for column, table in TABLES.items():
            if column in insert.columns:
                place = insert.columns.index(column)
                rows = [(row[task], row[place], row[id_]) for row in insert.rows if row[place] is not None]
                if rows:
                    found.append(InsertMany(table, ("task_id", column, "run_id"), rows))
    return found


_HAS_RUN: Final = "(select 1 from runs r where r.id = u.run_id) is not null"
"""For each row by itself: with `exists`, PostgreSQL might read all runs."""


def without_run(table: str, which: str) -> str:
    """Before a `select`: of these rows, those whose run is gone are removed in the same statement, which sees them still."""
    return f"with gone as (delete from {table} u where {which} and not ({_HAS_RUN}))"


def taken_slots(q: Dialect, task_ids: Sequence[int], slots: Sequence[int]) -> Work[Sequence[Row]]:
    """(task, slot) of what has a run, among these tasks and slots."""
    which = f"{q.ids('task_id', 'tasks')} and {q.ids('slot', 'slots')}"
    sql = f"select task_id, slot from runs where {which}"
    params = {"tasks": q.pack(task_ids), "slots": q.pack(slots)}
    if q.has_partitions:
        # Runs from before `run_slots` are not in it. None was born long before its slot: calendars move one by two weeks at most.
        taken = f"select task_id, slot from run_slots u where {which} and {_HAS_RUN}"
        sql = f"{without_run('run_slots', which)} {taken} union all {sql} and id >= :first"
        params["first"] = floor_at(slots[0] - _EARLIEST)
    rows: Sequence[Row] = yield Fetch(sql, params)
    return rows


def forget(q: Dialect, run_ids: Sequence[int], columns: Sequence[str] = tuple(TABLES)) -> Work[None]:
    """What these runs take is free. Before they are deleted, or lose their key."""
    if not q.has_partitions or not run_ids:
        return
    for column in columns:
        yield Execute(
            f"delete from {TABLES[column]} u using runs r where {q.ids('r.id', 'ids')} and r.{column} is not null"
            f" and u.task_id = r.task_id and u.{column} = r.{column} and u.run_id = r.id",
            {"ids": q.pack(run_ids)},
        )


def forget_task(q: Dialect, task_id: int) -> Work[None]:
    if q.has_partitions:
        for table in TABLES.values():
            yield Execute(f"delete from {table} where task_id = :task", {"task": task_id})
