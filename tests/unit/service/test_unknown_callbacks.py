"""What peers do wrong is counted by who does it, for a while."""

from __future__ import annotations

from noonbell.service import access
from noonbell.service.access import PeerLimit


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_peer_is_tiresome_after_so_many_and_only_for_a_while():
    clock = Hands()
    counted = PeerLimit(most=3, seconds=60, monotonic=clock)
    for _ in range(3):
        assert not counted.seconds_left("a")
        counted.note("a")
    assert counted.seconds_left("a")
    assert not counted.seconds_left("b")
    clock.now += 59
    counted.note("a")
    assert counted.seconds_left("a")
    clock.now += 1
    assert not counted.seconds_left("a")
    counted.note("a")
    assert not counted.seconds_left("a")


def test_a_few_now_and_then_are_no_trouble():
    clock = Hands()
    counted = PeerLimit(most=3, seconds=60, monotonic=clock)
    for _ in range(20):
        counted.note("a")
        clock.now += 30
        assert not counted.seconds_left("a")


def test_who_has_been_quiet_for_longest_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(access, "MOST_PEERS", 2)
    counted = PeerLimit(most=1)
    for peer in ("a", "b", "a", "c"):
        counted.note(peer)
    assert [counted.seconds_left(peer) > 0 for peer in ("a", "b", "c")] == [True, False, True]
