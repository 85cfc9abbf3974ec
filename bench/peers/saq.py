"""SAQ on Redis: pick-up only, where it is the quickest of the peers. The fragment of the address names its queue."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import urldefrag

import uvloop
from saq import Queue, Worker  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import arguments, print_pick_up, publish_on_demand, ready


async def main(args: argparse.Namespace) -> None:
    address, name = urldefrag(args.url)
    queue = Queue.from_url(address, name=name)
    await queue.connect()
    if args.role == "publisher":
        await publish_on_demand(lambda at: queue.enqueue("ping", at=at))
    else:
        worker = Worker(queue, functions=[("ping", ping)])
        ready()
        await worker.start()


async def ping(_context: Any, *, at: float) -> None:
    print_pick_up(at)


if __name__ == "__main__":
    args = arguments()
    if args.role == "throughput":
        raise SystemExit("bench: SAQ is measured by its pick-up alone")
    uvloop.run(main(args))
