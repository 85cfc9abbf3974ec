"""Rate limit: how many may start now, so that no stretch of `per_seconds` ever sees more than `max` starts.

Two rules, both kept in one small state that a store holds in one row per limiter:

- **The log** is exact. It remembers each grant of the last `per_seconds`; what it holds and what is granted now never
  exceed `max`. A grant leaves the log a microsecond after `per_seconds`, so the rule holds for stretches that include
  both of their ends.
- **The pace** keeps a backlog flowing instead of stopping after one burst per stretch. It applies from `max` 20 on.
  Each start moves the theoretical arrival time (`tat`) by one step; it may be ahead of now by a sixteenth of `max`, the
  burst. As long as callers wait, `tat` moves by whole steps and nothing else, so a caller who comes a little late
  finds what it missed still there. The step is 1/64 longer than per_seconds / max: a flow that keeps just clear of the
  log is not thrown out of step by it each time a caller is late. The price is a steady flow of 98.5 % of the limit.

Lock the row, then read the clock, then ask. If the clock was set back, the log is moved back with it: the limit still
holds, and no caller waits longer than one stretch.
"""

from __future__ import annotations

import math

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.task import RateLimit

PACED_FROM = 20
BURST_PART = 16
"""The burst is this part of `max`: also what a stretch can fall short by, right after the burst has left it."""
_SLACK = 64
_LOG_SIZE = 128
"""Above this many starts, grants that lie close together share an entry, so that the row stays small."""


class RateState(msgspec.Struct, frozen=True):
    tat: int = 0
    """Microseconds: when the next start would be due if starts came at an even pace."""
    log: tuple[tuple[int, int], ...] = ()
    """(instant, count) of the grants that still weigh, oldest first."""


class Grant(msgspec.Struct, frozen=True):
    count: int
    state: RateState
    next_at: Instant | None
    """When asking again is worthwhile; None if all that was wanted was granted."""


def grant(limit: RateLimit, state: RateState, now_us: int, wanted: int) -> Grant:
    """Grant up to `wanted` starts at `now_us`, the moment that the starts are counted at."""
    window = math.ceil(limit.per_seconds * SECOND)
    state = _trimmed(_not_ahead(state, now_us), now_us - window)
    room = limit.max - sum(count for _, count in state.log)
    pace = _Pace(limit.max, window) if limit.max >= PACED_FROM else None
    if pace is not None:
        state = msgspec.structs.replace(state, tat=pace.clamped(state.tat, now_us))
        room = min(room, pace.room(state.tat, now_us))
    count = max(0, min(wanted, room))
    if count:
        tat = pace.advanced(state.tat, now_us, count) if pace else 0
        state = RateState(tat, _with_entry(limit, state.log, window, now_us, count))
    missing = wanted - count
    if missing <= 0:
        return Grant(count, state, None)
    if limit.max <= 0:
        return Grant(0, state, Instant(now_us + window))  # in case it has been raised by then
    # Wake for half a burst at once: not for every single start, and early enough that a late caller loses nothing.
    worthwhile = min(missing, pace.half_burst if pace else 1)
    at = _log_frees(limit, state, window, worthwhile)
    if pace is not None:
        at = max(at, pace.room_at(state.tat, worthwhile))
    return Grant(count, state, Instant(max(at, now_us + 1)))


class _Pace:
    """A generic cell rate algorithm over whole microseconds, rounded so that it is never too fast."""

    def __init__(self, max_starts: int, window: int) -> None:
        self._numerator = window * (_SLACK + 1)
        self._denominator = max_starts * _SLACK
        burst = -(-max_starts // BURST_PART)
        self._tolerance = self._span(burst)
        self.half_burst = max(1, burst // 2)

    def clamped(self, tat: int, now: int) -> int:
        """Never further ahead than a full burst: a limit that was slower before leaves no debt behind."""
        return min(tat, now + self._tolerance)

    def room(self, tat: int, now: int) -> int:
        ahead = max(0, tat - now)
        return max(0, self._tolerance - ahead) * self._denominator // self._numerator

    def room_at(self, tat: int, count: int) -> int:
        """When there will be room for `count`."""
        return tat + self._span(count) - self._tolerance

    def advanced(self, tat: int, now: int, count: int) -> int:
        return max(tat, now) + self._span(count)

    def _span(self, count: int) -> int:
        return -(-count * self._numerator // self._denominator)


def _not_ahead(state: RateState, now: int) -> RateState:
    """After a step back of the clock, treat the newest grant as made just now and keep the distances between them."""
    ahead = state.log[-1][0] - now if state.log else 0
    if ahead <= 0:
        return state
    return RateState(state.tat - ahead, tuple((instant - ahead, count) for instant, count in state.log))


def _trimmed(state: RateState, horizon: int) -> RateState:
    """Entries at the horizon itself stay: a stretch includes both of its ends."""
    gone = 0
    while gone < len(state.log) and state.log[gone][0] < horizon:
        gone += 1
    return RateState(state.tat, state.log[gone:]) if gone else state


def _with_entry(
    limit: RateLimit, log: tuple[tuple[int, int], ...], window: int, now: int, count: int
) -> tuple[tuple[int, int], ...]:
    if log and (log[-1][0] == now or (limit.max > _LOG_SIZE and _shares_entry(log[-1][0], now, window))):
        # The later instant stands for both: they weigh a little longer, never shorter.
        return (*log[:-1], (now, log[-1][1] + count))
    return (*log, (now, count))


def _shares_entry(earlier: int, now: int, window: int) -> bool:
    grain = max(1, window // _LOG_SIZE)
    return earlier // grain == now // grain


def _log_frees(limit: RateLimit, state: RateState, window: int, count: int) -> int:
    """When the log will have room for `count` more."""
    room = limit.max - sum(granted for _, granted in state.log)
    at = 0
    for instant, granted in state.log:
        if room >= count:
            break
        room += granted
        at = instant + window + 1
    return at
