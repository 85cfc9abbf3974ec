"""Every row of the table of speed: Noonbell beside its peers and the limits of its stores, in stages that run one by one."""

from __future__ import annotations

from collections.abc import Callable

from bench.rounds import progress
from bench.speed import limits, pick_up, processes, tasks, throughput
from bench.speed.rows import Found
from bench.tables import markdown

STAGES: dict[str, Callable[[bool, int], Found]] = {
    "drain-postgresql": throughput.drain_postgresql,
    "drain-sqlite": throughput.drain_sqlite,
    "drain-mariadb": throughput.drain_mariadb,
    "publish-postgresql": throughput.publish_postgresql,
    "publish-sqlite": throughput.publish_sqlite,
    "pick-up-postgresql": pick_up.postgresql,
    "pick-up-sqlite": pick_up.sqlite,
    "pick-up-mariadb": pick_up.mariadb,
    "one-shot": pick_up.one_shot,
    "once": tasks.once,
    "create": tasks.create,
    "rate-limit": limits.keyed_rate,
    "processes": processes.curve,
}
"""By name: what measures it, given whether a look is enough, and the rounds. Each takes three minutes at most."""

HEAD = ["stage", "work", "Noonbell", "beside it, in the same run", "Noonbell ÷ it", "wanted", ""]


def table(only: str | None, *, quick: bool, rounds: int) -> str:
    rows, notes = [], []
    for name, measure in STAGES.items():
        if only in (None, name):
            progress(f"speed: {name}")
            found = measure(quick, rounds)
            rows += [[name, row.work, row.ours, row.beside, row.ratio, row.wanted, row.verdict] for row in found.rows]
            notes += [f"- {name}: {note}" for note in found.notes]
    return markdown(HEAD, rows, right=(2, 4, 5)) + "\n\n" + "\n".join(notes)
