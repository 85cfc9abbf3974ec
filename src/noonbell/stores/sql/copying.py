"""Rows of whole tables, read and written in batches: by a move, a backup and a restore.

The tables, their columns and their primary keys are read from the steps of the schema, so a table that a later step
makes is copied without a word here. `NOT_COPIED` and `COPIED_AT_ONCE` name those that are treated otherwise, each with
the reason.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noonbell.stores import migrations
from noonbell.stores.migrations.ownership import shape_of
from noonbell.stores.sql import ids
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Row, Work, insert

Key = tuple[Any, ...]

NOT_COPIED: Final = {
    "installation": "its id is written at the end, the rest is about the store itself",
    "schema_log": "the destination has steps of its own",
    "schema_steps": "the destination has steps of its own",
    "move_log": "belongs to the move",
    "move_gate": "belongs to the move",
    "move_progress": "belongs to the move",
}
COPIED_AT_ONCE: Final = {
    "counters": "every transaction writes them; a counter of the destination never goes back",
    "pulses": "written each second",
    "workers": "written with each heartbeat",
    "rollup_state": "a new store has its row already",
    "sla_defaults": "a new store has its row already",
}
"""Copied as a whole at the end, when nothing is written any longer. They are small."""
GENERATED: Final = {"gates": frozenset({"open"}), "run_keys": frozenset({"open"})}
"""Columns that the database writes by itself."""

BATCH_BYTES: Final = 4_000_000
MOST_ROWS: Final = 2_000
FIRST_ROWS: Final = 200
_KEYS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class CopiedTable:
    name: str
    key: tuple[str, ...]
    """The columns of the primary key."""
    columns: tuple[str, ...]
    """The key first."""

    @property
    def quoted(self) -> tuple[str, ...]:
        return tuple(map(quoted, self.columns))

    def key_of(self, row: Row) -> Key:
        return tuple(row[: len(self.key)])


def quoted(column: str) -> str:
    return f'"{column}"' if column == "key" else column


_BODY = re.compile(r"create table (?P<name>\w+) \((?P<body>.*)\)", re.DOTALL)
_OWN_KEY = re.compile(r"primary key \((?P<columns>[^)]+)\)")


def primary_key(body: str) -> tuple[str, ...]:
    """Of what stands in the brackets of `create table`; empty if there is none."""
    if own := _OWN_KEY.search(body):
        return tuple(name.strip().strip('"') for name in own["columns"].split(","))
    for line in body.split(","):
        if "primary key" in line.partition("(")[0]:
            return (line.split()[0].strip('"'),)
    return ()


@functools.lru_cache(maxsize=1)
def tables() -> Mapping[str, CopiedTable]:
    """What is copied. Every kind of store has these tables; others of PostgreSQL and MariaDB are partitions and
    addresses of processes.
    """
    statements = tuple(sql for step in migrations.STEPS for sql in step.up("sqlite"))
    keys = {made["name"]: primary_key(made["body"]) for sql in statements if (made := _BODY.match(sql))}
    found: dict[str, CopiedTable] = {}
    for name, columns in shape_of(statements).tables.items():
        if name not in NOT_COPIED:
            rest = sorted(columns - GENERATED.get(name, frozenset()) - set(keys[name]))
            found[name] = CopiedTable(name, keys[name], (*keys[name], *rest))
    return found


def batched() -> list[CopiedTable]:
    """The tables that are copied while the source is in use."""
    return [table for name, table in tables().items() if name not in COPIED_AT_ONCE]


def read_after(table: CopiedTable, after: Key | None, limit: int) -> Work[list[Row]]:
    """Read rows in the order of their keys."""
    order = ", ".join(map(quoted, table.key))
    where, params = _beyond(table, after)
    sql = f"select {', '.join(table.quoted)} from {table.name}{where} order by {order} limit :limit"
    rows = yield Fetch(sql, {**params, "limit": limit})
    return [tuple(row) for row in rows]


def _beyond(table: CopiedTable, after: Key | None) -> tuple[str, dict[str, Any]]:
    """Written out, not as a comparison of rows: MariaDB walks no index for one."""
    if after is None:
        return "", {}
    cases = []
    for number, column in enumerate(table.key):
        same = [f"{quoted(before)} = :k{n}" for n, before in enumerate(table.key[:number])]
        cases.append(" and ".join([*same, f"{quoted(column)} > :k{number}"]))
    first = f"{quoted(table.key[0])} >= :k0 and " if len(table.key) > 1 else ""
    return f" where {first}({' or '.join(cases)})", {f"k{n}": value for n, value in enumerate(after)}


def read_keys(q: Dialect, table: CopiedTable, keys: Sequence[Key]) -> Work[list[Row]]:
    found: list[Row] = []
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        where, params = _one_of(q, table, keys[start : start + _KEYS_AT_ONCE])
        rows = yield Fetch(f"select {', '.join(table.quoted)} from {table.name} where {where}", params)
        found += [tuple(row) for row in rows]
    return found


def delete_keys(q: Dialect, table: CopiedTable, keys: Sequence[Key]) -> Work[None]:
    if table.name == "runs":
        yield from ids.forget(q, [key[0] for key in keys])
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        where, params = _one_of(q, table, keys[start : start + _KEYS_AT_ONCE])
        yield Execute(f"delete from {table.name} where {where}", params)


def _one_of(q: Dialect, table: CopiedTable, keys: Sequence[Key]) -> tuple[str, dict[str, Any]]:
    if len(table.key) == 1:
        values = [key[0] for key in keys]
        column, is_number = quoted(table.key[0]), isinstance(values[0], int)
        return (q.ids if is_number else q.names)(column, "keys"), {"keys": q.pack(values)}
    params: dict[str, Any] = {}
    cases = []
    for number, key in enumerate(keys):
        cases.append(" and ".join(f"{quoted(column)} = :k{number}_{n}" for n, column in enumerate(table.key)))
        params.update({f"k{number}_{n}": value for n, value in enumerate(key)})
    return " or ".join(f"({case})" for case in cases), params


def write_rows(table: CopiedTable, rows: Sequence[Row]) -> Work[None]:
    """A statement for as many as fit into a packet of the server."""
    for part in parts(rows):
        yield InsertMany(table.name, table.quoted, part)


def parts(rows: Sequence[Row]) -> list[Sequence[Row]]:
    found: list[Sequence[Row]] = []
    start, size = 0, 0
    for place, row in enumerate(rows):
        own = size_of(row)
        if place > start and (size + own > BATCH_BYTES or place - start >= MOST_ROWS):
            found.append(rows[start:place])
            start, size = place, 0
        size += own
    return [*found, rows[start:]] if rows else []


def size_of(row: Row) -> int:
    return sum(len(value) if isinstance(value, str) else 8 for value in row)


def rows_for_next(read: int, size: int) -> int:
    """How many rows the next batch may have, by the size of the last one. It grows slowly, and shrinks at once."""
    fitting = BATCH_BYTES * read // max(size, 1)
    return max(1, min(fitting, read * 4, MOST_ROWS))


def replace_all(table: CopiedTable, rows: Sequence[Row]) -> Work[None]:
    """Every row of a table that is copied as a whole. A counter only goes up."""
    if table.name == "counters":
        for name, value in rows:
            yield Execute(
                "update counters set value = :value where name = :name and value < :value",
                {"name": name, "value": value},
            )
            if not (yield Fetch("select 1 from counters where name = :name", {"name": name})):
                yield insert("counters", name=name, value=value)
        return
    yield Execute(f"delete from {table.name}")
    yield from write_rows(table, rows)


def first_with_rows(names: Collection[str]) -> Work[str | None]:
    """The first of these tables that has any."""
    for name in names:
        if (yield Fetch(f"select 1 from {name} limit 1")):
            return name
    return None


def packed(key: Key) -> str:
    return json.dumps(key)


def unpacked(text: str) -> Key:
    return tuple(json.loads(text))
