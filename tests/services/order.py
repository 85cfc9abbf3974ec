"""The order of the files in a run over several processes (`--dist loadfile`): each file stays whole, in one process.

Fixtures of a module (a node, a browser's window, five thousand tasks, the site, what mypy says) are then made once. Files go to processes
in this order as these come free, so tests that wait for a second to pass run beside tests that compute, and the end of the run
is made of short files: no process is left with a long one while the others have nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OVER_BY = {"acceptance": 0.7, "browser": 0.8, "integration": 0.9, "typing": 0.3}
"""The part of the run over which the files of a folder are spread evenly; the files of all others over the whole."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = spread(items)


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """In the order of their turns; tests of one file, and files of one folder, in the order that they had."""
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    folders: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        folders[path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""].append(path)
    turns = {
        path: OVER_BY.get(folder, 1.0) * (number + 0.5) / len(paths)
        for folder, paths in folders.items()
        for number, path in enumerate(paths)
    }
    return [item for path in sorted(files, key=turns.__getitem__) for item in files[path]]
