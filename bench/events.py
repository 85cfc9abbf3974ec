"""What events cost: the drain with and without writing them, and with fifty listeners on the stream.

python -m bench.events drain postgres --url … --runs 100000 [--mute]      runs a second, CPU per run
python -m bench.events listen --port … --count 50 --runs 100000           reads until every listener has every end
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import databases, ours
from bench.http import serving
from bench.rounds import ROOT, Failed, progress, run
from bench.tables import Spread, markdown, rates, ratio, ratios
from noonbell.engine.event_hub import signal_events
from noonbell.model.request import Publication
from noonbell.model.task import TaskSpec
from noonbell.stores import make_wakeup
from noonbell.stores.sql.statement import InsertMany

STORES = ("postgres", "sqlite")
LEAST = 0.9
"""Of the rate without listeners, and of the rate without events."""
PATIENCE = 240.0


@dataclass(frozen=True)
class Size:
    runs: int
    listeners: int


FULL = Size(runs=100_000, listeners=50)
QUICK = Size(runs=20_000, listeners=50)

WAYS = ("no events written", "events written, nobody listens", "listeners")


def table(size: Size, rounds: int) -> str:
    rows: list[list[str]] = []
    for store in STORES:
        title = databases.TITLES[store]
        try:
            databases.server_version(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            continue
        found: dict[str, list[dict[str, Any] | None]] = {way: [] for way in WAYS}
        for number in range(1, rounds + 1):
            for way in WAYS:
                progress(f"{title}, round {number} of {rounds}: {way}")
                try:
                    found[way].append(measure(store, way, size))
                except Failed as failure:
                    progress(f"FAILED: {failure}")
                    found[way].append(None)
        rows += rows_of(title, found, size)
    head = ["store", "drain of no-op runs", "a second", "÷ the row above", "", "µs of CPU a run", "heard, all by all"]
    note = f"{size.runs:,} runs, {size.listeners} listeners on every event, through the API of another process. "
    note += "CPU is the worker's process and the database's that serve it. The last column: seconds after the drain until each listener had each event."
    return markdown(head, rows, right=(2, 3, 5, 6)) + f"\n\n{note}"


def rows_of(title: str, found: dict[str, list[dict[str, Any] | None]], size: Size) -> list[list[str]]:
    rows = []
    above: list[float | None] | None = None
    for way in WAYS:
        values = [None if one is None else float(one["rate"]) for one in found[way]]
        share = None if above is None else ratio(values, above)
        verdict = "" if share is None else "met" if share.median >= LEAST else "**missed**"
        cpu = Spread.of(None if one is None else (one["cpu"] + one["server"]) * 1e6 / size.runs for one in found[way])
        heard = Spread.of(None if one is None else one.get("heard") for one in found[way])
        named = way if way != "listeners" else f"{size.listeners} listeners"
        first = [title if way == WAYS[0] else "", named, rates(Spread.of(values)), ratios(share), verdict]
        rows.append([*first, rates(cpu), "" if heard is None else rates(heard)])
        above = values
    return rows


def measure(store: str, way: str, size: Size) -> dict[str, Any]:
    with databases.fresh(store) as place:
        command = [sys.executable, "-m", "bench.events", "drain", store, "--url", place, "--runs", str(size.runs)]
        prepared = run([*command, "--publish"], timeout=PATIENCE)
        assert prepared["published"] == size.runs
        if way == WAYS[0]:
            return run([*command, "--mute"], timeout=PATIENCE)
        with serving(store, place, "--no-scheduler", "--no-worker") as served:
            if way == WAYS[1]:
                return run(command, timeout=PATIENCE)
            return with_listeners(command, urlsplit(served.url).port or 0, size)


def with_listeners(command: list[str], port: int, size: Size) -> dict[str, Any]:
    listen = [sys.executable, "-m", "bench.events", "listen", "--port", str(port)]
    listen += ["--count", str(size.listeners), "--runs", str(size.runs)]
    with subprocess.Popen(listen, cwd=ROOT, stdout=subprocess.PIPE, text=True) as listeners:
        try:
            assert listeners.stdout is not None
            if listeners.stdout.readline().strip() != "ready":
                raise Failed("the listeners did not come up")
            sample = run(command, timeout=PATIENCE)
            ended = time.monotonic()
            line = listeners.stdout.readline()
            told = json.loads(line) if line else {}
        finally:
            listeners.kill()
    if told.get("heard") != [size.runs] * size.listeners:
        raise Failed(f"not every listener heard of every run: {told}")
    progress(f"{told['bytes'] / 1e6:,.0f} MB in {told['connections']} connections")
    return {**sample, "heard": max(0.0, time.monotonic() - ended)}


# One process that drains


async def drain(args: argparse.Namespace) -> dict[str, Any]:
    if args.mute:
        mute()
    backends = await backends_of(args)
    store = ours.build(args.store, args.url)
    await store.open()
    if args.publish:
        task = await store.create_task(TaskSpec(name="noop", job_type="noop"))
        for _ in range(args.runs // 1_000):
            await store.publish([Publication(task_id=task.id, payload=ours.PAYLOAD)] * 1_000)
        await ours.tidy(args.store, args.url)
        await store.close()
        return {"published": args.runs}
    wakeup = make_wakeup(f"sqlite:///{args.url}" if args.store == "sqlite" else args.url)
    await wakeup.open()
    close_signal = signal_events(store, wakeup)
    before = time.process_time()
    rate = await ours.drain(store, args.runs, ours.CLAIM[args.store])
    cpu = time.process_time() - before
    server = sum(spent(pid) for pid in set(await backends_of(args)) - set(backends))
    close_signal()
    await wakeup.close()
    await store.close()
    return {"rate": rate, "cpu": cpu, "server": server}


async def backends_of(args: argparse.Namespace) -> list[int]:
    """The database's processes that serve this database."""
    if args.store != "postgres":
        return []
    sql = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    return [row[0] for row in await ours.execute(args.store, args.url, [sql])]


def spent(pid: int) -> float:
    """Seconds of processor that a process has had; 0 where it is another machine's."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mute() -> None:
    """Statements as they would be if there were no events: to measure what those cost."""
    from noonbell.stores import postgres
    from noonbell.stores import postgres_fast as hot
    from noonbell.stores.sqlite import SqliteConnection

    for module in (hot, postgres):
        for name, value in list(vars(module).items()):
            if isinstance(value, str) and "insert into events" in value:
                quiet = re.sub(
                    r"insert into events \(id, at, type, data\)\s+select (\$\d+)(?=,)", r"select \1::bigint", value
                )
                setattr(module, name, re.sub(r"insert into events \(id, at, type, data\)\s+select", "select", quiet))
    do = SqliteConnection._do

    def without_events(self: SqliteConnection, statement: Any) -> Any:
        return 0 if isinstance(statement, InsertMany) and statement.table == "events" else do(self, statement)

    SqliteConnection._do = without_events  # type: ignore[method-assign]


# One process that listens


class Listener(asyncio.Protocol):
    """Reads as cheaply as it can: counts the ends of runs, remembers the last id, comes back when it is cut."""

    def __init__(self, port: int, runs: int) -> None:
        self._port, self._runs = port, runs
        self.heard = self.size = self.connections = 0
        self._last = b""
        self.ready, self._over = asyncio.Event(), asyncio.Event()

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        while self.heard < self._runs:
            self._over.clear()
            self._raw, self._text = bytearray(), b""
            self.connections += 1
            transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
            await self._over.wait()
            transport.close()

    def connection_made(self, transport: Any) -> None:
        resume = b"Last-Event-ID: %b\r\n" % self._last if self._last else b""
        transport.write(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%b\r\n" % (self._port, resume))
        self._in_head = True

    def data_received(self, data: bytes) -> None:
        self._raw += data
        if self._in_head:
            _, end, rest = bytes(self._raw).partition(b"\r\n\r\n")
            if not end:
                return
            self._raw, self._in_head = bytearray(rest), False
        while (at := self._raw.find(b"\r\n")) >= 0:
            length = int(self._raw[:at], 16)
            if not length:
                self._over.set()
                return
            if len(self._raw) < at + length + 4:
                return
            self._take(self._text + bytes(self._raw[at + 2 : at + 2 + length]))
            del self._raw[: at + length + 4]

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    def _take(self, text: bytes) -> None:
        """Whole messages are taken; what follows them waits for the rest."""
        whole, end, self._text = text.rpartition(b"\n\n")
        if not end:
            return
        self.ready.set()
        self.size += len(whole)
        self.heard += whole.count(b"\nevent: run.succeeded\n")
        at = whole.rfind(b"\nid: ")
        if at >= 0 or whole.startswith(b"id: "):
            self._last = whole[at + 5 if at >= 0 else 4 :].partition(b"\n")[0]
        if self.heard >= self._runs:
            self._over.set()


async def listen(args: argparse.Namespace) -> dict[str, Any]:
    listeners = [Listener(args.port, args.runs) for _ in range(args.count)]
    reading = [asyncio.create_task(listener.listen()) for listener in listeners]
    await asyncio.gather(*(listener.ready.wait() for listener in listeners))
    print("ready", flush=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*reading)
    return {
        "heard": [listener.heard for listener in listeners],
        "bytes": sum(listener.size for listener in listeners),
        "connections": sum(listener.connections for listener in listeners),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.events")
    parser.add_argument("what", choices=["drain", "listen"])
    parser.add_argument("store", nargs="?", choices=STORES)
    parser.add_argument("--url")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--publish", action="store_true", help="only make the runs")
    parser.add_argument("--mute", action="store_true", help="write no events")
    parser.add_argument("--port", type=int)
    parser.add_argument("--count", type=int, default=50)
    args = parser.parse_args()
    print(json.dumps(ours.run(drain(args) if args.what == "drain" else listen(args))), flush=True)


if __name__ == "__main__":
    main()
