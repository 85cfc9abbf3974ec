"""Where a request goes: what connections are shared by."""

from __future__ import annotations

from typing import NamedTuple

from yarl import URL


class Place(NamedTuple):
    scheme: str
    host: str
    """As it is looked up: in ASCII, an IPv6 address without its brackets."""
    port: int


def place_of(url: URL) -> Place:
    """Raises ValueError for a URL that leads to no host."""
    host, port = url.raw_host, url.port
    if not host or port is None:
        raise ValueError(f"{url} has no host")
    return Place(url.scheme, host, port)
