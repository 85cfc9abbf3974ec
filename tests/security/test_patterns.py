"""Every regular expression of the tree takes time that grows with the text, and not with its square.

The expressions are found by themselves: compiled ones in the modules, and those written out in calls of `re`. Each searches
texts of hostile shapes, short ones and eight times as long ones: a linear search takes eight times as long, a quadratic one
sixty-four times.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import noonbell

SOURCE = Path(noonbell.__file__).parent

WHOLE = {
    "noonbell.settings.loading._DSN": "a setting",
    "noonbell.settings.kinds._DURATION": "a setting",
    "noonbell.settings.kinds._HOST_NAME": "a setting, of 253 characters at most",
    "noonbell.targets.http.connection._INTERIM": "the beginning of a head",
    "noonbell.when.zones._OFFSET_LIKE": "a time zone",
    "noonbell.cli.importers.crontab._ASSIGNMENT": "a line of a crontab",
    "noonbell.cli.importers.programs._ASSIGNMENT": "a word of a command",
}
"""Those that are asked about a whole text, and never look for a place in it."""

OURS = {
    "noonbell.settings.kinds._PART": "finds the parts of what `_DURATION` has taken",
    "noonbell/stores/sql/dialect.py": "our statements",
    "noonbell/stores/migrations/m0001_foundation.py": "our statements",
}
"""Those that never see a text of others."""

UNITS = (
    *(
        "a",
        "A",
        "0",
        " ",
        "\t",
        "\n",
        "\r\n",
        '"',
        "'",
        "\\",
        "{",
        "}",
        "{{",
        "${",
        "$",
        "/",
        ":",
        "@",
        "?",
        "&",
        "=",
        ";",
    ),
    *(
        "a://",
        "ab://",
        "a://a:",
        "://a:",
        "a:",
        "a@",
        "?a",
        "&a",
        "&token",
        "a=",
        "; ",
        "; charset",
        ".",
        "a.",
        "-",
        "_",
    ),
    *(
        "a-",
        "a_",
        "aa_-",
        "aa_",
        "a1",
        "a1-",
        "+",
        "%",
        "%2",
        "#",
        ",",
        ", ",
        "a,",
        " and ",
        "a ",
        "1-",
        "1:",
        "1m",
        "0.",
    ),
    *("*", "(", "[", "`", " - at `$", "bearer ", "basic", "/callbacks/", "timeout ", "payload", "payload.a", "10:00 "),
    *("every ", "每", "执行", "\x00", "é", "-key", "api-", "2026-11-15 ", "token", "passw", "secret="),
)
HEADS = ("", "a", "{{", '"', "a=", "a://a:", "?", "every ")
SHORT, FACTOR = 1_000, 8
MARGIN = 3
CALLED = re.compile(r"\bre\s*\.\s*\w+\s*\(")
"""What every call of `re` looks like."""
FLOOR = 0.0005
"""Seconds of processor time: below this a measurement says nothing."""


def _in(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | set | frozenset) and depth < 3:
        for each in value:
            yield from _in(each, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        yield from _in([*value, *value.values()], depth + 1)


def _compiled() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for module in pkgutil.walk_packages(noonbell.__path__, "noonbell."):
        if not module.name.endswith("__main__"):
            for name, value in list(vars(importlib.import_module(module.name)).items()):
                for pattern in _in(value):
                    yield f"{module.name}.{name}", pattern


def _written_out() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if CALLED.search(text) else ():  # to parse every file takes seconds
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr not in ("compile", "escape")
                and isinstance(node.args[0], ast.Constant)
            ):
                yield f"{path.relative_to(SOURCE.parent)}", re.compile(node.args[0].value)


def _patterns() -> dict[str, re.Pattern[Any]]:
    found = {}
    for where, pattern in (*_compiled(), *_written_out()):
        found.setdefault((pattern.pattern, pattern.flags), (where, pattern))
    return {f"{where} {pattern.pattern!r}": pattern for where, pattern in found.values()}


PATTERNS = {name: each for name, each in _patterns().items() if name.split()[0] not in OURS}


def _seconds(ask: Callable[[Any], object], unit: str, head: str, length: int, as_bytes: bool, tries: int = 1) -> float:
    """Of processor time; the text ends with what no expression ends with, so that none ends soon."""
    text = head + (unit * (length // len(unit) + 1))[:length] + "\x01"
    given: Any = text.encode() if as_bytes else text
    taken = []
    for _ in range(tries):
        began = time.process_time()
        ask(given)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_a_text_of_any_shape_takes_time_that_grows_with_its_length(name: str):
    pattern = PATTERNS[name]
    ask = pattern.match if name.split(maxsplit=1)[0] in WHOLE else pattern.search
    as_bytes = isinstance(pattern.pattern, bytes)
    for unit in UNITS:
        for head in HEADS:
            if _seconds(ask, unit, head, SHORT * FACTOR, as_bytes) < MARGIN * FACTOR * FLOOR:
                continue
            short = max(FLOOR, _seconds(ask, unit, head, SHORT, as_bytes, 5))
            long = _seconds(ask, unit, head, SHORT * FACTOR, as_bytes, 5)
            assert long < MARGIN * FACTOR * short, (
                f"{head!r} and {unit!r}: {short * 1e3:.1f} ms, then {long * 1e3:.1f} ms"
            )


def test_the_measure_knows_a_quadratic_expression():
    pattern = re.compile(r"[a-z]+:")
    short, long = (
        _seconds(pattern.search, "a", "", length, as_bytes=False, tries=3) for length in (SHORT, SHORT * FACTOR)
    )
    assert long > MARGIN * FACTOR * max(FLOOR, short)


def test_no_expression_is_excused_that_is_gone():
    known = {name.split()[0] for name in _patterns()}
    assert {*WHOLE, *OURS} <= known
    assert len(PATTERNS) > 100
