"""The whole way of an HTTP run beside the plain client: a worker process drains runs that were published beforehand.

Here too is what the other sections with real processes stand on: a sink, and a `noonbell serve` to talk to.

python -m bench.http sink                                       listens on a free port of 127.0.0.1, and says which
python -m bench.http plain --url … --requests … --width …       so many requests by aiohttp alone
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import aiohttp

from bench import databases, ours
from bench.rounds import ROOT, Failed, progress
from bench.rounds import run as run_process
from bench.tables import NONE, Spread, markdown, rates, ratio, ratios
from noonbell.model.request import Publication
from noonbell.model.target_kind import HTTP_QUEUE, ExecType
from noonbell.model.task import TaskSpec

PATIENCE = 120.0
"""Seconds for one measured process, at most."""
LEAST = 0.6
"""The goal: this share of the plain client's rate."""
BATCH = 1_000

# The sink


class Arrival(NamedTuple):
    task: int
    run: int
    slot: str
    at: int
    """Microseconds of the wall clock."""
    path: str


_NAMED = re.compile(rb"x-noonbell-(task|run|scheduled-time): *([^\r]*)", re.IGNORECASE)
_DONE = b"HTTP/1.1 204 No Content\r\n\r\n"


class Log:
    """Heads as they came, read only when somebody asks: while requests come in, the sink does next to nothing."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, bytes]] = []

    def answer(self, path: str) -> Any:
        if path == "/-/forget":
            self.heads.clear()
        if path == "/-/log":
            return [_arrival(at, head) for at, head in self.heads]
        first, last = (self.heads[0][0], self.heads[-1][0]) if self.heads else (0, 0)
        return {"count": len(self.heads), "first": first, "last": last}


def _arrival(at: int, head: bytes) -> Arrival:
    named = {name.lower(): value.decode() for name, value in _NAMED.findall(head)}
    path = head.split(b" ", 2)[1].decode()
    return Arrival(int(named.get(b"task", 0)), int(named.get(b"run", 0)), named.get(b"scheduled-time", ""), at, path)


class SinkProtocol(asyncio.Protocol):
    """Requests without a body, one after the other on each connection; 204 at once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head, data = data[:end], data[end + 4 :]
            if b" /-/" not in head[:12]:
                self._log.heads.append((time.time_ns() // 1000, head))
                self._transport.write(_DONE)
            else:
                body = json.dumps(self._log.answer(head.split(b" ", 2)[1].decode())).encode()
                self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self._rest = data


async def sink_forever() -> None:
    log = Log()
    server = await asyncio.get_running_loop().create_server(lambda: SinkProtocol(log), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


class Sink:
    """A sink in a process of its own, as the bench talks to it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def span(self) -> tuple[int, int, int]:
        """How many have arrived; when the first and the last of them did."""
        found = self._ask("count")
        return found["count"], found["first"], found["last"]

    def arrivals(self) -> list[Arrival]:
        return [Arrival(*each) for each in self._ask("log")]

    def forget(self) -> None:
        self._ask("forget")

    def rate(self) -> float:
        count, first, last = self.span()
        return (count - 1) * 1_000_000 / max(1, last - first)

    def wait_for(self, count: int, seconds: float, step: float = 0.1) -> int:
        """Until so many have arrived, or for so many seconds. How many have."""
        deadline = time.monotonic() + seconds
        while (found := self.span()[0]) < count and time.monotonic() < deadline:
            time.sleep(step)
        return found

    def _ask(self, what: str) -> Any:
        with urlopen(f"{self.url}/-/{what}", timeout=60) as answer:  # noqa: S310 - the sink's own address
            return json.load(answer)


@contextmanager
def sinking() -> Iterator[Sink]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.http", "sink"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        if not port:
            raise Failed("the sink did not start")
        yield Sink(int(port))
    finally:
        end(process)


# The product


class Served:
    """A `noonbell serve` that is ready."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process, self.url = process, url

    def alive(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float | None:
        """Processor time so far; None where the system has no /proc."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return None
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, peak: bool = False) -> float | None:
        """Resident memory, now or at its peak; None where the system has no /proc."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.exists():
            return None
        name = "VmHWM" if peak else "VmRSS"
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith(name))


@contextmanager
def serving(store: str, database: str, *flags: str, pool: int | None = None) -> Iterator[Served]:
    """`noonbell serve` as it comes, its log in a file; `pool` is `executor.worker_pool_size`."""
    databases.FOLDER.mkdir(parents=True, exist_ok=True)
    log = databases.FOLDER / f"serve-{secrets.token_hex(4)}.log"
    url = f"sqlite:///{database}" if store == "sqlite" else database
    command = [str(Path(sys.executable).parent / "noonbell"), "serve", "--store", url, "--port", "0", *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    if pool is not None:
        environment["NOONBELL_EXECUTOR__WORKER_POOL_SIZE"] = str(pool)
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=databases.FOLDER, env=environment, stderr=errors)
    try:
        yield Served(process, until_ready(process, log))
    finally:
        end(process)
        log.unlink()


def until_ready(process: subprocess.Popen[Any], log: Path) -> str:
    """Waits until the process says that it is ready. The address of its API, if it has one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_text()
        if found := re.search(r"is ready(?:: (http://\S+))?", text):
            return found[1] or ""
        time.sleep(0.05)
    raise Failed(f"noonbell did not get ready: {log.read_text()[-2000:]}")


def end(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def call(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    """One call of the API. Raises Failed with what it says, if that is not 2xx."""
    async with session.request(method, f"/api/v1{path}", json=body) as answer:
        said = await answer.json()
        if answer.status >= 300:
            raise Failed(f"{method} {path}: {answer.status} {said}")
        return said


# The section


@dataclass(frozen=True)
class Size:
    requests: int
    widths: tuple[int, ...]
    """How many requests are under way at a time; each is a row."""


FULL = Size(requests=10_000, widths=(16, 64, 128))
QUICK = Size(requests=5_000, widths=(16, 64))


@dataclass(frozen=True)
class Measured:
    rate: float
    cpu: float | None
    """Processor seconds for 10,000 requests."""


def table(size: Size, rounds: int) -> str:
    rows: list[list[str]] = []
    best: tuple[float, str] | None = None
    for store in ("postgres", "sqlite"):
        title = databases.TITLES[store]
        try:
            databases.server_version(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            rows.append([title, "no server", *[NONE] * 6])
            continue
        for width, (runs, plains) in compare(store, size, rounds).items():
            our_rates, plain_rates = rates_of(runs), rates_of(plains)
            share, rate = ratio(our_rates, plain_rates), Spread.of(our_rates)
            verdict = NONE if share is None else "met" if share.median >= LEAST else "**missed**"
            row = [title, str(width), rates(rate), rates(Spread.of(plain_rates)), ratios(share)]
            rows.append([*row, cpu_of(runs), cpu_of(plains), verdict])
            if rate is not None and (best is None or rate.median > best[0]):
                best = rate.median, f"`executor.worker_pool_size` {width} on {title}"
    head = ["store", "at a time", "Noonbell, runs a second", "aiohttp, requests a second", "Noonbell ÷ it"]
    head += ["CPU s per 10,000: Noonbell", "aiohttp", f"≥ {LEAST:.0%}"]
    text = markdown(head, rows, right=(1, 2, 3, 4, 5, 6))
    text += f"\n\n- {size.requests:,} GET requests each, answered by 204 from one process that does nothing else."
    text += "\n- CPU: of the worker process once it was ready, and of the client process without its imports."
    return text + (f"\n- the fastest: {best[1]}." if best else "")


def compare(store: str, size: Size, rounds: int) -> dict[int, tuple[list[Measured | None], list[Measured | None]]]:
    """By width: ours and the plain client's, once per round, in turn."""
    found: dict[int, tuple[list[Measured | None], list[Measured | None]]] = {w: ([], []) for w in size.widths}
    for number in range(1, rounds + 1):
        for width in size.widths:
            progress(f"HTTP on {databases.TITLES[store]}, round {number} of {rounds}: {width} at a time")
            for samples, measure in zip(found[width], (drain, plain), strict=True):
                try:
                    samples.append(measure(store, size.requests, width))
                except Failed as failure:
                    progress(f"FAILED: {failure}")
                    samples.append(None)
    return found


def drain(store: str, count: int, width: int) -> Measured:
    """Runs that wait in the store, carried out by one worker process."""
    with databases.fresh(store) as database, sinking() as sink:
        ours.run(publish(store, database, f"{sink.url}/run", count))
        with serving(store, database, "--no-scheduler", "--no-api", pool=width) as server:
            before = server.cpu_seconds()
            sink.wait_for(count, PATIENCE)
            ours.run(settled(store, database, count))
            after = server.cpu_seconds()
        arrivals = sink.arrivals()
        if len(arrivals) != count or len({each.run for each in arrivals}) != count:
            raise Failed(f"{len(arrivals)} requests arrived for {count} runs")
        cpu = None if before is None or after is None else (after - before) * 10_000 / count
        return Measured(sink.rate(), cpu)


async def publish(store: str, database: str, url: str, count: int) -> None:
    opened = ours.build(store, database)
    await opened.open()
    spec = TaskSpec(name="call", exec_type=ExecType.SYNC, queue=HTTP_QUEUE, target_url=url, max_concurrency=None)
    task = await opened.create_task(spec)
    for start in range(0, count, BATCH):
        await opened.publish([Publication(task_id=task.id)] * min(BATCH, count - start))
    await opened.close()
    await ours.tidy(store, database)


async def settled(store: str, database: str, count: int) -> None:
    """Wait until the history has them all: the last answers are on their way to the store when the last has arrived."""
    deadline = time.monotonic() + 10
    found: dict[str, int] = {}
    while time.monotonic() < deadline:
        rows = await ours.execute(store, database, ["select status, count(*) from runs group by status"])
        found = {row[0]: row[1] for row in rows}
        if found == {"SUCCESS": count}:
            return
        await asyncio.sleep(0.1)
    raise Failed(f"of {count} runs, the history has {found} after {PATIENCE:.0f} s")


def plain(_store: str, count: int, width: int) -> Measured:
    with sinking() as sink:
        command = [sys.executable, "-m", "bench.http", "plain", "--url", f"{sink.url}/run"]
        cpu = run_process([*command, "--requests", str(count), "--width", str(width)], PATIENCE)["cpu"]
        if sink.span()[0] != count:
            raise Failed(f"{sink.span()[0]} of {count} requests arrived")
        return Measured(sink.rate(), cpu * 10_000 / count)


async def request_all(url: str, count: int, width: int) -> None:
    left = iter(range(count))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one_after_the_other() -> None:
            for _ in left:
                async with session.get(url) as answer:
                    await answer.read()
                    assert answer.status == 204

        await asyncio.gather(*(one_after_the_other() for _ in range(width)))


def rates_of(samples: Sequence[Measured | None]) -> list[float | None]:
    return [None if each is None else each.rate for each in samples]


def cpu_of(samples: Sequence[Measured | None]) -> str:
    found = Spread.of(None if each is None else each.cpu for each in samples)
    return NONE if found is None else f"{found.median:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.http")
    parser.add_argument("what", choices=["sink", "plain"])
    parser.add_argument("--url")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()
    if args.what == "sink":
        # Told to end, it ends: nothing in it has to be kept.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ours.run(sink_forever())
    else:
        before = time.process_time()
        ours.run(request_all(args.url, args.requests, args.width))
        print(json.dumps({"cpu": time.process_time() - before}))


if __name__ == "__main__":
    main()
