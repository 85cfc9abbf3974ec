"""Roll-ups: how many runs ended in a minute, an hour or a day, how they ended, and how long they took and waited.

A fact is what one run, or several that are alike, add to the figures. `Figures` are sums of facts; two of them can be
added.

Percentiles come from a sketch: a value is counted in bucket `ceil(log(value) / log(G))`, and a percentile is answered
with the value in the middle of its bucket, which is off by `ERROR` of the true one at most. A sketch of many runs is
the sum of sketches of few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.model.run import FAILURES, SUCCEEDED, Origin, RunStatus

ERROR: Final = 0.02
"""By how much of the true value a percentile may be off."""
G: Final = (1 + ERROR) / (1 - ERROR)
"""Each bucket ends where the one before it ends, times this."""
_PER_BUCKET: Final = 1 / math.log(G)
_MIDDLE: Final = 2 / (G + 1)

DROPPED: Final = "DROPPED"
"""Counted beside the statuses of runs: slots that a misfire policy left out, which have no run."""


class Scope(StrEnum):
    """What figures are of."""

    ALL = "all"
    TASK = "task"
    QUEUE = "queue"
    WORKER = "worker"


class Span(msgspec.Struct, frozen=True):
    """How long one row of figures is, and how long it is kept. Microseconds."""

    length: int
    kept: int

    def begin(self, at: int) -> Instant:
        """Where the row that has this moment begins."""
        return Instant(at - at % self.length)

    def end(self, at: int) -> Instant:
        """Where the row that has the moment before this one ends."""
        return Instant(-(-at // self.length) * self.length)


MINUTE: Final = Span(60 * SECOND, 2 * 86_400 * SECOND)
HOUR: Final = Span(3_600 * SECOND, 90 * 86_400 * SECOND)
DAY: Final = Span(86_400 * SECOND, 3 * 366 * 86_400 * SECOND)
"""Of UTC."""
SPANS: Final = (MINUTE, HOUR, DAY)


class Fact(NamedTuple):
    """Runs that ended alike. Of each: how long it took, how late it started and how long it waited, in microseconds."""

    task_id: int
    queue: str | None
    worker_id: str | None
    status: str
    is_inner: int
    """1 for a part, a step or a child, which its task's figures do not count: the run above it is counted there."""
    end_time: int
    number: int
    """How many they are."""
    duration: int | None
    start_delay: int | None
    queue_time: int | None


def fact(
    task_id: int,
    queue: str,
    worker_id: str | None,
    status: str,
    origin: str,
    parent_id: int | None,
    attempt: int,
    times: tuple[int, int, int | None, int],
) -> Fact:
    """`times` are run_at, created_at, start_time and end_time of the run.

    A run that was attempted again began to wait anew, and its row has the start of its last attempt only: it has no start delay.
    """
    run_at, created_at, start, end = times
    duration = delay = waited = None
    if start is not None:
        duration = max(0, end - start)
        if attempt == 1:
            asked = max(run_at, created_at)
            delay = max(0, start - (run_at if origin == Origin.SCHEDULE else asked))
            waited = max(0, start - asked)
    return Fact(task_id, queue, worker_id, str(status), int(parent_id is not None), end, 1, duration, delay, waited)


class Sketch(msgspec.Struct, array_like=True):
    """How values are distributed."""

    count: int = 0
    total: int = 0
    largest: int = 0
    zeros: int = 0
    buckets: dict[int, int] = {}

    def add(self, value: int, count: int) -> None:
        self.count += count
        self.total += value * count
        self.largest = max(self.largest, value)
        if value <= 0:
            self.zeros += count
        else:
            bucket = math.ceil(math.log(value) * _PER_BUCKET)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def merge(self, other: Sketch) -> None:
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.zeros += other.zeros
        buckets = self.buckets
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count

    def percentile(self, share: float) -> int | None:
        """The value that this share of them does not exceed, to within `ERROR` of it; None of nothing."""
        if not self.count:
            return None
        rank = max(1, math.ceil(share * self.count))
        seen = self.zeros
        if seen >= rank:
            return 0
        for bucket, count in sorted(self.buckets.items()):
            seen += count
            if seen >= rank:
                return min(self.largest, round(G**bucket * _MIDDLE))
        return self.largest

    @property
    def mean(self) -> int | None:
        return self.total // self.count if self.count else None


class Figures(msgspec.Struct):
    """Sums over runs."""

    counts: dict[str, int] = {}
    """By status; and `DROPPED`."""
    duration: Sketch = msgspec.field(default_factory=Sketch)
    start_delay: Sketch = msgspec.field(default_factory=Sketch)
    queue_time: Sketch = msgspec.field(default_factory=Sketch)

    def add(self, fact: Fact) -> None:
        self.counts[fact.status] = self.counts.get(fact.status, 0) + fact.number
        if fact.duration is not None:
            self.duration.add(fact.duration, fact.number)
        if fact.start_delay is not None:
            self.start_delay.add(fact.start_delay, fact.number)
        if fact.queue_time is not None:
            self.queue_time.add(fact.queue_time, fact.number)

    def merge(self, other: Figures) -> None:
        for status, count in other.counts.items():
            self.counts[status] = self.counts.get(status, 0) + count
        self.duration.merge(other.duration)
        self.start_delay.merge(other.start_delay)
        self.queue_time.merge(other.queue_time)

    def _of(self, statuses: Iterable[str]) -> int:
        return sum(self.counts.get(str(status), 0) for status in statuses)

    @property
    def runs(self) -> int:
        """All that ended, without the slots that have no run."""
        return sum(self.counts.values()) - self.dropped

    @property
    def succeeded(self) -> int:
        return self._of(SUCCEEDED)

    @property
    def failed(self) -> int:
        return self._of(FAILURES - {RunStatus.CANCELED})

    @property
    def canceled(self) -> int:
        return self._of([RunStatus.CANCELED])

    @property
    def skipped(self) -> int:
        return self._of([RunStatus.SKIPPED])

    @property
    def dropped(self) -> int:
        return self.counts.get(DROPPED, 0)

    @property
    def success(self) -> float | None:
        """The share of what succeeded or failed that succeeded."""
        decided = self.succeeded + self.failed
        return self.succeeded / decided if decided else None


class RollUp(NamedTuple):
    """Figures of one thing over one stretch."""

    name: str
    """The id of a task, the name of a queue or the id of a worker."""
    at: Instant
    """Where the row begins; where the whole stretch begins, if rows were added up."""
    figures: Figures


class QueueDepth(NamedTuple):
    """How many runs waited in a queue, over one stretch in which samples were taken."""

    at: Instant
    """Where the stretch begins."""
    samples: int
    """How often it was looked at: once a minute."""
    waiting: int
    """The sum over the samples."""
    most: int
    longest_wait: int
    """How long the run had been due that waited longest. Microseconds."""

    @property
    def mean(self) -> float:
        return self.waiting / self.samples


class Stretch(NamedTuple):
    """What figures cover: whole minutes, hours or days, as far back as each is kept."""

    since: Instant
    until: Instant


def finest(since: int, now: int) -> Span:
    """The shortest rows that are there since then."""
    return next((span for span in SPANS if since >= now - span.kept + span.length), DAY)


def stretch_of(since: int, until: int, now: int, step: Span | None = None) -> Stretch:
    """The stretch that can be told of: it begins and ends where rows do, and has all of what was asked for."""
    span = step or finest(since, now)
    return Stretch(span.begin(since), span.end(until))


def pieces(stretch: Stretch, now: int) -> list[tuple[Span, Instant, Instant]]:
    """The fewest rows that cover it: days where whole days are in it, hours and minutes at its ends."""
    span = finest(stretch.since, now)
    until = stretch.until if stretch.until < now else DAY.end(max(stretch.until, now))  # nothing is behind the present
    return _cover(SPANS.index(span), stretch.since, until)


def _cover(level: int, since: Instant, until: Instant) -> list[tuple[Span, Instant, Instant]]:
    if since >= until:
        return []
    span = SPANS[level]
    if level + 1 == len(SPANS):
        return [(span, since, until)]
    longer = SPANS[level + 1]
    first, last = longer.end(since), longer.begin(until)
    if first >= last:
        return [(span, since, until)]
    ends = [(span, begin, end) for begin, end in ((since, first), (last, until)) if begin < end]
    return [*ends, *_cover(level + 1, first, last)]


class RebuildState(msgspec.Struct, frozen=True, kw_only=True):
    """How far figures have been counted again from history."""

    is_under_way: bool
    since: Instant
    until: Instant | None
    position: int
    cleaned_to: Instant
    """History before this moment is no longer whole."""
