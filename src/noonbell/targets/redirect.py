"""Redirects: the request that follows a 3xx answer, and what it must not carry to another origin."""

from __future__ import annotations

from yarl import URL

from noonbell.targets import signing
from noonbell.targets.guard import SCHEMES
from noonbell.targets.request import Request
from noonbell.targets.secrets import is_secret

MOST_HOPS = 5

_OF_THE_BODY = ("content-type", "content-encoding", signing.ID, signing.TIMESTAMP, signing.SIGNATURE)
_FOR_THE_FIRST_ORIGIN = ("x-callback-url", "x-callback-token", signing.ID, signing.TIMESTAMP, signing.SIGNATURE)


class BadRedirect(Exception):
    """An answer of 3xx that leads nowhere we go."""


def redirected(request: Request, status: int, location: str | None, callback_token: str | None) -> Request:
    """The next request, or BadRedirect. Its scheme and its address are the guard's to judge."""
    if not location:
        raise BadRedirect(f"{status} without a Location")
    try:
        url = request.url.join(URL(location)).with_fragment(None)
        # A password in a Location is the target's word, not the task's: it is not sent.
        url = url.with_user(None) if url.host else url
    except ValueError as error:
        raise BadRedirect(f"{status} with a Location that cannot be read: {error}") from None
    if url.scheme in SCHEMES and not url.host:
        raise BadRedirect(f"{status} with a Location that names no host")
    becomes_get = (status == 303 and request.method != "HEAD") or (status in {301, 302} and request.method == "POST")
    if becomes_get:
        kept = _without(request.headers, _OF_THE_BODY)
        request = Request("GET", request.url, kept, None, None)
    if _origin(url) != _origin(request.url):
        if callback_token and callback_token in f"{request.body or ''}{url}":
            raise BadRedirect(f"{status} would hand the callback token to another origin")
        kept = {name: value for name, value in request.headers.items() if not is_secret(name)}
        return Request(request.method, url, _without(kept, _FOR_THE_FIRST_ORIGIN), request.body, request.content)
    return Request(request.method, url, request.headers, request.body, request.content)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _without(headers: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}
