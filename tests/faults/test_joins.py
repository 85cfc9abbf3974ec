"""Tasks that run after others, while nodes are killed: every join is completed once, and none is forgotten.

K17   died before the commit that ends a run and makes the one that follows
K18   died after it, before a worker was signalled
"""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until
from faults.cluster import Cluster
from faults.known_slots import audited
from faults.report import TIMES, Report
from faults.sink import Sink
from faults.trial import KILLED, LEASE, NODE, PATIENCE
from noonbell.stores import open_store

PAIRS = int(os.environ.get("FAULTS_PAIRS") or 25)
STRETCH = int(os.environ.get("FAULTS_JOIN_SECONDS") or 40)
"""Seconds in which each pair has a slot in every one: 1,000 slots with 25 pairs."""
KILL_EVERY = 3.0
SKIPPED, FAILING, RETRIED = 1, 2, 3
"""Every fifth pair: an operator skips slots of it, the first of it fails, or needs a second attempt."""


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    sink = Sink(tmp_path / "sink.jsonl")
    yield sink
    sink.close()


def following(*names: str) -> dict[str, Any]:
    return {"after": {"tasks": [{"task": name} for name in names]}}


# ---- the kill points


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K17", "K18"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_node_that_dies_where_a_join_is_completed_leaves_one_run(
    store: str, point: str, stores_in_turn, tmp_path: Path, sink: Sink, faults_report: Report
):
    for number, url in enumerate(stores_in_turn(store, TIMES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        nodes = Nodes(folder)
        try:
            one_death(nodes, url, point, sink)
        finally:
            nodes.end()
        assert audited(url).splitlines()[-1] == "0 holes, 0 doubles"
    faults_report.chapters.append(
        f"### Joins, {point} on {store}\n\n{TIMES} deaths, one run that follows after each.\n"
    )


def one_death(nodes: Nodes, url: str, point: str, sink: Sink) -> None:
    armed = started(nodes, url, {"NOONBELL_FAILPOINT": point})
    for name in ("a", "b"):
        armed.ask("POST", "/tasks", {"name": name, "target_url": sink.url(f"/ok?{name}"), **LEASE}, expect=201)
    load = {"name": "load", "target_url": sink.url("/ok?load"), **following("a", "b"), **LEASE}
    armed.ask("POST", "/tasks", {**load, "after": {**load["after"], "same_slot": False}}, expect=201)
    with suppress(ConnectionError, http.client.HTTPException):
        for name in ("a", "b"):
            armed.ask("POST", f"/tasks/name:{name}/trigger")
    assert armed.wait_ended(PATIENCE) == KILLED, armed.log
    again = started(nodes, url, {})
    runs = until(lambda: ended_runs(again, "load"), "the run that follows to end", PATIENCE)
    assert [run["status"] for run in runs] == ["SUCCESS"]
    assert len(runs[0]["upstream_run_ids"]) == 2
    statuses = {name: [run["status"] for run in ended_runs(again, name)] for name in ("a", "b")}
    assert statuses == {"a": ["SUCCESS"], "b": ["SUCCESS"]}


def started(nodes: Nodes, url: str, env: dict[str, str]) -> ServerNode:
    return nodes.launch("--store", url, "--port", "0", env=NODE | env).wait_ready(PATIENCE)


def ended_runs(node: ServerNode, name: str) -> list[dict[str, Any]]:
    """All runs of the task, if all of them are final."""
    runs: list[dict[str, Any]] = node.ask("GET", f"/tasks/name:{name}/runs?page_size=100")["items"]
    return runs if all(run["final_status"] for run in runs) else []


# ---- a thousand slots


@pytest.mark.faults
@pytest.mark.timeout(STRETCH + 500)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_each_slot_of_two_upstreams_is_followed_once_while_nodes_are_killed(
    store: str, store_urls, tmp_path: Path, sink: Sink, faults_report: Report
):
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    draw = random.Random(seed)
    (url,) = store_urls(store, 1)
    cluster = Cluster(tmp_path, url, 3, seed)
    try:
        cluster.start()
        first = create_pairs(cluster, sink)
        harass(cluster, first, first + STRETCH, draw)
        quiet(cluster)
        redriven = redrive(cluster, sink, draw)
        quiet(cluster)
    finally:
        cluster.end()
    audit = audited(url)
    counts = asyncio.run(counted(url))
    wrong = [f"pair {pair}, slot {slot}: {told}" for (pair, slot), told in counts.items() if told[0] != told[1]]
    slots = len(counts)
    followed = sum(told[1] for told in counts.values())
    faults_report.chapters.append(
        f"### Joins, three nodes on {store}\n\n"
        f"| | |\n| --- | --- |\n| slots of two upstreams | {slots} |\n| kills | {len(cluster.kills)} |\n"
        f"| redriven runs | {redriven} |\n| runs that followed | {followed} |\n| wrong | {len(wrong)} |\n| seed | {seed} |\n"
    )
    assert wrong == []
    assert slots >= PAIRS * STRETCH
    assert cluster.kills
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit


def create_pairs(cluster: Cluster, sink: Sink) -> int:
    first = int(time.time()) + 10 + PAIRS // 4
    when = {
        "cron_expr": "* * * * * *",
        "start_at": at(first),
        "end_at": at(first + STRETCH - 1),
        "max_concurrency": None,
    }
    for pair in range(PAIRS):
        for side in "ab":
            kind = pair % 5 if side == "a" else 0
            path = "/once/503" if kind in (FAILING, RETRIED) else "/slow/0.02"
            fields = {"name": f"{side}{pair}", "target_url": sink.url(f"{path}?{side}{pair}"), **when, **LEASE}
            if kind == RETRIED:
                fields["retry_policy"] = {"max_retries": 2, "strategy": "fixed", "initial_delay": 0.3}
            made = cluster.ask("POST", "/tasks", fields, expect=201)
            if kind == SKIPPED:
                cluster.ask("POST", f"/tasks/{made['id']}/skip", {"count": 5})
        load = {"name": f"load{pair}", "target_url": sink.url(f"/ok?load{pair}"), "max_concurrency": None, **LEASE}
        cluster.ask("POST", "/tasks", {**load, **following(f"a{pair}", f"b{pair}")}, expect=201)
    assert time.time() < first, "the machine is too slow to create the tasks in time"
    return first


def at(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def harass(cluster: Cluster, first: int, last: int, draw: random.Random) -> None:
    next_kill = first + 1.0
    while time.time() < last:
        cluster.bring_back()
        if time.time() >= next_kill and cluster.kill_one():
            next_kill = time.time() + KILL_EVERY * draw.uniform(0.7, 1.3)
        time.sleep(0.01)
    cluster.bring_back(at_once=True)


def quiet(cluster: Cluster) -> None:
    until(cluster.ready, "a node to be ready", 60)

    def is_quiet() -> bool:
        enabled = cluster.ask("GET", "/tasks?status=ENABLED&page_size=1")["total"]
        waiting = cluster.ask("GET", "/runs?status=SCHEDULED,RUNNING,RETRYING&page_size=1")["total"]
        return enabled == PAIRS and not waiting  # those that follow are never COMPLETED

    until(is_quiet, "every run to be final", 180)


def redrive(cluster: Cluster, sink: Sink, draw: random.Random) -> int:
    """Run every failed run again, against a target that is well now, and a few that succeeded."""
    redriven = 0
    for pair in range(PAIRS):
        if pair % 5 == FAILING:
            cluster.ask("PATCH", f"/tasks/name:a{pair}", {"target_url": sink.url(f"/ok?a{pair}")})
            listed = cluster.ask("GET", f"/tasks/name:a{pair}/runs?status=FAILED&page_size=1000")["items"]
        else:
            listed = cluster.ask("GET", f"/tasks/name:b{pair}/runs?status=SUCCESS&page_size=1000")["items"]
            listed = draw.sample(listed, min(2, len(listed)))
        for run in listed:
            cluster.ask("POST", f"/runs/{run['id']}/retry")
        redriven += len(listed)
    return redriven


async def counted(url: str) -> dict[tuple[int, int], tuple[int, int]]:
    """By pair and slot: how many runs must have followed, by the ends of the upstreams alone, and how many have."""
    store = open_store(url)
    await store.open()
    try:
        rows = await store.fetch(
            "select t.name, r.scheduled_time, r.status, r.origin from runs r join tasks t on t.id = r.task_id"
        )
    finally:
        await store.close()
    ended: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for name, slot, status, origin in rows:
        side = name.rstrip("0123456789")
        if side in ("a", "b"):
            ended[int(name[1:]), slot][side] += status == "SUCCESS"
        elif side == "load":
            assert origin == "upstream"
            ended[int(name[4:]), slot]["load"] += 1
    return {
        place: (each["a"] + each["b"] - 1 if each["a"] and each["b"] else 0, each["load"])
        for place, each in ended.items()
    }
