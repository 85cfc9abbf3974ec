"""Every row of the table of speed: Noonbell beside its peers and the limits of its stores, in stages that run one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from bench.results import staged
from bench.rounds import progress
from bench.speed import calls, flows, keys, limits, pick_up, processes, tasks, throughput
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.tables import NONE, line

STAGES: dict[str, Callable[[Scale, int], Found]] = {
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
    "calls": calls.calls,
    "rate-limit": limits.keyed_rate,
    "keys": keys.fair,
    "processes": processes.curve,
    "flows": flows.flows,
}
"""By name: what measures it, given how much of it and the rounds. Each takes three minutes at most."""

HEAD = ["stage", "work", "Noonbell", "beside it, in the same run", "Noonbell ÷ it", "wanted", "verdict"]


def table(lines: Mapping[str, Sequence[str]]) -> str:
    return staged(HEAD, STAGES, lines, right=(2, 4, 5))


def measure(name: str, scale: Scale, rounds: int) -> list[str]:
    """The lines of one stage; of one that failed, that it did."""
    progress(f"speed: {name}")
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}"
    try:
        found = STAGES[name](scale, rounds)
    except Exception as problem:  # a server that is away, or a contender: the other stages go on
        progress(f"FAILED: {name}: {problem!r}")
        found = Found([Row(name, "no result", NONE, NONE, NONE, None)], [f"failed: {type(problem).__name__}"])
    notes = (f"{began}, {found.rounds or rounds} round(s){scale.said}.", *found.notes)
    return [*(line([name, *row.cells]) for row in found.rows), *(f"- {name}: {note}" for note in notes)]
