"""Real processes for the tests of this folder: a node that is started, asked, stopped and killed, and a target that it
calls.

Nothing sleeps for luck: whoever waits names a condition and a deadline.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from services import forked

T = TypeVar("T")

COMMAND = forked.COMMAND
PATIENCE = 60.0
"""Seconds: generous, because the machine may be busy; nothing waits for that long when all is well."""

FINAL = {"SUCCESS", "CALLBACK_SUCCESS", "FAILED", "TIMEOUT", "FAILED_TIMEOUT", "CANCELED", "SKIPPED"}
READY = re.compile(r"is ready: http://(?P<host>\S+):(?P<port>\d+) ")


def until(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """The first answer that is not None, False or empty; fails in words when its time is up. To ask costs both sides: the longer it
    takes, the more rarely.
    """
    begun = time.monotonic()
    while True:
        if answer := condition():
            return answer
        waited = time.monotonic() - begun
        assert waited < seconds, f"still waiting after {seconds} s: {what}"
        time.sleep(min(max(0.02, waited / 10), 0.05))


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class ServerNode:
    """One `noonbell serve`. Its log is kept in a file of the test's folder."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> None:
        """`program`: a `noonbell` that was installed elsewhere. Without it, the one that is tested here."""
        self.name = name
        self._log = folder / f"{name}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("NOONBELL_")}
        with self._log.open("ab") as log:
            self._begins = log.tell()
            self._process = forked.start(
                "serve", *arguments, cwd=folder, env=clean | dict(env or {}), stdout=log, stderr=log, program=program
            )
        self.port = 0

    def wait_ready(self, seconds: float = PATIENCE) -> ServerNode:
        """Until it has said so in its log, and answers `ok`."""

        def ready() -> bool:
            assert self.is_running, f"{self.name} ended with {self._process.returncode}:\n{self.log}"
            if found := READY.search(self.log):
                self.port = int(found["port"])
            return self.port > 0

        until(ready, f"{self.name} to be ready", seconds)
        until(self._is_well, f"{self.name} to be well", seconds)
        return self

    def _is_well(self) -> bool:
        answer = self.call("GET", "/healthz")
        return (answer.status, answer.text) == (200, "ok")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What this process has said, without what one of the same name said before it."""
        return self._log.read_bytes()[self._begins :].decode(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended after {seconds} s:\n{self.log}") from None

    def stop(self, seconds: float = PATIENCE) -> int:
        self.send(signal.SIGTERM)
        return self.wait_ended(seconds)

    def kill(self) -> None:
        """Kill -9, and wait until the kernel has taken it away."""
        if self.is_running:
            self.send(signal.SIGKILL)
        self._process.wait(PATIENCE)

    # The API

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        base: str = "/api/v1",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = None if body is None else json.dumps(body)
            sent = dict(headers or {}) | ({} if body is None else {"Content-Type": "application/json"})
            connection.request(method, base + path, content, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
        """The answer's JSON, where its status is the expected one."""
        answer = self.call(method, path, body)
        assert answer.status == expect, f"{method} {path}: {answer.status} {answer.text}\n{self.log[-4000:]}"
        return answer.json

    def create(self, **fields: Any) -> int:
        return int(self.ask("POST", "/tasks", fields, expect=201)["id"])

    def trigger(self, task_id: int, **fields: Any) -> int:
        return int(self.ask("POST", f"/tasks/{task_id}/trigger", fields or None)["run_id"])

    def run(self, run_id: int) -> Any:
        return self.ask("GET", f"/runs/{run_id}")

    def runs_of(self, task_id: int, **query: Any) -> list[Any]:
        """All of them, newest first."""
        found: list[Any] = []
        page = 1
        while True:
            more = "".join(f"&{name}={value}" for name, value in query.items())
            answer = self.ask("GET", f"/tasks/{task_id}/runs?page={page}&page_size=100{more}")
            found += answer["items"]
            if len(found) >= answer["total"] or not answer["items"]:
                return found
            page += 1

    def wait_for_run(self, run_id: int, *statuses: str, seconds: float = PATIENCE) -> Any:
        """The run, once it has one of the statuses; without any named, once it is final."""
        wanted = set(statuses) or FINAL

        def there() -> Any:
            run = self.run(run_id)
            assert run["status"] in wanted or run["status"] not in FINAL, f"run {run_id} ended otherwise: {run}"
            return run if run["status"] in wanted else None

        return until(there, f"run {run_id} to be {' or '.join(sorted(wanted))}", seconds)


class Nodes:
    """Starts nodes for one test, and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[ServerNode] = []

    def launch(
        self,
        *arguments: str,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> ServerNode:
        """A process that may or may not come up."""
        node = ServerNode(self._folder, name or f"node-{len(self._started)}", *arguments, env=env, program=program)
        self._started.append(node)
        return node

    def start(self, store: str, *arguments: str, port: int = 0, env: Mapping[str, str] | None = None) -> ServerNode:
        """A node that is ready."""
        return self.launch("--store", store, "--port", str(port), *arguments, env=env).wait_ready()

    def end(self) -> None:
        for node in self._started:
            node.kill()


@dataclass(frozen=True)
class Arrival:
    """One request that a target got."""

    at: float
    """By the monotonic clock."""
    method: str
    path: str
    headers: Mapping[str, str]
    body: str

    @property
    def run_id(self) -> int:
        return int(self.headers["X-Noonbell-Run"])

    @property
    def slot(self) -> str:
        return self.headers["X-Noonbell-Scheduled-Time"]

    @property
    def attempt(self) -> int:
        return int(self.headers["X-Noonbell-Attempt"])


@dataclass
class Target:
    """An HTTP server in a thread that notes every request down.

    /ok           200        /status/503   that status
    /hold/NAME    answers 200 when NAME is released, or after a minute
    /slow/0.5     answers 200 after so many seconds
    """

    arrivals: list[Arrival] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    """By path: the JSON that is answered there."""
    port: int = 0
    """0: any that is free."""

    def __post_init__(self) -> None:
        target = self
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length).decode(errors="replace")
                target.note(Arrival(time.monotonic(), self.command, self.path, dict(self.headers.items()), body))
                status = target.status_for(self.path)
                content = json.dumps(target.answers.get(self.path, {"ok": True})).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815 - http.server's names

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a caller that was killed, or has canceled

        self._server = Server(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def note(self, arrival: Arrival) -> None:
        with self._lock:
            self.arrivals.append(arrival)

    def status_for(self, path: str) -> int:
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "hold":
            self._gate(rest).wait(60)
        elif kind == "slow":
            threading.Event().wait(float(rest))
        return int(rest) if kind == "status" else 202 if kind == "accept" else 200

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())

    def release(self, name: str) -> None:
        """Let everybody through who waits at /hold/NAME, and whoever comes later."""
        self._gate(name).set()

    def at(self, path: str) -> list[Arrival]:
        with self._lock:
            return [arrival for arrival in self.arrivals if arrival.path == path]

    def wait_for(self, path: str, count: int = 1, seconds: float = PATIENCE) -> list[Arrival]:
        return until(
            lambda: found if len(found := self.at(path)) >= count else None, f"{count} requests for {path}", seconds
        )

    def close(self) -> None:
        for gate in list(self._gates.values()):
            gate.set()
        self._server.shutdown()
        self._server.server_close()
