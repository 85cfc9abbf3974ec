"""Errors as answers: one body for all of them, and never a stack trace.

{"code", "message", "request_id", "details", "error"}      `error` repeats the code, for clients of old
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from noonbell.api.answers import json_answer, request_id
from noonbell.errors import NoonbellError

log = logging.getLogger("noonbell.api")

STATUS: Final[Mapping[str, int]] = {
    "INVALID_JSON": 400,
    "INVALID_ARGUMENT": 400,
    "INVALID_ID": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "ALREADY_EXISTS": 409,
    "CONCURRENCY_LIMIT": 409,
    "INVALID_STATE": 409,
    "LEASE_LOST": 409,
    "VERSION_CONFLICT": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "RATE_LIMITED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
"""Every code that an answer may carry, with its HTTP status."""

_BY_STATUS: Final = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "PAYLOAD_TOO_LARGE"}


def error_answer(
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
    return json_answer(body, STATUS[code], headers)


def answer_for(scope: Any, error: BaseException) -> Response:
    """What the caller is told of an error; one that nobody foresaw is logged and told as INTERNAL."""
    match error:
        case NoonbellError() if error.code in STATUS and error.code != "INTERNAL":
            headers = _headers_for(error)
            return error_answer(scope, error.code, error.message, error.details, headers)
        case HTTPException():
            code = _BY_STATUS.get(error.status_code, "INTERNAL" if error.status_code >= 500 else "INVALID_ARGUMENT")
            return error_answer(scope, code, _said(error, scope), headers=error.headers)
        case _:
            log.error("request %s failed", request_id(scope), exc_info=error)
            return error_answer(scope, "INTERNAL", "something went wrong here; the log has it under the request_id")


def _headers_for(error: NoonbellError) -> dict[str, str] | None:
    match error.code:
        case "UNAVAILABLE" | "RATE_LIMITED":
            return {"retry-after": str(error.details.get("retry_after", 1))}
        case "UNAUTHORIZED":
            return {"www-authenticate": "Bearer"}
        case _:
            return None


def _said(error: HTTPException, scope: Any) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return "there is nothing at this address; /docs lists what there is"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return f"this address does not take {scope['method']}; it takes {allowed}"
    return str(error.detail)


def install(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        return answer_for(request.scope, error)

    app.add_exception_handler(NoonbellError, answer)
    app.add_exception_handler(HTTPException, answer)
