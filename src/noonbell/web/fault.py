"""What went wrong, as a page that says what did not happen and what to do; or as JSON for our own script."""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from noonbell.errors import NoonbellError
from noonbell.web.visit import Visit

STATUS: Final[dict[str, int]] = {
    "INVALID_JSON": 400,
    "INVALID_ARGUMENT": 400,
    "INVALID_ID": 404,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "CONCURRENCY_LIMIT": 409,
    "INVALID_STATE": 409,
    "VERSION_CONFLICT": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "RATE_LIMITED": 429,
    "UNAVAILABLE": 503,
}


def answer(visit: Visit, error: NoonbellError | None) -> Response:
    """None: something that nobody foresaw, and of which the log has more than a visitor should see."""
    code = "INTERNAL" if error is None or error.code not in STATUS else error.code
    message = visit.words("error.internal") if code == "INTERNAL" or error is None else error.message
    status = STATUS.get(code, 500)
    if visit.wants_json:
        return JSONResponse({"error": message, "code": code, "request_id": visit.request_id}, status)
    return visit.page(
        "error.html",
        status,
        code=code,
        message=message,
        details={} if error is None else error.details,
        is_missing=status == 404,
        title=visit.words("error.missing" if status == 404 else "error.title"),
    )
