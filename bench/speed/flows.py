"""Flows on PostgreSQL beside the plain drain of as many jobs; and what the plain drain pays for flows that are not its own."""

from __future__ import annotations

import os
import sys
from statistics import median

from bench import databases
from bench.rounds import Contender, Samples, interleaved, progress, run, values
from bench.speed.rows import Found, Row, rate_row, settings
from bench.speed.scale import Scale
from bench.speed.throughput import OURS, ours
from bench.tables import NONE, Spread, rates, ratio, ratios

PLAIN = "the plain drain"
SIZES = (100, 1_000, 10_000)
LEAST = 0.5
"""Of the plain drain."""
FLATTEST = 1.25
"""An item of the longest `foreach` may cost this much of one of the shortest."""
CHAINS = (1_000, 200, 10)
"""How many are under way at once. Together they have as many steps as the plain drain has jobs."""
RELAY = "plain jobs, each published by the one before"
EDGES = 1_000
SAME = 0.9
"""Of the rate without edges: as near to 1 as rates on a shared machine tell."""


def flows(scale: Scale, rounds: int) -> Found:
    items, steps = scale.of(SIZES[-1]), scale.of(1_000, 10)
    alone = f"{OURS}, one chain alone of {steps:,}"
    chains = {scale.of(count, 2): max(1, items // scale.of(count, 2)) for count in CHAINS}
    sizes = [scale.of(size, 10) for size in SIZES]
    field = [
        ours("postgres", 0, items, name=PLAIN),
        *(contender(foreach(size), "foreach", size, items) for size in dict.fromkeys(sizes)),
        *(contender(at_once(count), "chain", length, count * length) for count, length in chains.items()),
        contender(alone, "chain", steps, steps),
        contender(RELAY, "relay", steps, steps),
    ]
    samples = interleaved(field, rounds)
    rows = [
        rate_row(
            f"`foreach` of {items:,}, PostgreSQL, jobs a second",
            only(samples, foreach(sizes[-1])),
            foreach(sizes[-1]),
            "drain",
            LEAST,
            [PLAIN],
        ),
        *(
            rate_row(
                f"{count:,} chains of {length:,} steps at once, PostgreSQL, jobs a second",
                only(samples, at_once(count)),
                at_once(count),
                "drain",
                LEAST,
                [PLAIN],
            )
            for count, length in chains.items()
        ),
        rate_row(
            f"one chain of {steps:,} steps alone, PostgreSQL: steps a second, each after the one before",
            {each: samples[each] for each in (PLAIN, RELAY, alone)},
            alone,
            "drain",
            LEAST,
            [RELAY],
        ),
        cost_row(samples, sizes),
        *sent_rows(samples, alone, steps, items, rounds),
        *edge_rows(scale.of(30_000, 1_000), rounds),
    ]
    return Found(rows, settings(samples))


def foreach(size: int) -> str:
    return f"{OURS}, foreach of {size:,}"


def at_once(count: int) -> str:
    return f"{OURS}, {count:,} chains at once"


def contender(name: str, shape: str, size: int, count: int) -> Contender:
    command = (sys.executable, "-m", "bench.flows", "postgres", "--shape", shape, "--size", str(size))
    return Contender(name, "postgres", command, 0, count)


def only(samples: Samples, name: str) -> Samples:
    """Of all contenders, this one and the plain drain."""
    return {each: samples[each] for each in (PLAIN, name)}


def cost_row(samples: Samples, sizes: list[int]) -> Row:
    """The same number of items in many short lists and in one long one: what an item costs must not grow with the list."""
    shortest, longest = (values(samples, foreach(size), "drain") for size in (sizes[0], sizes[-1]))
    share = ratio(shortest, longest)  # rates: the inverse of costs
    costs = [Spread.of(values(samples, foreach(size), "drain")) for size in sizes]
    plain = Spread.of(values(samples, PLAIN, "drain"))
    named = " / ".join(f"{size:,}" for size in sizes)
    return Row(
        f"cost of an item of a `foreach` of {named}, PostgreSQL, µs",
        " / ".join(NONE if each is None else f"{1e6 / each.median:.0f}" for each in costs),
        NONE if plain is None else f"a job of {PLAIN} {1e6 / plain.median:.0f}",
        NONE if share is None else f"{ratios(share)} the longest to the shortest",
        f"≤ {FLATTEST:g} × the shortest",
        None if share is None else share.median <= FLATTEST,
    )


def sent_rows(samples: Samples, alone: str, steps: int, items: int, rounds: int) -> list[Row]:
    """What a step sends, carried out by the store alone; and how near a chain alone comes to what the commits of the database allow."""
    shapes = {f"a chain of {steps:,}": ("chain", steps, steps), f"`foreach` of {items:,}": ("foreach", items, items)}
    found: dict[str, list[dict[str, float]]] = {what: [] for what in shapes}
    for number in range(1, rounds + 1):
        for what, (shape, size, count) in shapes.items():
            progress(f"PostgreSQL, round {number} of {rounds}: what a step of {what} sends")
            os.sync()
            with databases.fresh("postgres") as url:
                command = [sys.executable, "-m", "bench.flows", "postgres", "--cost", "--shape", shape]
                found[what].append(run([*command, "--size", str(size), "--url", url, "--drain", str(count)]))
    rows = [
        Row(
            f"a step of {what}: statements / round trips / commits, PostgreSQL",
            " / ".join(
                f"{median(each[name] for each in listed):.2f}" for name in ("statements", "round_trips", "commits")
            ),
            NONE,
            NONE,
            "stated",
            None,
        )
        for what, listed in found.items()
    ]
    of_chain = found[f"a chain of {steps:,}"]
    commit, round_trip = (median(each[name] for each in of_chain) for name in ("commit", "round_trip"))
    commits, trips = (median(each[name] for each in of_chain) for name in ("commits", "round_trips"))
    most = 1 / (commits * commit + (trips - commits) * round_trip)
    paced = Spread.of(values(samples, alone, "drain"))
    rows.append(
        Row(
            f"one chain of {steps:,} alone beside its limit: {commits:.2f} commits of {commit * 1e3:.2f} ms and {trips - commits:.1f} round"
            f" trips of {round_trip * 1e3:.2f} ms a step",
            rates(paced),
            f"at most {most:,.0f} steps a second, if nothing else took time",
            NONE if paced is None else f"{paced.median / most:.2f} of the limit",
            "stated",
            None,
        )
    )
    return rows


def edge_rows(count: int, rounds: int) -> list[Row]:
    """A task without edges or steps, drained by the store alone, while other tasks have edges and while none has."""
    found: dict[int, list[dict[str, float]]] = {EDGES: [], 0: []}
    for number in range(1, rounds + 1):
        # In turn the one and the other first: what else the machine does meanwhile must not always meet the same one.
        for edges, each in sorted(found.items(), reverse=bool(number % 2)):
            progress(f"PostgreSQL, round {number} of {rounds}: the store's drain beside {edges:,} edges")
            os.sync()
            with databases.fresh("postgres") as url:
                command = [sys.executable, "-m", "bench.flows", "postgres", "--edges", str(edges)]
                each.append(run([*command, "--url", url, "--drain", str(count)]))
    statements = {edges: [each["statements"] * 1000 / count for each in listed] for edges, listed in found.items()}
    drained = {edges: [each["drain"] for each in listed] for edges, listed in found.items()}
    more, faster = ratio(statements[EDGES], statements[0]), ratio(drained[EDGES], drained[0])
    beside = f"beside {EDGES:,} `after` edges of other tasks"
    return [
        Row(
            f"statements for 1,000 plain jobs, {beside}, PostgreSQL",
            rates(Spread.of(statements[EDGES])),
            f"without an edge {rates(Spread.of(statements[0]))}",
            ratios(more),
            "≤ 1.05 × without an edge",
            None if more is None else more.median <= 1.05,
        ),
        Row(
            f"drain by the store alone, {beside}, PostgreSQL, jobs a second",
            rates(Spread.of(drained[EDGES])),
            f"without an edge {rates(Spread.of(drained[0]))}",
            ratios(faster),
            f"≥ {SAME:g} × without an edge",
            None if faster is None else faster.median >= SAME,
        ),
    ]
