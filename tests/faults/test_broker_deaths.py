"""A node dies with a message at a broker: before the broker's word (K32), and after it, before the settlement (K33).

At least once: the run ends well, and what was published twice has the same key. At most once: never twice, and the run says that
nobody knows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import FINAL, Nodes, until
from faults.trial import KILLED, LEASE, NODE, PATIENCE
from services.brokers import Broker, Taken, new_name

POINTS = ["K32", "K33"]


async def told(broker: Broker, name: str, work: Any) -> tuple[Any, list[Taken]]:
    """What `work` returns, in a thread of its own, and what arrived meanwhile."""
    async with broker.consumer(name) as taken:
        done = await asyncio.to_thread(work)
        async with asyncio.timeout(PATIENCE):
            messages = [await taken.get()]
        while not taken.empty():
            messages.append(taken.get_nowait())
    return done, messages


def die_and_go_on(folder: Path, url: str, point: str, task: dict[str, Any]) -> dict[str, Any]:
    """The run, after the node that published its message has died and another has taken over."""
    nodes = Nodes(folder)
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        made = armed.ask("POST", "/tasks", task, expect=201)
        with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
            armed.ask("POST", f"/tasks/{made['id']}/trigger", {})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)

        def ended() -> dict[str, Any] | None:
            (run,) = again.ask("GET", "/runs")["items"]
            return again.ask("GET", f"/runs/{run['id']}") if run["status"] in FINAL else None

        found = until(ended, "the end of the run", PATIENCE)
        assert isinstance(found, dict)
        return found
    finally:
        nodes.end()


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_message_is_published_although_the_node_dies(
    broker: Broker, store: str, point: str, store_urls: Any, tmp_path: Path
) -> None:
    (url,) = store_urls(store, 1)
    name = new_name()
    task = {"name": "publish", broker.kind: broker.message(name), "payload": {"n": 1}, **LEASE}
    run, messages = await told(broker, name, lambda: die_and_go_on(tmp_path, url, point, task))
    assert (run["status"], run["attempt"]) == ("SUCCESS", 2), run
    assert 1 <= len(messages) <= 2
    assert len({message.headers["Idempotency-Key"] for message in messages}) == 1


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
async def test_a_message_that_is_delivered_at_most_once_is_not_published_again(
    broker: Broker, point: str, store_urls: Any, tmp_path: Path
) -> None:
    (url,) = store_urls("sqlite", 1)
    name = new_name()
    said = {broker.kind: broker.message(name), "delivery": "at_most_once"}
    task = {"name": "publish", **said, **LEASE}
    async with broker.consumer(name) as taken:
        run = await asyncio.to_thread(die_and_go_on, tmp_path, url, point, task)
        assert (run["status"], run["error_details"]["kind"], run["attempt"]) == ("FAILED", "unknown", 1), run
        assert taken.qsize() <= 1
