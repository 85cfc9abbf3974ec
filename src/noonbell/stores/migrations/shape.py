"""What the steps make, read from their statements: tables with their columns, and indexes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
            tables[made["name"]] = tables[parent] if parent else frozenset(_columns(made["body"]))
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


def _columns(body: str) -> Iterable[str]:
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
