"""What went wrong with a request, in the words of `error_details.kind`."""

from __future__ import annotations

import errno
import ssl
import zlib

import aiohttp

from noonbell.targets.exchange import Exchange, TooLarge
from noonbell.targets.guard import BlockedAddress
from noonbell.targets.redirect import BadRedirect

_REFUSED = {
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
    errno.ECONNRESET,
}


def of_error(error: Exception, exchange: Exchange, seconds: float) -> tuple[str, str]:
    """Kind and message for an error of the HTTP client. `seconds` is the task's timeout."""
    if exchange.blocked is not None and exchange.address is None:
        return "blocked_address", str(exchange.blocked)
    match error:
        case BlockedAddress():
            return "blocked_address", str(error)
        case BadRedirect():
            return "http_3xx", str(error)
        case TooLarge():
            return "too_large", "the answer is larger than executor.max_body_bytes"
        case aiohttp.ConnectionTimeoutError():
            return "connect_timeout", "no connection within executor.connect_timeout"
        case aiohttp.ClientConnectorDNSError():
            return "dns", f"{error.host} cannot be resolved: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return "tls", f"TLS failed: {error}"
        case aiohttp.ClientConnectorError():
            return _of_dial(error, exchange)
        case TimeoutError():
            return "timeout", f"no whole answer within {seconds:g} s"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientConnectionResetError() | ConnectionError():
            return "protocol_error", "the target closed the connection without a whole answer"
        case aiohttp.ClientResponseError():
            return (
                "protocol_error",
                f"the answer is not HTTP: {error.message.splitlines()[0] if error.message else error}",
            )
        case aiohttp.ClientPayloadError() | zlib.error():
            return "protocol_error", f"the body is broken: {error}"
        case aiohttp.InvalidURL():
            return "fail", f"target_url cannot be called: {error}"
        case aiohttp.ClientError() | OSError():
            return "protocol_error", f"the exchange broke off: {error}"
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


def _of_dial(error: aiohttp.ClientConnectorError, exchange: Exchange) -> tuple[str, str]:
    number = error.os_error.errno
    where = exchange.address or f"{error.host}:{error.port}"
    if number == errno.ETIMEDOUT:
        return "connect_timeout", f"{where} does not answer"
    if number in _REFUSED:
        return "connection_refused", f"{where}: {error.os_error.strerror or error.os_error}"
    return "connection_refused", f"{where} cannot be reached: {error.os_error}"
