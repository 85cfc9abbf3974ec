"""The outcome of an exchange: status and body as they are judged, and the texts as they are kept."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from noonbell.clock import SECOND, Instant, from_datetime
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.run import RESENT, RunBodies
from noonbell.targets import failure, secrets
from noonbell.targets.exchange import Exchange
from noonbell.targets.request import Request, is_async

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-8|utf-16(-le|-be)?|ascii|iso8859-\d+|cp125\d|cp874|cp866|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|cp932"
    r"|euc_(jp|kr)|cp949|mac-roman|tis-620"
)
"""Python's names of the charsets that a target may name. Not every codec: some take hours over a few megabytes."""

_CACHED = 100
"""Longer content types are read anew each time."""

_LONGEST_MESSAGE = 1000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What databases refuse in a text."""


def outcome(
    assignment: Assignment,
    request: Request,
    exchange: Exchange,
    went_wrong: tuple[str, str] | None,
    now: Callable[[], Instant],
) -> Outcome:
    """What came of the attempt. `went_wrong` is kind and message of what broke the exchange off, if anything did."""
    status = exchange.status
    judged = None if status is None else failure.of_status(status, exchange.reason)
    if went_wrong is None or (status is not None and went_wrong[0] == failure.TOO_LARGE):
        went_wrong = judged  # the status decides, however much is said with it
    hidden = request.hidden
    if hidden is None:
        hidden = secrets.hidden(request.headers, assignment.lease.callback_token)
    bodies = _bodies(request, exchange, hidden)
    if went_wrong is None:
        kind = OutcomeKind.ACCEPTED if is_async(assignment) else OutcomeKind.SUCCESS
        noted = {RESENT: True} if exchange.is_resent else None
        return Outcome(kind=kind, response_code=status, error_details=noted, bodies=bodies)
    name, message = went_wrong
    message = secrets.conceal(storable(message)[:_LONGEST_MESSAGE], hidden)
    details: dict[str, Any] = {"kind": name}
    if exchange.address is not None:
        details["address"] = exchange.address
    if bodies.truncated:
        details["truncated"] = True
    if exchange.is_resent:
        details[RESENT] = True
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure=name,
        response_code=status,
        retry_after=retry_after(exchange.watched.get("retry-after"), now()) if status in {429, 503} else None,
        error_message=message,
        error_details=details,
        bodies=bodies,
    )


def retry_after(value: str | None, now: Instant) -> float | None:
    """Seconds to wait, from a number of seconds or an HTTP date; None if it says nothing that can be understood."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), 1e9)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, math.ceil((from_datetime(moment) - now) / SECOND))


def storable(text: str) -> str:
    """The text without what no database takes: NUL and halves of characters."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def text_of(body: bytes | bytearray, content_type: str | None) -> str:
    """The body as text, by its charset where that is a known one."""
    if content_type is None:
        return storable(body.decode("utf-8", "replace"))
    charset = _charset(content_type) if len(content_type) <= _CACHED else _read_charset(content_type)
    return storable(body.decode(charset, "replace"))


def _read_charset(content_type: str) -> str:
    named = _CHARSET.search(content_type)
    try:
        charset = codecs.lookup(named[1] if named else "utf-8").name
    except LookupError:
        return "utf-8"
    return charset if _CHARSETS.fullmatch(charset) else "utf-8"


_charset = lru_cache(maxsize=256)(_read_charset)


def _bodies(request: Request, exchange: Exchange, hidden: Sequence[str]) -> RunBodies:
    headers = request.masked
    if headers is None:
        headers = secrets.masked(request.headers, hidden)
    asked = request.body
    if asked is not None:
        asked = secrets.conceal(storable(asked), hidden)
    if exchange.status is None:
        return RunBodies(request_headers=headers, request_body=asked)
    said = text_of(exchange.body, exchange.watched.get("content-type")) if exchange.body else ""
    return RunBodies(
        request_headers=headers,
        request_body=asked,
        response_headers=secrets.masked(exchange.headers, hidden),
        response_body=secrets.conceal(said, hidden) if hidden else said,
        truncated=not exchange.is_whole,
    )
