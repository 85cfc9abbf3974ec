"""What the API sends back: JSON, plain text, pages of a list, and errors.

All errors have one body, and never a stack trace: {"code", "message", "request_id", "details", "error"}. `error` repeats the
code, for older clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from noonbell.errors import HTTP_STATUS, NoonbellError
from noonbell.fields import meta
from noonbell.model.request import Page, PageQuery
from noonbell.service.filters import REQUEST_ID


class Deleted(msgspec.Struct, frozen=True):
    deleted: Annotated[bool, meta(examples=[True])]


_encode = msgspec.json.Encoder().encode


def request_id(scope: Any) -> str:
    return str(scope.get(REQUEST_ID, ""))


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(body), status, headers=headers, media_type="application/json")


def etag(version: int) -> dict[str, str]:
    """The header that names the version, for `If-Match`."""
    return {"etag": f'"{version}"'}


def text_response(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/plain; charset=utf-8")


def page_answer(items: list[Any], page: Page[Any], query: PageQuery) -> dict[str, Any]:
    """`total` is null where the page was asked for by cursor: counting is what a cursor spares."""
    told = {"items": items, "total": page.total, "page": query.page, "page_size": query.page_size}
    return {**told, "next_cursor": page.next_cursor, **({"total_is_least": True} if page.is_least else {})}


log = logging.getLogger("noonbell.api")

_BY_STATUS: Final = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "PAYLOAD_TOO_LARGE"}


def error_response(
    scope: Any,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {
        "code": code,
        "message": message,
        "request_id": request_id(scope),
        "details": dict(details or {}),
        "error": code,
    }
    return json_response(body, HTTP_STATUS[code], headers)


def response_for(scope: Any, error: BaseException) -> Response:
    """The response for an error. An unexpected one is logged and answered as INTERNAL."""
    match error:
        case NoonbellError() if error.code in HTTP_STATUS and error.code != "INTERNAL":
            headers = _headers_for(error)
            return error_response(scope, error.code, error.message, error.details, headers)
        case HTTPException():
            code = _BY_STATUS.get(error.status_code, "INTERNAL" if error.status_code >= 500 else "INVALID_ARGUMENT")
            return error_response(scope, code, _message(error, scope), headers=error.headers)
        case _:
            log.error("request %s failed", request_id(scope), exc_info=error)
            return error_response(scope, "INTERNAL", "something went wrong here; the log has it under the request_id")


def _headers_for(error: NoonbellError) -> dict[str, str] | None:
    match error.code:
        case "UNAVAILABLE" | "RATE_LIMITED":
            return {"retry-after": str(error.details.get("retry_after", 1))}
        case "UNAUTHORIZED":
            return {"www-authenticate": "Bearer"}
        case _:
            return None


def _message(error: HTTPException, scope: Any) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return "there is nothing at this path; /docs lists what there is"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return f"this path does not support {scope['method']}; it supports {allowed}"
    return str(error.detail)


async def on_error(request: Request, error: Exception) -> Response:
    return response_for(request.scope, error)
