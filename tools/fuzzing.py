"""Throw made-up requests at real servers: on SQLite and on PostgreSQL, without tokens and with them.

schemathesis makes requests from the server's own description: no 5xx, no answer that is not described. It cannot read a
stream that does not end, so `/events` has a client of its own here, which reads a little of each stream. Server and fuzzers
have a network of their own: whatever addresses are made up, nothing leaves the machine. PostgreSQL is a private server that
listens on a Unix socket only.

    tools/fuzz 300                              all four, 75 seconds each
    tools/fuzz 60 --store postgres --auth on    one of them
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from services import keeper, launch  # noqa: E402 - found by the line above

PORT = 18431
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
)
NOONBELL = str(Path(sys.executable).with_name("noonbell"))
ALONE = "NOONBELL_FUZZ_ALONE"


def main() -> int:
    asked = argparse.ArgumentParser(prog="tools/fuzz", description="Throw made-up requests at real servers.")
    asked.add_argument("seconds", nargs="?", type=int, default=300, help="in all [300]")
    asked.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    asked.add_argument("--auth", choices=["off", "on", "all"], default="all")
    asked.add_argument("--seed", type=int, default=None, help="of the requests; printed [random]")
    asked.add_argument("--url", help=argparse.SUPPRESS)
    given = asked.parse_args()
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    if os.environ.get(ALONE):
        return inside(given.url, given.auth == "on", given.seconds, seed)
    stores = ["sqlite", "postgres"] if given.store == "all" else [given.store]
    modes = ["off", "on"] if given.auth == "all" else [given.auth]
    each = max(1, given.seconds // (len(stores) * len(modes)))
    failed = []
    for store in stores:
        for auth in modes:
            print(f"== {store}, auth {auth}, {each} s, seed {seed}", flush=True)
            with database(store) as url:
                if alone(["--store", store, "--auth", auth, "--seed", str(seed), "--url", url, str(each)]):
                    failed.append(f"{store}, auth {auth}")
    print(f"fuzz: findings on {'; '.join(failed)}" if failed else "fuzz: no finding", flush=True)
    return 1 if failed else 0


def alone(arguments: list[str]) -> int:
    """Run the script once more, in a network of its own."""
    for words in (["unshare", "-n"], ["unshare", "-r", "-n"]):
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            command = [*words, sys.executable, __file__, *arguments]
            return subprocess.run(command, env={**os.environ, ALONE: "yes"}, check=False).returncode
    print("fuzz: no network namespace of our own: made-up addresses would be called; not run", file=sys.stderr)
    return 1


@contextlib.contextmanager
def database(store: str) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="noonbell-fuzz-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        if store == "sqlite":
            yield f"sqlite:///{folder}/fuzz.db"
        else:
            with postgres(folder / "pg") as url:
                yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    command = launch.postgres(folder)
    port = command.url.rpartition(":")[2].partition("/")[0]
    words = [*command.arguments, "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    with command.log.open("ab") as log:
        server = subprocess.Popen(words, cwd="/", stdout=log, stderr=log, **keeper.as_user(command.user))
    try:
        deadline = time.monotonic() + launch.START_SECONDS
        while not (folder / f".s.PGSQL.{port}").exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"fuzz: PostgreSQL does not start: {launch.tail(command.log)}")
            time.sleep(0.1)
        yield f"postgresql://postgres@/postgres?host={folder}&port={port}"
    finally:
        server.send_signal(command.stop_signal)
        server.wait()


# In a network of its own


def inside(url: str, auth: bool, seconds: int, seed: int) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False)
    token, token_id = new_token(url) if auth else ("", "")
    environment = {**os.environ, "NOONBELL_AUTH__ENABLED": "true" if auth else "false", "NOONBELL_STORE__URL": url}
    with tempfile.TemporaryFile("w+") as log:
        words = [NOONBELL, "serve", "--port", str(PORT)]
        server = subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=tempfile.gettempdir())
        try:
            wait_until_ready(server, log)
            return fuzz(server, log, token, token_id, seconds, seed)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def new_token(url: str) -> tuple[str, str]:
    """A token of an administrator, and its id: the first of its store."""
    words = [NOONBELL, "token", "create", "--role", "admin", "--name", "fuzz", "--store", url]
    made = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
    return next(word for word in made.stdout.split() if word.startswith("nb_")), "1"


def wait_until_ready(server: subprocess.Popen[bytes], log: Any) -> None:
    deadline = time.monotonic() + 60
    while "is ready" not in said(log):
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"fuzz: the server does not start:\n{said(log)}")
        time.sleep(0.2)


def said(log: Any) -> str:
    return os.pread(log.fileno(), 1 << 24, 0).decode(errors="replace")


def fuzz(server: subprocess.Popen[bytes], log: Any, token: str, token_id: str, seconds: int, seed: int) -> int:
    words = [str(ROOT / "build/fuzz/bin/schemathesis"), "run", f"http://127.0.0.1:{PORT}/openapi.json"]
    words += ["--max-time", str(seconds), "--seed", str(seed), "--exclude-path-regex", "/events$", "--checks", CHECKS]
    words += ["--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "40"]
    words += ["--header", f"Authorization: Bearer {token}"] if token else []
    hooks = {"SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(ROOT / "tools"), "NOONBELL_FUZZ_TOKEN_ID": token_id}
    callers = subprocess.Popen(words, env={**os.environ, **hooks}, cwd=ROOT)
    listener = Listener(token, seed)
    problems = asyncio.run(listener.listen(seconds))
    code = callers.wait()
    print(f"/events: {listener.streams} streams, {listener.events} events, {listener.refused} refused", flush=True)
    if server.poll() is not None:
        problems.append(f"the server ended with {server.returncode}")
    text = said(log)
    if "Traceback" in text:
        problems.append("the server's log has a traceback:\n" + text[text.index("Traceback") - 500 :][:4_000])
    if listener.streams == 0 or listener.events == 0:
        problems.append("/events was never really read")
    for problem in problems:
        print(f"fuzz: {problem}", file=sys.stderr, flush=True)
    return 1 if code or problems else 0


ODD = (
    *("", " ", ",", ",,", ".", "run", "run,task", "run.failed", "run.", "RUN", "worker.lost", "nobody.knows", "1", "0"),
    *("-1", "007", "1.0", "17.0", "0.0", "9" * 30, "9" * 15 + ".0", "1.1.1", "x.y", "name:a", "name:", "null", "true"),
    *("a\tb", "%00", "\x7f", "é", "🔔", "'", '"', "../..", "{{x}}", "x" * 3_000, "٣", "²", "http", "default", "*"),
)
HEADERS = {
    "Last-Event-ID": [odd for odd in ODD if odd.isascii() and odd.isprintable()],
    "Origin": ["null", "http://elsewhere.example", f"http://127.0.0.1:{PORT}", "x", "http://[", "://"],
    "Accept": ["text/event-stream", "text/html", "*/*", "x"],
}
FRAME = re.compile(rb"(?:(?:id|event|data|retry): [^\n]*|:[^\n]*)")


class Listener:
    """Opens `/events` with odd filters and heads, reads a little, and looks at what came."""

    def __init__(self, token: str, seed: int) -> None:
        self._token, self._random = token, random.Random(seed)  # noqa: S311 - no secret comes of it
        self._last = ""
        self.streams = self.events = self.refused = 0
        self.problems: list[str] = []

    async def listen(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        limits = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=limits) as session:
            while time.monotonic() < deadline and len(self.problems) < 20:
                await asyncio.gather(*(self._once(session) for _ in range(4)))
        return self.problems

    async def _once(self, session: aiohttp.ClientSession) -> None:
        chance = self._random
        names = chance.sample(["type", "task", "run", "queue", "after", "nobody"], chance.choice((0, 0, 1, 1, 2, 3)))
        query = [(name, chance.choice(ODD)) for name in names]
        headers = {name: chance.choice(HEADERS[name]) for name in HEADERS if chance.random() < 0.2}
        if self._last and chance.random() < 0.2:
            headers["Last-Event-ID"] = self._last
        has_token = bool(self._token) and chance.random() < 0.9
        if has_token:
            headers["Authorization"] = f"Bearer {self._token}"
        method = chance.choice(("GET",) * 8 + ("HEAD", "POST"))
        asked = f"{method} /events {query} {headers if not has_token else sorted(headers)}"
        try:
            async with session.request(
                method, f"http://127.0.0.1:{PORT}/api/v1/events", params=query, headers=headers
            ) as answer:
                await self._look(asked, method, answer, has_token)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.problems.append(f"{asked}: {type(error).__name__} {error}")

    async def _look(self, asked: str, method: str, answer: aiohttp.ClientResponse, has_token: bool) -> None:
        expected = (
            {200, 400, 403, *(() if has_token or not self._token else (401, 429))}
            if method != "POST"
            else {*(401, 403, 405, 429)}
        )
        if answer.status not in expected:
            self.problems.append(f"{asked}: {answer.status}, which is not described: {(await answer.read())[:300]!r}")
        elif answer.status != 200:
            self.refused += 1
            if method != "HEAD" and set(json.loads(await answer.read())) != {
                *("code", "message", "request_id", "details", "error")
            }:
                self.problems.append(f"{asked}: {answer.status} without the shape of an error")
        elif answer.content_type != "text/event-stream":
            self.problems.append(f"{asked}: 200 as {answer.content_type}")
        elif method == "GET":
            self.streams += 1
            self._check(asked, await self._some(answer))

    async def _some(self, answer: aiohttp.ClientResponse) -> bytes:
        """What comes within a moment, up to the last message that is whole."""
        text = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._random.choice((0.05, 0.3, 1.0))):
                while len(text) < 1 << 20:
                    piece = await answer.content.readany()
                    if not piece:
                        break
                    text += piece
        return text[: text.rfind(b"\n\n") + 2] if b"\n\n" in text else b""

    def _check(self, asked: str, text: bytes) -> None:
        for message in filter(None, text.split(b"\n\n")):
            lines = message.split(b"\n")
            if not all(FRAME.fullmatch(line) for line in lines):
                self.problems.append(f"{asked}: a message that is none: {message[:300]!r}")
                continue
            fields = dict(line.split(b": ", 1) for line in lines if not line.startswith(b":"))
            if b"id" not in fields:
                continue
            self.events += 1
            self._last = fields[b"id"].decode()
            event = json.loads(fields[b"data"])
            if (event["id"], event["type"]) != (self._last, fields[b"event"].decode()):
                self.problems.append(f"{asked}: a message that contradicts itself: {message[:300]!r}")


if __name__ == "__main__":
    raise SystemExit(main())
