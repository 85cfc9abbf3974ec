"""Pick-up: from just before a publish in one process to the first line of the handler of an idle worker in another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench import databases, raw
from bench.lag import percentile
from bench.peers import env
from bench.rounds import ROOT, Failed, progress
from bench.speed.lines import Lines, Process, started
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.speed.throughput import GRAPHILE, OURS
from bench.tables import NONE
from bench.workers import address, working

IDLE = 0.02
"""Seconds from the arrival of a job to the next publish: long enough for every worker to be idle again."""
WARM = 10
"""Jobs at the start that are not counted."""
PATIENCE = 30.0
WITHIN = 100.0
"""Milliseconds that the job of a script may take to start after its publish."""
TRIES = 20

WANTED = {"postgres": (2.5, 6.0), "sqlite": (3.0, 10.0), "mariadb": (5.0, 15.0)}
"""By store: the most that p50 and p99 may be, in milliseconds."""


@dataclass(frozen=True)
class Peer:
    name: str
    store: str
    command: tuple[str, ...]


def postgresql(scale: Scale, rounds: int) -> Found:
    env.ensure_python()
    peers = [
        Peer("PgQueuer", "postgres", env.python_peer("pgqueuer")),
        Peer("SAQ", "redis", env.python_peer("saq")),
    ]
    try:
        env.ensure_node()
        peers += [
            Peer(GRAPHILE, "postgres", env.node_peer("graphile_worker")),
            Peer("pg-boss", "postgres", env.node_peer("pg_boss")),
            Peer("BullMQ", "redis", env.node_peer("bullmq")),
        ]
    except env.Missing as problem:
        progress(f"SKIPPED: graphile-worker, pg-boss and BullMQ: {problem}")
    found = compare("postgres", peers, scale.of(200, 10), rounds)
    with databases.fresh("postgres") as url:
        least = asyncio.run(raw.pick_up(url, scale.of(200, 10)))
    note = (
        f"the least that it can be, an insert, a notification and an update, each commit durable: p50 {least:.1f} ms."
    )
    return Found(found.rows, [*found.notes, note])


def sqlite(scale: Scale, rounds: int) -> Found:
    env.ensure_python()
    return compare("sqlite", [Peer("Huey", "sqlite", env.python_peer("huey"))], scale.of(200, 10), rounds)


def mariadb(scale: Scale, rounds: int) -> Found:
    return compare("mariadb", [], scale.of(200, 10), rounds)


def compare(store: str, peers: list[Peer], count: int, rounds: int) -> Found:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in (OURS, *(peer.name for peer in peers))}
    broken: set[str] = set()
    for number in range(1, rounds + 1):
        for peer in (None, *peers):
            name = OURS if peer is None else peer.name
            if name in broken:
                continue
            progress(f"pick-up, {databases.TITLES[store]}, round {number} of {rounds}: {name}")
            try:
                taken = measure(store, peer, count)
                samples[name].append((percentile(taken, 50), percentile(taken, 99)))
            except Failed as failure:
                broken.add(name)
                progress(f"FAILED: {name}: {failure}")
    middle = {name: tuple(median(part) for part in zip(*each, strict=True)) for name, each in samples.items() if each}
    most = WANTED[store]
    ours = middle.get(OURS)
    others = sorted((each, name) for name, each in middle.items() if name != OURS)
    row = Row(
        f"pick-up by an idle worker, {databases.TITLES[store]}, another process: p50 / p99, ms",
        NONE if ours is None else pair(ours),
        "; ".join(f"{name} {pair(each)}" for each, name in others) or NONE,
        NONE if ours is None or not others else f"{ours[0] / others[0][0][0]:.2f}× {others[0][1]} (p50)",
        f"≤ {most[0]:g} / {most[1]:g}",
        None if ours is None else ours[0] <= most[0] and ours[1] <= most[1],
    )
    return Found([row], [f"{count} jobs a round, one at a time, {IDLE * 1000:g} ms after the one before has arrived."])


def pair(found: tuple[float, ...]) -> str:
    return f"{found[0]:.1f} / {found[1]:.1f}"


def measure(store: str, peer: Peer | None, count: int) -> list[float]:
    os.sync()
    with databases.fresh(peer.store if peer else store) as url, both(store, peer, url) as (arrivals, publisher):
        taken = []
        for _ in range(WARM + count):
            time.sleep(IDLE)
            publisher.ask()
            taken.append(float(arrivals.next(PATIENCE)))
        return taken[WARM:]


@contextmanager
def both(store: str, peer: Peer | None, url: str) -> Iterator[tuple[Lines, Process]]:
    """What the worker prints, and the publisher; each is in a process of its own."""
    if peer is None:
        command = [sys.executable, "-m", "bench.jobs", "publisher", store, "--url", url]
        with working(store, url) as printed, started(command) as publisher:
            yield Lines(printed), publisher
    else:
        with (
            started([*peer.command, "worker", "--url", url]) as worker,
            started([*peer.command, "publisher", "--url", url]) as publisher,
        ):
            yield worker.lines, publisher


def one_shot(scale: Scale, _rounds: int) -> Found:
    """Scripts that publish one job and end, every other one synchronous, beside an idle worker."""
    tries = scale.of(TRIES, 2)
    rows = []
    for store in databases.STORES:
        progress(f"{tries} scripts that publish and end, {databases.TITLES[store]}")
        taken = []
        with databases.fresh(store) as url, working(store, url) as printed:
            arrivals = Lines(printed)
            for number in range(tries):
                way = ["sync"] if number % 2 else []
                command = [sys.executable, "-m", "bench.one_shot", address(store, url), *way]
                subprocess.run(command, cwd=ROOT, check=True)
                taken.append(float(arrivals.next(PATIENCE)))
        within = sum(each <= WITHIN for each in taken)
        rows.append(
            Row(
                f"a script that publishes and ends, {databases.TITLES[store]}: its job's start, p50 / max, ms",
                f"{median(taken):.1f} / {max(taken):.1f}; {within} of {tries} within {WITHIN:g} ms",
                NONE,
                NONE,
                f"{tries} of {tries} within {WITHIN:g} ms",
                within == tries,
            )
        )
    return Found(rows, rounds=1)
