"""`api` is a server on memory and on SQLite; `api_everywhere` on each of the four stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from integration.api.serving import Api, serving

STORES = ("memory", pytest.param("sqlite", marks=pytest.mark.full), "postgres", "mariadb")
"""The memory store is SQLite without a file: what is the same in both is tested on the file by `make test-full`."""
URLS = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    return "memory://" if kind == "memory" else str(request.getfixturevalue(URLS[kind]))


@pytest.fixture(params=STORES[:2])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    async with serving(url_of(request.param, request)) as api:
        yield api


@pytest.fixture(params=STORES)
async def api_everywhere(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    async with serving(url_of(request.param, request)) as api:
        yield api


@pytest.fixture
async def quick_api() -> AsyncIterator[Api]:
    """On the memory store: for what does not depend on the store."""
    async with serving("memory://") as api:
        yield api
