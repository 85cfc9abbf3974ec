"""A memory store whose clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from conformance.store.builders import START
from noonbell.clock import ManualClock
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock)
    await store.open()
    yield store
    assert await store.recount() == 0, "a counter that a limit relies on is wrong"
    await store.close()


@pytest.fixture
def wakeup() -> LocalWakeup:
    return LocalWakeup()
