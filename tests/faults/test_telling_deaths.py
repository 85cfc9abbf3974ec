"""The receiver of outcomes is killed with one in hand, then a node that has others to tell: each is told, signed, at least once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.harness import Nodes, until
from faults.sink import Sink
from faults.trial import NODE, PATIENCE
from noonbell.targets.http import signing
from services.ports import reserved_port

SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
SIGNED = {**NODE, "NOONBELL_EXECUTOR__CALL_SECRET": SECRET}
COUNT = 10
RECEIVER = """
import http.server, json, os, signal, sys

port, log, dies_at = int(sys.argv[1]), open(sys.argv[2], "a"), int(sys.argv[3])

class Handler(http.server.BaseHTTPRequestHandler):
    seen = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        log.write(json.dumps([self.path, dict(self.headers), body.decode()]) + "\\n")
        log.flush()
        Handler.seen += 1
        if Handler.seen == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
"""Writes down what it is told, and at one of the requests dies before it has answered."""


def _told(log: Path) -> list[tuple[str, dict[str, str], str]]:
    if not log.exists():
        return []
    lines = (json.loads(line) for line in log.read_text().splitlines())
    return [(path, {name.lower(): value for name, value in headers.items()}, body) for path, headers, body in lines]


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_outcomes_are_told_although_their_receiver_and_then_a_node_is_killed(
    store: str, store_urls: Any, tmp_path: Path
) -> None:
    (url,) = store_urls(store, 1)
    nodes, sink, log = Nodes(tmp_path), Sink(tmp_path / "sink.jsonl"), tmp_path / "told.jsonl"
    receivers: list[subprocess.Popen[bytes]] = []

    def receive(port: int, dies_at: int) -> subprocess.Popen[bytes]:
        receivers.append(subprocess.Popen([sys.executable, "-c", RECEIVER, str(port), str(log), str(dies_at)]))
        return receivers[-1]

    try:
        with reserved_port() as port:
            first = receive(port, 4)
            node = nodes.launch("--store", url, "--port", "0", env=SIGNED).wait_ready(PATIENCE)
            tell = {"success_url": f"http://127.0.0.1:{port}/good", "failure_url": f"http://127.0.0.1:{port}/bad"}
            good = [{"url": sink.url("/ok"), "key": f"good-{n}", **tell} for n in range(COUNT)]
            bad = [
                {"url": sink.url("/once/500"), "key": f"bad-{n}", "retry_policy": {"max_retries": 0}, **tell}
                for n in range(COUNT)
            ]
            made = node.ask("POST", "/calls/batch", {"calls": good + bad})["calls"]
            assert first.wait(PATIENCE) == -9, "the receiver dies with an outcome in hand"
            until(
                lambda: node.ask("GET", "/runs?origin=call&status=RETRYING&page_size=1")["total"] >= COUNT,
                "outcomes that nobody hears, to be told again later",
                PATIENCE,
            )
            node.kill()
            receive(port, 0)
            again = nodes.launch("--store", url, "--port", "0", env=SIGNED).wait_ready(PATIENCE)
            expected = {one["run_id"] for one in made}
            until(lambda: expected <= {json.loads(body)["run_id"] for _, _, body in _told(log)}, "all of them", 120)
            until(
                lambda: again.ask("GET", "/runs?origin=call&status=SUCCESS&page_size=1")["total"] == 3 * COUNT,
                "every telling to be over, and every call that succeeds",
                PATIENCE,
            )
        told = _told(log)
        assert len(told) > 2 * COUNT, "the one in hand is told again"
        keys: dict[int, set[str]] = {}
        for path, headers, body in told:
            outcome = json.loads(body)
            assert signing.objection(SECRET, headers, body.encode(), int(headers["webhook-timestamp"])) == ""
            is_good = outcome["key"].startswith("good-")
            assert (path, outcome["status"]) == (("/good", "SUCCESS") if is_good else ("/bad", "FAILED"))
            keys.setdefault(outcome["run_id"], set()).add(headers["idempotency-key"])
        assert keys.keys() == expected
        assert {len(each) for each in keys.values()} == {1}, "an outcome that is told again has the same key"
    finally:
        nodes.end()
        sink.close()
        for each in receivers:
            each.kill()
            each.wait()
