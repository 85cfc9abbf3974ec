"""The schema, as a row of steps forward and back. A step that has landed is never edited: the next one mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noonbell.errors import SchemaMismatch
from noonbell.stores.migrations import m0001_foundation
from noonbell.stores.sql.statement import Execute, Fetch, Work


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    title: str
    up: Callable[[str], list[str]]
    """Dialect name → statements. An empty list is a step that has nothing to do there."""
    down: Callable[[str], list[str]]


STEPS = (Step(1, "foundation", m0001_foundation.up, m0001_foundation.down),)
LATEST = STEPS[-1].number

_TABLE = "create table schema_steps (number integer primary key, title varchar(100) not null)"


def version(has_table: str) -> Work[int]:
    """The step that the store is at. `has_table` asks whether a table `:name` is there."""
    there = yield Fetch(has_table, {"name": "schema_steps"})
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


def migrate(dialect: str, has_table: str, to: int = LATEST) -> Work[list[int]]:
    """Go to step `to`, forward or back; which steps were taken. Each is recorded with the step itself."""
    found = yield from version(has_table)
    check(found)
    taken: list[int] = []
    for step in STEPS:
        if found < step.number <= to:
            for sql in step.up(dialect):
                yield Execute(sql)
            yield Execute(
                "insert into schema_steps (number, title) values (:number, :title)",
                {"number": step.number, "title": step.title},
            )
            taken.append(step.number)
    for step in reversed(STEPS):
        if to < step.number <= found:
            for sql in step.down(dialect):
                yield Execute(sql)
            yield Execute("delete from schema_steps where number = :number", {"number": step.number})
            taken.append(-step.number)
    return taken


__all__: list[Any] = ["LATEST", "STEPS", "Step", "check", "migrate", "version"]
