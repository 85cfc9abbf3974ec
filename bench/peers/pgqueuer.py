"""PgQueuer at its best: batches of 1,000, uvloop as its own command line uses, its log of finished jobs kept."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from importlib.metadata import version

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import BATCH, PAYLOAD, Handler, Sample, arguments

CONNECTIONS = 4


async def main() -> None:
    args = arguments()
    connection = await asyncpg.connect(args.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()

    start = time.perf_counter()
    for _ in range(args.one):
        await queries.enqueue("warm", PAYLOAD)
    one = args.one / (time.perf_counter() - start)
    await queries.clear_queue("warm")

    start = time.perf_counter()
    for _ in range(args.drain // BATCH):
        await queries.enqueue(["noop"] * BATCH, [PAYLOAD] * BATCH, [0] * BATCH)
    batch = args.drain / (time.perf_counter() - start)

    await connection.execute("vacuum analyze")
    rate = await drain(args.url, args.drain)
    logged = await connection.fetchval("select count(*) from pgqueuer_log where status = 'successful'")
    await connection.close()
    if logged != args.drain:
        raise SystemExit(f"bench: PgQueuer logged {logged} of {args.drain} jobs")
    settings = f"batch {BATCH}, pool of {CONNECTIONS}, uvloop"
    Sample("PgQueuer", version("pgqueuer"), one, batch, rate, args.drain, settings).print()


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


if __name__ == "__main__":
    uvloop.run(main())
