"""A node dies among calls (K3, K6: with one in hand; K28: before the commit that ends some; K7: after it), and all are made and told."""

from __future__ import annotations

from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path

import pytest

from acceptance.harness import Nodes, until
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE

POINTS = ["K3", "K6:5", "K28", "K28:2", "K7:2"]
COUNT = 20


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_every_call_is_made_and_told_although_a_node_dies(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        calls = [
            {"url": sink.url(f"/ok?call-{n}"), "success_url": sink.url(f"/ok?told-{n}"), "key": f"k-{n}"}
            for n in range(COUNT)
        ]
        with suppress(RemoteDisconnected, ConnectionError):  # it may die before it has answered
            armed.ask("POST", "/calls/batch", {"calls": calls})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        made = again.ask("POST", "/calls/batch", {"calls": calls})["calls"]
        assert {one["outcome"] for one in made} <= {"exists", "running"}, "the batch had been committed"
        wanted = {f"/ok?{what}-{n}" for n in range(COUNT) for what in ("call", "told")}
        until(lambda: wanted <= {one.path for one in sink.deliveries()} or None, "every call and telling", PATIENCE)
        by_path = {path: {one.key for one in sink.deliveries(path)} for path in wanted}
        assert {len(keys) for keys in by_path.values()} == {1}, "what is sent twice has the same key"
        runs = again.ask("GET", "/runs?origin=call&page_size=100")["items"]
        assert len(runs) == 2 * COUNT
    finally:
        nodes.end()
        sink.close()
