"""A node dies while it ends a run that has expired (K24: before the commit; K25: after it): the run is skipped once, and never sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.harness import Nodes
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K24", "K25"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_run_that_has_expired_is_skipped_once_and_never_sent(store: str, point: str, store_urls, tmp_path: Path):
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        arguments = ("--store", url, "--port", "0")
        armed = nodes.launch(*arguments, "--no-worker", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        task = armed.create(name="trial", target_url=sink.url("/ok"), expires_in_seconds=1)
        follower = armed.create(
            name="follower",
            target_url=sink.url("/ok"),
            after={"tasks": [{"task": "trial", "on": "skipped"}]},
        )
        run = armed.trigger(task)
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        again = nodes.launch(*arguments, env=NODE).wait_ready(PATIENCE)
        ended = again.wait_for_run(run, "SKIPPED")
        assert (ended["skip_reason"], ended["start_time"], ended["attempt"]) == ("expired", None, 0)
        assert again.ask("GET", f"/runs/{run}/explain")["cause"] == "expired"
        (next_run,) = again.runs_of(follower)
        again.wait_for_run(next_run["id"], "SUCCESS")
        assert len(sink.deliveries()) == 1, "the follower's, and no other"
    finally:
        nodes.end()
        sink.close()
