"""Redirects: the request that follows a 3xx answer, and what it must not carry to another origin."""

from __future__ import annotations

from dataclasses import replace

from yarl import URL

from noonbell.targets import signing
from noonbell.targets.request import Request
from noonbell.targets.secrets import is_secret

STATUSES = frozenset({301, 302, 303, 307, 308})
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
    becomes_get = (status == 303 and request.method != "HEAD") or (status in {301, 302} and request.method == "POST")
    if becomes_get:
        kept = _without(request.headers, _OF_THE_BODY)
        request = replace(request, method="GET", headers=kept, body=None, content=None)
    if _origin(url) != _origin(request.url):
        if callback_token and callback_token in f"{request.body or ''}{url}":
            raise BadRedirect(f"{status} would hand the callback token to another origin")
        kept = {name: value for name, value in request.headers.items() if not is_secret(name)}
        request = replace(request, headers=_without(kept, _FOR_THE_FIRST_ORIGIN))
    return replace(request, url=url)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _without(headers: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}
