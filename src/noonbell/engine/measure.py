"""The store's clock, told without asking it: how far it is from this process's monotonic clock.

One question gives an offset with an error of half the time that the answer took. The best of a few is kept for a while;
every other answer of the store that carries its time is a check, and one that does not fit (somebody set the clock)
throws the offset away.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from noonbell.clock import SECOND, Instant
from noonbell.ports import Store

_QUESTIONS = 3
_GOOD_FOR = 60.0
"""Seconds after which an offset is measured anew: two quartz clocks drift apart by a few milliseconds in that time."""
_TOLERANCE = 0.005


class StoreTime:
    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._offset: float | None = None
        self._measured_at = 0.0

    async def refresh(self) -> None:
        """Measure if the last measurement is old or was thrown away."""
        if self._offset is None or self._monotonic() - self._measured_at > _GOOD_FOR:
            await self._measure()

    async def _measure(self) -> None:
        shortest = float("inf")
        for _ in range(_QUESTIONS):
            asked = self._monotonic()
            told = await self._store.now()
            answered = self._monotonic()
            if answered - asked < shortest:
                shortest = answered - asked
                self._offset = told / SECOND - (asked + answered) / 2
        self._measured_at = self._monotonic()

    def check(self, told: Instant, asked: float, answered: float) -> None:
        """The store said it was `told` at some moment between `asked` and `answered` (monotonic)."""
        if self._offset is None:
            return
        earliest, latest = asked + self._offset - _TOLERANCE, answered + self._offset + _TOLERANCE
        if not earliest <= told / SECOND <= latest:
            self._offset = None

    def until(self, instant: Instant) -> float:
        """Seconds from now to an instant of the store's clock; below zero if it has passed. Zero if nothing is known."""
        if self._offset is None:
            return 0.0
        return instant / SECOND - (self._monotonic() + self._offset)
