"""The outbound guard: the table of addresses that may not be dialled, in every disguise."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.targets.http.guard import AddressGuard, BlockedAddress, carried

NEVER_BY_DEFAULT = [
    "0.0.0.0",
    "0.1.2.3",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "192.0.0.192",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "fe80::1",
    "fe80::1%1",
    "fe80::a9fe:a9fe",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "fd00:a9fe:a9fe::1",
    "fd00:100::100:200",
]

DISGUISES = {
    "mapped": "::ffff:{0}",
    "translated": "::ffff:0:{0}",
    "compatible": "::{0}",
    "nat64": "64:ff9b::{0}",
    "nat64, local": "64:ff9b:1::{0}",
    "nat64, local, other prefix": "64:ff9b:1:ffff::{0}",
    "isatap": "2001:db8::5efe:{0}",
    "isatap, global": "2001:db8::200:5efe:{0}",
}

ORDINARY = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd12::1",
    "8.8.8.8",
]


def six_to_four(inner: str) -> str:
    high, low = divmod(int(ipaddress.IPv4Address(inner)), 1 << 16)
    return f"2002:{high:x}:{low:x}::1"


def teredo(inner: str) -> str:
    """With the address as that of the client, where it stands with every bit turned over."""
    high, low = divmod(int(ipaddress.IPv4Address(inner)) ^ 0xFFFF_FFFF, 1 << 16)
    return f"2001:0:808:808::{high:x}:{low:x}"


def rfc6052(inner: str, prefix: int) -> str:
    """The address behind a NAT64 prefix of 48, 56 or 64 bits, around the empty ninth octet."""
    octets = bytearray(ipaddress.IPv6Address("64:ff9b:1::").packed)
    places = [place for place in range(prefix // 8, 16) if place != 8][:4]
    for place, octet in zip(places, ipaddress.IPv4Address(inner).packed, strict=True):
        octets[place] = octet
    return str(ipaddress.IPv6Address(bytes(octets)))


def disguised(inner: str) -> list[str]:
    forms = [form.format(inner) for form in DISGUISES.values()]
    return [*forms, six_to_four(inner), teredo(inner), *(rfc6052(inner, prefix) for prefix in (48, 56, 64))]


def is_blocked(guard: AddressGuard, address: str) -> bool:
    try:
        guard.check(address, 80)
    except BlockedAddress:
        return True
    return False


@pytest.mark.parametrize("address", NEVER_BY_DEFAULT)
def test_denied_by_default(address):
    with pytest.raises(BlockedAddress):
        AddressGuard().check(address, 80)


@pytest.mark.parametrize("address", ORDINARY)
def test_an_internal_scheduler_calls_internal_addresses(address):
    AddressGuard().check(address, 80)


@pytest.mark.parametrize("address", disguised("169.254.169.254"))
def test_metadata_is_denied_in_every_disguise(address):
    with pytest.raises(BlockedAddress):
        AddressGuard().check(address, 80)


def test_the_refusal_says_where_a_disguise_leads():
    with pytest.raises(BlockedAddress, match=r"leads to 169\.254\.169\.254: link-local.*executor\.allow_networks"):
        AddressGuard().check("64:ff9b::a9fe:a9fe", 80)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0", "::", *disguised("127.0.0.1")])
def test_denied_loopback_is_denied_in_every_disguise(address):
    with pytest.raises(BlockedAddress):
        AddressGuard(deny_networks=["127.0.0.0/8", "::1/128"]).check(address, 80)


@given(st.ip_addresses(v=4))
def test_an_address_in_disguise_is_judged_like_itself(inner):
    guard = AddressGuard(deny_networks=["10.0.0.0/8"])
    if int(inner) > 1 and is_blocked(guard, str(inner)):
        assert [form for form in disguised(str(inner)) if not is_blocked(guard, form)] == []


def test_ordinary_ipv6_addresses_carry_nothing():
    for address in ("::1", "::", "2606:4700::1111", "fd12::1", "fe80::1"):
        assert list(carried(ipaddress.ip_address(address))) == []


@pytest.mark.parametrize(
    ("allow", "deny", "address", "blocked"),
    [
        (["169.254.169.254/32"], [], "169.254.169.254", False),
        (["169.254.0.0/16"], [], "169.254.169.254", False),
        (["0.0.0.0/0"], [], "169.254.169.254", True),  # wider than the denial that stands
        (["169.254.169.254/32"], [], "::ffff:169.254.169.254", False),
        (["::ffff:0:0/96"], [], "::ffff:169.254.169.254", True),  # what it leads to is still denied
        ([], ["0.0.0.0/0"], "8.8.8.8", True),
        (["10.1.0.0/16"], ["0.0.0.0/0"], "10.1.2.3", False),
        (["10.1.0.0/16"], ["0.0.0.0/0"], "10.2.2.3", True),
        (["10.0.0.0/8"], ["10.0.0.5/32"], "10.0.0.5", True),
        (["10.0.0.0/8"], ["10.0.0.0/8"], "10.0.0.5", True),
    ],
)
def test_the_narrowest_rule_decides_and_among_equals_the_denial(allow, deny, address, blocked):
    assert is_blocked(AddressGuard(allow, deny), address) is blocked


@pytest.mark.parametrize("text", ["localhost", "", "127.1", "0x7f.1", "1.2.3.4:80", "[::1]"])
def test_what_is_not_a_numeric_address_is_denied(text):
    with pytest.raises(BlockedAddress):
        AddressGuard().check(text, 80)


@pytest.mark.parametrize("port", [22, 25, 3306, 5432, 6379, 11211])
def test_the_ports_of_other_protocols_are_denied(port):
    with pytest.raises(BlockedAddress, match=str(port)):
        AddressGuard().check("127.0.0.1", port)
    AddressGuard(deny_ports=()).check("127.0.0.1", port)


@pytest.mark.parametrize("port", [80, 443, 3000, 5000, 8000, 8080, 8443, 9000, 9200, 49152])
def test_the_ports_of_http_services_are_not(port):
    AddressGuard().check("127.0.0.1", port)


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "ws", "unix", "", "javascript"])
def test_only_http_and_https_are_spoken(scheme):
    with pytest.raises(BlockedAddress):
        AddressGuard().check_scheme(scheme)


def test_a_bad_network_is_an_error_of_the_settings():
    with pytest.raises(ValueError, match="does not appear"):
        AddressGuard(allow_networks=["10.0.0.0/8", "everything"])


INWARD = ["8.8.8.8", "192.168.1.1", "127.0.0.1"]
"""From the internet to this machine."""


@pytest.mark.parametrize("origin", INWARD)
@pytest.mark.parametrize("address", INWARD)
def test_a_redirect_may_lead_outward_and_never_further_inside(origin, address):
    if INWARD.index(address) <= INWARD.index(origin):
        AddressGuard().check_redirect(origin, address)
    else:
        with pytest.raises(BlockedAddress, match="redirect from"):
            AddressGuard().check_redirect(origin, address)


@pytest.mark.parametrize(
    "address", ["::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "fd12::1", "10.0.0.1", "100.64.0.1"]
)
def test_a_redirect_from_outside_is_judged_by_where_it_leads(address):
    AddressGuard().check_redirect(None, address)
    AddressGuard().check_redirect("127.0.0.1", address)
    with pytest.raises(BlockedAddress):
        AddressGuard().check_redirect("2606:4700::1111", address)
