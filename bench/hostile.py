"""What the event loop feels while hostile bodies come in: every route, every shape, `livez` meanwhile.

    python -m bench hostile

A real `noonbell serve` that asks for tokens gets 8 MiB of each shape on each route of the API's own table and each form of
the dashboard, first from callers without a token and then from an admin. A second connection asks for `livez` all the time;
its slowest answer is what one such body costs everybody else. Then 150 connections send one byte of a body and no more, and
192: as many as a process that may open 256 files takes.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from bench.tables import markdown

COMMAND = str(Path(sys.executable).with_name("noonbell"))
SIZE = 8 * 1024 * 1024 - 1024
FORM_SIZE = 4 * 1024 * 1024 - 1024
PATIENCE = 60.0
VALUES = {"id": "1", "run_id": "1", "plan_id": "ab", "callback_token": "x" * 43, "name": "q", "worker_id": "w"}
_READY = re.compile(r"is ready: http://\S+:(\d+) ")


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    is_page: bool = False

    @property
    def address(self) -> str:
        return re.sub(r"\{(\w+)(:\w+)?\}", lambda part: VALUES.get(part[1], "1"), self.path)


def _filled(unit: bytes, size: int = SIZE) -> bytes:
    return unit * (size // len(unit))


@cache
def json_shapes(size: int = SIZE) -> dict[str, bytes]:
    """By name: bodies of about `size` bytes, all of them JSON but the deep one."""
    return {
        "empty lists": b'{"data":[' + _filled(b"[],", size) + b"[]]}",
        "nested lists": b"[" + _filled(b"[[]],", size) + b"[]]",
        "zeros": b"[" + _filled(b"0,", size) + b"0]",
        "unknown fields": b"{" + b",".join(b'"a%d":0' % number for number in range(size // 13)) + b"}",
        "one string": b'{"name":"' + _filled(b"\\u00e9", size) + b'"}',
        "deep": b'{"data":' + _filled(b"[", size // 2) + _filled(b"]", size // 2) + b"}",
        # As many values as are taken, where fields are looked for them.
        "most values": b'{"status":"SUCCESS","task_id":1,"run_id":1,"name":"a","payload":['
        + b"[]," * 60_000
        + b'null],"data":['
        + b"[]," * 30_000
        + b'null],"headers":{'
        + b",".join(b'"h%d":"x"' % number for number in range(3_000))
        + b'},"runs":['
        + b"{}," * 9_000
        + b"{}]}",
    }


@cache
def form_shapes(size: int = FORM_SIZE) -> dict[str, bytes]:
    text = size // 5
    return {
        "escapes": b"text=" + _filled(b"%41", size),
        "many fields": b"&".join(b"a%d=0" % number for number in range(1_900)) + b"&text=" + _filled(b"a", size // 2),
        "flow lists": urlencode({"text": "tasks: [" + "[]," * (text // 20) + "]", "sure": "1"}).encode(),
        "open lists": urlencode({"text": "[" * (text // 4), "yaml": "[" * 100_000}).encode(),
        "keys": urlencode({"text": "".join(f"a{number}: 0\n" for number in range(text // 12))}).encode(),
        "a long number": urlencode({"text": "- 1" + ":1" * (text // 5), "yaml": "a: 1" + ":1" * 50_000}).encode(),
        "json": urlencode({"payload": "[" + "[]," * (text // 20) + "0]", "name": "a"}).encode(),
    }


class Server:
    """One `noonbell serve` in a folder of its own, which asks for tokens."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, files: int | None = None) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        # `token create` makes no store that is not named.
        store = {"NOONBELL_STORE__URL": f"sqlite:///{folder / 'noonbell.db'}"}
        self._env = clean | store | {"NOONBELL_AUTH__ENABLED": "true"} | dict(env or {})
        self._folder = folder
        self._files = files
        self.port, self.token = 0, ""

    def __enter__(self) -> Self:
        made = subprocess.run(
            [COMMAND, "token", "create", "--role", "admin", "--name", "hostile"],
            cwd=self._folder,
            env=self._env,
            check=True,
            capture_output=True,
            text=True,
        )
        self.token = made.stdout.split()[-1]
        limit = [] if self._files is None else ["prlimit", f"--nofile={self._files}:{self._files}"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*limit, COMMAND, "serve", "--port", "0"],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while (found := _READY.search(self.log)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{self.log}")
            time.sleep(0.05)
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Status and body. A server that hangs up before it has read everything is status 0."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read()
        except (ConnectionError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def routes(self) -> list[Route]:
        """Of the API, by its own description, and the forms of the dashboard."""
        from noonbell.web.routes import PAGES

        _, document = self.call("GET", "/openapi.json", authorization=f"Bearer {self.token}")
        found = [
            Route(method.upper(), path)
            for path, item in json.loads(document)["paths"].items()
            for method in item
            if not path.endswith("/events")
        ]
        forms = [page for page in PAGES if page.method == "POST"]
        return found + [Route("POST", page.path, is_page=True) for page in forms if page.path != "/logout"]

    def cookie(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", urlencode({"token": self.token}), headers)
        cookie = connection.getresponse().getheader("set-cookie", "").split(";")[0]
        connection.close()
        return cookie


@dataclass
class Probe:
    """Asks for `livez` on one connection, again and again, until it is stopped."""

    port: int
    worst: float = 0.0
    answers: int = 0
    refused: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)

    def take(self) -> float:
        """The slowest answer since the last time, in seconds."""
        worst, self.worst = self.worst, 0.0
        return worst

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        while not self._stopping.wait(0.005):
            began = time.perf_counter()
            try:
                connection.request("GET", "/api/v1/livez")
                response = connection.getresponse()
                response.read()
                self.refused += response.status != 200
            except (OSError, http.client.HTTPException):
                self.refused += 1
                connection.close()
            self.answers += 1
            self.worst = max(self.worst, time.perf_counter() - began)
        connection.close()


@dataclass(frozen=True)
class Cost:
    caller: str
    shape: str
    route: Route
    status: int
    seconds: float
    """Until the answer."""
    livez: float
    """The slowest one meanwhile, in seconds."""


def attacks(
    server: Server, routes: Sequence[Route], caller: str, size: int = SIZE, form_size: int = FORM_SIZE
) -> Iterator[Callable[[], tuple[str, Route, int]]]:
    """Each shape on each route: a call that sends it, and says what it was and the status of the answer."""
    known = {} if caller == "anonymous" else {"authorization": f"Bearer {server.token}"}
    cookie = {} if caller == "anonymous" else {"cookie": server.cookie()}
    origin = {"origin": f"http://127.0.0.1:{server.port}"}

    def sent(route: Route, shape: str, body: bytes, kind: str, headers: Mapping[str, str]) -> tuple[str, Route, int]:
        return shape, route, server.call(route.method, route.address, body, content_type=kind, **headers)[0]

    def call(*given: object) -> Callable[[], tuple[str, Route, int]]:
        return lambda: sent(*given)  # type: ignore[arg-type]

    for route in routes:
        if route.is_page:
            for shape, body in form_shapes(form_size).items():
                yield call(route, shape, body, "application/x-www-form-urlencoded", cookie | origin)
        else:
            for shape, body in json_shapes(size).items():
                yield call(route, shape, body, "application/json", known)


def costs(server: Server, caller: str, routes: Sequence[Route] | None = None) -> list[Cost]:
    found = []
    with Probe(server.port) as probe:
        for attack in attacks(server, server.routes() if routes is None else routes, caller):
            probe.take()
            began = time.perf_counter()
            shape, route, status = attack()
            took = time.perf_counter() - began
            time.sleep(0.02)  # what follows the answer counts too
            found.append(Cost(caller, shape, route, status, took, probe.take()))
    return found


@contextlib.contextmanager
def unended(port: int, count: int, head: str = "POST /api/v1/callbacks/n HTTP/1.1") -> Iterator[list[socket.socket]]:
    """Connections that announce a body of 100 bytes and send one."""
    opened = []
    try:
        for _ in range(count):
            each = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            opened.append(each)
            with contextlib.suppress(ConnectionError):
                each.sendall(f"{head}\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
        yield opened
    finally:
        for each in opened:
            each.close()


def still_open(sockets: Sequence[socket.socket]) -> int:
    """Those that the server has not closed."""
    count = 0
    for each in sockets:
        each.setblocking(False)
        try:
            while each.recv(65_536):
                pass
        except BlockingIOError:
            count += 1
        except OSError:
            continue
    return count


def _show_every_page_once(server: Server) -> None:
    """The first look at a page makes its template, some 100 ms: a cost of the page, not of what is sent to it."""
    headers = {"cookie": server.cookie(), "origin": f"http://127.0.0.1:{server.port}"}
    for method, path in [("GET", "/login"), *(("POST", each.address) for each in server.routes() if each.is_page)]:
        server.call(method, path, b"" if method == "POST" else None, **headers)


def _idle(port: int, seconds: float = 2.0) -> float:
    with Probe(port) as probe:
        time.sleep(seconds)
        return probe.take()


def table() -> str:
    """The figures as markdown."""
    parts = []
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        _show_every_page_once(server)
        parts.append(f"`livez` with no other caller: {_idle(server.port) * 1000:.0f} ms at most.")
        for caller in ("anonymous", "admin"):
            found = costs(server, caller)
            rows = []
            for shape, group in itertools.groupby(sorted(found, key=lambda cost: cost.shape), lambda cost: cost.shape):
                worst = max(each := list(group), key=lambda cost: cost.livez)
                rows.append(
                    [
                        shape,
                        str(len(each)),
                        f"{worst.livez * 1000:.0f} ms",
                        f"`{worst.route.method} {worst.route.path}`",
                    ]
                )
            highest = max(cost.livez for cost in found)
            parts.append(f"**{caller}: the highest `livez` was {highest * 1000:.0f} ms** ({len(found)} requests).")
            parts.append(markdown(["shape", "routes", "highest `livez`", "on"], rows, right=(1, 2)))
        stalls = re.findall(r"stalled for .*", server.log)
        parts.append(f"Stalls of the event loop over 250 ms in the server's log: {len(stalls)}.")
        parts.extend(f"- {stall[:200]}" for stall in stalls[:10])
    parts.append(_unended_table(150))
    parts.append(_unended_table(192))
    return "\n\n".join(parts)


def _unended_table(count: int, most: float = 60.0) -> str:
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder), files=256) as server:
        bearer = {"authorization": f"Bearer {server.token}"}
        with Probe(server.port) as probe, unended(server.port, count) as sockets:
            began, beats, bad = time.monotonic(), 0, 0
            while (left := still_open(sockets)) and time.monotonic() - began < most:
                beats += 1
                bad += server.call("POST", "/api/v1/workers/w/heartbeat", b"{}", **bearer)[0] != 200
                time.sleep(0.1)
            took = time.monotonic() - began
            rows = [
                ["connections with a body that never ends", str(count)],
                ["of them left open by the server", str(left)],
                ["all gone after", f"{took:.1f} s"],
                ["heartbeats meanwhile, refused", f"{beats}, {bad}"],
                [
                    "`livez` meanwhile, refused, slowest",
                    f"{probe.answers}, {probe.refused}, {probe.worst * 1000:.0f} ms",
                ],
            ]
    return markdown(["files of the process limited to 256", ""], rows, right=(1,))
