"""Wake-ups inside one process: how every signal ends, wherever it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary


class LocalWakeup:
    """Inside one process and one event loop. The others build on it."""

    def __init__(self) -> None:
        self._signals: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._seen: WeakKeyDictionary[asyncio.Task[Any], dict[str, int]] = WeakKeyDictionary()
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close: whoever waits goes on to its timeout."""

    def signal(self, topic: str) -> None:
        self._wake(topic)

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self._take(topics):
            await asyncio.sleep(0)
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        for topic in topics:
            self._waiting.setdefault(topic, set()).add(waiter)
        timer = loop.call_later(max(0.0, timeout), _resolve, waiter, False)
        try:
            woken = await waiter
            if woken:
                self._take(topics)
            return woken
        finally:
            timer.cancel()
            for topic in topics:
                self._forget(topic, waiter)

    def _wake(self, topic: str) -> None:
        self._signals[topic] = self._signals.get(topic, 0) + 1
        for waiter in self._waiting.get(topic, ()):
            _resolve(waiter, True)

    def _wake_all(self) -> None:
        for topic in list(self._waiting):
            self._wake(topic)

    def _take(self, topics: Sequence[str]) -> bool:
        """Whether one of them was signalled since this asyncio task last waited for it; taken by this.

        A task that never waited before takes what nobody has taken yet.
        """
        task = asyncio.current_task()
        seen = {} if task is None else self._seen.setdefault(task, {})
        found = False
        for topic in topics:
            count = self._signals.get(topic, 0)
            if count != seen.get(topic, self._taken.get(topic, 0)):
                found = True
            seen[topic] = self._taken[topic] = count
        return found

    def _forget(self, topic: str, waiter: asyncio.Future[bool]) -> None:
        waiting = self._waiting[topic]
        waiting.discard(waiter)
        if not waiting:
            del self._waiting[topic]

    @property
    def _somebody_waits(self) -> bool:
        return bool(self._waiting)


def _resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)
