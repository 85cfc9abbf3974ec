"""Huey on SQLite with 8 threads, in WAL mode with every commit flushed, as Noonbell has it.

It has no call that publishes many, keeps no history, and removes a job from the database before it runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from importlib.metadata import version

from huey import SqliteHuey  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import PAYLOAD, Handler, Sample, arguments, print_pick_up, ready

THREADS = 8
POLL = 0.001
"""Seconds between two looks of an idle worker; Huey's own default is 0.1."""
LATEST_POLL = 0.01
"""Seconds that its back-off may come to; its own default is 10."""


def throughput(args: argparse.Namespace) -> None:
    huey = SqliteHuey(filename=args.url, fsync=True)
    handler = Handler(args.drain)
    lock = threading.Lock()
    done = threading.Event()

    @huey.task()  # type: ignore[untyped-decorator, unused-ignore]
    def noop(payload: bytes) -> None:
        with lock:
            if handler.hit():
                done.set()

    @huey.task()  # type: ignore[untyped-decorator, unused-ignore]
    def warm(payload: bytes) -> None: ...

    one = None
    for task, count in ((warm, args.one), (noop, args.drain)):
        start = time.perf_counter()
        for _ in range(count):
            task(PAYLOAD)
        # What is to be drained is published in the same way, so it says as much where nothing else was asked for.
        if count and one is None:
            one = count / (time.perf_counter() - start)

    if args.drain:
        consumer = huey.create_consumer(workers=THREADS, periodic=False)
        consumer.start()
        done.wait(timeout=120)
        consumer.stop(graceful=True)
    settings = f"{THREADS} threads, WAL, synchronous FULL"
    Sample("Huey", version("huey"), one, None, handler.rate if args.drain else None, args.drain, settings).print()


def pick_up(args: argparse.Namespace) -> None:
    huey = SqliteHuey(filename=args.url, fsync=True)

    @huey.task()  # type: ignore[untyped-decorator, unused-ignore]
    def ping(at: float) -> None:
        print_pick_up(at)

    if args.role == "worker":
        consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=POLL, max_delay=LATEST_POLL)
        consumer.start()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # told to end, it ends: nothing in it has to be kept
        ready()
        threading.Event().wait()
    ready()
    while sys.stdin.readline():
        ping(time.time())


if __name__ == "__main__":
    args = arguments()
    throughput(args) if args.role == "throughput" else pick_up(args)
