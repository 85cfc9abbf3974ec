"""Time, as this house tells it: the only module that reads the machine's wall clock, and the engine's seconds that only grow.

An *instant* is an integer: microseconds since 1970-01-01 UTC. A *slot* is an integer too, in whole seconds.
Integers compare the same way in Python and in every database, never carry a wrong zone, and stay below 2^53.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NewType, Protocol

Instant = NewType("Instant", int)
"""Microseconds since 1970-01-01 UTC."""

Slot = NewType("Slot", int)
"""Seconds since 1970-01-01 UTC: a moment that a schedule names."""

SECOND = 1_000_000
"""One second in the unit of an Instant."""

EARLIEST = -62_104_060_800
"""0002-01-01T00:00:00Z: the first slot. A year from the end of the calendar, so that every zone can show it."""

LATEST = 253_370_764_799
"""9998-12-31T23:59:59Z: the last one."""


class Clock(Protocol):
    def now(self) -> Instant:
        """The present instant. Never used to decide what is due: that is the store's clock."""
        ...


class SystemClock:
    def now(self) -> Instant:
        return Instant(time.time_ns() // 1000)


class ManualClock:
    """A clock that stands still until a test or a simulation moves it."""

    def __init__(self, start: Instant | datetime) -> None:
        self._now = from_datetime(start) if isinstance(start, datetime) else start

    def now(self) -> Instant:
        return self._now

    def set(self, instant: Instant | datetime) -> None:
        self._now = from_datetime(instant) if isinstance(instant, datetime) else instant

    def advance(self, seconds: float) -> None:
        self._now = Instant(self._now + round(seconds * SECOND))


_seconds: Callable[[], float] = time.monotonic


def read_monotonic() -> float:
    """Seconds that only grow: what the engine measures pauses and waits with. Nothing that is stored depends on them."""
    return _seconds()


@contextlib.contextmanager
def monotonic_from(source: Callable[[], float]) -> Iterator[None]:
    """Until this is left, `read_monotonic` reads `source`, in the whole process: a simulation owns its time."""
    global _seconds  # noqa: PLW0603 - one clock for the process, as the machine's is
    before, _seconds = _seconds, source
    try:
        yield
    finally:
        _seconds = before


def from_datetime(moment: datetime) -> Instant:
    """Exact for any aware datetime; a naive one is refused, because it names no instant."""
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone")
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Instant((delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds)


def to_datetime(instant: int) -> datetime:
    seconds, micros = divmod(instant, SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)


def slot_of(instant: int) -> Slot:
    """The slot that an instant lies in: whole seconds, rounded down."""
    return Slot(instant // SECOND)


def instant_of(slot: int) -> Instant:
    return Instant(slot * SECOND)


def rfc3339(instant: int) -> str:
    """UTC with `Z`; fractions only where there are any."""
    text = to_datetime(instant).isoformat()  # several times as fast as strftime
    return text[:19] + text[19:-6].rstrip("0") + "Z"


def rfc3339_or_none(instant: int | None) -> str | None:
    return None if instant is None else rfc3339(instant)
