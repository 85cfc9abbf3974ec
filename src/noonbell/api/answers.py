"""Answers: JSON by msgspec, plain text, and the id that a request is known by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

REQUEST_ID = "noonbell.request_id"
"""Where the scope of a request holds its id: the trace id."""

_encode = msgspec.json.Encoder().encode


def request_id(scope: Any) -> str:
    return str(scope.get(REQUEST_ID, ""))


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(body), status, headers=headers, media_type="application/json")


def text_answer(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/plain; charset=utf-8")


def page_answer(items: list[Any], page: Any, number: int, size: int) -> Response:
    """`total` is null where the page was asked for by cursor: counting is what a cursor spares."""
    told = {"items": items, "total": page.total, "page": number, "page_size": size, "next_cursor": page.next_cursor}
    return json_answer({**told, "total_is_least": True} if page.is_least else told)
