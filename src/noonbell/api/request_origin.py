"""Where a request came from: through which proxy, by which host name, from a page of which site.

`X-Forwarded-For` is believed only from the networks of `server.trusted_proxies`: any caller can write that header.

Where no token is required, the host name is checked. A page of another site can point its own name at this machine (DNS
rebinding); its requests are then same-origin to the browser, and only the name in `Host` shows the difference. A request that a
proxy forwards may come from anywhere, so it is never taken for a call of this machine.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from noonbell.errors import Forbidden, NoonbellError
from noonbell.settings import Settings

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-real-ip"})
_FORWARDED_PREFIX: Final = b"x-forwarded-"


def is_forwarded(headers: Headers) -> bool:
    """Whether a proxy says that it passes the request on. The caller behind it may be anybody."""
    return any(name in _FORWARDED or name.startswith(_FORWARDED_PREFIX) for name, _ in headers.raw)


class _Networks:
    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def _holds(self, address: IPAddress | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


class TrustedProxies(_Networks):
    def apply(self, scope: Scope, headers: Headers) -> None:
        """Set `client` and `scheme` of the request to what a trusted proxy says of its caller."""
        if not self._networks or scope.get("client") is None or not self._holds(_address(scope["client"][0])):
            return
        scheme = headers.get("x-forwarded-proto", "").strip().lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        caller = self._caller(headers)
        if caller is not None:
            scope["client"] = (str(caller), 0)

    def _caller(self, headers: Headers) -> IPAddress | None:
        """The last address that no trusted proxy has: what stands before it, the caller may have written.

        None where the header is missing, or says no address at that place.
        """
        found = None
        for part in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
            address = _address(part.strip())
            if address is None:
                return found
            found = address
            if not self._holds(address):
                return found
        return found


class AllowedCallers(_Networks):
    """Addresses that requests may come from; without any, all are let in."""

    def problem(self, scope: Scope) -> Forbidden | None:
        """None for a caller that may. A caller without an address came by a socket of this machine."""
        if not self._networks or scope.get("client") is None or self._holds(_address(scope["client"][0])):
            return None
        return Forbidden("requests from this address are not accepted; server.allowed_callers lists those that are")


def _address(text: str) -> IPAddress | None:
    """`10.0.0.7`, `10.0.0.7:51000`, `2001:db8::1`, `[2001:db8::1]:51000`; an IPv4 address within IPv6 as IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


ANY_NAME: Final = "*"
_ASK: Final = "auth.enabled: true requires tokens"
_OPEN: Final = re.compile(r"(?:/legacy)?/api/v1/(?:healthz|livez|readyz|callbacks/[^/]+)")
"""Need no token on any server: a probe has none, and a callback brings its own."""


class AllowedHosts:
    """Which requests are taken without a token."""

    def __init__(self, names: Iterable[str], *, forwarded: bool) -> None:
        """`names`: taken besides `localhost` and addresses. `forwarded`: whether a proxy may pass requests on."""
        self._names = frozenset(names)
        self._forwarded = forwarded
        self._last_taken = "localhost"
        """A host that was taken: most callers use the same one all the time."""

    @classmethod
    def of(cls, settings: Settings) -> AllowedHosts:
        """A written `auth.enabled: false` says that a proxy may decide who comes in; no setting at all does not."""
        ours = (settings.server.public_url, settings.callback.base_url)
        names = {urlsplit(address).hostname or "" for address in ours if address is not None}
        return cls({*names, *settings.server.allowed_hosts}, forwarded=settings.auth.enabled is False)

    def problem(self, scope: Scope, headers: Headers) -> NoonbellError | None:
        if _OPEN.fullmatch(scope["path"]):
            return None
        if not self._forwarded and is_forwarded(headers):
            return Forbidden(
                "no token is required here, so only this machine may call, and a proxy forwarded this;"
                f" {_ASK}, and setting auth.enabled: false explicitly says that the proxy does"
            )
        host = headers.get("host", "")
        if not host or host == self._last_taken:
            return None
        name = _name_in(host)
        if self._takes(name):
            self._last_taken = host
            return None
        return Forbidden(
            "no token is required here, so it can be reached only as localhost or by its IP address, not as"
            f" {name[:100]!r}; {_ASK}, and server.allowed_hosts lists the hosts that are accepted without"
        )

    def _takes(self, name: str) -> bool:
        if ANY_NAME in self._names or name in self._names:
            return True
        return name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _name_in(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or host).rstrip(".")
    except ValueError:  # a bracket that is not closed, and the like
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def from_another_site(scope: Scope, headers: Headers) -> NoonbellError | None:
    """A page of another site may make a browser send requests here; only browsers send these two headers."""
    if scope["method"] in _SAFE:
        return None
    if headers.get("sec-fetch-site") == "cross-site":
        return Forbidden("a page of another site may not do this")
    return None if "origin" not in headers or is_same_origin(headers) else foreign_origin(headers)


def foreign_origin(headers: Headers) -> NoonbellError:
    """The page was not loaded from where it sends this to; where the browser says that it was, a proxy has changed `Host`."""
    if headers.get("sec-fetch-site") not in (None, "same-origin"):
        return Forbidden("a page of another site may not do this")
    origin, host = headers.get("origin", "")[:100], headers.get("host", "")[:100]
    return Forbidden(
        f"the page comes from {origin!r}, and this server was called as {host!r}: a page of another site may not do this."
        " If both are this server, let the proxy in front of it pass Host on (nginx: proxy_set_header Host $host;)"
    )


def is_same_origin(headers: Headers) -> bool:
    """Whether the page that made a browser send this came from where it is sent to.

    The two are compared letter by letter, and not parsed: a header written to be misread never equals our address.
    """
    host = headers.get("host")
    return bool(host) and headers.get("origin") in (f"http://{host}", f"https://{host}")
