"""Style, scripts and pictures: read once, served under a name that changes with their content, so kept for ever.

They share one hash, as modules import each other by relative names. An address with an old hash, from a page that was
open while the server was updated, is answered with what there is now, and not kept.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"


@cache
def contents() -> dict[str, bytes]:
    found = files("noonbell.web").joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in found if file.name.rpartition(".")[2] in TYPES}


@cache
def fingerprint() -> str:
    whole = hashlib.sha256()
    for name, content in sorted(contents().items()):
        whole.update(f"{name} {len(content)} ".encode() + content)
    return whole.hexdigest()[:12]


def address(name: str) -> str:
    """Where a page finds it, from the dashboard's root."""
    if name not in contents():
        raise LookupError(f"there is no static/{name}")
    return f"/static/{fingerprint()}/{name}"


async def serve(request: Request) -> Response:
    name = str(request.path_params["name"])
    content = contents().get(name)
    if content is None:
        raise HTTPException(404)
    kept = FOR_EVER if request.path_params["hash"] == fingerprint() else "no-cache"
    headers = {"cache-control": kept, "content-security-policy": "default-src 'none'; sandbox"}
    return Response(content, headers=headers, media_type=TYPES[name.rpartition(".")[2]])


def route() -> Route:
    return Route("/static/{hash}/{name}", serve, methods=["GET"])
