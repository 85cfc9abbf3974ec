"""Huey on SQLite with 8 threads, in WAL mode as it comes; it has no call that publishes many, and keeps no history."""

from __future__ import annotations

import threading
import time
from importlib.metadata import version

from huey import SqliteHuey  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import PAYLOAD, Handler, Sample, arguments

THREADS = 8


def main() -> None:
    args = arguments()
    huey = SqliteHuey(filename=args.url)
    handler = Handler(args.drain)
    lock = threading.Lock()
    done = threading.Event()

    @huey.task()  # type: ignore[untyped-decorator, unused-ignore]
    def noop(payload: bytes) -> None:
        with lock:
            if handler.hit():
                done.set()

    start = time.perf_counter()
    for _ in range(args.drain):
        noop(PAYLOAD)
    one = args.drain / (time.perf_counter() - start)

    consumer = huey.create_consumer(workers=THREADS, periodic=False)
    consumer.start()
    done.wait(timeout=120)
    consumer.stop(graceful=True)
    settings = f"{THREADS} threads, WAL, synchronous FULL (default)"
    Sample("Huey", version("huey"), one, None, handler.rate, args.drain, settings).print()


if __name__ == "__main__":
    main()
