"""Bringing over the history of another system: its final runs become runs of tasks that are here, marked as imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.errors import NotFound
from noonbell.fields import Moment, filled, meta, read
from noonbell.fields.problems import Problems
from noonbell.model.request import PastRun, PastRunOutcome
from noonbell.model.run import FINAL, RunBodies, RunStatus
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store
from noonbell.service.tasks import Tasks

MOST_RUNS: Final = 1_000
"""In one call."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the past."""

    noun: ClassVar[str] = "a run of the past"

    task: Annotated[
        Annotated[int, meta(ge=1, le=2**53 - 1)] | Annotated[str, meta(min_length=1, max_length=260)],
        meta("Its id, or its name.", expected="the id or the name of a task", examples=["sync_stats"]),
    ]
    key: Annotated[
        str,
        meta(
            "Its name in the other system, with the name of that system. The same key of a task is the same run.",
            min_length=1,
            max_length=200,
            examples=["cronjob:42"],
        ),
    ]
    status: Annotated[str, meta("How it ended.", choices=tuple(sorted(FINAL)), examples=["SUCCESS"])]
    scheduled_time: Annotated[Moment, meta("When it was due.", examples=["2025-10-14T10:05:00Z"])]
    end_time: Annotated[Moment, meta("When it ended.", examples=["2025-10-14T10:05:01Z"])]
    created_at: Annotated[Moment | None, meta("`scheduled_time` by default.", examples=["2025-10-14T10:05:00Z"])] = None
    start_time: Annotated[Moment | None, meta("When its last attempt began.", examples=["2025-10-14T10:05:00Z"])] = None
    attempt: Annotated[int, meta("The number of attempts.", ge=0, le=1_000_000)] = 1
    response_code: Annotated[int | None, meta("The HTTP status of the response.", ge=100, le=999, examples=[200])] = (
        None
    )
    error_message: Annotated[str | None, meta("Why it failed.", max_length=10_000, lines=True)] = None
    trace_id: Annotated[str | None, meta("Its trace.", max_length=64)] = None
    request_headers: Annotated[dict[str, str] | None, meta("What was sent.", examples=[{"Accept": "*/*"}])] = None
    request_body: Annotated[str | None, meta("What was sent.", lines=True)] = None
    response_body: Annotated[str | None, meta("What came back.", lines=True)] = None
    truncated: Annotated[bool, meta("Whether a body was cut.")] = False


class RunRecords(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a history"

    runs: Annotated[list[RunRecord], meta("All of them, or none.", min_length=1, max_length=MOST_RUNS)]


class HistoryImported(msgspec.Struct, frozen=True, kw_only=True):
    imported: Annotated[int, meta("Runs that are new here.", examples=[1])]
    known: Annotated[int, meta("Runs that were imported before.", examples=[0])]
    removed: Annotated[
        int, meta("Runs left out, because they ended before the time up to which history was removed here.")
    ]
    recent: Annotated[int, meta("Runs left out, because they ended less than a minute ago: import them again.")]


class HistoryImport:
    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store, self._tasks = store, tasks

    async def import_runs(self, given: Mapping[str, Any]) -> HistoryImported:
        """Insert all of them in one transaction. InvalidArgument names every problem by its place:
        `runs[7].end_time`.
        """
        asked = read(RunRecords, given)
        problems = Problems()
        for place, record in enumerate(asked.runs):
            if record.start_time is not None and record.start_time > record.end_time:
                problems.add(f"runs[{place}].end_time", "is before start_time")
        problems.finish()
        tasks = await self._tasks_of(asked)
        outcomes = await self._store.import_runs([_past_run(record, tasks[record.task]) for record in asked.runs])
        counts = Counter(outcomes)
        return HistoryImported(**{str(outcome): counts[outcome] for outcome in PastRunOutcome})

    async def _tasks_of(self, asked: RunRecords) -> dict[int | str, Task]:
        found: dict[int | str, Task] = {}
        problems = Problems()
        first: dict[int | str, int] = {}
        for place, record in enumerate(asked.runs):
            first.setdefault(record.task, place)
        for ref, place in first.items():
            try:
                found[ref] = await self._tasks.get(ref if isinstance(ref, str) else TaskId(ref))
            except NotFound:
                problems.add(f"runs[{place}].task", f"is {str(ref)[:100]!r}, and there is no such task")
        problems.finish()
        return found


def _past_run(record: RunRecord, task: Task) -> PastRun:
    has_bodies = any((record.request_headers, record.request_body, record.response_body))
    created_at = record.scheduled_time if record.created_at is None else record.created_at
    return filled(
        PastRun,
        record,
        task_id=task.id,
        task_version=task.version,
        queue=task.spec.queue,
        status=RunStatus(record.status),
        created_at=min(created_at, record.end_time),
        bodies=RunBodies(
            request_headers=record.request_headers,
            request_body=record.request_body,
            response_body=record.response_body,
            truncated=record.truncated,
        )
        if has_bodies
        else None,
    )
