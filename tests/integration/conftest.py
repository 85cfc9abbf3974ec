"""The servers that many connections can meet on, each as a fresh database; stores that are closed afterwards; and a certificate."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.support import Crew
from noonbell.stores import open_store
from noonbell.stores.sql.store import SqlStore

Open = Callable[..., Awaitable[SqlStore]]
"""`await opened(url)` is an open store; `await opened(url, clock=…)` one with that clock."""

FRESH = {"postgres": "postgres_url", "mariadb": "mysql_url", "sqlite": "sqlite_url"}


@pytest.fixture(params=["postgres", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    """An empty database on each of the servers."""
    return str(request.getfixturevalue(FRESH[request.param]))


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def sql_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that outlives its process."""
    return str(request.getfixturevalue(FRESH[request.param]))


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as cleanup:

        async def open_one(url: str, **more: Any) -> SqlStore:
            store = open_store(url, **more)
            await store.open()
            cleanup.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """Processes of `integration.crew`, none of which outlives the test."""
    crew = Crew(tmp_path)
    yield crew
    crew.end()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody has signed but itself, for 127.0.0.1 and for secure.test."""
    path = tmp_path_factory.mktemp("tls") / "self.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:secure.test"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(
        [*command, "-days", "2", *subject, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path
