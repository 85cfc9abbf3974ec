"""What a transition may ask of the store that drives it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

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


@dataclass(frozen=True, slots=True)
class InsertMany:
    """All rows in one statement, or as near to it as the database gets. A duplicate key raises Conflict."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


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
class Now:
    """Answers with the store's clock, read at this point of the transaction."""


@dataclass(frozen=True, slots=True)
class NewIds:
    """Answers with `count` fresh ids, ascending and roughly ordered by time."""

    count: int


Statement: TypeAlias = Fetch | Execute | InsertMany | UpdateMany | Now | NewIds
Work: TypeAlias = Generator[Statement, Any, T]


class Conflict(Exception):
    """A unique key stood in the way."""
