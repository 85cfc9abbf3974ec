"""Noonbell as a contender among the peers: an App that publishes, and `noonbell worker` for its jobs.

python -m bench.jobs STORE --url … --one … --drain … [--concurrency …]     one Sample
python -m bench.jobs publisher STORE --url …                              a job of pick-up for each line that it reads
"""

from __future__ import annotations

import argparse
import json

from bench import databases, ours
from bench.app import app, noop, ping, warm
from bench.peers.sample import BATCH, PAYLOAD, Sample, parser, publish_on_demand, publish_rate
from bench.rounds import Failed
from bench.workers import QUIET, address, working
from noonbell.version import __version__

DATA = PAYLOAD.decode()[11:]
"""100 bytes as the JSON that a payload is."""


async def publish(store: str, url: str, one: int, many: int) -> tuple[float | None, float | None]:
    """Jobs a second, one by one and in batches."""
    async with app.connected(address(store, url)):
        single = await publish_rate(one, 1, lambda _: warm.publish(data=DATA))
        batched = await publish_rate(
            many, BATCH, lambda size: app.publish_many([noop.request(data=DATA) for _ in range(size)])
        )
    await ours.tidy(store, url)
    return single, batched


def throughput(args: argparse.Namespace) -> Sample:
    single, batched = ours.run(publish(args.store, args.url, args.one, args.drain))
    drained = None
    if args.drain and not args.publish_only:
        flags = QUIET if args.concurrency is None else (*QUIET, "--concurrency", str(args.concurrency))
        with working(args.store, args.url, *flags, expected=args.drain) as printed:
            drained = json.loads(printed.readline() or "{}").get("drain")
        kept = ours.run(ours.scalar(args.store, args.url, "select count(*) from runs where status = 'SUCCESS'"))
        if drained is None or kept != args.drain + args.one:
            raise Failed(f"{kept} of {args.drain + args.one} runs are in the history")
    concurrency = "default concurrency" if args.concurrency is None else f"concurrency {args.concurrency}"
    settings = f"`noonbell worker {' '.join(QUIET)}`, {concurrency}{', uvloop' if ours.uvloop() else ''}"
    return Sample("Noonbell", __version__, single, batched, drained, args.drain, settings)


async def publish_pings(store: str, url: str) -> None:
    async with app.connected(address(store, url), declare=False):
        await publish_on_demand(lambda at: ping.publish(at=at))


def main() -> None:
    arguments = parser()
    arguments.prog = "python -m bench.jobs"
    arguments.add_argument("store", choices=databases.STORES)
    arguments.add_argument("--concurrency", type=int, help="of the worker [what `noonbell worker` takes by itself]")
    args = arguments.parse_args()
    if args.role == "publisher":
        ours.run(publish_pings(args.store, args.url))
    else:
        throughput(args).print()


if __name__ == "__main__":
    main()
