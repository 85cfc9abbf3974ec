"""Driving a transition over a connection that answers asynchronously, and trying again where the database asks for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from noonbell.errors import StoreUnavailable
from noonbell.stores.sql.statement import Statement, Work

T = TypeVar("T")

MAX_TRIES = 20


class TryAgain(Exception):
    """The database gave up this transaction for another's sake; the same one again will do."""


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


async def until_it_holds(once: Callable[[], Awaitable[T]]) -> T:
    """Again after TryAgain, with a growing and random pause, so that two who met do not meet again."""
    for attempt in range(MAX_TRIES):
        try:
            return await once()
        except TryAgain as error:
            if attempt == MAX_TRIES - 1:
                raise StoreUnavailable(f"the database gave this transaction up {MAX_TRIES} times: {error}") from error
            await asyncio.sleep(random.random() * 0.002 * min(2**attempt, 64))  # noqa: S311 - no secret
    raise AssertionError("unreachable")
