"""One trial of a kill point: a node dies there, is started again, and what came of the run is told.

Each trial has a database, a sink and processes of its own, so trials can go side by side in threads.
"""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from acceptance.harness import FINAL, Answer, Nodes, ServerNode, until
from faults.sink import Delivery, Sink

KILLED = 137
PATIENCE = 60.0
"""Seconds. Nothing waits for that long unless something is wrong."""
LEASE = {"worker_timeout_ms": 2000, "ping_interval_ms": 500}
NODE = {"NOONBELL_SERVER__GRACEFUL_TIMEOUT": "300ms", "NOONBELL_STORE__POOL_SIZE": "4"}
"""Few connections: a server has a hundred of them for all trials that run side by side."""


@dataclass(frozen=True)
class Ending:
    """What is compared with the promise."""

    status: str
    kind: str | None
    """`error_details.kind`."""
    attempts: int
    """The run's own count."""
    recorded: int
    """Attempts that have a record."""
    rows: int
    """Runs that the slot has: one, or P1 is broken."""
    deliveries: int
    keys: int
    """Different idempotency keys among the deliveries."""
    rising: bool
    """Whether the attempt numbers that the sink saw rise."""
    callbacks: tuple[str, ...] = ()
    """How each callback was recorded, oldest first."""
    seconds: float = 0.0
    """From the death until the run was final, the restart included."""


class Trial:
    """What a scenario can do. `armed` is the process that dies, `again` the one after it."""

    armed: ServerNode
    again: ServerNode

    def __init__(self, folder: Path, store: str, point: str) -> None:
        self._nodes = Nodes(folder)
        self._store, self._point = store, point
        self.sink = Sink(folder / "sink.jsonl")
        self._unanswered: dict[str, Any] | None = None

    def end(self) -> None:
        self._nodes.end()
        self.sink.close()

    # Steps

    def start_armed(self, *arguments: str) -> None:
        # A poll that falls together with the create would plan in the same group commit, and die with both.
        seldom = {"NOONBELL_SCHEDULER__POLL_INTERVAL": "30s"}
        self.armed = self._start({"NOONBELL_FAILPOINT": self._point, **seldom}, *arguments)

    def start_again(self) -> None:
        """Start a node without a kill point.

        A create without an answer may be there or not: SQLite writes what comes together in one commit, and a pass
        of the planner that falls into the commit of the create takes both with it. The caller asks again, as callers do.
        """
        self.again = self._start({})
        if self._unanswered is not None and not self.again.ask("GET", "/tasks")["items"]:
            self.again.ask("POST", "/tasks", self._unanswered, expect=201)

    def _start(self, env: Mapping[str, str], *arguments: str) -> ServerNode:
        node = self._nodes.launch("--store", self._store, "--port", "0", *arguments, env=NODE | dict(env))
        return node.wait_ready(PATIENCE)

    def create(self, path: str, **fields: Any) -> None:
        """A task with one slot, which is due now. The process may die before it has answered: that is the point."""
        wanted = {"name": "trial", "schedule": {"type": "once", "at": None}, "target_url": self.sink.url(path)}
        body = wanted | LEASE | fields
        try:
            self.armed.ask("POST", "/tasks", body, expect=201)
        except (ConnectionError, http.client.HTTPException):
            self._unanswered = body

    def wait_death(self) -> None:
        code = self.armed.wait_ended(PATIENCE)
        assert code == KILLED, f"it ended with {code} instead of dying at {self._point}:\n{self.armed.log}"

    def first_delivery(self) -> Delivery:
        return until(self.sink.deliveries, "a delivery", PATIENCE)[0]

    def call_back(self, node: ServerNode, token: str | None) -> Answer | None:
        """None: the connection broke before there was an answer."""
        try:
            return node.call("POST", f"/callbacks/{token}", {"status": "SUCCESS", "data": {"rows": 3}})
        except (ConnectionError, http.client.HTTPException):
            return None

    def wait_status(self, node: ServerNode, *statuses: str) -> Any:
        """The newest run of the task, once it has one of the statuses."""

        def there() -> Any:
            runs = self._runs(node)
            if runs and runs[0]["status"] in statuses:
                return runs[0]
            time.sleep(0.1)  # asking costs the node time that other trials could use
            return None

        return until(there, f"the run to be {' or '.join(statuses)}", PATIENCE)

    def _runs(self, node: ServerNode) -> list[Any]:
        return list(node.ask("GET", "/runs?task=name:trial&page_size=100")["items"])

    def ending(self, died_at: float) -> Ending:
        """Waits until the run is final, and for nothing else."""
        self.wait_status(self.again, *FINAL)
        seconds = time.monotonic() - died_at
        runs = self._runs(self.again)
        run = self.again.run(runs[0]["id"])
        seen = self.sink.deliveries()
        recorded = self.again.ask("GET", f"/runs/{run['id']}/callbacks")
        attempts = self.again.ask("GET", f"/runs/{run['id']}/attempts")["items"]
        numbers = [one.attempt for one in seen]
        return Ending(
            status=run["status"],
            kind=(run["error_details"] or {}).get("kind"),
            attempts=run["attempt"],
            recorded=len(attempts),
            rows=len(runs),
            deliveries=len(seen),
            keys=len({one.key for one in seen}),
            rising=all(later > earlier for earlier, later in pairwise(numbers)),
            callbacks=tuple(one["status"] for one in sorted(recorded["items"], key=lambda one: one["id"])),
            seconds=seconds,
        )


@contextlib.contextmanager
def trial(folder: Path, store: str, point: str) -> Iterator[Trial]:
    folder.mkdir(parents=True, exist_ok=True)
    one = Trial(folder, store, point)
    try:
        yield one
    finally:
        one.end()
