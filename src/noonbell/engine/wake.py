"""Being woken inside a process: a bell that wakes one of those who wait, and the ear that rings it from outside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from noonbell.ports import Wakeup

PLAN = "plan"
"""Topic: a cursor or a delayed run may be due earlier than the planner believes."""
ORDERS = "orders"
"""Topic: an operator or a policy has an order for a worker: heartbeat now rather than in a while."""
ANY_QUEUE = "queue:*"
"""Topic: something was put on some queue, and whoever did it does not know which. Every worker listens to it."""


def queue_topic(name: str) -> str:
    return f"queue:{name}"


class Bell:
    """Rung while nobody waits, it is remembered: the next to wait goes on at once."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._rung = False

    def ring(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self._rung = True

    async def wait(self, seconds: float) -> bool:
        """True if it was rung, False after so many seconds."""
        if self._rung:
            self._rung = False
            await asyncio.sleep(0)
            return True
        if seconds <= 0:
            await asyncio.sleep(0)
            return False
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.ring()  # it was for somebody who has left: the next one takes it
            raise
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class Ear:
    """Listens to topics of the wake-up and rings a bell."""

    def __init__(self, wakeup: Wakeup, topics: Sequence[str], ring: Callable[[], None], seconds: float = 60.0) -> None:
        self._wakeup, self._topics, self._ring, self._seconds = wakeup, tuple(topics), ring, seconds
        self._heard = False

    async def tick(self) -> float:
        if self._heard:
            self._ring()
        return self._seconds

    async def wait(self, seconds: float) -> None:
        self._heard = await self._wakeup.wait(self._topics, seconds)
