"""A node dies around the commit of a calendar change (K36: before it; K36:2: after it): all of it is changed, or nothing is."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, ServerNode, until
from faults.sink import Sink
from faults.trial import KILLED, NODE, PATIENCE

COUNT = 5


def today(ahead: int = 0) -> str:
    return (datetime.now(UTC).date() + timedelta(days=ahead)).isoformat()


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["K36", "K36:2"])
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_a_calendar_and_its_tasks_are_changed_together_or_not_at_all(
    store: str, point: str, store_urls: Any, tmp_path: Path
) -> None:
    (url,) = store_urls(store, 1)
    nodes, sink = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl")
    try:
        first = nodes.launch("--store", url, "--port", "0", env=NODE).wait_ready(PATIENCE)
        first.ask("PUT", "/calendars/c", {"closed": []})
        # Every second, on a day that is open, and so planned while the calendar changes.
        tasks = [
            first.create(
                name=f"t{number}",
                cron_expr="* * * * * *",
                target_url=sink.url("/ok"),
                calendar={"name": "c", "when_closed": "skip"},
            )
            for number in range(COUNT)
        ]
        armed = nodes.launch("--store", url, "--port", "0", env={**NODE, "NOONBELL_FAILPOINT": point})
        armed.wait_ready(PATIENCE)
        with suppress(RemoteDisconnected, ConnectionError):  # it dies before it has answered
            armed.call("PUT", "/calendars/c", {"closed": [f"{today()}/{today(1)}"]})
        assert armed.wait_ended(PATIENCE) == KILLED, armed.log
        is_changed = point == "K36:2"
        assert first.ask("GET", "/calendars/c")["revision"] == 1 + is_changed
        versions = {first.ask("GET", f"/tasks/{task}")["version"] for task in tasks}
        assert versions == {1 + is_changed}
        for task in tasks:
            _see(first, task, "SKIPPED" if is_changed else "SUCCESS")
        report = first.ask("GET", f"/tasks/{tasks[0]}/slots?limit=1000")["items"]
        assert not [item for item in report if item["outcome"] == "missing"]
    finally:
        nodes.end()
        sink.close()


def _see(node: ServerNode, task: int, status: str) -> None:
    """A slot that was planned after the death ends so."""
    since = datetime.now(UTC)

    def there() -> bool:
        return any(run["scheduled_time"] > since.isoformat() for run in node.runs_of(task, status=status))

    until(there, f"task {task} to have a run that is {status}", PATIENCE)
