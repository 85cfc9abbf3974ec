"""Statements of PostgreSQL that write any number of rows: each column is an array, and `unnest` makes rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.stores.sql.statement import arrays_of

NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"

Shape = tuple[str, str | None, tuple[str, ...], tuple[str, ...]]
"""Of rows that are written: the table, the key of those that are changed, the columns, and those that have one value
for all rows.
"""

_MANY = 50
"""Rows from which on it pays to look for columns that have one value."""


def cut(columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> tuple[tuple[str, ...], tuple[str, ...], list[Any]]:
    """The columns that differ from row to row, those that do not, and their values: arrays of the first, then one of each other.

    An array costs both sides time for each of its elements.
    """
    arrays = list(arrays_of(rows))
    if len(rows) < _MANY:
        return columns, (), arrays
    alike = [values[0] == values[-1] and values.count(values[0]) == len(values) for values in arrays]
    if all(alike):
        alike[0] = False
    different = [(column, values) for column, values, is_one in zip(columns, arrays, alike, strict=True) if not is_one]
    same = [(column, values[0]) for column, values, is_one in zip(columns, arrays, alike, strict=True) if is_one]
    return (
        tuple(column for column, _ in different),
        tuple(column for column, _ in same),
        [values for _, values in different] + [value for _, value in same],
    )


class ArrayStatements:
    def __init__(self, types: Mapping[str, Mapping[str, str]]) -> None:
        """`types`: of the columns of each table."""
        self._types = types
        self._made: dict[tuple[Any, ...], str] = {}

    def insert(self, table: str, columns: tuple[str, ...], same: tuple[str, ...] = ()) -> str:
        """`insert … select … from unnest(…)`: one statement for any number of rows. `same` as in a Shape."""
        key = (table, columns, same)
        sql = self._made.get(key)
        if sql is None:
            ones = self._ones(table, same, len(columns) + 1)
            source = f"unnest({self._arrays(table, columns)}) as given"
            sql = f"insert into {table} ({', '.join((*columns, *same))}) select given.*{ones} from {source}"
            self._made[key] = sql
        return sql

    def write_all(self, shapes: tuple[Shape, ...], free: str = "select true", given: int = 0) -> str:
        """Rows of several tables. `free` says whether they are written, which is the answer; it has the first `given` parameters.

        The one of events has no times, but an own last parameter: the time of all, or null for the database's.
        """
        key = (shapes, free)
        sql = self._made.get(key)
        if sql is None:
            parts = [f"free(is_free) as ({free})"]
            for number, (table, key_column, columns, same) in enumerate(shapes):
                if key_column is not None:
                    changed = self._updating(table, key_column, columns, given + 1, same)
                    parts.append(f"written_{number} as ({changed} and (select is_free from free))")
                    given += 1 + len(columns) + len(same)
                    continue
                told, more = (
                    ("", ())
                    if table != "events"
                    else (f", coalesce(${given + len(columns) + 1}::bigint, {NOW})", ("at",))
                )
                source = f"unnest({self._arrays(table, columns, given + 1)}) as given where (select is_free from free)"
                told += self._ones(table, same, given + len(columns) + 1)
                into = f"{table} ({', '.join((*columns, *more, *same))})"
                parts.append(f"written_{number} as (insert into {into} select given.*{told} from {source})")
                given += len(columns) + len(more) + len(same)
            sql = self._made[key] = f"with {', '.join(parts)} select is_free from free"
        return sql

    def update(self, table: str, key_column: str, columns: tuple[str, ...], add: bool) -> str:
        """The first array is of the key. `add`: the values are added to what is there."""
        key = (table, key_column, columns, add)
        sql = self._made.get(key)
        if sql is None and table == "live" and "place" in columns:
            sql = self._made[key] = self._moving(columns)
        if sql is None:
            sql = self._made[key] = self._updating(table, key_column, columns, add=add)
        return sql

    def _updating(
        self,
        table: str,
        key_column: str,
        columns: tuple[str, ...],
        first: int = 1,
        same: tuple[str, ...] = (),
        *,
        add: bool = False,
    ) -> str:
        arrays = self._arrays(table, (key_column, *columns), first)
        names = ", ".join(("k", *(f"c{index}" for index in range(len(columns)))))
        before = f"{table}." if add else None
        sets = ", ".join(
            f"{column} = {f'{before}{column} + ' if before else ''}v.c{index}" for index, column in enumerate(columns)
        )
        types = self._types[table]
        ones = enumerate(same, first + 1 + len(columns))
        sets = ", ".join([*([sets] if sets else []), *(f"{column} = ${n}::{types[column]}" for n, column in ones)])
        return f"update {table} set {sets} from unnest({arrays}) as v({names}) where {table}.{key_column} = v.k"

    def _moving(self, columns: tuple[str, ...]) -> str:
        """A change of place is a move to another partition, by delete and insert.

        An update would do the same, but a statement that waits for such a row gets an error instead of passing it over.
        """
        names = tuple(self._types["live"])
        values = ", ".join(f"v_{name}" if name in columns else name for name in names)
        given = ", ".join(("k", *(f"v_{column}" for column in columns)))
        return (
            f"with v({given}) as (select * from unnest({self._arrays('live', ('run_id', *columns))})),"
            f" gone as (delete from live using v where live.run_id = v.k returning live.*, v.*)"
            f" insert into live ({', '.join(names)}) select {values} from gone"
        )

    def _ones(self, table: str, columns: Sequence[str], first: int) -> str:
        types = self._types[table]
        return "".join(f", ${n}::{types[column.strip(chr(34))]}" for n, column in enumerate(columns, first))

    def _arrays(self, table: str, columns: Sequence[str], first: int = 1) -> str:
        types = self._types[table]
        return ", ".join(f"${n}::{types[column.strip(chr(34))]}[]" for n, column in enumerate(columns, first))
