"""Databases by the dozen, and the report: `build/faults.md`, also printed at the end.

What is marked `faults` takes minutes and runs only where it is asked for: `make faults`, or `pytest -m faults`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.report import Report
from noonbell.stores import open_store
from services.bytecode import BUILD

REPORT = pytest.StashKey[Report]()

StoreUrls = Callable[[str, int], list[str]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: kills real processes for minutes; only with -m faults")
    config.stash[REPORT] = Report()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "faults" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("faults")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("faults")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    text = config.stash[REPORT].markdown()
    if text:
        BUILD.mkdir(exist_ok=True)
        (BUILD / "faults.md").write_text(text)
        terminalreporter.section("faults (build/faults.md)")
        terminalreporter.write(text)


@pytest.fixture
def faults_report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash[REPORT]


@pytest.fixture
def store_urls(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUrls:
    """`store_urls("postgres", 5)`: so many databases with our tables and nothing in them."""

    def urls(store: str, count: int) -> list[str]:
        if store == "sqlite":
            return list(_sqlite_copies(request.getfixturevalue("sqlite_template"), tmp_path, count))
        fresh = request.getfixturevalue({"postgres": "fresh_postgres", "mariadb": "fresh_mysql"}[store])
        return [fresh("faults", prepare) for _ in range(count)]

    return urls


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from services.databases import do_prepare

    path = tmp_path_factory.mktemp("template") / "noonbell.db"
    do_prepare(prepare, f"sqlite:///{path}")
    return path


def _sqlite_copies(template: Path, folder: Path, count: int) -> Iterator[str]:
    for number in range(count):
        copy = folder / f"{number}.db"
        shutil.copy(template, copy)
        yield f"sqlite:///{copy}"


async def prepare(url: str) -> None:
    """Opening a store makes its tables."""
    store = open_store(url)
    await store.open()
    await store.close()
