"""A node dies while everything is paused or resumed (K22: before the commit; K23: after it): it is so, or it is not."""

from __future__ import annotations

from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path

import pytest

from acceptance.harness import Nodes
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K22", "K23"])
@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_the_switch_is_turned_or_it_is_not_and_no_run_is_lost(
    store: str, verb: str, point: str, store_urls, tmp_path: Path
):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        count = 1 if verb == "pause" else 2
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": f"{point}:{count}"})
        armed.wait_ready(PATIENCE)
        task = armed.create(name="trial", target_url=sink.url("/ok"))
        if verb == "resume":
            armed.ask("POST", "/pause", {"reason": "a test"})
            waits = armed.trigger(task)
        with suppress(RemoteDisconnected, ConnectionError):  # it dies before it has answered
            armed.call("POST", f"/{verb}", {})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        is_paused = (verb == "pause") is (point == "K23")
        assert again.ask("GET", "/pause")["paused"] is is_paused
        if verb == "pause":
            waits = again.trigger(task)
        if is_paused:
            assert again.ask("GET", f"/runs/{waits}/explain")["cause"] == "paused"
            assert again.ask("POST", "/resume")["changed"] is True
        assert again.wait_for_run(waits, "SUCCESS")["attempt"] == 1
        assert len(sink.deliveries()) == 1
    finally:
        nodes.end()
        sink.close()
