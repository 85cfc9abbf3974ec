"""A receiver that is down for minutes while a node is killed every five seconds: every event arrives, in order per run, signed.

With `NOONBELL_TEST_FULL=1` it is down for ten minutes; else for half a minute of the same.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from acceptance.harness import Nodes, until
from faults.sink import Sink
from faults.test_subscription_deaths import FAST, Receiver, events_of_runs, is_caught_up, subscribe
from faults.trial import LEASE, PATIENCE
from services.size import size

APART = 5.0
"""Seconds between two kills."""
KILLS = size(6, 120)
RUNS = 10
"""Between two kills."""


@pytest.mark.faults
@pytest.mark.longer
@pytest.mark.timeout(KILLS * 30 + 300)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_no_event_is_lost_while_the_receiver_is_down_and_nodes_are_killed(store: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink, receiver = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl"), Receiver()
    try:
        holder = nodes.launch("--store", url, "--port", "0", env=FAST).wait_ready(PATIENCE)
        subscribe(holder, receiver)
        task = holder.create(name="trial", target_url=sink.url("/ok"), max_concurrency=None, **LEASE)
        receiver.down = True
        runs: list[int] = []
        for _ in range(KILLS):
            began, heard = time.monotonic(), receiver.heard
            follower = nodes.launch("--store", url, "--port", "0", env=FAST).wait_ready(PATIENCE)
            runs += [holder.trigger(task) for _ in range(RUNS)]
            until(lambda heard=heard: receiver.heard > heard, "an attempt that fails", PATIENCE)
            time.sleep(max(0.0, began + APART - time.monotonic()))
            holder.kill()
            holder = follower
        assert receiver.seen == []
        receiver.down = False
        for run in runs:
            holder.wait_for_run(run)
        until(lambda: is_caught_up(holder), "the subscription", PATIENCE * 2)
        assert holder.ask("GET", "/subscriptions/s")["active"]
        wanted = asyncio.run(events_of_runs(url))
        assert len(wanted) >= 3 * len(runs)
        assert receiver.ids() == wanted
        for run, order in receiver.first_arrivals().items():
            assert order == sorted(order), f"run {run}"
        assert receiver.unsigned == []
        (first, *_) = holder.ask("GET", "/subscriptions/s/deliveries?status=DELIVERED")["items"]
        taken = len(receiver.seen)
        holder.ask("POST", f"/subscriptions/s/deliveries/{first['id']}/replay", expect=201)
        until(lambda: len(receiver.seen) > taken, "the replay", PATIENCE)
        assert receiver.seen[-1]["id"] == first["event_id"]
    finally:
        nodes.end()
        sink.close()
        receiver.close()
