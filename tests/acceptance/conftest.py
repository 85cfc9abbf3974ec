"""Nodes, a target, and each kind of store that outlives its process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.harness import Nodes, Target

FRESH = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}


@pytest.fixture(params=sorted(FRESH, reverse=True))
def store_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FRESH[request.param]))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.end()


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()
