"""What every measured process prints: one line of JSON. Standard library only, because peers import it too."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

PAYLOAD = b"x" * 100
BATCH = 1000
"""Rows per publish call, for everyone who can publish more than one."""


@dataclass(frozen=True)
class Sample:
    """Rates are per second. None: this one has no such thing, or was not asked for it."""

    peer: str
    version: str
    publish_one: float | None
    publish_batch: float | None
    drain: float | None
    n: int
    settings: str
    plan: float | None = None

    def print(self) -> None:
        print(json.dumps(asdict(self)), flush=True)


@dataclass
class Handler:
    """Counts no-op calls. The rate runs from the first to the last of them, so that start-up is left out."""

    expected: int
    count: int = 0
    first: float = 0.0
    last: float = 0.0

    def hit(self) -> bool:
        """True on the last expected call."""
        self.count += 1
        if self.count == 1:
            self.first = time.perf_counter()
        if self.count != self.expected:
            return False
        self.last = time.perf_counter()
        return True

    @property
    def rate(self) -> float:
        if self.count < self.expected:
            raise SystemExit(f"bench: only {self.count} of {self.expected} jobs ran")
        return (self.expected - 1) / (self.last - self.first)


def parser() -> argparse.ArgumentParser:
    """The arguments of each contender. The roles `worker` and `publisher` are two processes that measure pick-up."""
    made = argparse.ArgumentParser()
    made.add_argument("role", nargs="?", default="throughput", choices=["throughput", "worker", "publisher"])
    made.add_argument("--url", required=True, help="a fresh database: an address or a file name")
    made.add_argument("--one", type=int, default=0, help="how many to publish one by one")
    made.add_argument("--drain", type=int, default=0, help="how many to publish in batches, then drain")
    made.add_argument("--publish-only", action="store_true", help="publish, but drain nothing")
    return made


def arguments() -> argparse.Namespace:
    return parser().parse_args()


async def publish_rate(count: int, size: int, call: Callable[[int], Awaitable[object]]) -> float | None:
    """Jobs a second, each call publishing `size` of them; None if none is asked for."""
    if count == 0:
        return None
    start = time.perf_counter()
    for done in range(0, count, size):
        await call(min(size, count - done))
    return count / (time.perf_counter() - start)


def ready() -> None:
    print("ready", flush=True)


def print_pick_up(at: float) -> None:
    """One line per job that the worker takes: the milliseconds from just before its publish, by the machine's clock."""
    print(f"{(time.time() - at) * 1000:.3f}", flush=True)


async def publish_on_demand(publish: Callable[[float], Awaitable[object]]) -> None:
    """Publishes a job for each line of standard input, until it ends."""
    loop = asyncio.get_running_loop()
    ready()
    while await loop.run_in_executor(None, sys.stdin.readline):
        await publish(time.time())
