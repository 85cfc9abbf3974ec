"""A connection of the driver's pool, where the driver loses a cancellation while it connects."""

from __future__ import annotations

import asyncio

import pytest

from noonbell.stores import mysql

LONG = 60.0


class PoolThatLosesACancellation:
    """As asyncmy's is on Python 3.11 when the cancellation comes in the moment in which the connection is made."""

    def __init__(self, *, connects: bool) -> None:
        self.released: list[object] = []
        self.ended = asyncio.Event()
        self._connects = connects

    async def acquire(self) -> object:
        try:
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                if self._connects:
                    return self
            await asyncio.sleep(LONG)  # the greeting of a server that holds still
            raise AssertionError("it was waited for")
        finally:
            self.ended.set()

    def release(self, connection: object) -> None:
        self.released.append(connection)


async def ask(pool: PoolThatLosesACancellation) -> None:
    async with mysql._connection(pool):
        raise AssertionError("there was none")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "WAIT_AT_MOST", 0.05)


async def test_a_call_is_told_in_time_and_the_pool_is_free_again():
    pool = PoolThatLosesACancellation(connects=False)
    with pytest.raises(TimeoutError):
        await ask(pool)
    await asyncio.wait_for(pool.ended.wait(), LONG / 2)
    assert pool.released == []


async def test_a_connection_that_is_made_too_late_goes_back_to_the_pool():
    pool = PoolThatLosesACancellation(connects=True)
    with pytest.raises(TimeoutError):
        await ask(pool)
    while mysql._under_way:
        await asyncio.wait(mysql._under_way)
    assert pool.released == [pool]
