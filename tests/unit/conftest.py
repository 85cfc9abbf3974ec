"""What the unit tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

SkipTime = Callable[[float], Awaitable[None]]


@pytest.fixture
def skip_time(monkeypatch: pytest.MonkeyPatch) -> SkipTime:
    """`await skip_time(2)`: the event loop takes it for two seconds later, and does what is due by then."""

    async def skip(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        was = loop.time
        monkeypatch.setattr(loop, "time", lambda: was() + seconds)
        for _ in range(20):
            await asyncio.sleep(0)

    return skip
