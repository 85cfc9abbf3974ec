"""Every requirement has a row in docs/decisions/, and every test that a decision names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = sorted((ROOT / "docs/decisions").glob("*.md"))
ROW = re.compile(r"^\| ([SEP]\d?-?\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`((?:[\w]+/)+[\w]+\.py)::(test_\w+)`")
LINES = {
    **{f"S{document}": count for document, count in enumerate((65, 64, 159, 82, 65))},
    "E": 20,
    "P": 6,
}
"""How many lines of each kind the catalogue of requirements has."""


@cache
def functions_in(path: str) -> frozenset[str]:
    file = ROOT / "tests" / path
    parts = ast.walk(ast.parse(file.read_text())) if file.exists() else ()
    return frozenset(part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))


def rows() -> Iterator[tuple[str, str]]:
    for note in NOTES:
        yield from ROW.findall(note.read_text())


@pytest.mark.parametrize("kind", LINES)
def test_every_line_of_the_catalogue_has_one_row(kind):
    found = [line for line, _ in rows() if line.startswith(f"{kind}-")]
    assert found == [f"{kind}-{number}" for number in range(1, LINES[kind] + 1)]


def test_every_row_names_a_test():
    assert [line for line, met_by in rows() if not NAMED.search(met_by)] == []


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem[:4])
def test_every_test_that_a_decision_names_is_there(note):
    named = NAMED.findall(note.read_text())
    assert [f"{path}::{name}" for path, name in named if name not in functions_in(path)] == []


def test_the_licence_is_mit():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "[MIT](LICENSE)" in (ROOT / "README.md").read_text()
