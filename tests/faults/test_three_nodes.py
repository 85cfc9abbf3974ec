"""Three nodes on one database, a hundred slots a second, and every five seconds one of the nodes is killed."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from acceptance.harness import until
from faults.checker import Seen, Slot, Verdict, judge
from faults.cluster import Cluster
from faults.known_slots import (
    Figures,
    at_most_once,
    audited,
    create_tasks,
    rows_of,
    seen_of,
    settle_down,
    spread,
    told,
)
from faults.report import SECONDS, Report
from faults.sink import Sink

TASKS = int(os.environ.get("FAULTS_TASKS") or 100)
ONCE = at_most_once(TASKS)
EVERY = float(os.environ.get("FAULTS_KILL_EVERY") or 5)
BURST = 0.15
"""Seconds from a slot in which its requests are mostly open."""
REACH = 2.0
"""Seconds: a request older than this was settled before the kill, or its lease was not renewed."""
WINDOW = 4.0
"""Seconds from a slot to the request that it must have: the lease and two more."""
FAIL_OVER = 2.0
"""Seconds from a kill to the next slot on another node, for 99 of 100 kills."""


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path / "sink.jsonl")
    yield sink
    sink.close()


@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_no_slot_is_lost_or_doubled_while_nodes_are_killed(
    store: str, store_urls, tmp_path: Path, sink: Sink, faults_report: Report
):
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    (url,) = store_urls(store, 1)
    cluster = Cluster(tmp_path, url, 3, seed)
    try:
        cluster.start()
        expected, names = create_tasks(cluster.ask, sink, TASKS, SECONDS)
        harass(cluster, expected[0].at, expected[-1].at, random.Random(seed))
        until(cluster.ready, "a node to be ready", 60)
        settle_down(cluster.ask)
        rows = rows_of(cluster.ask, names)
    finally:
        cluster.end()
    audit = audited(url)
    seen = [seen_of(one) for one in sink.deliveries()]
    verdict = judge(expected, rows, seen, kills=cluster.kills, window=WINDOW, reach=REACH, once=ONCE)
    figures = Figures(expected, seen, cluster.kills)
    faults_report.chapters.append(chapter(store, seed, expected, seen, verdict, figures, audit))
    assert verdict.is_strict, told(verdict)
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit
    counted = re.search(r"(\d+) slots:", audit)
    assert counted is not None, audit
    assert int(counted[1]) >= len(expected), "the audit has not seen every slot"
    assert figures.fail_over(0.99) <= FAIL_OVER


def harass(cluster: Cluster, first: int, last: int, draw: random.Random) -> None:
    """Half of the kills hit the moment at which slots are planned and sent, the others any moment of a second."""
    second = first + 1.0
    next_kill = second
    while time.time() < last:
        cluster.bring_back()
        if time.time() >= next_kill and cluster.kill_one():
            second = max(second + EVERY, float(int(time.time()) + 1))
            next_kill = second + draw.uniform(0, draw.choice([BURST, 1.0]))
        time.sleep(0.002)
    cluster.bring_back(at_once=True)


def chapter(
    store: str,
    seed: int,
    expected: Sequence[Slot],
    seen: Sequence[Seen],
    verdict: Verdict,
    figures: Figures,
    audit: str,
) -> str:
    name = {"postgres": "PostgreSQL", "mariadb": "MariaDB"}[store]
    lines = [
        f"## Three nodes, {name}",
        "",
        f"{TASKS} slots a second ({len(ONCE)} at most once) for {SECONDS} s, kill -9 every {EVERY:g} s; seed {seed}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| slots | {len(expected)} |",
        f"| kills | {len(figures.kills)} |",
        f"| lost | {len(verdict.lost)} |",
        f"| doubled (rows) | {len(verdict.doubled)} |",
        f"| `noonbell audit` | {audit.splitlines()[-1]} |",
        f"| rows without a slot | {len(verdict.unexpected)} |",
        f"| at most once, hit by a kill: FAILED `unknown` | {len(verdict.unknown)} |",
        f"| other runs that did not end in SUCCESS | {len(verdict.unended)} |",
        f"| requests | {len(seen)} |",
        f"| extra requests | {len(verdict.extra)} |",
        f"| … under another key | {len(verdict.strange)} |",
        f"| … that no kill explains, or of an at-most-once task | {len(verdict.unexcused)} |",
        f"| slots without a request of their own within {WINDOW:g} s | {len(verdict.late)} |",
        f"| slot to request | {spread(figures.lags)} |",
        f"| kill to the next slot elsewhere | {spread(figures.fail_overs)} |",
        f"| longest silence between two requests | {max(figures.gaps):.2f} s |",
        f"| kill to the repeat of a request that it hit | max {max(figures.retaken, default=0):.2f} s |",
        "",
    ]
    return "\n".join(lines)
