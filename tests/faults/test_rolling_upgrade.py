"""Two nodes of an earlier version are replaced by this one, under load, and some of them are killed meanwhile."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.harness import until
from faults.checker import judge
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
from faults.report import Report
from faults.sink import Sink
from faults.wheels import installed, newest_step, previous_commit
from noonbell.engine.node import SCHEMA_EVERY
from noonbell.stores.migrations import STEPS

TASKS = 20
ONCE = at_most_once(TASKS)
SECONDS = 100
WINDOW = REACH = 4.0
"""Seconds, as in `test_three_nodes`; here nodes start cold, beside each other."""
PATIENCE = 60.0


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path / "sink.jsonl")
    yield sink
    sink.close()


@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 500)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_nodes_of_an_earlier_version_are_replaced_one_by_one_under_load(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, sink: Sink, faults_report: Report
):
    commit = previous_commit()
    old, new = installed(commit, tmp_path / "old"), installed(None, tmp_path / "new")
    url = request.getfixturevalue({"postgres": "fresh_postgres", "mariadb": "fresh_mysql"}[store])()
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    cluster = Cluster(tmp_path, url, 2, seed, program=old)
    try:
        cluster.start()
        expected, names = create_tasks(cluster.ask, sink, TASKS, SECONDS)
        may_go_on = are_admitted(newest_step(commit))
        replaced_at = replace(cluster, new, url, expected[0].at, random.Random(seed), may_go_on=may_go_on)
        assert replaced_at < expected[-1].at, "the last slots are to fall into the time of the new nodes alone"
        settle_down(cluster.ask)
        rows = rows_of(cluster.ask, names)
    finally:
        cluster.end()
    audit = audited(url)
    seen = [seen_of(one) for one in sink.deliveries()]
    verdict = judge(expected, rows, seen, kills=cluster.kills, window=WINDOW, reach=REACH, once=ONCE)
    figures = Figures(expected, seen, cluster.kills)
    name = {"postgres": "PostgreSQL", "mariadb": "MariaDB"}[store]
    faults_report.chapters.append(
        "\n".join(
            [
                f"## Rolling upgrade, {name}",
                "",
                (
                    f"From {commit[:7]} (step {newest_step(commit)}) to step {STEPS[-1].number}: two nodes, {TASKS} slots a second"
                    f" ({len(ONCE)} at most once) for {SECONDS} s, kill -9 of {len(cluster.kills)} nodes; seed {seed}. Old nodes"
                    f" {'go on beside new ones' if may_go_on else 'stop by themselves at the new schema'}."
                ),
                "",
                "| | |",
                "| --- | --- |",
                f"| slots | {len(expected)} |",
                f"| lost | {len(verdict.lost)} |",
                f"| doubled (rows) | {len(verdict.doubled)} |",
                f"| `noonbell audit` | {audit.splitlines()[-1]} |",
                f"| requests again, under the same key | {len(verdict.extra) - len(verdict.strange)} |",
                f"| … under another key | {len(verdict.strange)} |",
                f"| … that no kill explains, or of an at-most-once task | {len(verdict.unexcused)} |",
                f"| at most once, hit by a kill: FAILED `unknown` | {len(verdict.unknown)} |",
                f"| slot to request | {spread(figures.lags)} |",
                f"| longest silence between two requests | {max(figures.gaps):.2f} s |",
                "",
            ]
        )
    )
    assert verdict.is_strict, told(verdict)
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit
    counted = re.search(r"(\d+) slots:", audit)
    assert counted is not None, audit
    assert int(counted[1]) >= len(expected), "the audit has not seen every slot"


def are_admitted(known: int) -> bool:
    """Whether code that knows this step may work on the schema of today."""
    return all((step.oldest_code or step.number) <= known for step in STEPS if step.number > known)


def replace(cluster: Cluster, new: Path, url: str, first: int, draw: random.Random, *, may_go_on: bool) -> float:
    """When the last old node was gone."""
    until(lambda: time.time() > first + 3, "some slots")
    kill_at_a_slot(cluster, "b", draw)
    cluster.launch("b").wait_ready(PATIENCE)
    done = subprocess.run([new, "migrate", "--store", url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    migrated_at = time.monotonic()
    kill_at_a_slot(cluster, "a", draw)
    if may_go_on:
        cluster.launch("a").wait_ready(PATIENCE)
        kill_at_a_slot(cluster, "a", draw)
    else:
        cluster.launch("a")
        refused = cluster.take_out("a")
        assert refused.wait_ended() != 0
        assert "upgrade Noonbell" in refused.log
    cluster.program = new
    cluster.launch("a").wait_ready(PATIENCE)
    if may_go_on:
        until(lambda: time.monotonic() > migrated_at + SCHEMA_EVERY + 5 and cluster.ready(), "a look at the schema", 90)
        assert cluster.take_out("b").stop() == 0
    else:
        last = cluster.take_out("b")
        assert last.wait_ended(SCHEMA_EVERY + PATIENCE) != 0
        assert "stopping: the store's schema is at step" in last.log
    gone_at = time.time()
    cluster.launch("b").wait_ready(PATIENCE)
    kill_at_a_slot(cluster, "a", draw)
    cluster.launch("a").wait_ready(PATIENCE)
    return gone_at


def kill_at_a_slot(cluster: Cluster, name: str, draw: random.Random) -> None:
    """When the runs of a second are planned, claimed and sent."""
    moment = int(time.time()) + 1 + draw.uniform(0, 0.15)
    until(lambda: time.time() >= moment, "the next slot")
    cluster.kill(name)
