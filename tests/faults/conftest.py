"""Databases by the dozen, and the report: `build/faults.md`, also printed at the end.

What is marked `faults` takes minutes and runs only where it is asked for: `make faults`, or `pytest -m faults`. What passed
in an earlier run of the same code that was cut off is not run again: see `record`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.record import MINUTES, Record, key_of
from faults.report import Report
from noonbell.stores import open_store
from services.bytecode import BUILD

REPORT = pytest.StashKey[Report]()
RECORD = pytest.StashKey[Record]()
ASKED = pytest.StashKey[list[str]]()
ROOT = Path(__file__).resolve().parent.parent.parent

StoreUrls = Callable[[str, int], list[str]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: kills real processes for minutes; only with -m faults")
    config.stash[REPORT] = Report()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "faults" in (config.option.markexpr or ""):
        _go_on(config, items)
        return
    left_out = [item for item in items if item.get_closest_marker("faults")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("faults")]


def _go_on(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed already, unless all has."""
    if config.option.collectonly:
        return
    record = Record(BUILD / "faults", key_of(ROOT))
    config.stash[RECORD], config.stash[ASKED] = record, [item.nodeid for item in items]
    left = set(record.left_of(config.stash[ASKED]))
    config.stash[REPORT] = record.report()
    done = [item for item in items if item.nodeid not in left]
    if done:
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid in left]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    record = item.config.stash.get(RECORD, None)
    if record is None:
        return
    told = outcome.get_result()  # type: ignore[attr-defined]
    if told.when == "call" and told.passed:
        record.keep(item.nodeid, told.duration, item.config.stash[REPORT])
    if told.when == "teardown" and record.is_over:
        item.session.shouldstop = (
            f"{MINUTES:g} minutes are over (FAULTS_MINUTES); the same command goes on with the rest"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    text = config.stash[REPORT].markdown()
    if text:
        BUILD.mkdir(exist_ok=True)
        (BUILD / "faults.md").write_text(text)
        terminalreporter.section("faults (build/faults.md)")
        terminalreporter.write(text)
    if RECORD in config.stash:
        terminalreporter.ensure_newline()
        terminalreporter.write_line(config.stash[RECORD].summary(config.stash[ASKED]))


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
