"""Databases by the dozen, and the report: `build/faults.md`, also printed at the end.

What is marked `faults` takes minutes and runs only where it is asked for: `make faults`, or `pytest -m faults`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from faults.scenarios import SCENARIOS, Scenario
from faults.trial import Ending
from noonbell.stores import open_store

TIMES = int(os.environ.get("FAULTS_TIMES") or 5)
"""Trials of each kill point, on each store, in each delivery mode."""
SECONDS = int(os.environ.get("FAULTS_SECONDS") or 120)
"""How long nodes are killed under load."""

BUILD = Path(__file__).parents[2] / "build"
STORES = ("sqlite", "postgres", "mariadb")

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


@dataclass
class Cell:
    times: int
    wrong: list[str]
    endings: Sequence[Ending]
    seconds: float

    def __str__(self) -> str:
        return f"{self.times - len(self.wrong)}/{self.times}" + (" **broken**" if self.wrong else "")


@dataclass
class Report:
    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    """By scenario, delivery mode and store."""
    chapters: list[str] = field(default_factory=list)
    """What other tests have to tell, in markdown."""

    def kill_point(
        self,
        scenario: Scenario,
        mode: str,
        store: str,
        times: int,
        wrong: list[str],
        endings: Sequence[Ending],
        seconds: float,
    ) -> None:
        self.cells[scenario.name, mode, store] = Cell(times, wrong, endings, seconds)

    def markdown(self) -> str:
        return "\n".join([*self._kill_points(), *self.chapters])

    def _kill_points(self) -> Iterator[str]:
        if not self.cells:
            return
        yield "## Kill points\n"
        yield "| point | dies | delivery | promise | SQLite | PostgreSQL | MariaDB | deliveries seen |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        for scenario in SCENARIOS:
            for mode, promise in scenario.promises.items():
                found = [self.cells.get((scenario.name, mode, store)) for store in STORES]
                if any(found):
                    cells = [str(cell or "–") for cell in found]
                    seen = _seen([ending for cell in found if cell for ending in cell.endings])
                    words = [scenario.name, scenario.dies, mode, str(promise), *cells, seen]
                    yield f"| {' | '.join(words)} |"
        yield ""
        cells = list(self.cells.values())
        kept, trials = sum(cell.times - len(cell.wrong) for cell in cells), sum(cell.times for cell in cells)
        waits = sorted(ending.seconds for cell in cells for ending in cell.endings) or [0.0]
        seconds = sum(cell.seconds for cell in cells)
        yield f"{kept} of {trials} trials as promised, in {seconds:.0f} s. From the death to the run's end, restart included:"
        yield f"median {median(waits):.1f} s, longest {waits[-1]:.1f} s.\n"
        for (name, mode, store), cell in self.cells.items():
            for line in cell.wrong:
                yield f"- {name}, {mode}, {store}: {line.splitlines()[0]}"


def _seen(endings: Sequence[Ending]) -> str:
    """How often each number of deliveries was seen: `1 × 15`."""
    numbers = sorted({ending.deliveries for ending in endings})
    return ", ".join(f"{number} in {sum(one.deliveries == number for one in endings)}" for number in numbers)


REPORT = pytest.StashKey[Report]()


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
