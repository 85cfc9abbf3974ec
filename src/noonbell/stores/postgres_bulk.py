"""PostgreSQL's statements for any number of rows: a column is one array, and the rows are `unnest` of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Bulk:
    def __init__(self, types: Mapping[str, Mapping[str, str]]) -> None:
        """`types`: of the columns of each table."""
        self._types = types
        self._made: dict[tuple[Any, ...], str] = {}

    def insert(self, table: str, columns: tuple[str, ...]) -> str:
        """`insert … select * from unnest(…)`: one statement for any number of rows."""
        key = (table, columns)
        sql = self._made.get(key)
        if sql is None:
            sql = f"insert into {table} ({', '.join(columns)}) select * from unnest({self._arrays(table, columns)})"
            self._made[key] = sql
        return sql

    def update(self, table: str, key_column: str, columns: tuple[str, ...], add: bool) -> str:
        """The first array is of the key. `add`: the values are added to what is there."""
        key = (table, key_column, columns, add)
        sql = self._made.get(key)
        if sql is None and table == "live" and "place" in columns:
            sql = self._made[key] = self._moving(columns)
        if sql is None:
            arrays = self._arrays(table, (key_column, *columns))
            names = ", ".join(("k", *(f"c{index}" for index in range(len(columns)))))
            before = f"{table}." if add else None
            sets = ", ".join(
                f"{column} = {f'{before}{column} + ' if before else ''}v.c{index}"
                for index, column in enumerate(columns)
            )
            sql = f"update {table} set {sets} from unnest({arrays}) as v({names}) where {table}.{key_column} = v.k"
            self._made[key] = sql
        return sql

    def _moving(self, columns: tuple[str, ...]) -> str:
        """A change of place is a move to another partition, by delete and insert.

        An update would do the same, but whoever waits for such a row gets an error instead of passing it over.
        """
        names = tuple(self._types["live"])
        values = ", ".join(f"v_{name}" if name in columns else name for name in names)
        given = ", ".join(("k", *(f"v_{column}" for column in columns)))
        return (
            f"with v({given}) as (select * from unnest({self._arrays('live', ('run_id', *columns))})),"
            f" gone as (delete from live using v where live.run_id = v.k returning live.*, v.*)"
            f" insert into live ({', '.join(names)}) select {values} from gone"
        )

    def _arrays(self, table: str, columns: Sequence[str]) -> str:
        types = self._types[table]
        return ", ".join(f"${n}::{types[column.strip(chr(34))]}[]" for n, column in enumerate(columns, 1))
