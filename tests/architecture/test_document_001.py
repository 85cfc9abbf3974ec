"""The note about document 001 has a row for every line, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTE = ROOT / "docs/decisions/0008-requirements-of-document-001.md"
ROW = re.compile(r"^\| (S1-\d+) \| [^|]+ \| (?P<by>[^|]+) \|$", re.MULTILINE)
LINES = [f"S1-{number}" for number in range(1, 65)]


def functions_in(path: str) -> set[str]:
    parts = ast.walk(ast.parse((ROOT / "tests" / path).read_text()))
    return {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_line_has_a_row_that_names_a_test():
    rows = {row[1]: row["by"] for row in ROW.finditer(NOTE.read_text())}
    assert list(rows) == LINES
    assert [line for line, by in rows.items() if "::test_" not in by] == []


def test_every_test_that_the_note_names_is_there():
    named = set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", NOTE.read_text()))
    assert len(named) > 60
    there = {path: functions_in(path) for path in {path for path, _ in named}}
    assert sorted(f"{path}::{name}" for path, name in named if name not in there[path]) == []


def test_the_licence_is_mit():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "[MIT](LICENSE)" in (ROOT / "README.md").read_text()
