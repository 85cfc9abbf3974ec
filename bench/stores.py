"""Publishing, draining and planning on each store, beside the bare driver and the peers that use the same database."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench import databases
from bench.peers import env
from bench.rounds import Contender, Samples, how, interleaved, progress, values
from bench.tables import NONE, Spread, markdown, rates, ratio, ratios

OURS = "Noonbell"
RAW = "raw driver"
WORK = {
    "publish_one": "publish one by one",
    "publish_batch": "publish in batches of 1,000",
    "drain": "drain of no-op runs",
    "plan": "plan due tasks",
}


@dataclass(frozen=True)
class Size:
    """How much of each work one process does. Slow peers get less, so that a round stays short."""

    one: int
    drain: int
    plan: int
    slow: int


FULL = Size(one=2_000, drain=60_000, plan=10_000, slow=4_000)
QUICK = Size(one=500, drain=20_000, plan=5_000, slow=2_000)


@dataclass(frozen=True)
class Goal:
    text: str
    store: str
    peer: str
    work: str
    least: float


GOALS = (
    Goal("drain on PostgreSQL ÷ PgQueuer", "postgres", "PgQueuer", "drain", 1.5),
    Goal("drain on SQLite ÷ Huey", "sqlite", "Huey", "drain", 12.0),
)


def tables(size: Size, rounds: int) -> str:
    """A table for each store that answers, then the goals; what is missing is said, not left out silently."""
    env.ensure_python()
    parts, goals = [], []
    for store in databases.STORES:
        title = databases.TITLES[store]
        try:
            release = databases.server_version(store)
            server = databases.server_settings(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            parts.append(f"### {title}\n\nSkipped: no server answered.")
            continue
        samples = interleaved(contenders(store, size), rounds)
        parts.append(f"### {title} {release}\n\n{table(samples)}" + (f"\n- the server: {server}." if server else ""))
        goals += [goal_row(goal, samples) for goal in GOALS if goal.store == store]
        if store == "mariadb":
            goals.append(["drain on MariaDB, runs a second", "stated", rates(spread(samples, OURS, "drain")), ""])
    head = ["goal", "at least", "measured", ""]
    parts.append("### Goals\n\n" + markdown(head, goals, right=(1, 2)))
    return "\n\n".join(parts)


def contenders(store: str, size: Size) -> list[Contender]:
    """Ours, raw, peers: the order of each round."""
    # Huey has no batches: it publishes one by one what it drains. A log that grows flushes slower, so all do as many.
    one = size.slow * 2 if store == "sqlite" else size.one
    more = (store, "--plan", str(size.plan))
    field = [
        Contender(OURS, store, (sys.executable, "-m", "bench.ours", *more), one, size.drain),
        Contender(RAW, store, (sys.executable, "-m", "bench.raw", *more), one, size.drain),
    ]
    if store == "postgres":
        field.append(Contender("PgQueuer", store, env.python_peer("pgqueuer"), size.one, size.drain))
        field.append(Contender("Procrastinate", store, env.python_peer("procrastinate"), size.one // 2, size.slow))
    if store == "sqlite":
        field.append(Contender("Huey", store, env.python_peer("huey"), one, one))
    return field


def table(samples: Samples) -> str:
    rows: list[list[str]] = []
    for work, title in WORK.items():
        for name in samples:
            rate = spread(samples, name, work)
            if rate is None:
                continue
            share = NONE if name == OURS else ratios(ratio(values(samples, OURS, work), values(samples, name, work)))
            # The work is named once, on the first row that has it.
            named = "" if any(row[0] == title for row in rows) else title
            rows.append([named, f"**{name}**" if name == OURS else name, rates(rate), share])
    text = markdown(["work", "who", "a second", "Noonbell ÷ it"], rows, right=(2, 3))
    return text + "\n\n" + "\n".join(f"- {name} {how(samples[name])}" for name in samples)


def goal_row(goal: Goal, samples: Samples) -> list[str]:
    found = ratio(values(samples, OURS, goal.work), values(samples, goal.peer, goal.work))
    verdict = NONE if found is None else "met" if found.median >= goal.least else "**missed**"
    return [goal.text, f"{goal.least:g}×", ratios(found), verdict]


def spread(samples: Samples, name: str, work: str) -> Spread | None:
    return Spread.of(values(samples, name, work))
