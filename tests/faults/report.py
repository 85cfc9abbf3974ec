"""What came of it, in markdown: one table for the kill points, and a chapter for each test that has more to tell.

Each test tells its own part; a part is sent between processes and kept in files as plain data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Self

from faults.scenarios import SCENARIOS, Scenario
from faults.trial import Ending

TIMES = int(os.environ.get("FAULTS_TIMES") or 5)
"""Trials of each kill point, on each store, in each delivery mode."""
SECONDS = int(os.environ.get("FAULTS_SECONDS") or 120)
"""How long nodes are killed under load."""
STORES = ("sqlite", "postgres", "mariadb")
TOPOLOGY = (
    *("topology", "slots", "lost", "doubled", "again, same key", "again, other key", "at most once, again"),
    *("at most once, told", "fail-overs", "p50", "p99", "`noonbell audit`", "day"),
)
"""Columns of the table of fail-overs."""
_ORDER = [scenario.name for scenario in SCENARIOS]


@dataclass(frozen=True)
class Cell:
    """A kill point, in one delivery mode, on one store."""

    point: str
    dies: str
    mode: str
    promise: str
    store: str
    times: int
    wrong: list[str]
    deliveries: list[int]
    """Of each trial."""
    waits: list[float]
    """Of each trial: the seconds from the death to the run's end."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.times - len(self.wrong)}/{self.times}" + (" **broken**" if self.wrong else "")


@dataclass
class Report:
    """What a test has to tell, or all of them together."""

    cells: list[Cell] = field(default_factory=list)
    chapters: list[str] = field(default_factory=list)
    """In markdown."""
    topologies: list[list[str]] = field(default_factory=list)
    """Rows of the table of fail-overs."""

    @classmethod
    def of(cls, parts: Iterable[Mapping[str, Any]]) -> Self:
        """All parts in their order, each as `plain` gave it."""
        whole = cls()
        for part in parts:
            whole.cells += [Cell(**cell) for cell in part["cells"]]
            whole.chapters += part["chapters"]
            whole.topologies += part["topologies"]
        return whole

    def plain(self) -> dict[str, Any]:
        return asdict(self)

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
        cell = Cell(
            point=scenario.name,
            dies=scenario.dies,
            mode=mode,
            promise=str(scenario.promises[mode]),
            store=store,
            times=times,
            wrong=wrong,
            deliveries=[ending.deliveries for ending in endings],
            waits=[ending.seconds for ending in endings],
            seconds=seconds,
        )
        self.cells.append(cell)

    def markdown(self) -> str:
        return "\n".join([*self._kill_points(), *self.chapters, *self._fail_overs()])

    def _fail_overs(self) -> Iterator[str]:
        if self.topologies:
            yield "## Fail-overs\n"
            yield table(TOPOLOGY, self.topologies)
            yield ""

    def _kill_points(self) -> Iterator[str]:
        if not self.cells:
            return
        yield "## Kill points\n"
        yield "| point | dies | delivery | promise | SQLite | PostgreSQL | MariaDB | deliveries seen |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        for row in sorted({(cell.point, cell.dies, cell.mode, cell.promise) for cell in self.cells}, key=_rank):
            found = {cell.store: cell for cell in self.cells if (cell.point, cell.mode) == (row[0], row[2])}
            cells = [str(found.get(store, "–")) for store in STORES]
            seen = _seen([count for cell in found.values() for count in cell.deliveries])
            yield f"| {' | '.join([*row, *cells, seen])} |"
        yield ""
        kept, trials = sum(cell.times - len(cell.wrong) for cell in self.cells), sum(cell.times for cell in self.cells)
        waits = sorted(wait for cell in self.cells for wait in cell.waits) or [0.0]
        yield f"{kept} of {trials} trials as promised. From the death to the run's end, restart included:"
        yield f"median {median(waits):.1f} s, longest {waits[-1]:.1f} s.\n"
        for cell in self.cells:
            for line in cell.wrong:
                yield f"- {cell.point}, {cell.mode}, {cell.store}: {line.splitlines()[0]}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


_BEGIN, _END = "<!-- fail-overs: `make faults` writes this table -->\n\n", "\n\n<!-- end of fail-overs -->"


def with_fail_overs(page: str, rows: Iterable[Sequence[str]]) -> str:
    """The page with these rows in its table: each in the place of the one that has its name, new ones at the end."""
    before, _, rest = page.partition(_BEGIN)
    written, _, after = rest.partition(_END)
    lines = [line.strip("| ").split(" | ") for line in written.splitlines()[2:]]
    known = {cells[0]: cells for cells in [*lines, *map(list, rows)]}
    return f"{before}{_BEGIN}{table(TOPOLOGY, known.values())}{_END}{after}"


def _rank(row: tuple[str, str, str, str]) -> tuple[int, int, str, str]:
    """Those of a node as they are listed, then the others by their number."""
    point, _, mode, _ = row
    listed = _ORDER.index(point) if point in _ORDER else len(_ORDER)
    return listed, int(point.split(" ")[0].removeprefix("K")), point, mode


def _seen(deliveries: Sequence[int]) -> str:
    """How often each number of deliveries was seen: `1 in 15`."""
    return ", ".join(f"{number} in {deliveries.count(number)}" for number in sorted(set(deliveries)))
