"""An open HTTP target for each test, closed afterwards; and a certificate."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """A certificate that nobody has signed but itself, for 127.0.0.1 and for secure.test."""
    path = tmp_path_factory.mktemp("tls") / "self.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:secure.test"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(
        [*command, "-days", "2", *subject, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path
