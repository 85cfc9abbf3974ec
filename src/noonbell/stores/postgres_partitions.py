"""History in partitions, on PostgreSQL: `runs`, `attempts` and `bodies` by the id of the run, `events` by their own.

An id begins with the time that it was taken at (`stores.sql.ids`), so a partition is a stretch of time. Every id has
one:

    runs_before     from the beginning up to the first boundary. A store from before partitions has all of its history here
    runs_20261118   a stretch that begins on that day (of events: at that hour), and ends where the next one begins
    runs_beyond     from the last boundary on. It is empty, unless no node has made stretches ahead for a long time

There is no default partition: with one, PostgreSQL could not walk the newest runs first without a look into every
partition. A stretch is made while `beyond` is empty, so nothing has to be looked through under a lock. Where it is not,
it becomes a stretch.

A table that is not in partitions yet becomes `before`, with its rows and indexes as they are; none is copied:

    1   a check that every id is below a boundary some days ahead. New rows keep it from then on; old ones are not looked at
    2   the check is validated: the whole table is read, and nothing is locked against writers
    3   the table is renamed and attached to a new one of its name. The check is proof enough, so that takes milliseconds

Each is a transaction that looks first at what is there. Cut off after any of them, the next call goes on. A lock that
others would have to wait behind is waited for by at most `LOCK`; then it is tried again.

An index is unique within its partition. Among all: `run_slots`, `live_keys` (step 46), and the counter that numbers
events.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from noonbell.clock import SECOND, Instant
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.ids import IDS, floor_at, instant_floor
from noonbell.stores.sql.statement import Execute, Fetch, Work

HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
LOCK: Final = "300ms"
SMALL: Final = 10_000
"""Rows. A smaller table is put into partitions in one transaction, with a boundary that is near."""
AHEAD: Final = 7 * DAY
"""How far the first boundary of a large table lies ahead: ids beyond it are refused until the table is attached."""
_LEAST_AHEAD: Final = DAY
"""A check whose boundary is nearer than that was left behind by a conversion that was cut off: it makes way for another."""
PARTS: Final = 4
"""Stretches in the time that history is kept."""


@dataclass(frozen=True, slots=True)
class PartitionedTables:
    """Tables whose partitions have the same boundaries: they are made and dropped together."""

    tables: tuple[tuple[str, str], ...]
    """Each with its column. The first one says where the boundaries are."""
    step: int
    """Microseconds that a stretch is a multiple of."""

    def stretch(self, kept: int) -> int:
        """How long a stretch is, where rows are kept for this long."""
        return max(1, kept // PARTS // self.step) * self.step

    def boundary(self, at: int) -> int:
        """The first that there may be which is not before this instant."""
        return floor_at(-(-at // self.step) * self.step)

    def suffix(self, low: int) -> str:
        began = datetime.fromtimestamp(instant_floor(low) / SECOND, UTC)
        return began.strftime("%Y%m%d" if self.step >= DAY else "%Y%m%d_%H")


HISTORY: Final = PartitionedTables((("runs", "id"), ("attempts", "run_id"), ("bodies", "run_id")), DAY)
EVENTS: Final = PartitionedTables((("events", "id"),), HOUR)
GROUPS: Final = (HISTORY, EVENTS)
_FILL: Final = {"runs": " with (fillfactor = 50)"}
"""As in the first step: a row that is settled stays in its page."""


ROUGH_COUNT: Final = (
    "select sum(greatest(c.reltuples, 0))::bigint from pg_class c where c.relkind = 'r' and (c.oid = to_regclass(:name::text)"
    " or c.oid in (select inhrelid from pg_inherits where inhparent = to_regclass(:name::text)))"
)
"""About how many rows a table has, with those of its partitions."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition."""

    name: str
    """As the catalogue has it: with the prefix, without the schema."""
    low: int | None
    high: int | None

    def contains(self, id_: int) -> bool:
        return (self.low is None or self.low <= id_) and (self.high is None or id_ < self.high)


_BOUND = re.compile(r"FROM \((MINVALUE|'?\d+'?)\) TO \((MAXVALUE|'?\d+'?)\)")
_DEFINITION = re.compile(r"CREATE (UNIQUE )?INDEX \S+ ON (?:ONLY )?\S+ (USING .+)", re.DOTALL)


NOT_GIVEN: Final = ("55P03", "40P01")
"""States of SQL: a lock that was not given in time, and a deadlock."""


class PartitionsBusy(Exception):
    """The tables are in use: later."""


def named(q: Dialect, bare: str) -> str:
    """What the catalogue calls so, in a statement."""
    return q.naming.table(bare.removeprefix(q.naming.prefix))


def is_partitioned(q: Dialect, table: str) -> Work[bool]:
    rows = yield Fetch(
        "select relkind::text from pg_class where oid = to_regclass(:name)", {"name": q.naming.table(table)}
    )
    return bool(rows) and rows[0][0] == "p"


def is_moving(q: Dialect, group: PartitionedTables | None = None) -> Work[bool]:
    """Whether triggers write down what changes: a move has begun. Partitions stay as they are until it is over.

    `group`: its tables, which the transaction has locked. A move that begins now makes its triggers when they are free, on what
    they are by then; one that had begun before is seen here.
    """
    names = ["runs"] if group is None else [table for table, _ in group.tables]
    rows = yield Fetch(
        "select 1 from pg_trigger where tgrelid = any(select to_regclass(name) from unnest(:names::text[]) name)"
        " and not tgisinternal limit 1",
        {"names": [q.naming.table(name) for name in names]},
    )
    return bool(rows)


def parts_of(q: Dialect, table: str) -> Work[list[Part]]:
    """The partitions of a table, the oldest first."""
    rows = yield Fetch(
        "select c.relname::text, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = to_regclass(:name)",
        {"name": q.naming.table(table)},
    )
    found = []
    for name, bound in rows:
        matched = _BOUND.search(bound or "")
        if matched is not None:
            low, high = (None if end.endswith("VALUE") else int(end.strip("'")) for end in matched.groups())
            found.append(Part(name, low, high))
    return sorted(found, key=lambda part: -1 if part.low is None else part.low)


def _indexes(q: Dialect, bare: str) -> Work[list[tuple[str, bool, bool, str]]]:
    """Of a table: (name, is the primary key, is unique, what follows the table's name where it is made)."""
    rows = yield Fetch(
        "select c.relname::text, i.indisprimary, i.indisunique, pg_get_indexdef(i.indexrelid) from pg_index i"
        " join pg_class c on c.oid = i.indexrelid where i.indrelid = to_regclass(:name) order by 1",
        {"name": named(q, bare)},
    )
    found = []
    for name, is_primary, is_unique, text in rows:
        matched = _DEFINITION.fullmatch(text)
        assert matched is not None, text  # noqa: S101 - the server's own words
        found.append((name, is_primary, is_unique, matched[2]))
    return found


def _bounds(low: int | None, high: int | None) -> str:
    return f"from ({'minvalue' if low is None else low}) to ({'maxvalue' if high is None else high})"


def _make(q: Dialect, table: str, suffix: str, low: int | None, high: int | None, like: str) -> Work[None]:
    """Make a partition, with the unique indexes that the partition `like` has."""
    name = q.naming.table(f"{table}_{suffix}")
    yield Execute(f"create table {name} partition of {table} for values {_bounds(low, high)}{_FILL.get(table, '')}")
    for _, is_primary, is_unique, text in (yield from _indexes(q, like)):
        if is_unique and not is_primary:
            yield Execute(f"create unique index on {name} {text}")


def _is_empty(q: Dialect, bare: str) -> Work[bool]:
    return not (yield Fetch(f"select 1 from {named(q, bare)} limit 1"))


# Into partitions


@dataclass(frozen=True, slots=True)
class Waiting:
    """A group that is not in partitions yet."""

    group: PartitionedTables
    boundary: int | None
    """Of the checks that are there."""
    is_checked: bool
    """All of its tables have a valid one."""
    is_small: bool


def look(q: Dialect, group: PartitionedTables) -> Work[Waiting | None]:
    """None: it is in partitions."""
    if (yield from is_partitioned(q, group.tables[0][0])):
        return None
    rows = yield Fetch(
        "select pg_get_constraintdef(oid), convalidated from pg_constraint where contype = 'c' and conname = any(:names::text[])"
        " and conrelid = any(:tables::text[]::regclass[])",
        {
            "names": [_check(q, table) for table, _ in group.tables],
            "tables": [q.naming.table(table) for table, _ in group.tables],
        },
    )
    boundaries = {int(found[0]) for text, _ in rows if (found := re.search(r"\d{6,}", text))}
    is_small = True
    for table, _ in group.tables:
        counted = yield Fetch(f"select count(*) from (select 1 from {table} limit {SMALL + 1}) few")
        is_small = is_small and counted[0][0] <= SMALL
    boundary = boundaries.pop() if len(boundaries) == 1 else None
    is_checked = boundary is not None and len(rows) == len(group.tables) and all(valid for _, valid in rows)
    return Waiting(group, boundary, is_checked, is_small)


def _check(q: Dialect, table: str) -> str:
    return f"{q.naming.bare(table)}_ends"


def promise(q: Dialect, group: PartitionedTables, now: Instant) -> Work[None]:
    """1: from here on no id reaches the boundary. Nothing, where another node has put the tables into partitions meanwhile."""
    yield from lock(q, group)
    waiting = yield from look(q, group)
    if waiting is None:
        return
    boundary, reached = waiting.boundary, (yield from _reached(now))
    if boundary is None or _is_near(boundary, reached):
        boundary = group.boundary(reached + AHEAD)
    for table, column in group.tables:
        name = _check(q, table)
        if waiting.boundary == boundary:
            there = yield Fetch(
                "select 1 from pg_constraint where conname = :name and conrelid = to_regclass(:table)",
                {"name": name, "table": q.naming.table(table)},
            )
            if there:
                continue
        yield Execute(f"alter table {table} drop constraint if exists {name}")
        yield Execute(f"alter table {table} add constraint {name} check ({column} < {boundary}) not valid")


def promise_again(q: Dialect, group: PartitionedTables, now: Instant) -> Work[None]:
    """Where a conversion has to wait, and its boundary comes near."""
    waiting = yield from look(q, group)
    if waiting is not None and waiting.boundary is not None and _is_near(waiting.boundary, (yield from _reached(now))):
        yield from promise(q, group, now)


def _reached(now: Instant) -> Work[int]:
    """The instant that ids have reached: later than now for a while, where the clock was set back."""
    rows = yield Fetch("select value from counters where name = :name", {"name": IDS})
    return max(now, instant_floor(rows[0][0]) if rows else 0)


def _is_near(boundary: int, reached: int) -> bool:
    return boundary < floor_at(reached + _LEAST_AHEAD)


def validate(q: Dialect, table: str) -> Work[None]:
    """2. Writers go on meanwhile. Nothing, where another node has put the table into partitions meanwhile."""
    if not (yield from is_partitioned(q, table)):
        yield Execute(f"alter table {table} validate constraint {_check(q, table)}")


def attach(q: Dialect, group: PartitionedTables, now: Instant, kept: int) -> Work[bool]:
    """3. False: it was done already, what it rests on is not there, or a move has begun since."""
    yield from lock(q, group)
    waiting = yield from look(q, group)
    if waiting is None or not (waiting.is_checked or waiting.is_small) or (yield from is_moving(q, group)):
        return False
    boundary = waiting.boundary if waiting.is_checked else (yield from _near_boundary(group, now))
    assert boundary is not None  # noqa: S101 - of the checks
    stretch = group.stretch(kept)
    for table, column in group.tables:
        yield from _attach(q, group, table, column, boundary, floor_at(instant_floor(boundary) + stretch))
    return True


def _near_boundary(group: PartitionedTables, now: Instant) -> Work[int]:
    newest = int(now)
    for table, column in group.tables:
        rows = yield Fetch(f"select max({column}) from {table}")
        newest = max(newest, instant_floor(rows[0][0] or 0) + HOUR)
    return group.boundary(newest + 1)


def _attach(q: Dialect, group: PartitionedTables, table: str, column: str, boundary: int, end: int) -> Work[None]:
    before, bare = q.naming.bare(f"{table}_before"), q.naming.bare(table)
    indexes = yield from _indexes(q, bare)
    yield Execute(f"alter table {table} rename to {before}")
    for name, *_ in indexes:
        renamed = f"{before}{name.removeprefix(bare)}"
        yield Execute(f"alter index {named(q, name)} rename to {renamed}")
    key = next(text for _, is_primary, _, text in indexes if is_primary).removeprefix("USING btree ")
    yield Execute(
        f"create table {table} (like {named(q, before)} including defaults including storage) partition by range ({column})"
    )
    for name, is_primary, is_unique, text in indexes:
        if not is_primary and not is_unique:
            yield Execute(f"create index {name} on {q.naming.table(table)} {text}")
    # Last: of indexes that seem to cost the same, as all do in an empty partition, PostgreSQL takes the newest. A plan that is kept
    # while a partition fills must find runs by the primary key, and not walk through an index that has the id behind something else.
    yield Execute(f"alter table {table} add primary key {key}")
    yield Execute(f"alter table {table} attach partition {named(q, before)} for values {_bounds(None, boundary)}")
    yield Execute(f"alter table {named(q, before)} drop constraint if exists {_check(q, table)}")
    yield from _make(q, table, group.suffix(boundary), boundary, end, before)
    yield from _make(q, table, "beyond", end, None, before)


# Stretches ahead


def lacks_stretch(q: Dialect, group: PartitionedTables, now: Instant, kept: int) -> Work[bool]:
    """Whether the last boundary is nearer than a stretch."""
    parts = yield from parts_of(q, group.tables[0][0])
    return bool(parts) and (parts[-1].low or 0) < floor_at(now + group.stretch(kept))


def extend(q: Dialect, group: PartitionedTables, now: Instant, kept: int) -> Work[bool]:
    """Make the next stretches. False: there is enough."""
    yield from lock(q, group)
    if not (yield from lacks_stretch(q, group, now, kept)):
        return False
    stretch = group.stretch(kept)
    parts = yield from parts_of(q, group.tables[0][0])
    newest = yield from _newest_beyond(q, group)
    ends = [parts[-1].low or 0]
    if newest or ends[0] < floor_at(now - stretch):  # what is there, or was missed, is one stretch
        ends.append(group.boundary(max(now, newest)))
    while ends[-1] < floor_at(now + stretch):
        ends.append(floor_at(instant_floor(ends[-1]) + stretch))
    like = parts[-2].name.removeprefix(q.naming.bare(group.tables[0][0]))  # `beyond` itself goes
    for table, _ in group.tables:
        yield from _extend(q, group, table, ends, like, is_empty=not newest)
    return True


def lock(q: Dialect, group: PartitionedTables) -> Work[None]:
    """Raises PartitionsBusy where others use the tables for longer than they may be kept waiting."""
    tables = ", ".join(q.naming.table(table) for table, _ in group.tables)
    yield Execute(f"set local lock_timeout = '{LOCK}'")
    try:
        yield Execute(f"lock table {tables} in access exclusive mode")
    except Exception as error:
        if getattr(error, "sqlstate", None) in NOT_GIVEN:
            raise PartitionsBusy(f"{tables}: {error}") from error
        raise


def _newest_beyond(q: Dialect, group: PartitionedTables) -> Work[int]:
    """An instant after that of the newest row beyond the last boundary; 0 where there is none."""
    newest = 0
    for table, column in group.tables:
        rows = yield Fetch(f"select max({column}) from {q.naming.table(f'{table}_beyond')}")
        newest = max(newest, 0 if rows[0][0] is None else instant_floor(rows[0][0]) + HOUR)
    return newest


def _extend(
    q: Dialect, group: PartitionedTables, table: str, ends: Sequence[int], like: str, *, is_empty: bool
) -> Work[None]:
    """`like` ends the name of a partition whose indexes the new ones get."""
    beyond, model = q.naming.table(f"{table}_beyond"), f"{q.naming.bare(table)}{like}"
    stretches = list(itertools.pairwise(ends))
    if is_empty:
        yield Execute(f"drop table {beyond}")
    else:
        low, high = stretches.pop(0)
        closed = f"{table}_{group.suffix(low)}"
        yield Execute(f"alter table {table} detach partition {beyond}")
        yield Execute(f"alter table {beyond} rename to {q.naming.bare(closed)}")
        yield Execute(f"alter table {table} attach partition {q.naming.table(closed)} for values {_bounds(low, high)}")
    for low, high in stretches:
        yield from _make(q, table, group.suffix(low), low, high, model)
    yield from _make(q, table, "beyond", ends[-1], None, model)


# And away


def widest(parts: Sequence[Part]) -> int:
    """The longest stretch, in microseconds."""
    return max((instant_floor(p.high) - instant_floor(p.low) for p in parts if p.low and p.high), default=0)


def cut(parts: Sequence[Part], before: Instant, now: Instant) -> Instant:
    """Up to when rows are deleted one by one, of those that ended before `before`: what began later goes with its stretch.

    In the oldest partition all go one by one, and so they do where a stretch is long compared with how long rows are kept.
    """
    straddling = next((part for part in parts if part.contains(floor_at(before))), None)
    if straddling is None or straddling.low is None or straddling.high is None:
        return before
    stretch = instant_floor(straddling.high) - instant_floor(straddling.low)
    return before if stretch * (PARTS - 1) > now - before else Instant(min(before, instant_floor(straddling.low)))


def drop(q: Dialect, group: PartitionedTables, part: Part) -> Work[None]:
    """The partition and those of the other tables of its group. The oldest one reaches up to where it ended, then.

    Where imported history lies in the oldest one, the stretch stays, and is emptied.
    """
    first = group.tables[0][0]
    suffix = part.name.removeprefix(q.naming.bare(first))
    may_go = True
    for table, _ in group.tables:
        may_go = may_go and (part.low is None or (yield from _is_empty(q, q.naming.bare(f"{table}_before"))))
    parts = yield from parts_of(q, first)
    may_go = may_go and (part.low is None or parts[0].high == part.low)
    for table, _ in group.tables:
        gone, oldest = q.naming.table(f"{table}{suffix}"), q.naming.table(f"{table}_before")
        if not may_go:
            yield Execute(f"truncate table {gone}")
            continue
        if part.low is not None:
            yield Execute(f"drop table {gone}")
        yield Execute(f"drop table {oldest}")
        yield from _make(q, table, "before", None, part.high, q.naming.bare(f"{table}_beyond"))


# Back


def merge_all(q: Dialect) -> Work[None]:
    """Plain tables again, as they were before: every row is copied. The checks of a conversion that was cut off go."""
    for group in GROUPS:
        for table, _ in group.tables:
            if (yield from is_partitioned(q, table)):
                yield from _merge(q, table)
            else:
                yield Execute(f"alter table {table} drop constraint if exists {_check(q, table)}")


def _merge(q: Dialect, table: str) -> Work[None]:
    bare, parts = q.naming.bare(table), (yield from parts_of(q, table))
    above = yield from _indexes(q, bare)
    own = [each for each in (yield from _indexes(q, parts[-1].name)) if each[2] and not each[1]]
    whole = q.naming.table(f"{table}_whole")
    yield Execute(
        f"create table {whole} (like {q.naming.table(table)} including defaults including storage){_FILL.get(table, '')}"
    )
    yield Execute(f"insert into {whole} select * from {table}")
    yield Execute(f"drop table {table}")
    yield Execute(f"alter table {whole} rename to {bare}")
    for name, is_primary, _, text in above:
        if is_primary:
            yield Execute(f"alter table {table} add constraint {name} primary key {text.removeprefix('USING btree ')}")
        else:
            yield Execute(f"create index {name} on {q.naming.table(table)} {text}")
    for *_, text in own:
        columns = tuple(re.findall(r"\w+", text.partition(")")[0])[2:])
        name = q.naming.bare(_UNIQUE[table, columns[-1]])
        if table == "events":
            yield Execute(f"alter table {table} add constraint {name} unique {text.removeprefix('USING btree ')}")
        else:
            yield Execute(f"create unique index {name} on {q.naming.table(table)} {text}")


_UNIQUE: Final = {
    ("runs", "slot"): "runs_slot",
    ("runs", "live_key"): "runs_key",
    ("events", "seq"): "events_seq_key",
}
"""What they were called."""
