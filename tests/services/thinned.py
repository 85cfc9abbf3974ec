"""What `make test` leaves to `make test-full` because a sibling shows the same: cases of one rule on one more store.

A rule is code that all stores share; what is a store's own is its statements, and a statement is met by many tests. So each test keeps all of
its cases in one place, and a case at least on one database server. Which store or case that is goes by turns, and is the same in every run.

- conformance, API and pages, which run in memory too: there all cases, and one of four on one of the servers. `WHOLE` keeps them all: locks,
  races, and what commits together. With a schema or a prefix: on PostgreSQL and one more.
- the rest of integration, security, and acceptance, which starts processes: each case on one store.

A test that is named as the one to go red when a protection is removed (tools/sabotage) keeps all of its cases on all stores.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tools.sabotage.removals import REMOVALS

TESTS = Path(__file__).parents[1]
STORES = ("memory", "sqlite", "postgres", "mariadb")
SERVERS = ("postgres", "mariadb")
WHOLE = ("test_life", "test_claim", "test_settle", "test_plan", "test_publish", "test_publish_within", "test_holding")
EVERY = 4

NAMED = frozenset(test.partition("[")[0] for removal in REMOVALS for test in removal.tests)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if store_of(item):
            tests[item.path, getattr(item, "originalname", "")].append(item)
    for (path, name), cases in tests.items():
        where = path.relative_to(TESTS)
        if f"{where.as_posix()}::{name}" not in NAMED:
            for item in left_out(where, zlib.crc32(name.encode()), cases):
                item.add_marker(pytest.mark.full)


def left_out(where: Path, turn: int, cases: list[pytest.Item]) -> Iterator[pytest.Item]:
    """`cases` of one test; `turn` says which store or case is the first that stays."""
    stores = [store for store in STORES if any(store_of(item) == store for item in cases)]
    match where.parts:
        case ("conformance", "apart", *_):
            besides = ("sqlite", "mariadb")[turn % 2]
            for item in cases:
                if store_of(item) not in ("postgres", besides):
                    yield item
            yield from most((item for item in cases if store_of(item) in ("postgres", besides)), turn)
        case ("conformance", *_) | ("integration", "api" | "web", *_) if where.stem not in WHOLE and "memory" in stores:
            stays = SERVERS[turn % 2]
            for item in cases:
                if store_of(item) in SERVERS and store_of(item) != stays:
                    yield item
            yield from most((item for item in cases if store_of(item) == stays), turn)
        case ("acceptance" | "integration" | "security", *_) if len(stores) > 1:
            for number, item in numbered(cases):
                if store_of(item) != stores[(turn + number) % len(stores)]:
                    yield item


def most(cases: Iterable[pytest.Item], turn: int) -> Iterator[pytest.Item]:
    """All but every fourth case of a store; of fewer than four, one stays."""
    cases = list(cases)
    counts: dict[str, int] = defaultdict(int)
    for item in cases:
        counts[store_of(item)] += 1
    for number, item in numbered(cases):
        first = turn % min(EVERY, counts[store_of(item)])
        if number % EVERY != first:
            yield item


def numbered(cases: Iterable[pytest.Item]) -> Iterator[tuple[int, pytest.Item]]:
    """Each with the number that it has among those of its store."""
    counts: dict[str, int] = defaultdict(int)
    for item in cases:
        yield counts[store_of(item)], item
        counts[store_of(item)] += 1


def store_of(item: pytest.Item) -> str:
    """The store that is one of a test's parameters; empty where none is."""
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    return next((value for value in values if isinstance(value, str) and value in STORES), "")
