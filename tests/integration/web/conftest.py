"""The dashboard over real HTTP: on each store, or in memory where the store does not matter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from integration.api.serving import Api, serving
from noonbell.settings import AuthSettings

STORES = ("memory", pytest.param("sqlite", marks=pytest.mark.full), "postgres", "mariadb")
"""The memory store is SQLite without a file: what is the same in both is tested on the file by `make test-full`."""
URLS = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}


@pytest.fixture(params=STORES)
async def everywhere(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    url = "memory://" if request.param == "memory" else str(request.getfixturevalue(URLS[request.param]))
    async with serving(url) as api:
        yield api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving("memory://") as api:
        yield api


@pytest.fixture
async def guarded() -> AsyncIterator[Api]:
    async with serving("memory://", auth=AuthSettings(enabled=True, session_key="k" * 32)) as api:
        yield api
