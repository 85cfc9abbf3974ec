"""Stats: how runs ended over a period, for one task or for all, from the roll-ups."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument
from noonbell.fields import FROM_TO, Moment, meta, plain
from noonbell.model.request import RunQuery
from noonbell.model.rollup import Figures, Scope, Sketch, stretch_of
from noonbell.model.run import FINAL, RunStatus, final_status
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.service.filters import RunFilter

DAY: Final = 86_400 * SECOND
MOST_TASKS: Final = 100
"""Tasks that are listed: those with the most runs."""


class StatsList(RunFilter, frozen=True, kw_only=True, rename=FROM_TO):
    without: ClassVar[tuple[str, ...]] = (
        *("status", "queue", "worker", "key", "origin", "label", "text", "search", "parent_id", "step"),
    )

    since: Annotated[Moment | None, meta("Start of the time range; a day before `to` if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range; now if left out.")] = None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of runs that started; percentiles are within 2 % of the true ones."""

    average: Annotated[int | None, meta(examples=[180])]
    p50: Annotated[int | None, meta(examples=[160])]
    p95: Annotated[int | None, meta(examples=[410])]
    p99: Annotated[int | None, meta(examples=[980])]
    most: Annotated[int | None, meta("The longest.", examples=[1250])]


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["sync_stats"])]
    runs: Annotated[int, meta("Without those that were skipped.", examples=[288])]
    success_rate: Annotated[float | None, meta(examples=[0.9965])]
    average_duration_ms: Annotated[int | None, meta(examples=[180])]
    p95_duration_ms: Annotated[int | None, meta(examples=[410])]
    average_lag_ms: Annotated[int | None, meta(examples=[4])]
    p95_lag_ms: Annotated[int | None, meta(examples=[12])]


class StatsAnswer(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    component: ClassVar[str] = "Stats"

    since: Moment
    until: Moment
    total: Annotated[int, meta(examples=[290])]
    by_status: Annotated[dict[str, int], meta(examples=[{"SUCCESS": 287, "FAILED": 1, "RUNNING": 1, "SKIPPED": 1}])]
    by_final_status: Annotated[
        dict[str, int], meta(examples=[{"SUCCESS": 287, "FAILED": 1, "CANCELED": 0, "SKIPPED": 1}])
    ]
    dropped: Annotated[int, meta("Slots that a misfire policy left out; they have no run.", examples=[0])]
    success_rate: Annotated[float | None, meta(examples=[0.9965])]
    duration_ms: Annotated[Spread, meta("From start to end.")]
    start_delay_ms: Annotated[Spread, meta("From when a run was due to its start; excludes retried runs.")]
    queue_time_ms: Annotated[Spread, meta("From when a run existed and was due to its start; excludes the same.")]
    tasks: Annotated[list[TaskStats], meta("Those with the most runs, 100 at most.")]


class Stats:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def over(
        self, since: Instant | None = None, until: Instant | None = None, task_id: TaskId | None = None
    ) -> dict[str, Any]:
        """Runs that ended in the stretch: whole minutes for two days, then whole hours and days. Of those that have
        not, what was due in it.
        """
        now = await self._store.now()
        until = now if until is None else until
        since = Instant(until - DAY) if since is None else since
        if since > until:
            raise InvalidArgument.field("from", "is in the future; expected a time range in the past")
        stretch = stretch_of(since, until, now)
        kind, names = (Scope.ALL, [""]) if task_id is None else (Scope.TASK, [str(task_id)])
        found = await self._store.rollups(kind, stretch, names=names)
        figures = found[0].figures if found else Figures()
        going = RunQuery(task_id=task_id, since=since, until=until, page_size=1)
        counts = {
            str(status): figures.counts.get(str(status), 0) if status in FINAL else await self._count(going, status)
            for status in RunStatus
        }
        ended = {"SUCCESS": 0, "FAILED": 0, "CANCELED": 0, "SKIPPED": 0}
        for status in FINAL:
            ended[final_status(status) or ""] += counts[str(status)]
        if task_id is None:
            names = await self._store.busiest(Scope.TASK, stretch.since, stretch.until, MOST_TASKS)
            found = await self._store.rollups(Scope.TASK, stretch, names=names)
        return plain(
            StatsAnswer(
                since=stretch.since,
                until=until if until >= now else stretch.until,
                total=sum(counts.values()),
                by_status=counts,
                by_final_status=ended,
                dropped=figures.dropped,
                success_rate=None if figures.success is None else round(figures.success, 4),
                duration_ms=spread(figures.duration),
                start_delay_ms=spread(figures.start_delay),
                queue_time_ms=spread(figures.queue_time),
                tasks=await self._tasks({TaskId(int(each.name)): each.figures for each in found}),
            )
        )

    async def _count(self, query: RunQuery, status: RunStatus) -> int:
        return (await self._store.runs(msgspec.structs.replace(query, status=(status,)))).total or 0

    async def _tasks(self, figures: dict[TaskId, Figures]) -> list[TaskStats]:
        """The tasks of these figures, without those whose rows are gone."""
        names = {task.id: task.name for task in await self._store.tasks_by_id(sorted(figures))} if figures else {}
        shown = [_task(task_id, names[task_id], figures[task_id]) for task_id in names if task_id in figures]
        return sorted((task for task in shown if task.runs), key=lambda task: (-task.runs, task.task_id))


def _task(task_id: TaskId, name: str, figures: Figures) -> TaskStats:
    duration, lag = spread(figures.duration), spread(figures.start_delay)
    return TaskStats(
        task_id=task_id,
        task_name=name,
        runs=figures.runs - figures.skipped,
        success_rate=None if figures.success is None else round(figures.success, 4),
        average_duration_ms=duration.average,
        p95_duration_ms=duration.p95,
        average_lag_ms=lag.average,
        p95_lag_ms=lag.p95,
    )


def spread(sketch: Sketch) -> Spread:
    return Spread(
        average=milliseconds(sketch.mean),
        p50=milliseconds(sketch.percentile(0.5)),
        p95=milliseconds(sketch.percentile(0.95)),
        p99=milliseconds(sketch.percentile(0.99)),
        most=milliseconds(sketch.largest) if sketch.count else None,
    )


def milliseconds(value: int | None) -> int | None:
    return None if value is None else value // 1000
