"""Three nodes on a database of several servers, 20 slots a second, and the server that takes writes is killed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import until
from faults.cluster import Cluster
from faults.failovers import EndedRun, FailoverAccount, account_of
from faults.known_slots import at_most_once, audited, create_tasks, row_of, runs_of, seen_of, settle_down
from faults.report import Report
from faults.sink import Sink
from faults.topologies import Topology, started
from integration.private_servers import missing
from services.launch import Unavailable

TASKS = 20
ONCE = at_most_once(TASKS)
LEASE = {"worker_timeout_ms": 5000, "ping_interval_ms": 1000}
EVERY_SLOT = {"misfire_grace_seconds": 600}
"""However long the database is away, no slot is too late."""


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path / "sink.jsonl")
    yield sink
    sink.close()


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", ["asynchronous standby", "synchronous standby", "session pooler", "transaction pooler", "galera", "patroni"]
)
def test_no_slot_is_lost_or_doubled_when_the_database_fails_over(
    kind: str, tmp_path: Path, sink: Sink, faults_report: Report
):
    try:
        with started(kind) as topology:
            account, audit = carried_through(topology, tmp_path, sink)
    except Unavailable as error:
        missing(error)
    faults_report.topologies.append(cells(topology.name, account, audit))
    assert account.is_clean, account
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit
    assert max(account.seconds) < float("inf"), account.seconds


def carried_through(topology: Topology, folder: Path, sink: Sink) -> tuple[FailoverAccount, str]:
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    cluster = Cluster(folder, topology.stores, 3, seed, env=topology.env)
    kills: list[float] = []
    try:
        cluster.start()
        expected, names = create_tasks(cluster.ask, sink, TASKS, topology.seconds, **LEASE, **EVERY_SLOT)
        draw = random.Random(seed)
        first, each = expected[0].at, topology.seconds / topology.fail_overs
        for number in range(topology.fail_overs):
            moment = first + each * number + draw.uniform(4, 5)
            until(lambda moment=moment: time.time() >= moment, "the next fail-over")
            topology.prepare()
            kills.append(topology.fail())
            topology.mend()
        until(lambda: time.time() > expected[-1].at and answers(cluster), "the nodes to answer again", 180)
        settle_down(cluster.ask)
        runs = [ended(run, names) for run in runs_of(cluster.ask)]
        audit = audited(topology.audited_at)
    finally:
        cluster.end()
    seen = [seen_of(one) for one in sink.deliveries()]
    return account_of(expected, runs, seen, kills=kills, once=ONCE), audit


def answers(cluster: Cluster) -> bool:
    return all(node.call("GET", "/readyz").status == 200 for node in cluster.ready())


def ended(run: dict[str, Any], names: dict[int, str]) -> EndedRun:
    row = row_of(run, names)
    return EndedRun(row.slot, row.final_status, row.kind or run["skip_reason"])


def cells(name: str, account: FailoverAccount, audit: str) -> list[str]:
    told = ", ".join(f"{count} `{why}`" for why, count in sorted(account.told.items()))
    return [
        name,
        *(str(len(found)) if isinstance(found, list) else str(found) for found in (account.slots, account.lost)),
        *(str(len(found)) for found in (account.doubled, account.repeated, account.other_key, account.once_repeated)),
        told or "0",
        str(len(account.seconds)),
        *(f"{account.fail_over(share):.1f} s" for share in (0.5, 0.99)),
        audit.splitlines()[-1],
        datetime.now(UTC).date().isoformat(),
    ]
