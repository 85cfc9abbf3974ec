"""Procrastinate with 50 jobs at a time; it keeps finished jobs by default."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version

import procrastinate  # type: ignore[import-not-found, unused-ignore]

from bench.peers.sample import BATCH, PAYLOAD, Handler, Sample, arguments

CONCURRENCY = 50
POOL = 10


async def main() -> None:
    args = arguments()
    payload = PAYLOAD.decode()
    connector = procrastinate.PsycopgConnector(conninfo=args.url, min_size=POOL, max_size=POOL)
    app = procrastinate.App(connector=connector)
    handler = Handler(args.drain)

    @app.task(queue="drain")  # type: ignore[untyped-decorator, unused-ignore]
    async def noop(payload: str) -> None:
        handler.hit()

    @app.task(queue="warm")  # type: ignore[untyped-decorator, unused-ignore]
    async def warm(payload: str) -> None:
        pass

    async with app.open_async():
        await app.schema_manager.apply_schema_async()

        start = time.perf_counter()
        for _ in range(args.one):
            await warm.defer_async(payload=payload)
        one = args.one / (time.perf_counter() - start)
        await connector.execute_query_async("truncate procrastinate_jobs cascade")

        start = time.perf_counter()
        for _ in range(args.drain // BATCH):
            await noop.batch_defer_async(*({"payload": payload} for _ in range(BATCH)))
        batch = args.drain / (time.perf_counter() - start)

        await connector.execute_query_async("analyze")
        await app.run_worker_async(queues=["drain"], concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
    settings = f"concurrency {CONCURRENCY}, pool of {POOL}"
    Sample("Procrastinate", version("procrastinate"), one, batch, handler.rate, args.drain, settings).print()


if __name__ == "__main__":
    asyncio.run(main())
