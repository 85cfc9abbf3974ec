"""Typed jobs through the whole of a worker, beside the peers on the same database: drain, and pick-up latency.

python -m bench.jobs worker STORE --url … --one … --drain …       one Sample: an App, and its worker as `noonbell worker` runs it
python -m bench.jobs latency STORE --url … --count …              idle worker here, publisher in a process of its own
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import databases, ours, raw
from bench.peers import env
from bench.peers.sample import BATCH, Handler, Sample
from bench.rounds import ROOT, Contender, Failed, interleaved, progress, run
from bench.stores import OURS, how, spread, values
from bench.tables import NONE, Spread, markdown, rates, ratio, ratios
from noonbell import App
from noonbell.app.embedded import WorkerOptions
from noonbell.settings import load
from noonbell.version import __version__
from noonbell.wiring.serving import work

PAYLOAD = "x" * 89
CONCURRENCY = 300


@dataclass(frozen=True)
class Size:
    one: int
    drain: int
    slow: int
    latency: int


FULL = Size(one=500, drain=60_000, slow=4_000, latency=300)
QUICK = Size(one=200, drain=20_000, slow=2_000, latency=100)

GOALS = (("postgres", "PgQueuer", 1.2), ("postgres", "Procrastinate", 20.0), ("sqlite", "Huey", 8.0))
MOST_MS = 5.0
"""The goal: half of all jobs are picked up within so many milliseconds, on PostgreSQL."""


def tables(size: Size, rounds: int) -> str:
    peers = env.ensure()
    parts, goals = [], []
    for store in ("postgres", "sqlite"):
        title, release = databases.TITLES[store], databases.server_version(store)
        samples = interleaved(_contenders(store, size, peers), rounds)
        rows = []
        for name in samples:
            rate = spread(samples, name, "drain")
            share = (
                NONE if name == OURS else ratios(ratio(values(samples, OURS, "drain"), values(samples, name, "drain")))
            )
            rows.append([f"**{name}**" if name == OURS else name, NONE if rate is None else rates(rate), share])
        notes = "\n".join(f"- {name} {how(samples[name])}" for name in samples)
        text = markdown(["who", "jobs a second", "Noonbell ÷ it"], rows, right=(1, 2))
        parts.append(f"### {title} {release}: drain of no-op jobs, one worker process\n\n{text}\n\n{notes}")
        for where, peer, least in GOALS:
            if where == store:
                found = ratio(values(samples, OURS, "drain"), values(samples, peer, "drain"))
                met = NONE if found is None else "met" if found.median >= least else "**missed**"
                goals.append([f"drain on {title} ÷ {peer}", f"≥ {least:g}×", ratios(found), met])
    for store in ("postgres", "sqlite"):
        median, high, least = _latency(store, size.latency, rounds)
        met = "" if store != "postgres" else "met" if median.median <= MOST_MS else "**missed**"
        goal = f"≤ {MOST_MS:g} ms" if store == "postgres" else "stated"
        goals.append([f"pick-up on {databases.TITLES[store]}, idle worker: p50", goal, f"{median.median:.2f} ms", met])
        goals.append([f"pick-up on {databases.TITLES[store]}, idle worker: p99", "stated", f"{high.median:.2f} ms", ""])
        if least is not None:
            what = "the least that it can be: two durable commits and a notification, p50"
            goals.append([f"{what}, {databases.TITLES[store]}", "stated", f"{least.median:.2f} ms", ""])
    parts.append("### Goals\n\n" + markdown(["goal", "wanted", "measured", ""], goals, right=(1, 2)))
    return "\n\n".join(parts)


def _contenders(store: str, size: Size, peers: Path) -> list[Contender]:
    python = Path(sys.executable)
    field = [Contender(OURS, store, python, "bench.jobs", size.one, size.drain, ("worker", store))]
    if store == "postgres":
        field.append(Contender("PgQueuer", store, peers, "bench.peers.pgqueuer", size.one, size.drain))
        field.append(Contender("Procrastinate", store, peers, "bench.peers.procrastinate", size.one, size.slow))
    else:
        field.append(Contender("Huey", store, peers, "bench.peers.huey", size.slow * 2, size.slow * 2))
    return field


def _latency(store: str, count: int, rounds: int) -> tuple[Spread, Spread, Spread | None]:
    medians, highs, least = [], [], []
    for number in range(1, rounds + 1):
        progress(f"pick-up on {databases.TITLES[store]}, round {number} of {rounds}")
        with databases.fresh(store) as url:
            command = [sys.executable, "-m", "bench.jobs", "latency", store, "--url", url, "--count", str(count)]
            found = run(command)
            medians.append(found["p50"])
            highs.append(found["p99"])
            if "least" in found:
                least.append(found["least"])
    median, high = Spread.of(medians), Spread.of(highs)
    if median is None or high is None:
        raise Failed("no latency was measured")
    return median, high, Spread.of(least)


# In processes of their own


def address(store: str, url: str) -> str:
    return f"sqlite:///{url}" if store == "sqlite" else url


async def drain(store: str, url: str, one: int, count: int) -> Sample:
    app, handler, done = App("bench"), Handler(count), asyncio.Event()

    @app.job
    async def warm(data: str) -> None:
        del data

    @app.job
    async def noop(data: str) -> None:
        del data
        if handler.hit():
            done.set()

    async with app.connected(address(store, url)):
        start = time.perf_counter()
        for _ in range(one):
            await warm.publish(data=PAYLOAD)
        single = one / (time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(count // BATCH):
            await app.publish_many([noop.request(data=PAYLOAD) for _ in range(BATCH)])
        batched = count / (time.perf_counter() - start)
    await ours.tidy(store, url)
    flags = {"store.url": address(store, url), "jobs.worker_concurrency": CONCURRENCY}
    settings = load((), {}, flags).settings
    working = asyncio.create_task(work(settings, app, WorkerOptions()))
    await asyncio.wait_for(done.wait(), 240)
    os.kill(os.getpid(), signal.SIGTERM)  # as `noonbell worker` is stopped: what was done is settled
    await working
    kept = await ours.scalar(store, url, "select count(*) from runs where status = 'SUCCESS'")
    if kept != count + one:
        raise SystemExit(f"bench: {kept} of {count + one} runs are in the history")
    how_it_ran = f"what `noonbell worker` runs, concurrency {CONCURRENCY}{', uvloop' if ours.uvloop() else ''}"
    return Sample("Noonbell", __version__, single, batched, handler.rate, count, how_it_ran)


async def latency(store: str, url: str, count: int) -> dict[str, float]:
    """From just before a publish in another process to the first line of the handler here, by the machine's clock."""
    app, taken = App("bench"), []
    arrived = asyncio.Event()

    @app.job
    async def ping(at: float) -> None:
        taken.append((time.time() - at) * 1000)
        arrived.set()

    async with app.running(address(store, url), scheduler=False):
        command = [sys.executable, "-m", "bench.jobs", "publish", store, "--url", url]
        publisher = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert publisher.stdin is not None and publisher.stdout is not None  # noqa: PT018
        await publisher.stdout.readline()
        for _ in range(count + 10):
            await asyncio.sleep(0.02)  # idle between two, which is what is measured
            arrived.clear()
            publisher.stdin.write(b"\n")
            await asyncio.wait_for(arrived.wait(), 30)
        publisher.stdin.close()
        await publisher.wait()
    found = sorted(taken[10:])
    answer = {"p50": found[len(found) // 2], "p99": found[int(len(found) * 0.99)]}
    return answer | {"least": await raw.pick_up(url, count)} if store == "postgres" else answer


async def publish_on_demand(store: str, url: str) -> None:
    app = App("bench")

    @app.job
    async def ping(at: float) -> None:
        del at

    loop = asyncio.get_running_loop()
    async with app.connected(address(store, url), declare=False):
        print("ready", flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            await ping.publish(at=time.time())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.jobs")
    parser.add_argument("what", choices=["worker", "latency", "publish"])
    parser.add_argument("store", choices=list(databases.TITLES))
    parser.add_argument("--url", required=True)
    parser.add_argument("--one", type=int, default=200)
    parser.add_argument("--drain", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    match args.what:
        case "worker":
            ours.run(drain(args.store, args.url, args.one, args.drain)).print()
        case "latency":
            print(json.dumps(ours.run(latency(args.store, args.url, args.count))))
        case _:
            ours.run(publish_on_demand(args.store, args.url))


if __name__ == "__main__":
    main()
