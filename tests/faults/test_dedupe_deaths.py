"""A node dies in a publish with `dedupe` (K27: before its commit; K27:2: after it). Who asks again gets one standing run."""

from __future__ import annotations

from contextlib import suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes
from faults.sink import Sink
from faults.trial import KILLED, LEASE, NODE, PATIENCE

LONG = 3_600
RULES: dict[str, tuple[dict[str, Any], int]] = {
    "throttle": ({"mode": "throttle", "seconds": LONG}, 0),
    "throttle last": ({"mode": "throttle", "seconds": LONG, "keep": "last"}, 2),
    "debounce": ({"mode": "debounce", "seconds": LONG, "max_wait_seconds": 2 * LONG}, 2),
    "debounce first": ({"mode": "debounce", "seconds": LONG, "keep": "first"}, 0),
}
"""Each with the number of the publish, of three, that its one run carries."""


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("point", ["K27", "K27:2", "K27:3", "K27:4"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_publish_with_dedupe_that_is_repeated_after_a_death_has_one_run(
    store: str, point: str, rule: str, store_urls: Any, tmp_path: Path
) -> None:
    """The first publish meets the point twice, before its commit and after it; then the second does."""
    (url,) = store_urls(store, 1)
    fields, carried = RULES[rule]
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        task = armed.create(name="trial", target_url=sink.url("/ok"), **LEASE)
        answers: list[dict[str, Any]] = []
        bodies = [{"payload": {"n": n}, "dedupe": {**fields, "key": "cart"}} for n in range(3)]
        with suppress(RemoteDisconnected, ConnectionError):  # it dies before it has answered
            while len(answers) < len(bodies):
                answers.append(armed.ask("POST", f"/tasks/{task}/trigger", bodies[len(answers)]))
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        unheard = len(answers)
        assert unheard == (0 if point in ("K27", "K27:2") else 1)
        again = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        stood = again.runs_of(task)
        assert len(stood) == (0 if point == "K27" else 1)
        answers += [again.ask("POST", f"/tasks/{task}/trigger", body) for body in bodies[unheard:]]
        (run_id,) = {one["run_id"] for one in answers}
        assert [run["id"] for run in again.runs_of(task)] == [run_id]
        assert [one["outcome"] for one in answers].count("created") == (0 if point == "K27:2" else 1)
        run = again.ask("GET", f"/runs/{run_id}")
        assert run["payload"] == {"n": carried}
        starts_at_once = carried == 0
        if not starts_at_once:
            again.ask("POST", f"/runs/{run_id}/promote")
        ended = again.wait_for_run(run_id, "SUCCESS")
        assert {one.key for one in sink.deliveries()} == {ended["idempotency_key"]}
        if not starts_at_once:  # else the node may have died with its attempt, which is repeated
            assert (ended["attempt"], len(sink.deliveries())) == (1, 1)
    finally:
        nodes.end()
        sink.close()
