"""The history loop: partitions of history are there before the first run falls into them, where the store has any.

Any number of nodes may do it; the store lets one make each partition. Died at any point: the next tick, on any node, goes on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from noonbell.engine.loop_runner import batch_done
from noonbell.ports import Store

EVERY = 600.0
"""Seconds between two looks."""


class HistoryLoop:
    def __init__(
        self,
        store: Store,
        *,
        kept: float,
        events_kept: float,
        every: float = EVERY,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`kept` and `events_kept`: for how many seconds runs and events are kept."""
        self._store, self._kept, self._events_kept = store, kept, events_kept
        self._every, self._draw = every, draw

    async def tick(self) -> float:
        changed = await self._store.tend_history(self._kept, self._events_kept)
        batch_done()
        return 0.0 if changed else self._every * (0.75 + 0.5 * self._draw())  # so that nodes do not look in step

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
