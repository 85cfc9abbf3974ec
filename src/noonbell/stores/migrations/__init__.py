"""The schema, as a row of steps forward and back. A step that has landed is never edited: the next one mends it.

Steps are written with plain names; a store with a schema or a prefix of its own gets them renamed when they are taken
(`stores.sql.dialect`). What a step made is written down (`ownership`), and nothing else is ever dropped.

All rows of one store can be copied into an empty one: the demo makes a week of history in memory and copies it to its
server; some twenty thousand transitions, each with a round trip, would take minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from noonbell.engine import failpoint
from noonbell.errors import SchemaMismatch
from noonbell.stores.migrations import ownership
from noonbell.stores.migrations.ownership import Found, change_of, made_by, shape_of
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, InsertMany, Row, Work

logger = logging.getLogger("noonbell.store")


@dataclass(frozen=True, slots=True)
class MigrationStep:
    number: int
    title: str
    up: Callable[[str], list[str]]
    """Dialect name → statements. An empty list is a step that has nothing to do there."""
    down: Callable[[str], list[str]]
    oldest_code: int | None = None
    """Code that knows this step, or a later one, works with what this one leaves behind. None: this step itself."""
    before_down: Callable[[Dialect], Work[None]] | None = None
    """What has to be undone first that is no statement of the step."""


_LANDED_WITHOUT: Mapping[int, Mapping[str, Any]] = {
    5: {"title": "stray runs"},
    7: {"oldest_code": 6},
    8: {"oldest_code": 6},
    12: {"oldest_code": 11},
}
"""What these steps do not say themselves: they landed before a step could, and are not edited."""


def _step(name: str) -> MigrationStep:
    """From its file, `mNNNN_TITLE.py`, with `up`, `down` and, where older code may go on, `OLDEST_CODE`."""
    module, number = import_module(f"{__name__}.{name}"), int(name[1:5])
    said = {"title": name[6:].replace("_", " "), "oldest_code": getattr(module, "OLDEST_CODE", None)}
    said["before_down"] = getattr(module, "before_down", None)
    return MigrationStep(number, up=module.up, down=module.down, **{**said, **_LANDED_WITHOUT.get(number, {})})


STEPS = tuple(_step(each.name) for each in sorted(iter_modules(__path__)) if re.fullmatch(r"m\d{4}_\w+", each.name))
LATEST = STEPS[-1].number
WITH_MOVES = 45
"""The step from which a store says whether it was moved."""
MOVED = 1_000_000
"""The oldest code that may work on a store that was moved: code from before moves stops at it, and refuses to start."""
WITH_INSTALLATION = 7
"""The step from which a store has the id of its installation."""
_SAYS_OLDEST_CODE = 6
"""From this step on, a step is recorded with the oldest code that can work with it."""


_EVERY = 5.0
"""Seconds between two words about a statement that is under way."""


class SchemaBusy(Exception):
    """Another node is changing the schema."""


class SchemaProgress:
    """Hears of steps and statements from the thread that takes them, and tells of them by `say`.

    `move` hears which part of the statements is done, from 0 to 1: of all steps that are to be taken.
    """

    def __init__(self, say: Callable[[str], None] | None = None, move: Callable[[float], None] | None = None) -> None:
        self._move, self._expected, self._done = move, 1, 0
        self._say = say or (lambda text: logger.info("schema: %s", text))
        self._current = ""
        self._since = time.monotonic()
        self.is_quiet = False
        """The store is new: its steps take no time, and are no news."""

    def step(self, text: str) -> None:
        if not self.is_quiet:
            self._say(text)

    def expect(self, statements: int) -> None:
        """The number of statements to come."""
        self._expected, self._done = max(1, statements), 0

    def done(self) -> None:
        """One more is done."""
        self._done += 1
        if self._move is not None and not self.is_quiet:
            self._move(min(1.0, self._done / self._expected))

    def statement(self, text: str) -> None:
        self._current, self._since = text, time.monotonic()
        logger.debug("schema: %s", text)

    def wait_for_another(self) -> None:
        """Another node has the schema: it is waited for without a limit, and that is said."""
        text = "another node is changing it; waiting"
        if text != self._current:
            self.statement(text)
            self._say(text)

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Meanwhile, a statement that takes long is reported every few seconds."""
        telling = asyncio.create_task(self._tell(), name="noonbell schema progress")
        try:
            yield
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            seconds = time.monotonic() - self._since
            if self._current and seconds >= _EVERY:
                self._say(f"{self._current}: for {seconds:.0f} s so far")


def names(variant: str) -> tuple[frozenset[str], frozenset[str]]:
    """Every table and every index that a store of this kind has."""
    whole = shape_of(tuple(sql for step in STEPS for sql in step.up(variant)))
    return frozenset({*whole.tables, "schema_steps", "schema_log"}), frozenset(whole.indexes)


def look(q: Dialect, variant: str) -> Work[Found]:
    """Where the schema is, and what in the database is not ours."""
    return (yield from ownership.look(q, variant, STEPS))


def cut_off(found: Found, to: int | None = None) -> int | None:
    """The step to go back to, where the way back from a step up to `to` was begun and not finished."""
    last = LATEST if to is None else to
    begun = [n for n in found.taken if n <= last and ownership.way_back(n) in found.log]
    return max((step.number for step in STEPS if step.number < min(begun)), default=0) if begun else None


def check(found: Found, to: int | None = None) -> None:
    """Code that is older than the store allows must not touch it: it would not know what it breaks.

    Nor does any code work on a store whose way back was cut off, other than to go on with it, below that step.
    """
    back = cut_off(found, to)
    if back is not None:
        raise SchemaMismatch(
            f"a downgrade of the store's schema was interrupted: run `noonbell migrate --to {back}`",
            details={"found": found.step, "back": back},
        )
    if found.oldest_code > LATEST and found.oldest_code != MOVED:  # whether it has moved is looked at by itself
        raise SchemaMismatch(
            f"the store's schema is at step {found.step} and needs code that knows step {found.oldest_code};"
            f" this version of Noonbell knows {LATEST}; upgrade Noonbell",
            details={"found": found.step, "known": LATEST, "oldest_code": found.oldest_code},
        )


def missing(found: Found, to: int | None = None) -> list[MigrationStep]:
    """The steps up to `to`, or up to the latest, that the store has not taken. Numbers need not be taken in their order."""
    last = LATEST if to is None else to
    return [step for step in STEPS if step.number <= last and step.number not in found.taken]


def migrate(q: Dialect, variant: str, found: Found, to: int, progress: SchemaProgress) -> Work[list[int]]:
    """Go from where the schema is to step `to`, forward or back; which steps were taken. Each is recorded with the step."""
    yield from ownership.prepare(q, found)
    taken: list[int] = []
    forward = missing(found, to)
    back = [step for step in reversed(STEPS) if to < step.number and step.number in found.taken]
    progress.expect(sum(len(step.up(variant)) for step in forward) + sum(len(step.down(variant)) for step in back))
    for step in forward:
        statements = step.up(variant)
        yield from ownership.begin(made_by(statements), step.number)
        yield from _do_all(q, step, statements, progress)
        failpoint.hit("K13")
        yield from _record(step)
        yield from _keep(q)
        taken.append(step.number)
    for step in back:
        yield from ownership.begin([*made_by(step.up(variant)), ownership.way_back(step.number)], step.number)
        yield from _keep(q)
        if step.before_down is not None:
            yield from step.before_down(q)
        yield from _do_all(q, step, step.down(variant), progress)
        failpoint.hit("K13")
        yield from ownership.forget(step.number)
        yield Execute("delete from schema_steps where number = :number", {"number": step.number})
        yield from _keep(q)
        taken.append(-step.number)
    return taken


def _record(step: MigrationStep) -> Work[None]:
    yield from ownership.finish(step.number)
    if step.number < _SAYS_OLDEST_CODE:
        yield Execute(
            "insert into schema_steps (number, title) values (:number, :title)",
            {"number": step.number, "title": step.title},
        )
        return
    yield Execute(
        "insert into schema_steps (number, title, oldest_code) values (:number, :title, :oldest_code)",
        {"number": step.number, "title": step.title, "oldest_code": step.oldest_code or step.number},
    )


def _keep(q: Dialect) -> Work[None]:
    """Where a step is not undone with the transaction, it is kept at once. Elsewhere all steps are kept together."""
    if q.has_index is not None:
        yield Execute("commit")


def _do_all(q: Dialect, step: MigrationStep, statements: list[str], progress: SchemaProgress) -> Work[None]:
    progress.step(f"step {step.number} ({step.title}): {len(statements)} statements")
    for number, sql in enumerate(statements, 1):
        failpoint.hit("K13")
        progress.statement(f"step {step.number} ({step.title}), {number} of {len(statements)}: {_shortened(sql)}")
        index = index_made(sql) if q.builds_indexes_apart else None
        if index is not None and (yield from _is_large(sql)):
            yield from ownership.leave_out_index(index, step.number)
        else:
            yield from _do(q, sql)
        progress.done()


def _shortened(sql: str) -> str:
    first = " ".join(sql.split())
    return first if len(first) <= 60 else f"{first[:59]}…"


def _do(q: Dialect, sql: str) -> Work[None]:
    """One statement of a step. Where a step can be cut off in the middle, what is done already is passed over."""
    if q.has_index is not None and (yield from _is_done(q, sql)):
        return
    if q.builds_indexes_apart and sql.startswith("drop index "):
        sql = sql.replace("drop index ", "drop index if exists ", 1)  # one that was left out may not be there yet
    yield Execute(f"{sql}{q.while_others_write}" if _INDEX_MADE.match(sql) else sql)


_INDEX_MADE = re.compile(r"create (?P<unique>unique )?index (?P<name>\w+) on (?P<table>\w+) ")
LARGE: Final = 10_000
"""Rows of a table whose indexes are not built under a lock."""


def index_made(sql: str) -> str | None:
    """The name of an index that need not be there when the step is done."""
    made = _INDEX_MADE.match(sql)
    return None if made is None or made["unique"] else made["name"]


def _is_large(sql: str) -> Work[bool]:
    made = _INDEX_MADE.match(sql)
    assert made is not None  # noqa: S101 - the caller has looked
    rows = yield Fetch(f"select count(*) from (select 1 from {made['table']} limit {LARGE + 1}) few")
    return bool(rows[0][0] > LARGE)


def _is_done(q: Dialect, sql: str) -> Work[bool]:
    if change := change_of(sql):
        verb, table, column = change
        there = yield from ownership.has_column(q, table, column)
        return bool(there is (verb == "add"))
    made = _MAKES.match(sql)
    if made is None:
        return False
    name = q.naming.bare(made["name"])
    if made["kind"] == "table":
        rows = yield Fetch(q.objects, {"names": q.pack([name])})
    else:
        assert q.has_index is not None  # noqa: S101 - the caller has looked
        rows = yield Fetch(q.has_index, {"name": name, "table": q.naming.bare(made["table"])})
    return bool(rows) is (made["verb"] == "create")


_MAKES = re.compile(r"(?P<verb>create|drop) (?:unique )?(?P<kind>table|index) (?P<name>\w+)(?: on (?P<table>\w+))?")


_OF_THE_STORE: Final = frozenset(
    {
        *("counters", "installation", "rollup_state", "schema_log", "schema_steps", "sla_defaults"),
        *("move_gate", "move_log", "move_progress"),
    }
)
"""Tables that a store has rows in before anything happens on it. Only its counters are moved on."""
_GENERATED: Final = {"gates": frozenset({"open"}), "run_keys": frozenset({"open"})}
"""Columns that the database writes by itself."""
_ROWS_AT_ONCE: Final = 500

Rows = Mapping[str, tuple[tuple[str, ...], Sequence[Row]]]
"""Table → its columns, and its rows in their order."""


def read_rows() -> Work[Rows]:
    """All rows of a store, without what belongs to the store itself; and its counters."""
    # Every kind of store has these tables and columns; PostgreSQL has partitions besides, which hold rows of `live`.
    shape = shape_of(tuple(sql for step in STEPS for sql in step.up("sqlite")))
    found: dict[str, tuple[tuple[str, ...], Sequence[Row]]] = {}
    for table, columns in shape.tables.items():
        if table == "counters" or table not in _OF_THE_STORE:
            names = tuple(f'"{name}"' if name == "key" else name for name in columns - _GENERATED.get(table, set()))
            rows = yield Fetch(f"select {', '.join(names)} from {table}")
            if rows:
                found[table] = (names, [tuple(row) for row in rows])
    return found


def write_rows(rows: Rows) -> Work[bool]:
    """False, and nothing is written, if a table that would get rows has any."""
    tables = [table for table in rows if table != "counters"]
    for table in tables:
        if (yield Fetch(f"select 1 from {table} limit 1")):
            return False
    for table in tables:
        columns, values = rows[table]
        for start in range(0, len(values), _ROWS_AT_ONCE):
            yield InsertMany(table, columns, values[start : start + _ROWS_AT_ONCE])
    columns, values = rows["counters"]
    for row in values:
        counter = dict(zip(columns, row, strict=True))
        yield Execute("update counters set value = :value where name = :name and value < :value", counter)
    return True
