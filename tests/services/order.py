"""The stretches of tests that the processes of a run take, one after another (`processes`), and their order.

The tests of a file stay together where they share what is made once for them (a node, a browser's window, five thousand tasks); a longer file
without such a thing is taken in parts. Half of the processes take stretches from the front, where tests are that wait for a second to pass or
for a process to start, and half from the end, where tests compute; short ones are in the middle, so that all end at once.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("acceptance", "browser", "integration", "architecture", "security", "unit", "typing", "conformance")
"""From those that wait most to those that compute most."""
MOST = 60
"""Tests of one stretch, where a file can be parted."""

Stretch = list[int]
"""Tests by their places among all that were collected."""


def stretches(items: list[pytest.Item]) -> list[Stretch]:
    files: dict[Path, Stretch] = defaultdict(list)
    for index, item in enumerate(items):
        files[item.path].append(index)
    found: list[Stretch] = []
    for path in sorted(files, key=rank):
        tests = files[path]
        most = len(tests) if any(map(shares, (items[index] for index in tests))) else MOST
        found += [tests[start : start + most] for start in range(0, len(tests), most)]
    return found


def rank(path: Path) -> int:
    """Of files of one folder the order stays that they had."""
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


def shares(item: pytest.Item) -> bool:
    """Whether something is made for it that other tests of its file or class use too."""
    fixtures = getattr(item, "_fixtureinfo", None)
    used = fixtures.name2fixturedefs.values() if fixtures else ()
    return any(each[-1].scope in ("module", "class", "package") for each in used if each)
