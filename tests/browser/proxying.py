"""A small web server for a test, and a reverse proxy that shows a node under a prefix, as one in front of it would."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_NOT_PASSED_ON = frozenset({"content-length", "transfer-encoding", "connection"})


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """Its port, on loopback."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def under_prefix(port: int, prefix: str) -> AsyncIterator[int]:
    """The port of a proxy that passes what comes under `prefix` on to `port`, without the prefix, and nothing else."""

    async def forward(request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if not path.startswith(f"{prefix}/"):
            return web.Response(status=404, text=f"not under {prefix}/")
        query = request.rel_url.raw_query_string
        upstream = f"http://127.0.0.1:{port}{path.removeprefix(prefix)}" + (f"?{query}" if query else "")
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        content = await request.read()
        async with (
            aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.request(request.method, upstream, headers=headers, data=content, allow_redirects=False) as told,
        ):
            answer = web.StreamResponse(status=told.status)
            for name, value in told.headers.items():
                if name.lower() not in _NOT_PASSED_ON:
                    answer.headers.add(name, value)
            await answer.prepare(request)
            with contextlib.suppress(ConnectionResetError):
                async for piece in told.content.iter_any():
                    await answer.write(piece)
            return answer

    async with serving(forward) as own:
        yield own
