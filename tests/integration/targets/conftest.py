"""An open HTTP target for each test, closed afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from noonbell.targets.http.target import HttpTarget

Opened = Callable[..., Awaitable[HttpTarget]]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """`await opened(guard=…)` is an open target with these settings."""
    async with contextlib.AsyncExitStack() as cleanup:

        async def open_one(**settings: Any) -> HttpTarget:
            target = HttpTarget(**settings)
            await target.open()
            cleanup.push_async_callback(target.close)
            return target

        yield open_one


@pytest.fixture
async def target(opened: Opened) -> HttpTarget:
    return await opened()
