"""Limits on what a caller may send: the size of a body, the depth and the numbers of its JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request

from noonbell.errors import InvalidArgument, InvalidJson
from noonbell.service.reader import DEEPEST, depth

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one request's body. What says it is larger is refused before a byte of it is read.

Half of what MariaDB takes in one statement unless it is told otherwise: what comes in can be kept on every store.
"""

_decode = msgspec.json.Decoder().decode


async def read_json(request: Request) -> Any:
    """The body as JSON; None if there is none. InvalidJson within milliseconds, whatever it is."""
    body = await request.body()
    return None if not body.strip() else decode(body)


def decode(body: bytes) -> Any:
    try:
        value = _decode(body)
    except msgspec.MsgspecError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidJson(f"the body is nested deeper than {DEEPEST} levels") from None
    # Few bodies have so many brackets that they could be too deep; only those are looked at.
    if body.count(b"[") + body.count(b"{") > DEEPEST and depth(value) > DEEPEST:
        raise InvalidJson(f"the body is nested deeper than {DEEPEST} levels")
    return value


async def read_object(request: Request, *, required: bool = False) -> dict[str, Any]:
    """The body as an object; without a body, an empty one."""
    value = await read_json(request)
    if value is None and not required:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument("the body is not an object; expected {…} with the fields that /docs lists")
    return value
