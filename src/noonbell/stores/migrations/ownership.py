"""Which tables of a database are Noonbell's: what the steps make, read from their statements, compared with what is there.

What is not ours is never altered and never dropped. `schema_steps` has the steps that were taken. `schema_log` has every
table that a step made: `begun` before the first of the step is created, `made` when the step is done, `begun` again before
they are dropped, and then with an entry for the way back itself. A table under one of our names is ours if the log says
`made`, or if it says `begun` and the table has the columns that it was to get. A store from before the log is taken over,
step by step: a table is ours if its step was taken, the log has nothing of that step, and its columns are those that the
steps left. Everything else is foreign, and a database that holds something foreign under one of our names is refused
before anything is written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonbell.errors import SchemaMismatch
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, Work

if TYPE_CHECKING:
    from noonbell.stores.migrations import MigrationStep

_TABLE = re.compile(r"create table (?P<name>\w+) (?:partition of (?P<parent>\w+)|\((?P<body>.*)\))", re.DOTALL)
_INDEX = re.compile(r"create (?:unique )?index (?P<name>\w+) on (?P<table>\w+)")
_COLUMN = re.compile(r"alter table (?P<table>\w+) (?P<verb>add|drop) column (?P<column>\w+)")
_NO_COLUMN = frozenset({"primary", "unique", "constraint", "foreign", "check"})


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands in a database after some steps."""

    tables: Mapping[str, frozenset[str]]
    """With their columns."""
    indexes: Mapping[str, str]
    """With their tables."""


@functools.lru_cache(maxsize=256)
def shape_of(statements: tuple[str, ...]) -> Shape:
    tables: dict[str, frozenset[str]] = {}
    indexes: dict[str, str] = {}
    for sql in statements:
        if made := _TABLE.match(sql):
            parent = made["parent"]
            tables[made["name"]] = tables[parent] if parent else frozenset(_columns_made(made["body"]))
        elif made := _INDEX.match(sql):
            indexes[made["name"]] = made["table"]
        elif (changed := _COLUMN.match(sql)) and changed["table"] in tables:
            before = tables[changed["table"]]
            column = {changed["column"]}
            tables[changed["table"]] = before | column if changed["verb"] == "add" else before - column
    return Shape(tables, indexes)


def made_by(statements: Sequence[str]) -> list[str]:
    """The tables that these statements make, in their order."""
    return [made["name"] for sql in statements if (made := _TABLE.match(sql))]


def change_of(sql: str) -> tuple[str, str, str] | None:
    """`alter table T add column C` is ("add", "T", "C")."""
    found = _COLUMN.match(sql)
    return None if found is None else (found["verb"], found["table"], found["column"])


def _columns_made(body: str) -> Iterable[str]:
    """The names at the start of each part of the brackets."""
    depth, start, parts = 0, 0, []
    for place, char in enumerate(body):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append(body[start:place])
            start = place + 1
    for part in (*parts, body[start:]):
        first = part.split()[0].strip('"')
        if first not in _NO_COLUMN:
            yield first


STEPS_TABLE = "create table schema_steps (number integer primary key, title varchar(100) not null)"
LOG_TABLE = "create table schema_log (name varchar(100) primary key, step integer not null, state varchar(10) not null)"
_STEPS_COLUMNS = frozenset({"number", "title"})
_LATER_COLUMNS = frozenset({"oldest_code"})
_LOG_COLUMNS = frozenset({"name", "step", "state"})
BEGUN, MADE = "begun", "made"
_LEFT_OUT = "index "
"""Begins what the log holds, as if it were a table, of an index that is not built yet."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that stands in the database under one of our names."""

    name: str
    kind: str
    of: str
    """The table of an index."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at a database has found."""

    step: int = 0
    """The newest step that was taken."""
    taken: frozenset[int] = frozenset()
    """The numbers of all of them."""
    oldest_code: int = 0
    """Code that knows this step, or a later one, may work on the store."""
    has_steps: bool = False
    has_log: bool = False
    log: Mapping[str, str] = field(default_factory=dict)
    """Tables by their plain names, and how far they are."""
    taken_over: Sequence[tuple[str, int]] = ()
    """Tables from before the log, and their steps: to be written into it."""
    foreign: Sequence[Thing] = ()
    beside: bool = False
    """There is a Noonbell store with plain names, while this one has others and is not there yet."""

    def check_foreign(self) -> None:
        if not self.foreign:
            return
        first = self.foreign[0]
        more = f" (and {len(self.foreign) - 1} more)" if len(self.foreign) > 1 else ""
        raise SchemaMismatch(
            f"the database holds a {first.kind} {first.name}{more} that Noonbell did not create, and nothing was"
            " written: set store.table_prefix, or store.schema on PostgreSQL, to keep Noonbell apart, or use another"
            " database",
            details={"table": first.name, "foreign": [thing.name for thing in self.foreign]},
        )


def look(q: Dialect, variant: str, steps: Sequence[MigrationStep]) -> Work[Found]:
    """Read what is there. Writes nothing."""
    whole = shape_of(tuple(sql for step in steps for sql in step.up(variant)))
    tables = {*whole.tables, "schema_steps", "schema_log"}
    things = yield from _things(q, {*tables, *whole.indexes})
    books = yield from _columns(q, [name for name in ("schema_steps", "schema_log") if name in things])
    foreign = [things[name] for name in books if things[name].kind != "table" or not _is_ours(name, books[name])]
    if foreign:
        return Found(foreign=foreign)
    has_steps, has_log = "schema_steps" in things, "schema_log" in things
    taken = (yield from _taken(books["schema_steps"])) if has_steps else {}
    if has_steps and not _knows(taken, steps):
        return Found(foreign=[things["schema_steps"]])
    entries = (yield Fetch("select name, state, step from schema_log")) if has_log else []
    log: dict[str, str] = {name: state for name, state, _ in entries}
    before_log = set(taken) - {step for _, _, step in entries}
    taken_over, foreign = yield from _judged(q, variant, steps, taken, before_log, log, things, tables)
    beside = not has_steps and not q.naming.is_plain and (yield from _is_beside(q))
    return Found(
        step=max(taken, default=0),
        taken=frozenset(taken),
        oldest_code=max((oldest for _, oldest in taken.values()), default=0),
        has_steps=has_steps,
        has_log=has_log,
        log=log,
        taken_over=taken_over,
        foreign=foreign,
        beside=beside,
    )


def _judged(
    q: Dialect,
    variant: str,
    steps: Sequence[MigrationStep],
    taken: Collection[int],
    before_log: Collection[int],
    log: Mapping[str, str],
    things: Mapping[str, Thing],
    tables: Collection[str],
) -> Work[tuple[list[tuple[str, int]], list[Thing]]]:
    """The tables that are to be taken over, and what is foreign."""
    doubtful = [name for name in things if log.get(name) != MADE and not name.startswith("schema_")]
    columns = yield from _columns(q, [name for name in doubtful if name in tables])
    before = shape_of(tuple(sql for each in steps if each.number in taken for sql in each.up(variant)))
    makers = {name: each.number for each in steps for name in made_by(each.up(variant))}
    taken_over: list[tuple[str, int]] = []
    foreign: list[Thing] = []
    for name in doubtful:
        thing = things[name]
        if name not in tables:
            is_ours = thing.kind == "index" and thing.of in makers and thing.of in things
        elif thing.kind != "table":
            is_ours = False
        elif log.get(name) == BEGUN:
            (made,) = (each for each in steps if each.number == makers[name])
            is_ours = columns[name] == shape_of(tuple(made.up(variant))).tables[name]
        else:
            is_ours = makers[name] in before_log and columns[name] == before.tables.get(name)
            if is_ours:
                taken_over.append((name, makers[name]))
        if not is_ours:
            foreign.append(thing)
    return taken_over, foreign


def _things(q: Dialect, names: Collection[str]) -> Work[dict[str, Thing]]:
    bare = {q.naming.bare(name): name for name in names}
    rows = yield Fetch(q.objects, {"names": q.pack(sorted(bare))})
    found: dict[str, Thing] = {}
    for name, kind, of in rows:
        ours = bare.get(name) or (bare.get(name.lower()) if q.folds_case else None)
        if ours is not None:
            found[ours] = Thing(name, kind, q.naming.plain((of or "").lower() if q.folds_case else of or "") or "")
    return dict(sorted(found.items()))


def _columns(q: Dialect, names: Sequence[str]) -> Work[dict[str, frozenset[str]]]:
    if not names:
        return {}
    bare = {q.naming.bare(name): name for name in names}
    found: dict[str, set[str]] = {name: set() for name in names}
    for table, column in (yield Fetch(q.columns, {"names": q.pack(sorted(bare))})):
        ours = bare.get(table) or (bare.get(table.lower()) if q.folds_case else None)
        if ours is not None:
            found[ours].add(column.lower())
    return {name: frozenset(columns) for name, columns in found.items()}


def has_column(q: Dialect, table: str, column: str) -> Work[bool]:
    return column in (yield from _columns(q, [table]))[table]


def _is_ours(book: str, columns: frozenset[str]) -> bool:
    return columns == _LOG_COLUMNS if book == "schema_log" else columns - _LATER_COLUMNS == _STEPS_COLUMNS


def _taken(columns: frozenset[str]) -> Work[dict[int, tuple[str, int]]]:
    """The steps that were taken: number → title, oldest code."""
    oldest = "coalesce(oldest_code, number)" if "oldest_code" in columns else "number"
    rows = yield Fetch(f"select number, title, {oldest} from schema_steps")
    return {number: (title, least) for number, title, least in rows}


def _knows(taken: Mapping[int, tuple[str, int]], steps: Sequence[MigrationStep]) -> bool:
    """Whether the steps are those that Noonbell has, as far as this version can tell."""
    titles = {step.number: step.title for step in steps}
    return all(titles.get(number, title) == title for number, (title, _) in taken.items())


def _is_beside(q: Dialect) -> Work[bool]:
    """Whether a store with plain names is in the same database: where they would lead, or in the schema of this one."""
    for columns in {q.columns, q.columns.replace("current_schema()", "current_schema")}:
        rows = yield Fetch(columns, {"names": q.pack(["schema_steps"])})
        if {column.lower() for _, column in rows} - _LATER_COLUMNS == _STEPS_COLUMNS:
            return True
    return False


def prepare(q: Dialect, found: Found) -> Work[None]:
    """Before the first step: the two tables of the books, and what is taken over."""
    if q.naming.schema is not None and not (found.has_steps or found.has_log):
        # Where the schema is there, no right to make one is needed, and the server would ask for it all the same.
        there = yield Fetch("select 1 from pg_namespace where nspname = :schema", {"schema": q.naming.schema})
        if not there:
            yield Execute(f'create schema if not exists "{q.naming.schema}"')
    if not found.has_steps:
        yield Execute(STEPS_TABLE)
    if not found.has_log:
        yield Execute(LOG_TABLE)
    yield from _write(found.taken_over, MADE)


def begin(tables: Sequence[str], step: int) -> Work[None]:
    """Before a step makes these tables, or drops them."""
    yield Execute("delete from schema_log where step = :step", {"step": step})
    yield from _write([(table, step) for table in tables], BEGUN)


def way_back(step: int) -> str:
    """What the log holds, as if it were a table, from before a step is taken back until that is done."""
    return f"step {step}"


def _write(entries: Sequence[tuple[str, int]], state: str) -> Work[None]:
    for name, step in entries:
        yield Execute(
            "insert into schema_log (name, step, state) values (:name, :step, :state)",
            {"name": name, "step": step, "state": state},
        )


def finish(step: int) -> Work[None]:
    """A step is done: what it made is ours for good."""
    yield Execute(
        "update schema_log set state = :state where step = :step and not name like :left_out",
        {"state": MADE, "step": step, "left_out": f"{_LEFT_OUT}%"},
    )


def leave_out_index(name: str, step: int) -> Work[None]:
    """It is built later: see `stores.postgres_history`."""
    yield from _write([(f"{_LEFT_OUT}{name}", step)], BEGUN)


def indexes_left_out() -> Work[list[str]]:
    rows = yield Fetch(
        "select name from schema_log where name like :left_out order by name", {"left_out": f"{_LEFT_OUT}%"}
    )
    return [row[0].removeprefix(_LEFT_OUT) for row in rows]


def index_is_built(name: str) -> Work[None]:
    yield Execute("delete from schema_log where name = :name", {"name": f"{_LEFT_OUT}{name}"})


def forget(step: int) -> Work[None]:
    """A step was taken back: nothing of it is there any longer."""
    yield Execute("delete from schema_log where step = :step", {"step": step})
