"""Three nodes on one database, a hundred slots a second, and every five seconds one of the nodes is killed."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import until
from faults.checker import Row, Seen, Slot, Verdict, judge, percentile
from faults.cluster import Cluster
from faults.report import SECONDS, Report
from faults.sink import Sink
from services import forked

TASKS = int(os.environ.get("FAULTS_TASKS") or 100)
ONCE = frozenset(f"t{number}" for number in range(0, TASKS, 5))
"""The tasks that are delivered at most once: every fifth."""
EVERY = float(os.environ.get("FAULTS_KILL_EVERY") or 5)
LEASE = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}
ANSWER = "/slow/0.02"
"""A target that takes 20 ms: long enough for kills to hit requests that are open."""
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
        expected, names = create_tasks(cluster, sink)
        harass(cluster, expected[0].at, expected[-1].at, random.Random(seed))
        settle_down(cluster)
        rows = rows_of(cluster, names)
    finally:
        cluster.end()
    audit = audited(url)
    seen = [seen_of(one) for one in sink.deliveries()]
    verdict = judge(expected, rows, seen, kills=cluster.kills, window=WINDOW, reach=REACH, once=ONCE)
    figures = Figures(expected, seen, cluster)
    faults_report.chapters.append(chapter(store, seed, expected, seen, verdict, figures, audit))
    assert verdict.is_strict, told(verdict)
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit
    counted = re.search(r"(\d+) slots:", audit)
    assert counted is not None, audit
    assert int(counted[1]) >= len(expected), "the audit has not seen every slot"
    assert figures.fail_over(0.99) <= FAIL_OVER


def audited(url: str) -> str:
    """What `noonbell audit` says of the store that is left."""
    done = forked.run("audit", "--quiet", "--store", url)
    return done.stdout + done.stderr


def create_tasks(cluster: Cluster, sink: Sink) -> tuple[list[Slot], dict[int, str]]:
    """Tasks that fire in each second of a stretch that lies ahead: so the slots are known before anything has run."""
    first = int(time.time()) + 5 + TASKS // 20
    last = first + SECONDS - 1
    common = {"cron_expr": "* * * * * *", "start_at": rfc3339(first), "end_at": rfc3339(last), "max_concurrency": None}
    names: dict[int, str] = {}
    for number in range(TASKS):
        name = f"t{number}"
        mode = "at_most_once" if name in ONCE else "at_least_once"
        fields = {"name": name, "target_url": sink.url(f"{ANSWER}?{name}"), "delivery": mode, **common, **LEASE}
        names[int(cluster.ask("POST", "/tasks", fields, expect=201)["id"])] = name
    assert time.time() < first, "the machine is too slow to create the tasks in time"
    return [Slot(name, second) for second in range(first, last + 1) for name in names.values()], names


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


def settle_down(cluster: Cluster) -> None:
    until(cluster.ready, "a node to be ready", 60)

    def is_quiet() -> bool:
        left = cluster.ask("GET", "/tasks?status=ENABLED&page_size=1")["total"]
        return not left and not cluster.ask("GET", "/runs?status=SCHEDULED,RUNNING,RETRYING&page_size=1")["total"]

    until(is_quiet, "every task to be COMPLETED and every run to be final", 120)


def rows_of(cluster: Cluster, names: dict[int, str]) -> list[Row]:
    rows: list[Row] = []
    page = cluster.ask("GET", "/runs?page_size=1000&sort=id")
    while page["items"]:
        rows += [row_of(run, names) for run in page["items"]]
        if page["next_cursor"] is None:
            break
        page = cluster.ask("GET", f"/runs?page_size=1000&sort=id&cursor={page['next_cursor']}")
    return rows


def row_of(run: dict[str, Any], names: dict[int, str]) -> Row:
    slot = Slot(names[run["task_id"]], second_of(run["scheduled_time"]))
    return Row(slot, str(run["id"]), run["final_status"], (run["error_details"] or {}).get("kind"))


def seen_of(delivery) -> Seen:
    slot = Slot(delivery.path.partition("?")[2], second_of(delivery.slot))
    return Seen(slot, delivery.run, delivery.key, delivery.at, delivery.node)


class Figures:
    """From the sink's log alone."""

    def __init__(self, expected: Sequence[Slot], seen: Sequence[Seen], cluster: Cluster) -> None:
        self.kills = cluster.kills
        first: dict[Slot, Seen] = {}
        for one in sorted(seen, key=lambda one: one.at):
            first.setdefault(one.slot, one)
        self.lags = [first[slot].at - slot.at for slot in expected if slot in first]
        self.fail_overs = [
            found for life, at in self.kills.items() if (found := _next_fired(life, at, first)) is not None
        ]
        arrivals = sorted(one.at for one in seen)
        self.gaps = [later - earlier for earlier, later in pairwise(arrivals)]
        again = [one for one in seen if first[one.slot] is not one]
        self.retaken = [one.at - self.kills[node] for one in again if (node := first[one.slot].node) in self.kills]

    def fail_over(self, share: float) -> float:
        return percentile(self.fail_overs, share)


def _next_fired(life: str, killed_at: float, first: dict[Slot, Seen]) -> float | None:
    """Seconds from a kill to the first request, of another node, for a slot that was not due yet at the kill."""
    later = [one.at - killed_at for slot, one in first.items() if slot.at > killed_at and one.node != life]
    return min(later, default=None)


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


def spread(seconds: Sequence[float]) -> str:
    p50, p99, longest = (percentile(seconds, share) for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, max {longest:.2f} s"


def told(verdict: Verdict) -> str:
    lines = []
    for name in ("lost", "doubled", "unexpected", "unended", "strange", "unexcused"):
        found = getattr(verdict, name)
        lines += [f"{name}: {len(found)}", *(f"  {one}" for one in found[:10])]
    return "\n".join(lines)


def rfc3339(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def second_of(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
