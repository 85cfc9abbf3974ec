"""Driving a transition over a connection that answers asynchronously, and trying again where the database asks for it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from noonbell.errors import StoreUnavailable
from noonbell.stores.blocking import Blocker
from noonbell.stores.sql.statement import Statement, Work

T = TypeVar("T")

MAX_TRIES = 20
LOCK_SECONDS = 2
"""How long one statement waits for a lock. The drivers set it for their sessions."""
WAIT_AT_MOST = 6.0
"""Seconds that a call waits for locks, all its tries together."""


class TryAgain(Exception):
    """The database gave up this transaction for another's sake; the same one again will do."""


class LockTimeout(TryAgain):
    """The transaction waited for a lock that another session holds, for as long as one statement may."""


class StillLocked(StoreUnavailable):
    """The server answers, but a lock was not given up in all the time that a call waits."""


async def drive(work: Callable[[], Work[T]], do: Callable[[Statement], Awaitable[Any]]) -> T:
    """Run a transition to its end, inside a transaction that the caller opens and closes."""
    steps = work()
    try:
        statement = next(steps)
        while True:
            try:
                answer = await do(statement)
            except Exception as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def until_it_holds(
    once: Callable[[], Awaitable[T]], blocker: Blocker | None = None, wait_at_most: float = WAIT_AT_MOST
) -> T:
    """Again after TryAgain, with a growing and random pause, so that two who met do not meet again.

    After `wait_at_most` seconds of waiting for locks it gives up, and names who is in the way.
    """
    blocker = blocker or Blocker()
    try:
        return await _until_it_holds(once, blocker, wait_at_most)
    finally:
        blocker.over()


async def _until_it_holds(once: Callable[[], Awaitable[T]], blocker: Blocker, wait_at_most: float) -> T:
    began = time.monotonic()
    tries = 0
    while True:
        try:
            return await once()
        except LockTimeout as error:
            waited = time.monotonic() - began
            if waited + LOCK_SECONDS / 2 > wait_at_most:
                raise StillLocked(_in_the_way(waited, blocker, error)) from error
        except TryAgain as error:
            tries += 1
            if tries == MAX_TRIES:
                raise StoreUnavailable(f"the database gave this transaction up {MAX_TRIES} times: {error}") from error
        await asyncio.sleep(random.random() * 0.002 * min(2**tries, 64))  # noqa: S311 - no secret


def _in_the_way(waited: float, blocker: Blocker, error: Exception) -> str:
    holder = blocker.found or "another session"
    return f"waited {waited:.0f} s for a lock that is held by {holder}: {error}"
