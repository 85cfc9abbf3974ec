"""Peers, as they are counted: one caller can have many addresses."""

from __future__ import annotations

import ipaddress


def group_of(peer: str) -> str:
    """What the peer is counted as: its address; of an IPv6 address the /64, all of which one caller usually has."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
