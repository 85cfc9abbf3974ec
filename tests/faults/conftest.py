"""Databases by the dozen, and the report: `build/faults.md`, also printed at the end.

What is marked `faults` takes minutes and runs only where it is asked for: `make faults`, or `pytest -m faults`. What passed
in an earlier run of the same code that was cut off is not run again: see `record`. Where several processes run the tests, what a test
tells goes to the one that they report to, which keeps the record: with the test's own report, in its `user_properties`.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faults.order import AloneLast, is_alone
from faults.record import MINUTES, Record, key_of
from faults.report import Report, with_fail_overs
from noonbell.stores import open_store
from services.bytecode import BUILD
from services.emptied import Lending

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

TOLD = pytest.StashKey[Report]()
KEEPER = pytest.StashKey["Keeper"]()
UNTIL = pytest.StashKey[float]()
"""When no further test is begun, by the clock that all processes have."""
PROPERTY = "faults"
ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/reference/faults.md"
"""Its table of fail-overs is written by the run."""

StoreUrls = Callable[[str, int], Iterable[str]]
LentStore = Callable[[str], Callable[[], AbstractContextManager[str]]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: kills real processes for minutes; only with -m faults")
    if "faults" not in (config.option.markexpr or "") or config.option.collectonly:
        return
    if (handed := getattr(config, "workerinput", None)) is not None:
        config.stash[UNTIL] = handed["faults_until"]
        return
    config.stash[UNTIL] = time.monotonic() + MINUTES * 60
    config.stash[KEEPER] = Keeper(Record(BUILD / "faults", key_of(ROOT)))
    config.pluginmanager.register(config.stash[KEEPER])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput["faults_until"] = node.config.stash.get(UNTIL, 0.0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "faults" in (config.option.markexpr or ""):
        if KEEPER in config.stash:
            config.stash[KEEPER].leave_out(config, items)
        return
    left_out = [item for item in items if item.get_closest_marker("faults")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("faults")]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    if UNTIL not in item.config.stash:
        return
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and TOLD in item.stash:
        report.user_properties.append((PROPERTY, item.stash[TOLD].plain()))
    if report.when == "teardown" and time.monotonic() > item.config.stash[UNTIL]:
        item.session.shouldstop = (
            f"{MINUTES:g} minutes are over (FAULTS_MINUTES); the same command goes on with the rest"
        )


class Keeper:
    """Hears of every test, whichever process has run it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._seconds: dict[str, float] = {}

    def leave_out(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """What has passed already, unless all has. Only where one process runs the tests: the others ask `AloneLast`."""
        left = set(self.record.left_of([item.nodeid for item in items]))
        done = [item for item in items if item.nodeid not in left]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid in left]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> AloneLast:
        return AloneLast(config, log, self.record)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        if report.when == "call":
            told: dict[str, Any] = dict(report.user_properties)
            self.record.told[name] = told.get(PROPERTY, Report().plain())
            if report.passed:
                self._seconds[name] = report.duration
        elif report.when == "teardown" and report.passed and name in self._seconds:
            self.record.keep(name, self._seconds[name])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Whether several processes are stopped by a test that failed or by the clock is told apart here: 1 is the former."""
        if session.testsfailed and session.exitstatus == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        report = self.record.report()
        text = report.markdown()
        if report.topologies:
            PAGE.write_text(with_fail_overs(PAGE.read_text(), report.topologies))
        if text:
            BUILD.mkdir(exist_ok=True)
            (BUILD / "faults.md").write_text(f"{text}\n{self.record.summary()}\n")
            terminalreporter.section("faults (build/faults.md)")
            terminalreporter.write(text)
        terminalreporter.ensure_newline()
        terminalreporter.write_line(self.record.summary())


@pytest.fixture
def faults_report(request: pytest.FixtureRequest) -> Report:
    """What this test tells."""
    return request.node.stash.setdefault(TOLD, Report())


@pytest.fixture
def lent_store(request: pytest.FixtureRequest, tmp_path: Path) -> LentStore:
    """`lend = lent_store("postgres")`, then `with lend() as url`: a database with our tables and nothing in it, also for threads.

    Databases are lent, since making one takes seconds, and for no longer than they are needed: each holds a connection.
    """
    lock, numbers = threading.Lock(), itertools.count()

    def lender(store: str) -> Callable[[], AbstractContextManager[str]]:
        if store == "sqlite":
            template = request.getfixturevalue("sqlite_template")
            return lambda: nullcontext(_sqlite_copy(template, tmp_path / f"{next(numbers)}.db"))
        lending: Lending = request.getfixturevalue({"postgres": "lent_postgres", "mariadb": "lent_mysql"}[store])

        @contextmanager
        def lend() -> Iterator[str]:
            with lock:
                database = lending.lend()
            try:
                yield database.url
            finally:
                lending.give_back(database)

        return lend

    return lender


@pytest.fixture
def stores_in_turn(lent_store: LentStore) -> StoreUrls:
    """`for url in stores_in_turn("postgres", 5)`: one after the other; the one before is gone when the next one comes."""

    def urls(store: str, count: int) -> Iterator[str]:
        lend = lent_store(store)
        for _ in range(count):
            with lend() as url:
                yield url

    return urls


@pytest.fixture
def store_urls(request: pytest.FixtureRequest, lent_store: LentStore) -> Iterator[StoreUrls]:
    """`store_urls("postgres", 2)`: so many, until the test ends.

    Where a test is alone, because it fills the machine, its database is one that nobody else has filled.
    """
    with ExitStack() as until_the_end:

        def urls(store: str, count: int) -> list[str]:
            if store == "sqlite" or not is_alone(request.node.nodeid):
                lend = lent_store(store)
                return [until_the_end.enter_context(lend()) for _ in range(count)]
            fresh = request.getfixturevalue({"postgres": "fresh_postgres", "mariadb": "fresh_mysql"}[store])
            return [fresh("faults", prepare) for _ in range(count)]

        yield urls


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from services.databases import do_prepare

    path = tmp_path_factory.mktemp("template") / "noonbell.db"
    do_prepare(prepare, f"sqlite:///{path}")
    return path


def _sqlite_copy(template: Path, copy: Path) -> str:
    shutil.copy(template, copy)
    return f"sqlite:///{copy}"


async def prepare(url: str) -> None:
    """Opening a store makes its tables."""
    store = open_store(url)
    await store.open()
    await store.close()
