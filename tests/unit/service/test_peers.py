from __future__ import annotations

import pytest

from noonbell.service.access import MOST_PEERS, PeerLimit, group_of


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::1", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix:", "unix:"),
    ],
)
def test_a_peer_is_counted_by_its_address_and_in_ipv6_by_its_network(peer, group):
    assert group_of(peer) == group


def test_the_peers_that_are_remembered_are_bounded():
    counted = PeerLimit(10, monotonic=lambda: 0.0)
    for number in range(MOST_PEERS + 500):
        counted.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(counted._seen) == MOST_PEERS
