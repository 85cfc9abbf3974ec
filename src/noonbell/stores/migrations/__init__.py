"""The schema, as a row of steps forward and back. A step that has landed is never edited: the next one mends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from noonbell.engine import failpoint
from noonbell.errors import SchemaMismatch
from noonbell.stores.migrations import m0001_foundation, m0002_alerts, m0003_account, m0004_access, m0005_stray
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, Work


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    title: str
    up: Callable[[str], list[str]]
    """Dialect name → statements. An empty list is a step that has nothing to do there."""
    down: Callable[[str], list[str]]


STEPS = (
    Step(1, "foundation", m0001_foundation.up, m0001_foundation.down),
    Step(2, "alerts", m0002_alerts.up, m0002_alerts.down),
    Step(3, "account", m0003_account.up, m0003_account.down),
    Step(4, "access", m0004_access.up, m0004_access.down),
    Step(5, "stray runs", m0005_stray.up, m0005_stray.down),
)
LATEST = STEPS[-1].number

_TABLE = "create table schema_steps (number integer primary key, title varchar(100) not null)"


def version(q: Dialect) -> Work[int]:
    """The step that the store is at."""
    there = yield Fetch(q.has_table, {"name": "schema_steps"})
    if not there:
        yield Execute(_TABLE)
    rows = yield Fetch("select coalesce(max(number), 0) from schema_steps")
    return int(rows[0][0])


def check(found: int) -> None:
    """An older binary must not touch a newer schema: it would not know what it breaks."""
    if found > LATEST:
        raise SchemaMismatch(
            f"the store's schema is at step {found}, this version of Noonbell knows {LATEST}; upgrade Noonbell",
            details={"found": found, "known": LATEST},
        )


def migrate(q: Dialect, schema: str, found: int, to: int) -> Work[list[int]]:
    """Go from step `found` to step `to`, forward or back; which steps were taken. Each is recorded with the step."""
    taken: list[int] = []
    for step in STEPS:
        if found < step.number <= to:
            for sql in step.up(schema):
                yield from _do(q, sql)
            failpoint.hit("K13")
            yield Execute(
                "insert into schema_steps (number, title) values (:number, :title)",
                {"number": step.number, "title": step.title},
            )
            taken.append(step.number)
    for step in reversed(STEPS):
        if to < step.number <= found:
            for sql in step.down(schema):
                yield from _do(q, sql)
            yield Execute("delete from schema_steps where number = :number", {"number": step.number})
            taken.append(-step.number)
    return taken


def _do(q: Dialect, sql: str) -> Work[None]:
    """One statement of a step. Where a step can be cut off in the middle, what is done already is passed over."""
    if q.has_index is not None:
        made = _MAKES.match(sql)
        if made is not None:
            ask = q.has_table if made["kind"] == "table" else q.has_index
            there = yield Fetch(ask, {"name": made["name"]})
            if bool(there) is (made["verb"] == "create"):
                return
    yield Execute(sql)


_MAKES = re.compile(r"(?P<verb>create|drop) (?:unique )?(?P<kind>table|index) (?P<name>\w+)")
