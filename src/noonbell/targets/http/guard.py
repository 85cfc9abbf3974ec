"""The outbound guard: which addresses a target may be dialled at.

It judges the address that is really dialled, after the name was resolved, and never the text of a URL. So odd spellings,
names that point inside, rebinding names and redirects all come to the same check.

An internal scheduler calls internal services: private networks and loopback are allowed. Cloud metadata, link-local,
multicast and the other addresses of `DENIED` are not, unless the installation allows them. Of the rules that match an
address the narrowest decides, and among equals a denial. An IPv6 address that carries an IPv4 address inside is judged
twice, by what it is and by what it leads to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import urlsplit

from noonbell.model.failure_text import failure_text

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SCHEMES = frozenset({"http", "https"})

DENIED = {
    "0.0.0.0/8": "this host",
    "100.100.100.200/32": "cloud metadata",
    "168.63.129.16/32": "cloud metadata",
    "169.254.0.0/16": "link-local and cloud metadata",
    "192.0.0.192/32": "cloud metadata",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved and broadcast",
    "::/128": "this host",
    "64:ff9b:1::/48": "a NAT64 prefix that hides the real address",
    "fd00:42::42/128": "cloud metadata",
    "fd00:100::100:200/128": "cloud metadata",
    "fd00:a9fe:a9fe::1/128": "cloud metadata",
    "fd00:c1::a9fe:a9fe/128": "cloud metadata",
    "fd00:ec2::/32": "cloud metadata",
    "fd20:ce::254/128": "cloud metadata",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
"""Denied unless a narrower or equal network is allowed by the installation."""

SERVICE_PORTS = frozenset(
    {
        *(7, 9, 19, 21, 22, 23, 25, 53, 69, 79, 110, 111, 119, 135, 137, 139, 143, 161, 179, 389, 445, 465),
        *(512, 513, 514, 515, 543, 544, 548, 554, 563, 587, 636, 873, 993, 995, 1433, 1521, 2049, 3306, 3389),
        *(5432, 5672, 6000, 6379, 6380, 6667, 9042, 11211, 27017),
    }
)
"""Ports of protocols that a crafted HTTP request could speak to by accident or on purpose. No HTTP service lives there."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_TEREDO = ipaddress.IPv6Network("2001::/32")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The first half of an interface identifier that ends in an IPv4 address."""


class BlockedAddress(OSError):
    """The guard's no. An OSError, because that is what a dial may raise."""


class AddressGuard:
    """`allow_networks` and `deny_networks` are in CIDR form; a bad one raises ValueError."""

    def __init__(
        self,
        allow_networks: Iterable[str] = (),
        deny_networks: Iterable[str] = (),
        *,
        deny_ports: Collection[int] = SERVICE_PORTS,
    ) -> None:
        rules: dict[Network, str] = {ipaddress.ip_network(text): reason for text, reason in DENIED.items()}
        rules |= {ipaddress.ip_network(text): "" for text in allow_networks}
        rules |= {ipaddress.ip_network(text): "denied by executor.deny_networks" for text in deny_networks}
        self._rules = sorted(rules.items(), key=lambda rule: rule[0].prefixlen, reverse=True)
        self._deny_ports = frozenset(deny_ports)

    def check(self, address: str, port: int | None = None) -> None:
        """Raise BlockedAddress unless a connection to this numeric address may be opened."""
        if port in self._deny_ports:
            raise BlockedAddress(failure_text("port_denied", port=port))
        try:
            dialled = ipaddress.ip_address(address)
        except ValueError:
            raise BlockedAddress(f"{address!r} is not a numeric address") from None
        for candidate in (dialled, *carried(dialled)):
            if reason := self._denial(candidate):
                inner = "" if candidate == dialled else f", which leads to {candidate}"
                raise BlockedAddress(failure_text("address_denied", address=f"{address}{inner}", error=reason))

    def url_problem(self, url: str) -> str | None:
        """Why this URL is denied for certain: by its port, or by a numeric address. A name is judged when it is dialled."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.port not in self._deny_ports and not _is_numeric(host):
            return None
        try:
            self.check(host, parts.port)
        except BlockedAddress as error:
            return str(error)
        return None

    def check_redirect(self, origin: str | None, address: str) -> None:
        """Raise BlockedAddress if the answer of a host at `origin` leads to an address that is further inside than it.

        A task may name an address inside; a target must not choose one that it cannot reach itself. None: no redirect.
        """
        if origin is not None and _depth(address) > _depth(origin):
            raise BlockedAddress(failure_text("redirect_inside", address=address, origin=origin))

    def check_scheme(self, scheme: str) -> None:
        if scheme not in SCHEMES:
            raise BlockedAddress(failure_text("scheme_denied", scheme=repr(scheme)))

    def _denial(self, address: Address) -> str:
        """Why not; empty if nothing stands against it."""
        for network, reason in self._rules:
            if address.version == network.version and address in network:
                return reason
        return ""


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _depth(address: str) -> int:
    """0 for the public internet, 1 for private networks, 2 for this machine. What it leads to counts as well."""
    dialled = ipaddress.ip_address(address)
    found = (dialled, *carried(dialled))
    return max(2 if each.is_loopback else 0 if each.is_global else 1 for each in found)


def carried(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that a dial to this IPv6 address can end at."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    octets = address.packed
    if address in _MAPPED or address in _TRANSLATED or address in _NAT64:
        yield ipaddress.IPv4Address(octets[12:])
    elif address in _COMPATIBLE:
        if int(address) > 1:  # `::` and `::1` are addresses of their own, not 0.0.0.0 and 0.0.0.1 in disguise.
            yield ipaddress.IPv4Address(octets[12:])
    elif address in _SIX_TO_FOUR:
        yield ipaddress.IPv4Address(octets[2:6])
    elif address in _TEREDO:
        yield ipaddress.IPv4Address(octets[4:8])
        yield ipaddress.IPv4Address(bytes(octet ^ 0xFF for octet in octets[12:]))
    if int.from_bytes(octets[8:12]) in _ISATAP:
        yield ipaddress.IPv4Address(octets[12:])
