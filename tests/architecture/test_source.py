"""What no file under src/ may do, read from its syntax tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "noonbell"
FILES = sorted(SOURCE.rglob("*.py"))

WALL_CLOCK = {
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "datetime.date.today",
}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_names(tree: ast.Module) -> dict[str, str]:
    """What each name that an import binds stands for: `from datetime import datetime as dt` gives dt."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return None


def names_used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every dotted name in the file with its imports resolved, and its line."""
    imported = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)):
            head, dot, rest = name.partition(".")
            yield imported.get(head, head) + dot + rest, node.lineno


def wall_clock_lines(tree: ast.Module) -> list[int]:
    return sorted({line for name, line in names_used(tree) if name in WALL_CLOCK})


def unsafe_lines(tree: ast.Module) -> list[int]:
    lines = {line for name, line in names_used(tree) if name in UNSAFE_CALLS}
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        if any(module.partition(".")[0] in UNSAFE_MODULES for module in modules):
            lines.add(node.lineno)
    return sorted(lines)


def places(find, but: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in FILES
        if str(path.relative_to(SOURCE)) not in but
        for line in find(tree_of(path))
    ]


def test_only_the_clock_reads_wall_time():
    assert places(wall_clock_lines, but=("clock.py",)) == []


def test_nothing_is_pickled_or_evaluated():
    assert places(unsafe_lines) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "from time import time as t\nt()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as dt\ndt.now(UTC)",
        "from datetime import date\ntoday = date.today",
    ],
)
def test_a_glance_at_the_wall_clock_is_seen_in_any_spelling(text):
    assert wall_clock_lines(ast.parse(text)) == [2]


@pytest.mark.parametrize("text", ["import time\ntime.monotonic()", "clock.now()", "from datetime import datetime"])
def test_other_uses_of_time_are_not_taken_for_it(text):
    assert wall_clock_lines(ast.parse(text)) == []


@pytest.mark.parametrize("text", ["import pickle", "from pickle import loads", "eval('1')", "import dill.source"])
def test_unsafe_code_is_seen(text):
    assert unsafe_lines(ast.parse(text)) == [1]


def test_a_public_class_name_stands_for_one_class():
    classes = defaultdict(list)
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def test_no_file_has_more_than_800_lines_and_no_function_more_than_60():
    assert [str(path) for path in FILES if path.read_text(encoding="utf-8").count("\n") > 800] == []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert places(lambda tree: [n.lineno for n in ast.walk(tree) if isinstance(n, functions) and length(n) > 60]) == []


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_line_of_a_template_is_wider_than_160_characters():
    templates = sorted(SOURCE.rglob("*.html"))
    assert templates
    wide = [(path.name, line) for path in templates for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(name, line[:80]) for name, line in wide if len(line) > 160] == []


def test_no_attribute_is_made_up_where_it_is_asked_for():
    """A `__getattr__` hides from an editor where a call goes. A package's own may name what it imports late."""

    def made_up(tree: ast.Module) -> list[int]:
        return [n.lineno for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__getattr__"]

    assert places(made_up, but=("__init__.py",)) == []
