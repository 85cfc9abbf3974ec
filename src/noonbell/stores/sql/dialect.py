"""Where the databases differ in what they are asked. Everything that is not here, they have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noonbell.stores.sql.naming import PLAIN, Names

_PARAM = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    lock: str
    """Ends a select that will be followed by an update of the same rows."""
    skip_locked: str
    """The same, leaving alone what another transaction holds."""
    skip_locked_l: str
    """The same, for the rows of `live l` alone where it is joined with others."""
    upsert: Callable[[str, Sequence[str]], str]
    """Ends an insert: (key, columns) → replace those columns where the key exists."""
    isin: Callable[[str, str, str], str]
    """(column, parameter, type) → the column is one of the values of a list parameter."""
    pack: Callable[[Sequence[Any]], Any]
    """A list as that parameter wants it."""
    objects: str
    """What there is under one of `:names`: (name, `table`, `index` or what else it is, the table of an index)."""
    columns: str
    """The columns of the tables `:names`: (table, column)."""
    has_index: str | None
    """Gives a row if the table `:table` has an index `:name`; None where a schema change is undone with its transaction."""
    rough_count: str | None
    """About how many rows the table `:name` has, as the server remembers it; None where counting takes no time."""
    rows_move: bool
    """A run that changes place changes tables: who waited for its row finds it gone, and has to look again."""
    alone: tuple[str, str] | None
    """What keeps others from changing the schema meanwhile (its answer is 1 if it does), and what lets them again; each
    with `{mark}` for the mark of the store's names. None: a transaction does.
    """
    from_live: Callable[[Mapping[str, str], str], str]
    """(column → expression, condition) → set columns of the rows in `runs` from their rows `l` in `live`."""
    parse: Callable[[str], tuple[str, tuple[str, ...]]]
    """`:name` parameters as the driver writes them, and the names in order."""
    folds_case: bool = False
    """Names that differ in case alone are the same name."""
    naming: Names = PLAIN
    """How the store's tables are called in the database."""

    @property
    def has_partial_indexes(self) -> bool:
        return self.name != "mysql"

    @property
    def plans_by_statistics(self) -> bool:
        return self.name == "postgres"

    def indexed_by(self, index: str) -> str:
        """Stands after a table. SQLite keeps no statistics, and guesses wrong where one index is small and another is not."""
        return f" indexed by {index}" if self.name == "sqlite" else ""

    def ids(self, column: str, parameter: str) -> str:
        return self.isin(column, parameter, "bigint")

    def names(self, column: str, parameter: str) -> str:
        return self.isin(column, parameter, "text")


def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """`$1, $2 …`, each name once."""
    order: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        return f"${order.setdefault(match[1], len(order) + 1)}"

    text = _PARAM.sub(place, sql)
    return text, tuple(order)


def percent(sql: str) -> tuple[str, tuple[str, ...]]:
    """`%s`, a name as often as it is used."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        names.append(match[1])
        return "%s"

    text = _PARAM.sub(place, sql.replace("%", "%%"))
    return text, tuple(names)


def named(sql: str) -> tuple[str, tuple[str, ...]]:
    """As it is."""
    return sql, ()


def update_from(columns: Mapping[str, str], condition: str) -> str:
    sets = ", ".join(f"{column} = {expression}" for column, expression in columns.items())
    return f"update runs set {sets} from live l where l.run_id = runs.id and {condition}"


def update_join(columns: Mapping[str, str], condition: str) -> str:
    sets = ", ".join(f"r.{column} = {expression}" for column, expression in columns.items())
    return f"update live l straight_join runs r on r.id = l.run_id set {sets} where {condition}"


def on_conflict(key: str, columns: Sequence[str]) -> str:
    sets = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return f" on conflict ({key}) do update set {sets}"


def on_duplicate(key: str, columns: Sequence[str]) -> str:
    del key  # the database finds the key by itself
    sets = ", ".join(f"{column} = values({column})" for column in columns)
    return f" on duplicate key update {sets}"
