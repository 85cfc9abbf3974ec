"""Reverse proxies: whose word is taken for who calls, and how a forwarded request is known.

A proxy tells the address of its caller in `X-Forwarded-For`, and so can anybody who writes that header. It is believed
from the networks of `server.trusted_proxies` alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, TypeAlias

from starlette.datastructures import Headers
from starlette.types import Scope

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-real-ip"})
_FORWARDED_PREFIX: Final = b"x-forwarded-"


def is_forwarded(headers: Headers) -> bool:
    """Whether a proxy says that it passes the request on. The caller behind it may be anybody."""
    return any(name in _FORWARDED or name.startswith(_FORWARDED_PREFIX) for name, _ in headers.raw)


class TrustedProxies:
    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def apply(self, scope: Scope, headers: Headers) -> None:
        """Set `client` and `scheme` of the request to what a trusted proxy says of its caller."""
        if not self._networks or scope.get("client") is None or not self._trusts(_address(scope["client"][0])):
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
            if not self._trusts(address):
                return found
        return found

    def _trusts(self, address: IPAddress | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


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
