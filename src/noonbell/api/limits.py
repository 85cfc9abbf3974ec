"""Limits on what a caller may send: the size of a body, and what its JSON may be."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from noonbell.errors import InvalidArgument
from noonbell.service.json_text import decoded, joined, too_large

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one request's body. What says it is larger is refused before a byte of it is read.

Half of what MariaDB takes in one statement unless it is told otherwise: what comes in can be kept on every store.
"""
USUAL_BYTES: Final = 1024 * 1024
"""Of the body of an endpoint that takes neither payloads of runs nor many things at once."""
DISCARDED_BYTES: Final = 64 * 1024
"""Of a body that is not looked at: a caller that has sent no more than this hears the answer on a whole connection."""

LIMIT: Final = "noonbell.most_bytes"
"""In a request's scope: the largest body that its endpoint takes."""


async def read_body(request: Request) -> bytes:
    """The body; PayloadTooLarge if it is larger than the endpoint takes, unread if it says so itself."""
    most_bytes: int = request.scope.get(LIMIT, USUAL_BYTES)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > most_bytes:
        raise too_large(most_bytes)
    return await joined(request.stream(), most_bytes)


async def discard_body(request: Request) -> None:
    """Read a body that is of no use, and stop after DISCARDED_BYTES of it."""
    left = DISCARDED_BYTES
    try:
        async for piece in request.stream():
            left -= len(piece)
            if left <= 0:
                return
    except ClientDisconnect:
        return


async def read_json(request: Request) -> Any:
    """The body as JSON; None if there is none. InvalidJson within milliseconds, whatever it is."""
    body = await read_body(request)
    return await decoded(body) if body.strip() else None


async def read_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """The body as an object; without a body, an empty one."""
    return as_object(await read_json(request), required=required)


def as_object(value: Any, *, required: bool = False) -> dict[str, Any]:
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument("the body is not an object; expected {…} with the fields that /docs lists")
    return value
