"""One slot, from its cron expression to the event that a listener gets: the files of Noonbell that it passes.

    .venv/bin/python tools/slot_walk.py [STORE_URL]

A node runs in this process under a profiler. A task with a cron expression of every other second fires at a local server; between
the moment before a slot and the `run.succeeded` event on the API's stream, every Python function that is entered is recorded.

Several slots are recorded. What is on the way of a slot is entered in each of them; a loop that runs beside it, such as the sweep, only
in those at which its turn comes. Each file is printed with the number of its functions and of the slots, and each slot with its files.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import noonbell

HOME = str(Path(noonbell.__file__).parent) + os.sep
SLOTS = 8
LEAD = 0.03
"""Seconds before a slot at which recording begins."""
walks: list[dict[str, set[str]]] = []
"""By slot: the files that were entered, each with its functions."""
is_recording = threading.Event()


def record(frame: FrameType, event: str, _argument: Any) -> None:
    if is_recording.is_set() and event == "call" and frame.f_code.co_filename.startswith(HOME):
        walks[-1].setdefault(frame.f_code.co_filename.removeprefix(HOME), set()).add(frame.f_code.co_qualname)


class Target(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments: Any) -> None:
        pass


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def watch(port: int, target: str) -> None:
    root = "/api/v1"
    while True:
        try:
            if ask(port, "GET", f"{root}/readyz").status == 200:
                break
        except OSError:
            pass
        time.sleep(0.05)
    task = {"name": "walk", "target_url": target, "http_method": "GET", "cron_expr": "*/2 * * * * *"}
    ask(port, "POST", f"{root}/tasks", json.dumps(task))
    stream = ask(port, "GET", f"{root}/events?type=run.succeeded")
    ends = (line for line in iter(stream.readline, b"") if line.startswith(b"event: run.succeeded"))
    next(ends)  # by now everything is imported and connected
    for _ in range(SLOTS):
        time.sleep(2 - time.time() % 2 - LEAD)
        walks.append({})
        is_recording.set()
        next(ends)
        is_recording.clear()
    os.kill(os.getpid(), signal.SIGTERM)


def ask(port: int, method: str, path: str, body: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, {"content-type": "application/json"})
    return connection.getresponse()


def main() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        store = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/walk.db"
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=watch, args=(port, target), daemon=True).start()
        threading.setprofile(record)
        sys.setprofile(record)
        from noonbell.cli import main as command

        sys.argv = ["noonbell", "serve", "--port", str(port), "--store", store]
        os.chdir(folder)
        with contextlib.suppress(SystemExit):
            command()
        sys.setprofile(None)
        times = Counter(name for walk in walks for name in walk)
        for name, count in sorted(times.items(), key=lambda item: (-item[1], item[0])):
            functions = set().union(*(walk.get(name, ()) for walk in walks))
            print(f"{name:45} {len(functions):3} functions, {count} slots")
        print(f"{sum(count == SLOTS for count in times.values())} files in every slot; by slot: {[*map(len, walks)]}")


if __name__ == "__main__":
    main()
