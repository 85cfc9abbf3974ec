"""The cost of a planning pass that finds nothing due, with ever more tasks that are not due: it should not grow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from bench import databases
from bench.rounds import Failed, progress, run
from bench.tables import NONE, Spread, markdown, millis, ratio, ratios

FULL = (1_000, 100_000, 1_000_000)
QUICK = (1_000, 10_000, 100_000)
MOST = 1.5
"""The largest count may cost this many times the smallest."""


def table(counts: Sequence[int], rounds: int) -> str:
    """One row per store and count. All databases of a store are loaded first, then passed over in turn."""
    rows = []
    for store in databases.STORES:
        title = databases.TITLES[store]
        try:
            databases.server_version(store)
            progress(f"{title}: passes over {', '.join(f'{count:,}' for count in counts)} tasks not due")
            medians = measure(store, counts, rounds)
        except Failed as failure:
            progress(f"FAILED: {title}: {failure}")
            rows.append([title, "no result", NONE, NONE, NONE])
            continue
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            rows.append([title, "no server", NONE, NONE, NONE])
            continue
        for count, cost in zip(counts, medians, strict=True):
            growth = ratio(cost, medians[0])
            last = count == counts[-1] and growth is not None
            verdict = NONE if not last else "met" if growth and growth.median <= MOST else "**missed**"
            first = count == counts[0]
            rows.append([title if first else "", f"{count:,}", millis(Spread.of(cost)), ratios(growth), verdict])
    head = ["store", "tasks not due", "pass, ms", "÷ the smallest", f"≤ {MOST}×"]
    return markdown(head, rows, right=(1, 2, 3))


def measure(store: str, counts: Sequence[int], rounds: int) -> list[list[float]]:
    """For each count, the median cost of a pass in milliseconds, once per round."""
    with ExitStack() as stack:
        urls = [stack.enter_context(databases.fresh(store)) for _ in counts]
        command = [sys.executable, "-m", "bench.ours", "passes", store, "--rounds", str(rounds)]
        for count, url in zip(counts, urls, strict=True):
            command += ["--tasks", str(count), url]
        result = run(command, timeout=600)
    medians = result["medians"]
    assert isinstance(medians, list)
    return medians
