"""Figures over time: how many runs waited in a queue, from samples that are taken each minute; how long the runs of a
queue waited and how busy a worker was, from the roll-ups, which count a run in the hour and the day in which it
ended.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument
from noonbell.fields import FROM_TO, Moment, filled, meta
from noonbell.model.rollup import DAY, HOUR, MINUTE, Figures, QueueDepth, Scope, Span, Stretch, stretch_of
from noonbell.ports import Store
from noonbell.service.queues import checked_name
from noonbell.service.service_levels import FigureStep
from noonbell.service.stats import Spread, milliseconds, spread


class SeriesStep(enum.StrEnum):
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


_SPANS: Final = {SeriesStep.MINUTE: MINUTE, SeriesStep.HOUR: HOUR, SeriesStep.DAY: DAY}
_LONGER: Final = {SeriesStep.MINUTE: SeriesStep.HOUR, SeriesStep.HOUR: SeriesStep.DAY}


class SeriesList(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: Annotated[Moment | None, meta("Start of the time range; a day before `to` if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range; now if left out.")] = None
    by: Annotated[
        SeriesStep,
        meta("Each minute (kept for 2 days), hour (90 days) or day of UTC (3 years).", examples=["hour"]),
    ] = SeriesStep.HOUR


class QueueDepthStep(msgspec.Struct, frozen=True, kw_only=True):
    """Null: no sample was taken, because no node lived or none reached the store."""

    at: Annotated[Moment, meta("Its start.")]
    samples: Annotated[int, meta("The number of samples: one per minute.", examples=[60])]
    waiting: Annotated[float | None, meta("Runs that were due and waited, on average.", examples=[12.5])]
    most_waiting: Annotated[int | None, meta(examples=[40])]
    longest_wait_ms: Annotated[int | None, meta("How long the longest-waiting run had been due.", examples=[91_000])]


class QueueDepthAnswer(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    component: ClassVar[str] = "QueueDepth"

    name: Annotated[str, meta(examples=["default"])]
    since: Moment
    until: Moment
    by: Annotated[SeriesStep, meta(examples=["hour"])]
    items: Annotated[list[QueueDepthStep], meta("Every step of the time range, oldest first.")]


class LoadList(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    since: Annotated[Moment | None, meta("Start of the time range; a day before `to` if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range; now if left out.")] = None
    by: Annotated[FigureStep, meta("Each hour (kept for 90 days) or day of UTC (3 years).", examples=["hour"])] = (
        FigureStep.HOUR
    )


class LoadStep(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[Moment, meta("Its start.")]
    runs: Annotated[int, meta("Those that ended in it, skipped ones too.", examples=[288])]
    failed: Annotated[int, meta(examples=[1])]
    success_ratio: Annotated[float | None, meta(examples=[0.9965])]
    queue_time_ms: Annotated[Spread, meta("From when a run existed and was due to its start.")]
    duration_ms: Annotated[Spread, meta("From start to end.")]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    name: Annotated[str, meta(examples=["default"])]
    since: Moment
    until: Moment
    by: Annotated[FigureStep, meta(examples=["hour"])]
    total: Annotated[LoadStep, meta("The whole time range.")]
    items: Annotated[list[LoadStep], meta("Every step of the time range, oldest first.")]


class WorkerLoadStep(LoadStep, frozen=True, kw_only=True):
    busy: Annotated[
        float | None,
        meta(
            "How much of the time of its places was spent on runs that ended in the step, counted by the places that the worker has now."
            " Over 1 where they began before it; null before the worker started, and without places. A worker that started again under its"
            " name has the time of before from its first run on.",
            examples=[0.42],
        ),
    ]


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    worker_id: Annotated[str, meta(examples=["host-1-4711"])]
    concurrency: Annotated[int, meta("Its places.", examples=[10])]
    since: Moment
    until: Moment
    by: Annotated[FigureStep, meta(examples=["hour"])]
    total: Annotated[WorkerLoadStep, meta("The whole time range.")]
    items: Annotated[list[WorkerLoadStep], meta("Every step of the time range, oldest first.")]


def busy_share(figures: Figures, places: int, seconds: float) -> float:
    """How much of the time of `places` places was spent on runs that ended in these seconds; over 1 where they began before."""
    room = places * seconds * SECOND
    return figures.duration.total / room if room > 0 else 0.0


def seconds_at_work(
    steps: Mapping[Instant, Figures], length: int, until: Instant, places: int = 0, started_at: Instant = Instant(0)
) -> dict[Instant, float]:
    """How much of each step a worker could work in: of what has passed of it, the part since it started.

    A worker may have started again under its name. Figures that do not fit into the time since then are those of the
    process before it, and from the first of them on the whole time counts.
    """
    found, was_there = {}, False
    for at in sorted(steps):
        end = min(at + length, until)
        since_start = max(0, end - max(at, started_at))
        was_there = was_there or (places > 0 and steps[at].duration.total > places * since_start)
        found[at] = (max(0, end - at) if was_there else since_start) / SECOND
    return found


class TimeSeries:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def queue(self, name: str, asked: LoadList) -> QueueStats:
        """How long the runs of a queue waited and took."""
        name = checked_name(name)
        _, stretch, until, found = await self._load(Scope.QUEUE, name, asked)
        return QueueStats(
            name=name,
            since=stretch.since,
            until=until,
            by=asked.by,
            total=_load(stretch.since, _sum(found.values())),
            items=[_load(at, figures) for at, figures in found.items()],
        )

    async def worker(self, worker_id: str, places: int, started_at: Instant, asked: LoadList) -> WorkerStats:
        """How long the runs of a worker took, and how busy it was."""
        span, stretch, until, found = await self._load(Scope.WORKER, worker_id, asked)

        def busy(figures: Figures, seconds: float) -> float | None:
            return round(busy_share(figures, places, seconds), 4) if seconds > 0 and places else None

        total = _sum(found.values())
        seconds = seconds_at_work(found, span.length, until, places, started_at)
        return WorkerStats(
            worker_id=worker_id,
            concurrency=places,
            since=stretch.since,
            until=until,
            by=asked.by,
            total=filled(WorkerLoadStep, _load(stretch.since, total), busy=busy(total, sum(seconds.values()))),
            items=[
                filled(WorkerLoadStep, _load(at, figures), busy=busy(figures, seconds[at]))
                for at, figures in found.items()
            ],
        )

    async def _load(
        self, kind: Scope, name: str, asked: LoadList
    ) -> tuple[Span, Stretch, Instant, dict[Instant, Figures]]:
        """The length of a step, the stretch, how much of it has passed, and the figures of each step."""
        span, stretch, until, steps = await self._stretch(asked.since, asked.until, SeriesStep(asked.by))
        rows = {row.at: row.figures for row in await self._store.rollups(kind, stretch, names=[name], step=span)}
        return span, stretch, until, {at: rows.get(at, Figures()) for at in steps}

    async def _stretch(
        self, since: Instant | None, until: Instant | None, by: SeriesStep
    ) -> tuple[Span, Stretch, Instant, Iterable[Instant]]:
        """The length of a step, the stretch, how much of it has passed, and where its steps begin."""
        now, span = await self._store.now(), _SPANS[by]
        until = now if until is None else min(until, now)
        since = Instant(until - DAY.length) if since is None else since
        _check(by, span, since, until, now)
        stretch = stretch_of(since, until, now, span)
        steps = map(Instant, range(stretch.since, stretch.until, span.length))
        return span, stretch, Instant(min(stretch.until, now)), steps

    async def depth(self, name: str, asked: SeriesList) -> QueueDepthAnswer:
        name = checked_name(name)
        span, stretch, until, steps = await self._stretch(asked.since, asked.until, asked.by)
        found = {each.at: each for each in await self._store.queue_depths(name, *stretch, span)}
        return QueueDepthAnswer(
            name=name,
            since=stretch.since,
            until=until,
            by=asked.by,
            items=[_step(at, found.get(at)) for at in steps],
        )


def _check(by: SeriesStep, span: Span, since: Instant, until: Instant, now: Instant) -> None:
    if until <= since:
        raise InvalidArgument.field("to", "is not after from, or both are in the future")
    if since < now - span.kept - span.length:
        longer = f"; by={_LONGER[by]} goes back further" if by in _LONGER else ""
        days = span.kept // (86_400 * SECOND)
        raise InvalidArgument.field("from", f"is too long ago: statistics by {by} are kept for {days} days{longer}")


def _sum(steps: Iterable[Figures]) -> Figures:
    total = Figures()
    for figures in steps:
        total.merge(figures)
    return total


def _load(at: Instant, figures: Figures) -> LoadStep:
    return LoadStep(
        at=at,
        runs=figures.runs,
        failed=figures.failed,
        success_ratio=None if figures.success is None else round(figures.success, 4),
        queue_time_ms=spread(figures.queue_time),
        duration_ms=spread(figures.duration),
    )


def _step(at: Instant, found: QueueDepth | None) -> QueueDepthStep:
    if found is None:
        return QueueDepthStep(at=at, samples=0, waiting=None, most_waiting=None, longest_wait_ms=None)
    return QueueDepthStep(
        at=at,
        samples=found.samples,
        waiting=round(found.mean, 2),
        most_waiting=found.most,
        longest_wait_ms=milliseconds(found.longest_wait),
    )
