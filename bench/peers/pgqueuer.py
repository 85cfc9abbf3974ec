"""PgQueuer at its best: batches of 1,000, uvloop as its own command line uses, its log of finished jobs kept."""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import (
    BATCH,
    PAYLOAD,
    Handler,
    Sample,
    arguments,
    print_pick_up,
    publish_on_demand,
    publish_rate,
    ready,
)

CONNECTIONS = 4


async def throughput(args: argparse.Namespace) -> None:
    connection = await asyncpg.connect(args.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()

    one = await publish_rate(args.one, 1, lambda _: queries.enqueue("warm", PAYLOAD))
    await queries.clear_queue("warm")
    batch = await publish_rate(
        args.drain, BATCH, lambda size: queries.enqueue(["noop"] * size, [PAYLOAD] * size, [0] * size)
    )

    await connection.execute("vacuum analyze")
    drained = 0 if args.publish_only else args.drain
    rate = await drain(args.url, drained) if drained else None
    logged = await connection.fetchval("select count(*) from pgqueuer_log where status = 'successful'")
    await connection.close()
    if logged != drained:
        raise SystemExit(f"bench: PgQueuer logged {logged} of {drained} jobs")
    settings = f"batch {BATCH}, pool of {CONNECTIONS}, uvloop"
    Sample("PgQueuer", version("pgqueuer"), one, batch, rate, drained, settings).print()


async def drain(url: str, expected: int) -> float:
    handler = Handler(expected)
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        app = PgQueuer.from_asyncpg_pool(pool)

        @app.entrypoint("noop")  # type: ignore[untyped-decorator, unused-ignore]
        async def noop(job: object) -> None:
            if handler.hit():
                app.shutdown.set()

        await asyncio.wait_for(app.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1)), timeout=120)
    return handler.rate


async def work(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        app = PgQueuer.from_asyncpg_pool(pool)

        @app.entrypoint("ping")  # type: ignore[untyped-decorator, unused-ignore]
        async def ping(job: Any) -> None:
            print_pick_up(json.loads(job.payload)["at"])

        ready()
        await app.run(batch_size=10)


async def publish(url: str) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await publish_on_demand(lambda at: queries.enqueue("ping", json.dumps({"at": at}).encode()))


if __name__ == "__main__":
    args = arguments()
    roles = {"worker": lambda: work(args.url), "publisher": lambda: publish(args.url)}
    uvloop.run(roles.get(args.role, lambda: throughput(args))())
