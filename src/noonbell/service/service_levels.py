"""Service levels: what tasks promise, how well they keep it, and what is left of the error budget. All figures are from
the roll-ups.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.errors import InvalidArgument, SettingsError
from noonbell.fields import FROM_TO, Moment, filled, meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.request import TaskQuery
from noonbell.model.rollup import DAY, HOUR, Figures, Scope, Span, Stretch, stretch_of
from noonbell.model.sla import Sla, SlaBreach
from noonbell.model.task import Task, TaskId
from noonbell.policy.sla import budget_of
from noonbell.ports import Store
from noonbell.service.filters import Label, RunFilter, Word, every
from noonbell.service.stats import Spread, spread

USUAL: Final = 28 * 86_400 * SECOND
MOST_TASKS: Final = 100
"""Tasks that are listed, by name."""
MOST_COUNTED: Final = 1_000
"""Tasks that figures and breaches are of, by name."""
_MOST_BREACHES: Final = 100


class FigureStep(enum.StrEnum):
    HOUR = "hour"
    DAY = "day"


_SPANS: Final = {FigureStep.HOUR: HOUR, FigureStep.DAY: DAY}


class SlaList(RunFilter, frozen=True, kw_only=True, rename=FROM_TO):
    without: ClassVar[tuple[str, ...]] = ("status", "worker", "key", "origin", "text", "search", "parent_id", "step")

    since: Annotated[Moment | None, meta("Start of the time range; 28 days before `to` if left out.")] = None
    until: Annotated[Moment | None, meta("End of the time range; now if left out.")] = None
    queue: Annotated[Word | None, meta("Tasks of this queue, and the queue as a whole.", examples=["default"])] = None
    label: Annotated[
        Label | None, meta("Tasks with this label, and all of them together.", examples=["team=billing"])
    ] = None
    by: Annotated[FigureStep | None, meta("Also the figures of each hour or day (UTC).", examples=["day"])] = None


class ErrorBudget(msgspec.Struct, frozen=True, kw_only=True):
    window: Annotated[str, meta(examples=["28d"])]
    success_ratio: Annotated[float | None, meta("Over the window up to now.", examples=[0.9965])]
    wanted: Annotated[float, meta("The task's target.", examples=[0.99])]
    allowed: Annotated[float, meta("Failures allowed in the window.", examples=[2.88])]
    failed: Annotated[int, meta(examples=[1])]
    left: Annotated[
        float, meta("The fraction of the allowed failures that is left; below 0, the level is missed.", examples=[0.65])
    ]


class ServiceLevelFigures(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[Moment, meta("The start of the hour or day, or of the whole time range.")]
    runs: Annotated[int, meta("Without those that were skipped.", examples=[288])]
    success_ratio: Annotated[float | None, meta(examples=[0.9965])]
    start_delay_ms: Spread
    queue_time_ms: Spread
    duration_ms: Spread
    breaches: Annotated[dict[str, int], meta("By level.", examples=[{"finish_by": 1}])]


class TaskServiceLevel(ServiceLevelFigures, frozen=True, kw_only=True):
    task_id: Annotated[int, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["sync_stats"])]
    sla: Annotated[Sla | None, meta("Its own, or that of one of its labels.")]
    is_default: Annotated[bool, meta("Whether it is that of a label.", examples=[False])]
    error_budget: Annotated[ErrorBudget | None, meta("Null without `success_ratio`.")]
    points: Annotated[list[ServiceLevelFigures], meta("With `by`: each hour or day that has figures.")]


class SlaAnswer(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    component: ClassVar[str] = "ServiceLevels"

    since: Moment
    until: Moment
    total: Annotated[
        ServiceLevelFigures,
        meta("All tasks that match together, the first 1,000 by name; of a queue alone, whatever ran on it."),
    ]
    points: Annotated[list[ServiceLevelFigures], meta("The same, with `by`: each hour or day that has figures.")]
    tasks: Annotated[
        list[TaskServiceLevel],
        meta("Tasks that match, 100 at most; without a filter, those that have a service level."),
    ]
    tasks_total: Annotated[int, meta("How many tasks match.", examples=[1])]
    breaches: Annotated[
        list[SlaBreach], meta("The newest of the tasks that match, 100 at most, including expected ones.")
    ]


class ServiceLevels:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def over(
        self,
        since: Instant | None = None,
        until: Instant | None = None,
        *,
        task_id: TaskId | None = None,
        label: tuple[str, str] | None = None,
        queue: str | None = None,
        by: FigureStep | None = None,
        most: int = MOST_TASKS,
    ) -> SlaAnswer:
        """`most` of the tasks that match are listed."""
        now = await self._store.now()
        until = now if until is None else until
        since = Instant(until - USUAL) if since is None else since
        if since > until:
            raise InvalidArgument.field("from", "is in the future; expected a time range in the past")
        step = None if by is None else _SPANS[by]
        stretch = stretch_of(since, until, now, step)
        tasks, tasks_total = await self._tasks(task_id, label, queue)
        ids = [each.id for each in tasks]
        names = [str(each) for each in ids]
        sums = {each.name: each.figures for each in await self._store.rollups(Scope.TASK, stretch, names=names)}
        counts: dict[tuple[int, int], dict[str, int]] = {}
        for found in await self._store.breach_counts(ids, stretch.since, stretch.until):
            counts.setdefault((found.task_id, 0), {})[found.rule] = found.breached
        points: dict[str, dict[Instant, Figures]] = {}
        if step is not None:
            for each in await self._store.rollups(Scope.TASK, stretch, names=names, step=step):
                points.setdefault(each.name, {})[each.at] = each.figures
            for found in await self._store.breach_counts(ids, stretch.since, stretch.until, step):
                counts.setdefault((found.task_id, found.at), {})[found.rule] = found.breached
        shown = [await self._of(each, stretch, sums, points, counts, now) for each in tasks[:most]]
        whole, parts = await self._whole(
            queue if task_id is None and label is None else None, stretch, step, sums, points
        )
        return SlaAnswer(
            since=stretch.since,
            until=until if until >= now else stretch.until,
            total=_figures(stretch.since, whole, _summed(counts, ids, 0)),
            points=[_figures(at, each, _summed(counts, ids, at)) for at, each in sorted(parts.items())],
            tasks=shown,
            tasks_total=tasks_total,
            breaches=await self._store.sla_breaches(_MOST_BREACHES, task_ids=ids, since=stretch.since) if ids else [],
        )

    async def budget(self, task_id: int, sla: Sla, now: Instant) -> ErrorBudget | None:
        if sla.success_ratio is None:
            return None
        stretch = stretch_of(now - sla.window_length, now + 1, now)
        found = await self._store.rollups(Scope.TASK, stretch, names=[str(task_id)])
        figures = found[0].figures if found else Figures()
        budget = budget_of(sla.success_ratio, figures)
        return ErrorBudget(
            window=sla.window,
            success_ratio=figures.success,
            wanted=sla.success_ratio,
            allowed=round(budget.allowed, 3),
            failed=budget.failed,
            left=round(budget.left, 4),
        )

    async def _tasks(
        self, task_id: TaskId | None, label: tuple[str, str] | None, queue: str | None
    ) -> tuple[list[Task], int]:
        """The first of those that match, by name, and how many there are."""
        if task_id is not None:
            task = await self._store.task(task_id)
            if (
                task is None
                or queue not in (None, task.spec.queue)
                or (label and label not in task.spec.labels.items())
            ):
                return [], 0
            return [task], 1
        if label is not None or queue is not None:
            page = await self._store.tasks(TaskQuery(label=label, queue=queue, sort="name", page_size=MOST_COUNTED))
            return page.items, page.total or 0
        found: dict[int, Task] = {task.id: task for task in await self._store.sla_tasks()}
        for wanted in self._store.sla_labels():
            name, _, value = wanted.partition("=")
            async for task in every(self._store.tasks, TaskQuery(label=(name, value))):
                if self._store.sla_of(task.spec) is not None:
                    found.setdefault(task.id, task)
        return sorted(found.values(), key=lambda task: task.name)[:MOST_COUNTED], len(found)

    async def _of(
        self,
        task: Task,
        stretch: Stretch,
        sums: Mapping[str, Figures],
        points: Mapping[str, Mapping[Instant, Figures]],
        counts: Mapping[tuple[int, int], dict[str, int]],
        now: Instant,
    ) -> TaskServiceLevel:
        sla = self._store.sla_of(task.spec)
        total = _figures(stretch.since, sums.get(str(task.id), Figures()), counts.get((task.id, 0), {}))
        return filled(
            TaskServiceLevel,
            total,
            task_id=task.id,
            task_name=task.name,
            sla=sla,
            is_default=task.spec.sla is None and sla is not None,
            error_budget=None if sla is None else await self.budget(task.id, sla, now),
            points=[
                _figures(at, figures, counts.get((task.id, at), {}))
                for at, figures in sorted(points.get(str(task.id), {}).items())
            ],
        )

    async def _whole(
        self,
        queue: str | None,
        stretch: Stretch,
        step: Span | None,
        sums: Mapping[str, Figures],
        points: Mapping[str, Mapping[Instant, Figures]],
    ) -> tuple[Figures, dict[Instant, Figures]]:
        """A queue has figures of its own; those of other filters are the sum of their tasks'."""
        whole, parts = Figures(), dict[Instant, Figures]()
        if queue is not None:
            for each in await self._store.rollups(Scope.QUEUE, stretch, names=[queue]):
                whole.merge(each.figures)
            if step is not None:
                found = await self._store.rollups(Scope.QUEUE, stretch, names=[queue], step=step)
                parts = {each.at: each.figures for each in found}
            return whole, parts
        for figures in sums.values():
            whole.merge(figures)
        for of_task in points.values():
            for at, figures in of_task.items():
                parts.setdefault(at, Figures()).merge(figures)
        return whole, parts


def _summed(counts: Mapping[tuple[int, int], dict[str, int]], ids: Sequence[int], at: int) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in ids:
        for rule, count in counts.get((each, at), {}).items():
            total[rule] = total.get(rule, 0) + count
    return total


def _figures(at: Instant, figures: Figures, breaches: dict[str, int]) -> ServiceLevelFigures:
    return ServiceLevelFigures(
        at=at,
        runs=figures.runs - figures.skipped,
        success_ratio=None if figures.success is None else round(figures.success, 4),
        start_delay_ms=spread(figures.start_delay),
        queue_time_ms=spread(figures.queue_time),
        duration_ms=spread(figures.duration),
        breaches=breaches,
    )


def sentences_of(breaches: Sequence[SlaBreach]) -> list[tuple[str, dict[str, Any]]]:
    """What `explain` says of a run: keys of sentences, with their facts."""
    said: list[tuple[str, dict[str, Any]]] = []
    for each in sorted(breaches, key=lambda breach: (breach.deadline, breach.id)):
        facts: dict[str, Any] = {"rule": each.rule, "until": each.deadline}
        if each.breached_at is not None:
            said.append(("and_sla_breached", facts))
        elif each.usual_ms is not None:
            said.append(("and_sla_foreseen", {**facts, "at": each.expected_at, "span": each.usual_ms / 1000}))
        else:
            said.append(("and_sla_foreseen_late", {**facts, "at": each.expected_at}))
    return said


def read_defaults(declared: Mapping[str, Any]) -> dict[str, Sla]:
    """`sla` of the settings: a service level by label. SettingsError names every problem."""
    problems: dict[str, str] = {}
    found: dict[str, Sla] = {}
    for label, given in declared.items():
        if not label.partition("=")[0] or "=" not in label:
            problems[f"sla.{label}"] = "is no label; expected NAME=VALUE"
            continue
        at = ReadContext(Problems(), f"sla.{label}")
        if not isinstance(given, Mapping):
            problems[f"sla.{label}"] = "is no mapping; expected the fields of a service level"
            continue
        found[label] = read_into(Sla, given, at)
        problems |= at.problems.found
    if problems:
        raise SettingsError.fields(problems)
    return found
