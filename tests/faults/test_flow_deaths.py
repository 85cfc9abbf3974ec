"""A node dies in the middle of a flow (K16: before the commit; K7: after it), and the flow ends all the same, each step once.

Then five hundred flows on three nodes that are killed for two minutes. The steps hand numbers on to each other by their
results, and the target counts with them: a result that was lost, or given to the wrong step, is seen in what it was asked.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acceptance.harness import Nodes, until
from faults.checker import Row, Seen, Slot, judge
from faults.cluster import Cluster
from faults.known_slots import audited, seen_of, told
from faults.report import SECONDS, Report
from faults.sink import Sink
from faults.test_joins import KILL_EVERY, at, harass
from faults.trial import KILLED, LEASE, NODE, PATIENCE
from noonbell.clock import SECOND
from noonbell.stores import open_store

POINTS = ["K16:1", "K16:2", "K16:4", "K7:1", "K7:3", "K3:2", "K6:2"]
"""K16:1 dies when the flow starts, the others when a step is settled; K3 and K6 with a step in hand."""


def steps(sink: Sink) -> list[dict[str, Any]]:
    lease = {**LEASE, "retry_policy": {"max_retries": 0}}
    return [
        {"id": "first", "target_url": sink.url("/ok"), **lease},
        {
            "id": "each",
            "needs": ["first"],
            "foreach": [1, 2, 3],
            "max_parallel": 2,
            "target_url": sink.url("/ok"),
            **lease,
        },
        {"id": "off", "needs": ["first"], "when": "false", "target_url": sink.url("/ok"), **lease},
        {"id": "last", "needs": ["each", "off"], "on": "any", "target_url": sink.url("/ok"), **lease},
    ]


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_flow_ends_although_a_node_dies_in_it(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
            armed.create(name="trial", steps=steps(sink), schedule={"type": "once", "at": None})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        task = int(again.ask("GET", "/tasks/name:trial")["id"])
        run = until(lambda: final(again, task), "the flow to end", PATIENCE)
        assert run["status"] == "SUCCESS"
        shown = {step["id"]: step["status"] for step in again.ask("GET", f"/runs/{run['id']}/graph")["steps"]}
        assert shown == {"first": "SUCCESS", "each": "SUCCESS", "off": "SKIPPED", "last": "SUCCESS"}
        parts = again.ask("GET", f"/runs?parent_id={run['id']}&sort=id")["items"]
        assert [(part["step_id"], part["item_index"], part["status"]) for part in parts] == [
            ("first", None, "SUCCESS"), ("each", 0, "SUCCESS"), ("each", 1, "SUCCESS"), ("each", 2, "SUCCESS"), ("last", None, "SUCCESS"),
        ]  # fmt: skip
        keys = {delivery.key for delivery in sink.deliveries()}
        assert keys == {part["idempotency_key"] for part in parts}, "a step that is sent twice has the same key"
    finally:
        nodes.end()
        sink.close()


def final(node: Any, task: int) -> Any:
    runs = node.runs_of(task)
    time.sleep(0.05)
    return runs[0] if runs and runs[0]["final_status"] is not None else None


# ---- five hundred flows

FLOWS = int(os.environ.get("FAULTS_FLOWS") or 500)
TASKS = 5
"""Each has a flow in every second, until there are FLOWS of them."""
ITEMS = 10
STANDS_STILL = 60.0
"""Seconds without the end of a single run, after which waiting for the rest is given up."""
REACH = 20.0
"""Seconds: a request older than this was settled before the kill."""
WAITS = {
    "worker_timeout_ms": 5_000,
    "ping_interval_ms": 500,
    "timeout_seconds": 600,
    "max_lost": 1000,
    "retry_policy": {"max_retries": 0},
}
"""A lease and a timeout that a busy machine does not run out of; and however often its node is killed, a step is handed on."""


class Asked(NamedTuple):
    """A step, and what its target must be asked: with numbers that only the results of the steps before can have given."""

    id: str
    path: str
    expected: str
    fields: dict[str, Any]


def result_of(step_id: str) -> str:
    return f"{{{{ steps.{step_id}.result.n }}}}"


def row_of_steps(name: str, first: int, count: int) -> list[Asked]:
    """Steps one after the other, each of which adds one to what the one before got; the first follows `sum`."""
    before = ["sum", *(f"{name}{number}" for number in range(1, count))]
    return [
        Asked(f"{name}{number}", f"/plus/{result_of(need)}", f"/plus/{first + number - 1}", {"needs": [need]})
        for number, need in enumerate(before, 1)
    ]


SUM = sum(range(1, ITEMS + 1))
LEFT, RIGHT = row_of_steps("left", SUM, 6), row_of_steps("right", SUM, 6)
BOTH = f"/add/{result_of('left6')}/{result_of('right6')}"
STEPS = [
    Asked("list", f"/range/{ITEMS}", f"/range/{ITEMS}", {}),
    Asked(
        "each",
        "/plus/{{ item }}",
        "/plus/{item}",
        {"needs": ["list"], "foreach": "{{ steps.list.result.items }}", "max_parallel": 4},
    ),
    Asked(
        "sum",
        "/sum",
        "/sum",
        {"needs": ["each"], "http_method": "POST", "body_template": "{{ steps.each.results }}"},
    ),
    *LEFT,
    *RIGHT,
    Asked("off", "/ok", "", {"needs": ["list"], "when": "steps.list.result.n > 0"}),
    Asked("page", "/ok", "", {"needs": ["left6"], "on": "failure"}),
    Asked("both", BOTH, f"/add/{SUM + 6}/{SUM + 6}", {"needs": ["left6", "right6"]}),
    Asked("tail", f"/plus/{result_of('both')}", f"/plus/{2 * SUM + 12}", {"needs": ["both", "off"], "on": "any"}),
    Asked("last", f"/plus/{result_of('tail')}", f"/plus/{2 * SUM + 13}", {"needs": ["tail"]}),
]
SKIPPED = {"off": "condition", "page": "upstream"}


def expected_requests(name: str, second: int) -> dict[Slot, str]:
    """What the steps of one flow must ask their target, by what the target knows them by."""
    found: dict[Slot, str] = {}
    for step in STEPS:
        if step.id == "each":
            found |= {Slot(f"{name}.each.{n}", second): step.expected.format(item=n) for n in range(ITEMS)}
        elif step.id not in SKIPPED:
            found[Slot(f"{name}.{step.id}", second)] = step.expected
    return found


@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 700)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_five_hundred_flows_end_while_nodes_are_killed(store: str, store_urls, tmp_path: Path, faults_report: Report):
    assert len(STEPS) == 20
    seed = int(os.environ.get("FAULTS_SEED") or random.randrange(10**6))
    (url,) = store_urls(store, 1)
    cluster, sink = Cluster(tmp_path, url, 3, seed), Sink(tmp_path / "sink.jsonl")
    began = time.monotonic()
    try:
        cluster.start()
        first = create_flows(cluster, sink)
        harass(cluster, first, first + SECONDS, random.Random(seed))
        asyncio.run(all_ended(cluster, url))
    finally:
        cluster.end()
        sink.close()
    took = time.monotonic() - began
    audit = audited(url)
    found = asyncio.run(read_flows(url))
    deliveries = sink.deliveries()
    seen = [seen_of(one) for one in deliveries]
    expected = {
        slot: path
        for task in range(TASKS)
        for second in range(first, first + FLOWS // TASKS)
        for slot, path in expected_requests(f"f{task}", second).items()
    }
    verdict = judge(list(expected), found.rows, seen, kills=cluster.kills, window=SECONDS, reach=REACH)
    lost_leases = unexplained(verdict.unexcused, seen, found.lost)
    misled = [
        f"{one.slot.task} was sent {one_path}; expected {expected.get(one.slot)}"
        for one, one_path in zip(seen, (one.path.partition("?")[0] for one in deliveries), strict=True)
        if one_path != expected.get(one.slot)
    ]
    figures = (
        f"{sum(found.flows.values())} flows, {len(found.rows)} runs of steps, {len(cluster.kills)} kills,"
        f" {len(verdict.extra)} redeliveries under the same key, {took:.0f} s"
    )
    faults_report.chapters.append(
        f"## Flows on three nodes, {store}\n\n{len(STEPS)} steps each, one of them a `foreach` of {ITEMS};"
        f" kill -9 every {KILL_EVERY:g} s for {SECONDS} s; seed {seed}. {figures}.\n\n| | |\n| --- | --- |\n"
        f"| flows that ended in SUCCESS | {found.flows['SUCCESS']} |\n| runs of steps | {len(found.rows)} |\n"
        f"| kills | {len(cluster.kills)} |\n| requests | {len(seen)} |\n| … again, under the same key | {len(verdict.extra)} |\n"
        f"| … again, under another key | {len(verdict.strange)} |\n| … again, although no lease was lost | {len(lost_leases)} |\n"
        f"| steps without a run or a request | {len(verdict.lost)} |\n| steps with two runs | {len(verdict.doubled)} |\n"
        f"| requests that had another step's result, or none | {len(misled)} |\n| `noonbell audit` | {audit.splitlines()[-1]} |\n"
    )
    assert found.flows == {"SUCCESS": FLOWS}, found.failures
    assert found.states == {
        (step.id, "SKIPPED" if step.id in SKIPPED else "SUCCESS", SKIPPED.get(step.id)): FLOWS for step in STEPS
    }
    assert (verdict.lost, verdict.doubled, verdict.unexpected, verdict.unended, verdict.strange) == ([],) * 5, told(
        verdict
    )
    assert lost_leases == []
    assert misled == []
    assert cluster.kills
    assert audit.splitlines()[-1] == "0 holes, 0 doubles", audit


def create_flows(cluster: Cluster, sink: Sink) -> int:
    """The second of the first flows: it lies ahead, so the flows are known before anything has run."""
    first = int(time.time()) + 10
    schedule = {"cron_expr": "* * * * * *", "start_at": at(first), "end_at": at(first + FLOWS // TASKS - 1)}
    for task in range(TASKS):
        steps = [
            {
                "id": step.id,
                "target_url": sink.url(f"{step.path}?f{task}.{step.id}{'.{{ item }}' if step.id == 'each' else ''}"),
                **WAITS,
                **step.fields,
            }
            for step in STEPS
        ]
        fields = {"name": f"f{task}", "steps": steps, "max_concurrency": None, **schedule}
        cluster.ask("POST", "/tasks", fields, expect=201)
    assert time.time() < first, "the machine is too slow to create the tasks in time"
    return first


async def all_ended(cluster: Cluster, url: str) -> None:
    """Wait until every flow has been planned and is over, for as long as steps go on ending."""
    until(cluster.ready, "a node to be ready", PATIENCE)
    store = open_store(url)
    await store.open()
    try:
        seen, since = -1, time.monotonic()
        while True:
            ((ended, flows),) = await store.fetch(
                "select coalesce(sum(case when end_time is not null then 1 else 0 end), 0),"
                " coalesce(sum(case when end_time is not null and step_id is null then 1 else 0 end), 0) from runs"
                " where parent_id is not null or task_id in (select id from tasks where name like 'f%')"
            )
            if flows == FLOWS:
                return
            if ended != seen:
                seen, since = ended, time.monotonic()
            assert time.monotonic() - since < STANDS_STILL, f"{flows} flows are over, and no step has ended for a while"
            await asyncio.sleep(1)
    finally:
        await store.close()


class Found(NamedTuple):
    flows: Counter[str]
    """How the flows ended."""
    states: Counter[tuple[str, str, str | None]]
    """The same of their steps: step, status, why it was skipped."""
    rows: list[Row]
    """The runs of steps."""
    lost: Counter[str]
    """By run: the leases that ran out."""
    failures: list[tuple[Any, ...]]
    """Of steps that ended otherwise, why."""


async def read_flows(url: str) -> Found:
    store = open_store(url)
    await store.open()
    try:
        runs = await store.fetch(
            "select r.id, t.name, r.scheduled_time, r.status, r.step_id, r.item_index from runs r"
            " join tasks t on t.id = r.task_id where t.name like 'f%'"
        )
        states = await store.fetch(
            "select step_id, status, reason, count(*) from flow_steps group by step_id, status, reason"
        )
        failures = await store.fetch(
            "select r.id, r.step_id, r.status, r.error_message, r.error_details from runs r"
            " where r.step_id is not null and r.status not in ('SUCCESS', 'CANCELED') limit 20"
        )
        failures += await store.fetch(
            "select run_id, step_id, status, message, reason from flow_steps where status = 'FAILED' limit 20"
        )
        lost = await store.fetch("select run_id, count(*) from attempts where status = 'LOST' group by run_id")
    finally:
        await store.close()
    rows = [
        Row(Slot(".".join([name, step, *([] if item is None else [str(item)])]), when // SECOND), str(run_id), status)
        for run_id, name, when, status, step, item in runs
        if step is not None
    ]
    return Found(
        Counter(status for _, _, _, status, step, _ in runs if step is None),
        Counter({(step, status, reason): count for step, status, reason, count in states}),
        rows,
        Counter({str(run_id): count for run_id, count in lost}),
        failures,
    )


def unexplained(unexcused: Sequence[Seen], seen: Sequence[Seen], lost: Counter[str]) -> list[Seen]:
    """Of the repeats that no kill explains, those of runs that were sent more often than their leases were lost."""
    sent = Counter(one.run for one in seen)
    return [one for one in unexcused if sent[one.run] > 1 + lost[one.run]]
