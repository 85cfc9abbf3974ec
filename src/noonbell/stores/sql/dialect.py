"""Where the databases differ in their SQL, and the names of a store's tables.

The tables are in a schema of their own (`store.schema`), under a prefix (`store.table_prefix`), or have plain names.
Statements are written with plain names. Before one is sent, the names in it are replaced, once for each text: tables where
SQL expects a table and in `table.column`, indexes where one is made, dropped or asked for. A column that is called like a
table keeps its name. Without a schema and a prefix, no text is changed.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noonbell.errors import SettingsError
from noonbell.stores.sql.statement import Execute, Fetch, Row, Work

MAX_PREFIX = 30
"""Characters. The longest index name and a prefix fit into the 63 of PostgreSQL."""

_PLAIN_LOCK = 7031170001

_PREFIX = re.compile(rf"[a-z_][a-z0-9_]{{0,{MAX_PREFIX - 1}}}")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TOKEN = re.compile(
    r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*"
    r"|(?P<here>current_schema\(\))|(?P<word>[A-Za-z_]\w*)|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
_BEFORE_A_TABLE = frozenset({"from", "join", "straight_join", "into", "update", "table", "using", "of"})


class TableNames:
    """How the tables and indexes of one store are called in its database."""

    def __init__(
        self,
        schema: str | None = None,
        prefix: str = "",
        *,
        tables: Collection[str] = (),
        indexes: Collection[str] = (),
    ) -> None:
        if schema is not None and not _SCHEMA.fullmatch(schema):
            raise SettingsError.field(
                "store.schema",
                f"is {schema!r}; takes up to 63 lower-case letters, digits and underscores, no digit first",
            )
        if prefix and not _PREFIX.fullmatch(prefix):
            raise SettingsError.field(
                "store.table_prefix",
                f"is {prefix!r}; takes up to {MAX_PREFIX} lower-case letters, digits and underscores, no digit first",
            )
        self.schema, self.prefix = schema, prefix
        self._tables, self._indexes = frozenset(tables), frozenset(indexes)
        self._within = "" if schema is None else f'"{schema}".'
        self.is_plain = schema is None and not prefix
        self.apply = _unchanged if self.is_plain else functools.lru_cache(maxsize=2048)(self._applied)
        """A statement as the database has to see it. Each text is taken apart once."""

    def bare(self, name: str) -> str:
        """With the prefix, without the schema: as the catalogue of the database has it."""
        return f"{self.prefix}{name}"

    def table(self, name: str) -> str:
        return f"{self._within}{self.prefix}{name}"

    def plain(self, name: str) -> str | None:
        """The plain name of what the catalogue calls so; None where it has another prefix."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    @property
    def mark(self) -> str:
        """Tells this store's locks and channels from those of others in the same database; empty where names are plain."""
        return "" if self.is_plain else hashlib.sha256(f"{self.schema or ''}/{self.prefix}".encode()).hexdigest()[:16]

    @property
    def lock_number(self) -> int:
        """For a database whose locks have numbers."""
        return _PLAIN_LOCK if self.is_plain else int(self.mark, 16) >> 2

    def _applied(self, sql: str) -> str:
        parts: list[str] = []
        words = ["", "", ""]  # the last three, brackets and dots among them
        of_index = re.match(r"\s*(create\s+(unique\s+)?|drop\s+)index\b", sql, re.IGNORECASE) is not None
        for token in _TOKEN.finditer(sql):
            text = token[0]
            if token["here"] and self.schema is not None:
                text = f"'{self.schema}'"
            elif token["word"]:
                text = self._renamed(text, words, sql[token.end() : token.end() + 1], of_index=of_index)
            parts.append(text)
            if not token["space"]:
                words = [*words[1:], token[0].lower()]
        return "".join(parts)

    def _renamed(self, word: str, before: list[str], after: str, *, of_index: bool) -> str:
        last = before[-1]
        is_dropped = before[-2:] == ["drop", "index"] or before == ["index", "if", "exists"]
        if word in self._indexes and (is_dropped or last == "index" or before[-2:] == ["indexed", "by"]):
            return self.table(word) if is_dropped else self.bare(word)
        if word not in self._tables or last == ".":
            return word
        if after == ".":
            return self.bare(word)
        opened = last == "(" and before[-2] in ("from", "join")
        if opened or (last in _BEFORE_A_TABLE and before[-2:] != ["key", "update"]) or (last == "on" and of_index):
            return self.table(word)
        return word


def _unchanged(sql: str) -> str:
    return sql


PLAIN = TableNames()


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
    call_has_label: str
    """Whether the call in the overrides of `inputs i` has the label `:label` with the value `:label_value`."""
    objects: str
    """What there is under one of `:names`: (name, `table`, `index` or what else it is, the table of an index)."""
    columns: str
    """The columns of the tables `:names`: (table, column)."""
    types: str
    """Every column of the database: (table, column, type)."""
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
    locks_end_at_server: bool = False
    """Galera: a row that is locked on one server is free on the others. What a transaction relies on, it has to write."""
    naming: TableNames = PLAIN
    """How the store's tables are called in the database."""

    @property
    def has_partial_indexes(self) -> bool:
        return self.name != "mysql"

    @property
    def builds_indexes_apart(self) -> bool:
        """An index of a large table is built outside of the transaction of its step."""
        return self.name == "postgres"

    @property
    def while_others_write(self) -> str:
        """Ends a statement that makes an index: others write meanwhile, or it is refused."""
        return " algorithm = inplace lock = none" if self.name == "mysql" else ""

    @property
    def has_partitions(self) -> bool:
        """Runs lie in several tables, and no index is unique over all of them."""
        return self.name == "postgres"

    @property
    def plans_by_statistics(self) -> bool:
        return self.name == "postgres"

    def indexed_by(self, index: str) -> str:
        """Stands after a table. SQLite keeps no statistics, and guesses wrong where one index is small and another is not."""
        return f" indexed by {index}" if self.name == "sqlite" else ""

    @property
    def by_key(self) -> str:
        """Stands after a table of which rows are changed that a list of primary keys names."""
        return BY_KEY if self.name == "mysql" else ""

    def size(self, column: str) -> str:
        """The bytes of a text; those that PostgreSQL keeps apart are not read for it."""
        return f"length(cast({column} as blob))" if self.name == "sqlite" else f"octet_length({column})"

    def fetch_by(
        self, select: str, column: str, ids: Iterable[int], more: str = "", **params: Any
    ) -> Work[Sequence[Row]]:
        """The rows whose `column` is one of `ids`; `more` follows that condition. Without ids, nothing is asked."""
        listed = sorted(set(ids))
        if not listed:
            return []
        sql = f"{select} where {self.ids(column, 'ids')}{more}"
        rows: Sequence[Row] = yield Fetch(sql, {"ids": self.pack(listed), **params})
        return rows

    def fetch_pairs(
        self, columns: str, table: str, keys: tuple[str, str], pairs: Collection[tuple[int, str]]
    ) -> Work[Sequence[Row]]:
        """The rows of a table whose columns `keys` are one of these pairs. Without pairs, nothing is asked."""
        if not pairs:
            return []
        number, name = keys
        listed = sorted(pairs)
        params: dict[str, Any] = {"pairs": self.pack(listed)}
        where = f"({number}, {name}) in :pairs"
        source = table
        if self.name == "postgres":
            # One row after the other by the index, under all statistics of the table.
            source = (
                f"unnest(:numbers::bigint[], :names::text[]) as pair(number, name) cross join lateral (select {columns}"
                f" from {table} t where t.{number} = pair.number and t.{name} = pair.name offset 0) found"
            )
            where, columns = "true", "found.*"
            params = {"numbers": [pair[0] for pair in listed], "names": [pair[1] for pair in listed]}
        elif self.name == "sqlite":
            where = (
                f"({number}, {name}) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]')"
                " from json_each(:pairs))"
            )
        rows: Sequence[Row] = yield Fetch(f"select {columns} from {source} where {where}", params)
        return rows

    def delete_by(self, table: str, column: str, ids: Sequence[int]) -> Work[None]:
        if ids:
            yield Execute(f"delete from {table} where {self.ids(column, 'ids')}", {"ids": self.pack(ids)})

    def delete_active(self, run_ids: Any) -> Execute:
        """Delete these rows of `live`; `run_ids` are packed."""
        # MySQL takes a hint only in a delete that names what it deletes from.
        rows = f"delete l from live l{BY_KEY}" if self.name == "mysql" else "delete from live"
        return Execute(f"{rows} where {self.ids('run_id', 'ids')}", {"ids": run_ids})

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
    """The name as it is."""
    return sql, ()


def update_from(columns: Mapping[str, str], condition: str) -> str:
    sets = ", ".join(f"{column} = {expression}" for column, expression in columns.items())
    return f"update runs set {sets} from live l where l.run_id = runs.id and {condition}"


BY_KEY = " force index (primary)"
"""MySQL reads a small table from end to end otherwise, and waits for the rows of others on the way."""


def update_join(columns: Mapping[str, str], condition: str) -> str:
    sets = ", ".join(f"r.{column} = {expression}" for column, expression in columns.items())
    return f"update live l{BY_KEY} straight_join runs r{BY_KEY} on r.id = l.run_id set {sets} where {condition}"


def on_conflict(key: str, columns: Sequence[str]) -> str:
    sets = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return f" on conflict ({key}) do update set {sets}"


def on_duplicate(key: str, columns: Sequence[str]) -> str:
    del key  # the database finds the key by itself
    sets = ", ".join(f"{column} = values({column})" for column in columns)
    return f" on duplicate key update {sets}"
