"""Stats: how runs ended over a period, for one task or for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.fields import Moment, meta
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, SUCCEEDED, Origin, Run, RunStatus, final_status
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.service.filters import RunFilter

DAY: Final = 86_400 * SECOND
SAMPLE: Final = 1_000
"""How many of the newest finished runs the averages are of."""


class StatsList(RunFilter, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = ("status", "queue", "worker", "key", "origin", "label", "text", "parent_id")

    since: Annotated[Moment | None, meta("From then on; a day before `to` if left out.")] = msgspec.field(
        name="from", default=None
    )
    until: Annotated[Moment | None, meta("Until then; now if left out.")] = msgspec.field(name="to", default=None)


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["sync_stats"])]
    runs: Annotated[int, meta(examples=[288])]
    success_rate: Annotated[float | None, meta(examples=[0.9965])]
    average_duration_ms: Annotated[int | None, meta(examples=[180])]
    average_lag_ms: Annotated[int | None, meta(examples=[4])]


class StatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Stats"

    since: Moment = msgspec.field(name="from")
    until: Moment = msgspec.field(name="to")
    total: Annotated[int, meta(examples=[290])]
    by_status: Annotated[dict[str, int], meta(examples=[{"SUCCESS": 287, "FAILED": 1, "RUNNING": 1, "SKIPPED": 1}])]
    by_final_status: Annotated[
        dict[str, int], meta(examples=[{"SUCCESS": 287, "FAILED": 1, "CANCELED": 0, "SKIPPED": 1}])
    ]
    success_rate: Annotated[float | None, meta(examples=[0.9965])]
    tasks: list[TaskStats]
    sample: Annotated[int, meta("Averages are over so many of the newest finished runs, at most.", examples=[1000])]


@dataclass(slots=True)
class _Sum:
    name: str
    runs: int = 0
    succeeded: int = 0
    duration_ms: int = 0
    timed: int = 0
    lag_ms: int = 0

    def add(self, run: Run) -> None:
        self.runs += 1
        self.succeeded += run.status in SUCCEEDED
        if run.duration_ms is not None and run.start_time is not None:
            self.timed += 1
            self.duration_ms += run.duration_ms
            self.lag_ms += max(0, run.start_time - _due_at(run)) // 1000

    def shown(self, task_id: TaskId) -> dict[str, Any]:
        return {
            "task_id": task_id,
            "task_name": self.name,
            "runs": self.runs,
            "success_rate": round(self.succeeded / self.runs, 4) if self.runs else None,
            "average_duration_ms": self.duration_ms // self.timed if self.timed else None,
            "average_lag_ms": self.lag_ms // self.timed if self.timed else None,
        }


def _due_at(run: Run) -> int:
    """Since when it could have started: not before the run was asked for."""
    return run.run_at if run.origin is Origin.SCHEDULE else max(run.run_at, run.created_at)


class Stats:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def over(
        self, since: Instant | None = None, until: Instant | None = None, task_id: TaskId | None = None
    ) -> dict[str, Any]:
        """Counts by status, exact; averages per task over the newest finished runs of the period."""
        until = await self._store.now() if until is None else until
        since = Instant(until - DAY) if since is None else since
        query = RunQuery(task_id=task_id, since=since, until=until, page_size=1)
        counts = {str(status): await self._count(query, status) for status in RunStatus}
        ended = {"SUCCESS": 0, "FAILED": 0, "CANCELED": 0, "SKIPPED": 0}
        for status in FINAL:
            ended[final_status(status) or ""] += counts[str(status)]
        decided = ended["SUCCESS"] + ended["FAILED"]
        return {
            "from": rfc3339(since),
            "to": rfc3339(until),
            "total": sum(counts.values()),
            "by_status": counts,
            "by_final_status": ended,
            "success_rate": round(ended["SUCCESS"] / decided, 4) if decided else None,
            "tasks": await self._averages(query),
            "sample": SAMPLE,
        }

    async def _count(self, query: RunQuery, status: RunStatus) -> int:
        return (await self._store.runs(msgspec.structs.replace(query, status=(status,)))).total or 0

    async def _averages(self, query: RunQuery) -> list[dict[str, Any]]:
        ended = tuple(status for status in FINAL if status is not RunStatus.SKIPPED)
        page = await self._store.runs(msgspec.structs.replace(query, status=ended, page_size=SAMPLE))
        sums: dict[TaskId, _Sum] = {}
        for run in page.items:
            sums.setdefault(run.task_id, _Sum(run.task_name)).add(run)
        return [found.shown(task_id) for task_id, found in sorted(sums.items(), key=lambda item: -item[1].runs)]
