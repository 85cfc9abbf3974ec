"""A node dies among calls that the rate of their key holds back: all are made, and no stretch sees more starts of a key than it may."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, until
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE

KEYS, EACH = 3, 6
MOST, SECONDS = 2, 2.0


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K3", "K6:2", "K7:2"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_calls_with_a_rate_key_outlive_a_node_and_their_rate_holds(
    store: str, point: str, store_urls: Any, tmp_path: Path
) -> None:
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        armed.ask("PUT", "/queues/http", {"rate_limit": {"max": MOST, "per_seconds": SECONDS}})
        calls = [
            {"url": sink.url(f"/ok?{n}"), "key": f"call-{n}", "rate_key": f"customer {n % KEYS}"}
            for n in range(KEYS * EACH)
        ]
        with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
            armed.ask("POST", "/calls/batch", {"calls": calls})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        made = [one["run_id"] for one in again.ask("POST", "/calls/batch", {"calls": calls})["calls"]]
        until(
            lambda: again.ask("GET", "/runs?origin=call&status=SUCCESS&page_size=1")["total"] == len(calls),
            "every call to be made",
            120,
        )
        starts: dict[str, list[float]] = defaultdict(list)
        for run_id, call in zip(made, calls, strict=True):
            attempts = again.ask("GET", f"/runs/{run_id}/attempts")["items"]
            starts[call["rate_key"]] += [datetime.fromisoformat(one["start_time"]).timestamp() for one in attempts]
        assert {key: len(moments) >= EACH for key, moments in starts.items()} == dict.fromkeys(starts, True)
        for key, moments in starts.items():
            crowded = [at for at in moments if sum(at <= one < at + SECONDS for one in moments) > MOST]
            assert crowded == [], (key, sorted(moments))
        assert {one.path for one in sink.deliveries()} == {f"/ok?{n}" for n in range(len(calls))}
    finally:
        nodes.end()
        sink.close()
