"""De-duplication of publishes: which of several that share a key make a run, and when it starts. Pure.

    key        one run at a time: while one is not final, no other is made
    throttle   one run in `seconds`: the first publish starts it at once, or the last one is done when they are over
    debounce   one run for a burst: the last publish, when none came for `seconds`; or the first, at once

`keep` says which publish of several counts: for `debounce` the last by default, else the first. A debounced run waits no
longer than `max_wait_seconds` after the first publish, however many follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from noonbell.clock import SECOND, Instant
from noonbell.model.request import Dedupe, DedupeKeep, DedupeMode


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest run of a key."""

    created_at: Instant
    """When the first publish asked for it."""
    is_final: bool
    was_claimed: bool
    until: Instant | None = None
    """Of a leading debounce: how long it holds others off, by the last publish."""


@dataclass(frozen=True, slots=True)
class Make:
    """A new run; `run_at` None: at once. `until` as in Standing."""

    run_at: Instant | None = None
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class Stand:
    """The standing run is the answer, as it is; `until` is what it holds others off to from now on."""

    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """The standing run gets what this publish carries; `run_at` None: at the time that it has."""

    run_at: Instant | None = None


def decide(dedupe: Dedupe, standing: Standing | None, now: Instant) -> Make | Stand | Replace:
    match dedupe.mode:
        case DedupeMode.KEY:
            if standing is None or standing.is_final:
                return Make()
            return Stand() if dedupe.keeps is DedupeKeep.FIRST or standing.was_claimed else Replace()
        case DedupeMode.THROTTLE:
            return _throttle(dedupe, standing, now)
        case DedupeMode.DEBOUNCE if dedupe.keeps is DedupeKeep.LAST:
            return _trailing(dedupe, standing, now)
        case DedupeMode.DEBOUNCE:
            return _leading(dedupe, standing, now)
        case _:
            assert_never(dedupe.mode)


def _throttle(dedupe: Dedupe, standing: Standing | None, now: Instant) -> Make | Stand | Replace:
    is_trailing = dedupe.keeps is DedupeKeep.LAST
    if standing is None or now >= standing.created_at + span(dedupe.seconds):
        return Make(Instant(now + span(dedupe.seconds)) if is_trailing else None)
    return Replace() if is_trailing and not standing.was_claimed and not standing.is_final else Stand()


def _trailing(dedupe: Dedupe, standing: Standing | None, now: Instant) -> Make | Replace:
    """What a worker has taken is done; the next publish begins a burst of its own."""
    if standing is None or standing.was_claimed or standing.is_final:
        return Make(_latest(dedupe, now, now))
    return Replace(_latest(dedupe, standing.created_at, now))


def _leading(dedupe: Dedupe, standing: Standing | None, now: Instant) -> Make | Stand:
    """Quiet for `seconds` ends the burst, and so does its longest time."""
    if standing is None or standing.until is None or now >= standing.until:
        return Make(None, _latest(dedupe, now, now))
    return Stand(_latest(dedupe, standing.created_at, now))


def _latest(dedupe: Dedupe, since: Instant, now: Instant) -> Instant:
    until = now + span(dedupe.seconds)
    return Instant(until if dedupe.max_wait_seconds is None else min(until, since + span(dedupe.max_wait_seconds)))


def span(seconds: float | None) -> int:
    return round((seconds or 0) * SECOND)
