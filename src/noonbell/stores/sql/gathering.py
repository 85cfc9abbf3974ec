"""Group commit: calls that come while others are under way wait for them, and then go together in one transaction.

A caller alone goes at once. Each caller gets an answer of its own. Where a batch fails, its calls are repeated each alone, so
that one which the database does not take fails alone; a store that is away fails all of them.

A process that dies meanwhile: what had committed stands, as after a lost answer to a single call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

from noonbell.errors import StoreUnavailable
from noonbell.stores.sql.statement import StillLocked

A = TypeVar("A")
B = TypeVar("B")

_MOST = 200
_LANES = 4
"""Batches at a time."""
_PATIENCE = 0.05
"""Seconds that calls wait for a batch under way: one that waits for a lock does not hold up the others."""


class Gathering(Generic[A, B]):
    """For the tasks of one event loop."""

    def __init__(self, do: Callable[[Sequence[A]], Awaitable[Sequence[B]]]) -> None:
        """`do` carries out a batch in one transaction, and answers in its order."""
        self._do = do
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._lanes: set[asyncio.Task[None]] = set()

    async def add(self, call: A) -> B:
        """Carried out even if its caller is canceled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[B] = loop.create_future()
        self._waiting.append((call, answer))
        if not self._lanes:
            self._open_lane()
        elif len(self._waiting) == 1:
            loop.call_later(_PATIENCE, self._open_lane)
        return await answer

    def _open_lane(self) -> None:
        if self._waiting and len(self._lanes) < _LANES:
            lane = asyncio.get_running_loop().create_task(self._carry_out(), name="noonbell group commit")
            self._lanes.add(lane)
            # Canceled before its first step, it does not come to `_carry_out`.
            lane.add_done_callback(self._lanes.discard)

    async def _carry_out(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                try:
                    await self._together(batch)
                except BaseException:
                    for _, answer in batch:
                        answer.cancel()
                    raise
        finally:
            # Now, and not when the event loop has noticed the end: callers that have just had their answer call again before
            # that, and would wait for a lane that does nothing any more.
            self._lanes.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _together(self, batch: Sequence[tuple[A, asyncio.Future[B]]]) -> None:
        try:
            answers = await self._do([call for call, _ in batch])
        except Exception as error:
            is_away = isinstance(error, StoreUnavailable) and not isinstance(error, StillLocked)
            if len(batch) > 1 and not is_away:
                await asyncio.gather(*(self._together([one]) for one in batch))
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(_again(error))
        else:
            for (_, answer), found in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(found)


def _again(error: Exception) -> Exception:
    """For each caller an error of its own: raising one adds to its traceback."""
    return type(error)(error.message) if isinstance(error, StoreUnavailable) else error
