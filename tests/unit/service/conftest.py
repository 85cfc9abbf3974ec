"""The services over a memory store whose clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noonbell.clock import ManualClock
from noonbell.fields.kinds import read_moment
from noonbell.service import Rules, Services
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(read_moment("2026-11-15T09:00:00Z"))


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def services(store: MemoryStore) -> Services:
    return Services(store, LocalWakeup(), Rules())
