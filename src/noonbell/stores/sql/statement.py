"""What a transition may ask of the store that drives it, and driving it over an asynchronous connection with retries."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, overload

from noonbell.errors import StoreUnavailable
from noonbell.stores.blocking import Blocker

Row: TypeAlias = Sequence[Any]
Params: TypeAlias = Mapping[str, Any]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fetch:
    """Answers with the rows. Parameters are written `:name`."""

    sql: str
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gather(Fetch):
    """A Fetch of many rows. A driver that pays for each of them may bring all over in one piece; see `numbered`."""

    columns: int = 0


def numbered(*columns: str) -> str:
    """Columns of a Gather, named c0, c1, … so that a driver can name them again."""
    return ", ".join(f"{column} as c{number}" for number, column in enumerate(columns))


@dataclass(frozen=True, slots=True)
class Execute:
    """Answers with how many rows changed."""

    sql: str
    params: Params = field(default_factory=dict)


def update(table: str, where: Params, **values: Any) -> Execute:
    """Set columns of the rows that have the values of `where`."""
    sets = ", ".join(f"{column} = :{column}" for column in values)
    conditions = " and ".join(f"{column} = :is_{column}" for column in where)
    params = {**values, **{f"is_{column}": value for column, value in where.items()}}
    return Execute(f"update {table} set {sets} where {conditions}", params)


def delete(table: str, **where: Any) -> Execute:
    """Delete the rows that have these values."""
    conditions = " and ".join(f"{column} = :{column}" for column in where)
    return Execute(f"delete from {table} where {conditions}", where)


def matching(**given: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    """What stands behind `where` for conditions whose parameter may be None, which leaves them out; and the parameters."""
    known = {name: each for name, each in given.items() if each[1] is not None}
    conditions = " and ".join(condition for condition, _ in known.values())
    return conditions or "1 = 1", {name: value for name, (_, value) in known.items()}


class Columns(Sequence[Row]):
    """Rows that are held by column: what writes many rows by arrays, one for each column, need not take them apart."""

    __slots__ = ("arrays",)

    def __init__(self, arrays: Sequence[Sequence[Any]]) -> None:
        """One for each column, all of the same length."""
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Columns: ...
    def __getitem__(self, place: int | slice) -> Row | Columns:
        if isinstance(place, slice):
            return Columns([array[place] for array in self.arrays])
        return tuple(array[place] for array in self.arrays)

    def __iter__(self) -> Iterator[Row]:
        return zip(*self.arrays, strict=True)


def arrays_of(rows: Sequence[Row]) -> Sequence[Sequence[Any]]:
    """The values of each column."""
    return rows.arrays if isinstance(rows, Columns) else list(zip(*rows, strict=True))


@dataclass(frozen=True, slots=True)
class InsertMany:
    """All rows in one statement, or as near to it as the database gets. A duplicate key raises Conflict."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


def insert(table: str, **values: Any) -> InsertMany:
    """One row."""
    return InsertMany(table, tuple(values), [tuple(values.values())])


@dataclass(frozen=True, slots=True)
class UpdateMany:
    """Each row is the value of `key`, then the new values of `columns`. Answers with how many rows changed."""

    table: str
    key: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    add: bool = False
    """The values are added to what is there."""


@dataclass(frozen=True, slots=True)
class InsertEvents:
    """Each row is an id, a type and the data. The database's clock gives the time, when it carries this out: after every
    lock that the transaction waited for, so that what it tells has a later time than what it saw.
    """

    rows: Sequence[tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class WriteAll:
    """Rows of several tables: where the database can, in one statement. No row is in two of them. A duplicate key
    raises Conflict.
    """

    writes: Sequence[InsertMany | InsertEvents | UpdateMany]


@dataclass(frozen=True, slots=True)
class Now:
    """Answers with the store's clock, read at this point of the transaction."""


@dataclass(frozen=True, slots=True)
class NewIds:
    """Answers with `count` fresh ids, ascending and roughly ordered by time."""

    count: int


@dataclass(frozen=True, slots=True)
class NewNumbers:
    """Answers with `count` numbers in a row that follow the last of a counter.

    On a server they are taken in a transaction of their own, so that none waits for another's commit. Those of a
    transaction that is rolled back are not given again, and a higher number may be committed before a lower one.
    """

    counter: str
    count: int


Statement: TypeAlias = Fetch | Execute | InsertMany | InsertEvents | WriteAll | UpdateMany | Now | NewIds | NewNumbers
Work: TypeAlias = Generator[Statement, Any, T]


def insert_new(table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> Work[Sequence[int]]:
    """Rows that get fresh ids in their column `id`; these ids."""
    ids: Sequence[int] = yield NewIds(len(rows))
    yield InsertMany(table, ("id", *columns), [(id_, *row) for id_, row in zip(ids, rows, strict=True)])
    return ids


def inserts_of(work: Work[None]) -> Work[list[InsertMany | InsertEvents]]:
    """What `work` would insert; nothing is written. What else it asks for is passed on."""
    found: list[InsertMany | InsertEvents] = []
    answer: Any = None
    with contextlib.suppress(StopIteration):
        while True:
            statement = work.send(answer)
            if isinstance(statement, InsertMany | InsertEvents):
                found.append(statement)
                answer = len(statement.rows)
            else:
                answer = yield statement
    return found


class Conflict(Exception):
    """A unique key stood in the way."""


MAX_TRIES = 20
LOCK_SECONDS = 2
"""How long one statement waits for a lock. The drivers set it for their sessions."""
WAIT_AT_MOST = 6.0
"""Seconds that a call waits for locks, all its tries together."""


class TryAgain(Exception):
    """The database gave up this transaction for another's sake; the same one again will do."""


class LockTimeout(TryAgain):
    """The transaction waited for a lock that another session holds, for as long as one statement may."""


class StillLocked(StoreUnavailable):
    """The server answers, but a lock was not given up in all the time that a call waits."""


async def drive(work: Callable[[], Work[T]], do: Callable[[Statement], Awaitable[Any]]) -> T:
    """Run a transition to its end, inside a transaction that the caller opens and closes."""
    steps = work()
    try:
        statement = next(steps)
        while True:
            try:
                answer = await do(statement)
            except Exception as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def until_it_holds(
    once: Callable[[], Awaitable[T]], blocker: Blocker | None = None, wait_at_most: float = WAIT_AT_MOST
) -> T:
    """Again after TryAgain, with a growing and random pause, so that two who met do not meet again.

    After `wait_at_most` seconds of waiting for locks it gives up, and names who is in the way.
    """
    blocker = blocker or Blocker()
    try:
        return await _until_it_holds(once, blocker, wait_at_most)
    finally:
        blocker.over()


async def _until_it_holds(once: Callable[[], Awaitable[T]], blocker: Blocker, wait_at_most: float) -> T:
    began = time.monotonic()
    tries = 0
    while True:
        try:
            return await once()
        except LockTimeout as error:
            waited = time.monotonic() - began
            if waited + LOCK_SECONDS / 2 > wait_at_most:
                raise StillLocked(_in_the_way(waited, blocker, error)) from error
        except TryAgain as error:
            tries += 1
            if tries == MAX_TRIES:
                raise StoreUnavailable(f"the database aborted this transaction {MAX_TRIES} times: {error}") from error
        await asyncio.sleep(random.random() * 0.002 * min(2**tries, 64))  # noqa: S311 - no secret


def _in_the_way(waited: float, blocker: Blocker, error: Exception) -> str:
    holder = blocker.found or "another session"
    return f"waited {waited:.0f} s for a lock that is held by {holder}: {error}"
