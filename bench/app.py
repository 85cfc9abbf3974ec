"""The App whose jobs `noonbell worker` executes in the bench. Its handlers print: one line of JSON, or one per job.

BENCH_EXPECTED in the environment says how many jobs `noop` counts before it prints their rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

from bench.peers.sample import Handler, print_pick_up
from noonbell import App

app = App("bench")
_handler = Handler(int(os.environ.get("BENCH_EXPECTED", "0")))


@app.job
async def noop(data: str) -> None:
    del data
    if _handler.hit():
        print(json.dumps({"drain": _handler.rate}), flush=True)


@app.job
async def relay(left: int, data: str) -> None:
    """Publishes the next one of a row of jobs, each of which starts after the one before."""
    if left > 1:
        await relay.publish(left=left - 1, data=data)
    await noop(data)


@app.job
async def warm(data: str) -> None:
    del data


@app.job
async def ping(at: float) -> None:
    print_pick_up(at)


@app.job(rate_limit={"max": 1, "per_seconds": 3, "key": "account"})
async def limited(account: str) -> None:
    del account


@app.job(concurrency_key="payload.tenant")
async def slow_for(tenant: str, seconds: float) -> list[int]:
    """Returns when it began and ended, in nanoseconds of the machine's clock."""
    del tenant
    began = time.time_ns()
    await asyncio.sleep(seconds)
    return [began, time.time_ns()]
