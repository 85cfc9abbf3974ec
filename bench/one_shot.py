"""A script that publishes one job and ends: `python -m bench.one_shot ADDRESS [sync]`."""

from __future__ import annotations

import asyncio
import sys
import time

from bench.app import app, ping


async def publish(address: str) -> None:
    async with app.connected(address, declare=False):
        await ping.publish(at=time.time())


def publish_sync(address: str) -> None:
    with app.connected(address, declare=False):
        ping.publish_sync(at=time.time())


if __name__ == "__main__":
    publish_sync(sys.argv[1]) if "sync" in sys.argv[2:] else asyncio.run(publish(sys.argv[1]))
