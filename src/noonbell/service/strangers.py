"""Callbacks that nobody knows, counted by who sends them: what is forged must fill neither a table nor a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from noonbell.service.peers import group_of

MOST_PEERS: Final = 10_000
"""Remembered at once; when there are more, those who have been quiet for longest are forgotten."""


class Strangers:
    def __init__(self, most: int = 60, seconds: float = 60.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`most` forged callbacks in `seconds` are answered as what they are; the rest of them with RATE_LIMITED."""
        self._most, self._seconds, self._monotonic = most, seconds, monotonic
        self._seen: dict[str, tuple[float, int]] = {}

    def is_tiresome(self, peer: str) -> bool:
        """Whether the peer has sent too many of them lately. A good callback of the same peer is heard all the same."""
        since, count = self._seen.get(group_of(peer), (0.0, 0))
        return count >= self._most and self._monotonic() - since < self._seconds

    def note(self, peer: str) -> None:
        now = self._monotonic()
        group = group_of(peer)
        since, count = self._seen.pop(group, (now, 0))
        fresh = now - since >= self._seconds
        self._seen[group] = (now, 1) if fresh else (since, count + 1)
        while len(self._seen) > MOST_PEERS:
            del self._seen[next(iter(self._seen))]
