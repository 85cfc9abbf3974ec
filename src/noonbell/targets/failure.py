"""What went wrong with a request, in the words of `error_details.kind`."""

from __future__ import annotations

import errno
import os
import ssl
import zlib

from noonbell.targets.exchange import Exchange, TooLarge
from noonbell.targets.guard import BlockedAddress
from noonbell.targets.pool import ConnectTimeout, NoSuchHost, Undialled
from noonbell.targets.redirect import BadRedirect
from noonbell.targets.wire import BrokenBody, Disconnected, NotHttp

TOO_LARGE = "too_large"

_REFUSED = {
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
    errno.ECONNRESET,
}


def of_error(error: Exception, exchange: Exchange, seconds: float) -> tuple[str, str]:
    """Kind and message for what broke an exchange off. `seconds` is the task's timeout."""
    match error:
        case BlockedAddress():
            return "blocked_address", str(error)
        case BadRedirect():
            return "http_3xx", str(error)
        case TooLarge():
            return TOO_LARGE, "the answer is larger than executor.max_body_bytes"
        case ConnectTimeout():
            return "connect_timeout", "no connection within executor.connect_timeout"
        case NoSuchHost():
            return "dns", str(error)
        case Undialled():
            return _of_dial(error, exchange)
        case TimeoutError():
            return "timeout", f"no whole answer within {seconds:g} s"
        case Disconnected():
            return "connection_lost", _of_loss(exchange)
        case NotHttp():
            return "protocol_error", f"the answer is not HTTP: {error}"
        case BrokenBody() | zlib.error():
            return "protocol_error", f"the body is broken: {error}"
        case _:
            return "error", f"{type(error).__name__}: {error}"


def of_status(status: int, reason: str) -> tuple[str, str] | None:
    """Kind and message for an answer that is not a success; None for 2xx."""
    if 200 <= status < 300:
        return None
    said = f"the target answered {status} {reason}".rstrip()
    if 300 <= status < 600:
        return f"http_{status // 100}xx", said
    return "protocol_error", said


def _of_loss(exchange: Exchange) -> str:
    if exchange.status is not None:
        return "the connection was lost before the answer was whole"
    return "the connection was lost after the request was sent: the target may have done its work"


def _of_dial(undialled: Undialled, exchange: Exchange) -> tuple[str, str]:
    error, where = undialled.error, exchange.address
    if isinstance(error, ssl.SSLError):
        return "tls", f"TLS failed: {error}"
    if isinstance(error, TimeoutError):
        return "connect_timeout", f"{where} does not answer"
    if error.errno in _REFUSED:
        return "connection_refused", f"{where}: {os.strerror(error.errno)}"
    return "connection_refused", f"{where} cannot be reached: {error}"
