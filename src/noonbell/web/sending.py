"""How an answer goes over the wire: compressed, and not at all where the browser has the page already.

A page is known by a tag of what it says. What passes by itself is no part of it: the server's clock, and the words of how long
ago something was, which the browser counts on by itself. Live pages ask again each second; while nothing happens, they get
304 and no body.

Only answers to GET are compressed: what is shown once, such as a new token, is the answer to a form.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_SMALLEST: Final = 1_000
"""Bytes: below that, compressing saves no packet."""
_LEVEL: Final = 5
_TEXTS: Final = ("text/", "application/json", "image/svg+xml", "application/manifest+json")
_TAG: Final = b' data-tag=""'
"""Where base.html leaves room for the tag, so that the first live refresh can name it."""
_PASSING: Final = re.compile(rb'data-now="\d+"|<span class="relative" data-at="-?\d+">[^<]*</span>')


def sent(request: Request, answer: Response) -> Response:
    """The answer as it is sent to that browser."""
    if request.method not in ("GET", "HEAD") or not hasattr(answer, "body"):
        return answer
    if answer.status_code == 200 and _TAG in answer.body and "set-cookie" not in answer.headers:
        tag = tag_of(bytes(answer.body))
        answer.headers["etag"] = f'W/"{tag}"'
        if _names(request.headers.get("if-none-match", ""), tag):
            return _unchanged(answer)
        replace_body(answer, bytes(answer.body).replace(_TAG, f' data-tag="{tag}"'.encode(), 1))
    return compressed(request, answer)


def tag_of(page: bytes) -> str:
    return hashlib.sha256(_PASSING.sub(b"", page)).hexdigest()[:20]


def _names(header: str, tag: str) -> bool:
    return any(each.strip().removeprefix("W/") == f'"{tag}"' for each in header[:1_000].split(","))


def _unchanged(answer: Response) -> Response:
    kept = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    return Response(status_code=304, headers=kept)


def compressed(request: Request, answer: Response, ready: bytes | None = None) -> Response:
    """`ready`: the body, compressed already."""
    body = bytes(answer.body)
    if not answer.headers.get("content-type", "").startswith(_TEXTS) or len(body) < _SMALLEST:
        return answer
    answer.headers["vary"] = "Accept-Encoding"
    if takes_gzip(request.headers.get("accept-encoding", "")):
        replace_body(answer, gzip.compress(body, _LEVEL, mtime=0) if ready is None else ready)
        answer.headers["content-encoding"] = "gzip"
    return answer


def takes_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` names gzip with a weight above 0."""
    for each in header[:1_000].lower().split(","):
        name, *more = (part.strip() for part in each.split(";"))
        if name == "gzip":
            return not any(re.fullmatch(r"q=0(?:\.0{0,3})?", part) for part in more)
    return False


def replace_body(answer: Response, body: bytes) -> None:
    answer.body = body
    answer.headers["content-length"] = str(len(body))
