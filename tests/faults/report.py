"""What came of it, in markdown: one table for the kill points, and a chapter for each test that has more to tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from faults.scenarios import SCENARIOS, Scenario
from faults.trial import Ending

TIMES = int(os.environ.get("FAULTS_TIMES") or 5)
"""Trials of each kill point, on each store, in each delivery mode."""
SECONDS = int(os.environ.get("FAULTS_SECONDS") or 120)
"""How long nodes are killed under load."""
STORES = ("sqlite", "postgres", "mariadb")


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
    others: dict[str, Scenario] = field(default_factory=dict)
    """Kill points that are not those of a node."""
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
        self.others |= {} if scenario in SCENARIOS else {scenario.name: scenario}
        self.cells[scenario.name, mode, store] = Cell(times, wrong, endings, seconds)

    def markdown(self) -> str:
        # A test that was run again has told its chapter again: the last one counts.
        chapters = {chapter.strip().partition("\n")[0]: chapter for chapter in self.chapters}
        return "\n".join([*self._kill_points(), *chapters.values()])

    def _kill_points(self) -> Iterator[str]:
        if not self.cells:
            return
        yield "## Kill points\n"
        yield "| point | dies | delivery | promise | SQLite | PostgreSQL | MariaDB | deliveries seen |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        for scenario in (*SCENARIOS, *self.others.values()):
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
