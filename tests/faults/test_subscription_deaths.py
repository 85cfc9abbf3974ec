"""Webhook subscriptions under kill -9: a node dies before (K34) and after (K35) a position is written, and every few seconds.

The receiver checks every signature by the library that receivers use, and keeps a log of its own.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from acceptance.harness import Nodes, ServerNode, until
from faults.sink import Sink
from faults.trial import KILLED, LEASE, NODE, PATIENCE
from noonbell.stores import open_store

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAST = {
    **NODE,
    "NOONBELL_SUBSCRIPTIONS__FIRST_PAUSE": "200ms",
    "NOONBELL_SUBSCRIPTIONS__LONGEST_PAUSE": "1s",
}


ROUNDS, RUNS = 4, 40


class Receiver:
    """Serves in a thread of its own. While it is `down` it answers 503."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        """What was answered with 200, in the order of arrival."""
        self.unsigned: list[str] = []
        self.down = False
        self.heard = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024), self._loop
        ).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                status = "503 Service Unavailable" if self.down else "200 OK"
                self._note(headers, body)
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the node was killed, or has closed the connection
        finally:
            writer.close()

    def _note(self, headers: dict[str, str], body: bytes) -> None:
        self.heard += 1
        try:
            event = Webhook(SECRET).verify(body, headers)
        except Exception as error:
            self.unsigned.append(f"{error}: {body[:200]!r}")
            return
        if not self.down:
            self.seen.append(event)

    def ids(self) -> set[str]:
        return {event["id"] for event in list(self.seen)}

    def first_arrivals(self) -> dict[int, list[tuple[int, int]]]:
        """By run: the events in the order in which each came for the first time."""
        known: set[str] = set()
        found: dict[int, list[tuple[int, int]]] = {}
        for event in self.seen:
            if event["id"] not in known:
                known.add(event["id"])
                seq, _, index = event["id"].partition(".")
                found.setdefault(event["data"]["run_id"], []).append((int(seq), int(index)))
        return found


async def events_of_runs(url: str) -> set[str]:
    """As the store has them."""
    store = open_store(url)
    await store.open()
    try:
        return {event.id for event in await store.events(0, 1_000_000) if event.type.startswith("run.")}
    finally:
        await store.close()


def subscribe(node: ServerNode, receiver: Receiver) -> None:
    given = {"name": "s", "url": receiver.url, "secret": SECRET, "types": ["run"]}
    node.ask("POST", "/subscriptions", given, expect=201)


def is_caught_up(node: ServerNode) -> bool:
    told = node.ask("GET", "/subscriptions/s")
    return told["behind"] == 0 and told["pending"] == 0


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K34", "K35"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_subscription_loses_no_event_when_its_node_dies_at(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink, receiver = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl"), Receiver()
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**FAST, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        subscribe(armed, receiver)
        task = armed.create(name="trial", target_url=sink.url("/ok"), **LEASE)
        run = armed.trigger(task)
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        before = [event["id"] for event in receiver.seen]
        assert before, "events were posted before it died"
        again = nodes.launch("--store", url, "--port", "0", env=FAST).wait_ready(PATIENCE)
        again.wait_for_run(run, "SUCCESS")
        until(lambda: any(event["type"] == "run.succeeded" for event in receiver.seen), "the last event")
        until(lambda: is_caught_up(again), "the subscription")
        types = [event["type"] for event in receiver.seen if event["data"]["run_id"] == run]
        assert {"run.scheduled", "run.started", "run.succeeded"} <= set(types)
        (order,) = receiver.first_arrivals().values()
        assert order == sorted(order)
        ids = [event["id"] for event in receiver.seen]
        repeated = {one for one in before if ids.count(one) > 1}
        assert repeated == (set(before) if point == "K34" else set())
        assert receiver.unsigned == []
    finally:
        nodes.end()
        sink.close()
        receiver.close()


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["postgres", "mariadb"])
def test_a_subscription_survives_a_node_that_is_killed_every_few_seconds(store: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink, receiver = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl"), Receiver()
    try:
        steady = nodes.launch("--store", url, "--port", "0", env=FAST).wait_ready(PATIENCE)
        subscribe(steady, receiver)
        task = steady.create(name="trial", target_url=sink.url("/ok"), max_concurrency=None, **LEASE)
        runs: list[int] = []
        for round_ in range(ROUNDS):
            other = nodes.launch("--store", url, "--port", "0", env=FAST).wait_ready(PATIENCE)
            receiver.down = round_ == 1
            heard = receiver.heard
            runs += [steady.trigger(task) for _ in range(RUNS)]
            until(lambda heard=heard: receiver.heard >= heard + 20, "deliveries under way", PATIENCE)
            steady.kill()  # in the midst of its deliveries: it has held the subscription for longest
            steady = other
        receiver.down = False
        for run in runs:
            steady.wait_for_run(run)
        until(lambda: is_caught_up(steady), "the subscription", PATIENCE)
        wanted = asyncio.run(events_of_runs(url))
        assert len(wanted) >= 3 * len(runs)
        assert receiver.ids() == wanted
        arrivals = receiver.first_arrivals()
        assert set(runs) <= set(arrivals)
        for run, order in arrivals.items():
            assert order == sorted(order), f"run {run}"
        assert receiver.unsigned == []
    finally:
        nodes.end()
        sink.close()
        receiver.close()
