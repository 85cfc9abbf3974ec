"""An OpenID provider from PyPI, as a process of its own on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from services.ports import reserved_port

PEOPLE: Mapping[str, Any] = {"ada": ["boss", "ops"], "bob": "all", "eve": ["strangers"], "mallory": None}
"""What the claim `roles` of each says."""


@contextlib.asynccontextmanager
async def openid_provider(host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Its issuer. It listens on 127.0.0.1; `localhost` as its `host` makes it another site than 127.0.0.1."""
    with reserved_port() as port:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        issuer = f"http://{host}:{port}"
        try:
            async with aiohttp.ClientSession() as session, asyncio.timeout(60):
                while not await _answers(session, issuer):  # noqa: ASYNC110 - it signals nothing
                    await asyncio.sleep(0.05)
                for name, roles in PEOPLE.items():
                    claims = {"email": f"{name}@example.com", "roles": roles}
                    async with session.put(f"{issuer}/users/{name}", json=claims) as answer:
                        assert answer.status == 204
            yield issuer
        finally:
            process.terminate()
            await process.wait()


async def _answers(session: aiohttp.ClientSession, issuer: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get(f"{issuer}/.well-known/openid-configuration") as answer:
            return answer.status == 200
    return False
