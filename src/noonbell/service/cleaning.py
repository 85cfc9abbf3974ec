"""Removing history when it is asked for: final runs of a queue or a task, by age and by count; and runs by their ids.

What retention removes by itself is in `retention`; both go through the same transitions of the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from noonbell.clock import SECOND, Instant
from noonbell.fields import meta, read, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.request import KeptReason
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.ports import Store
from noonbell.service import scope
from noonbell.service.queues import checked_name
from noonbell.service.retention import BATCH, MOST_RUNS

MOST_CLEANED: Final = 10_000
"""Runs that one call removes, at most."""
MOST_IDS: Final = 1_000

_LONGEST_AGE: Final = 3_153_600_000.0


class CleanWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Which final runs are removed: those that ended longer ago than this, and all but the newest."""

    noun: ClassVar[str] = "a cleaning"
    example: ClassVar[dict[str, Any]] = {"older_than_days": 30}

    older_than_days: Annotated[
        float | None, meta("How long ago they ended; or `older_than_seconds`.", ge=0, le=_LONGEST_AGE / 86_400)
    ] = None
    older_than_seconds: Annotated[
        float | None, meta("How long ago they ended; or `older_than_days`.", ge=0, le=_LONGEST_AGE)
    ] = None
    keep: Annotated[
        int | None,
        meta(
            "Keep this many of the newest runs, in any status. With an age, only older runs are removed.",
            ge=0,
            le=MOST_RUNS,
            examples=[100],
        ),
    ] = None
    status: Annotated[
        tuple[
            Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"], ...
        ],
        meta("Only these statuses; none: all of them.", is_one=True),
    ] = ()


class Cleaned(msgspec.Struct, frozen=True):
    removed: Annotated[int, meta(examples=[1200])]
    more: Annotated[bool, meta("There are more: call again.")] = False


class CleanRunsWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are removed."""

    noun: ClassVar[str] = "a cleaning of runs"
    example: ClassVar[dict[str, Any]] = {"run_ids": [7340033, 7340034]}

    run_ids: Annotated[
        list[Annotated[int, meta(ge=1, le=2**53 - 1)]],
        meta("Of final runs.", min_length=1, max_length=MOST_IDS, missing="the ids of the runs to remove"),
    ]


class KeptRun(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340034])]
    reason: Annotated[
        KeptReason,
        meta(
            "There is no such run; it is not final; it is a part, step or child of another run and is removed with it; or a part, step or child of it is not final.",
            examples=["not_final"],
        ),
    ]


class RunsCleaned(msgspec.Struct, frozen=True):
    removed: Annotated[int, meta("Without their parts, steps and children.", examples=[1])]
    kept: Annotated[list[KeptRun], meta("Those that were not removed, in the order of the request.")]


class Cleanings:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def clean_queue(self, name: str, given: Mapping[str, Any]) -> Cleaned:
        return await self._clean(given, queue=checked_name(name))

    async def clean_task(self, task_id: TaskId, given: Mapping[str, Any]) -> Cleaned:
        return await self._clean(given, task_id=task_id)

    async def _clean(
        self, given: Mapping[str, Any], *, queue: str | None = None, task_id: TaskId | None = None
    ) -> Cleaned:
        """Remove runs in batches, each of which is a transaction."""
        problems = Problems()
        asked = read_into(CleanWrite, given, ReadContext(problems))
        ages = [age for age in (asked.older_than_days, asked.older_than_seconds) if age is not None]
        if len(ages) > 1 or (not ages and asked.keep is None):
            what = "expected this or older_than_days, how long ago they ended, or keep, how many of the newest stay"
            problems.add("older_than_seconds", what)
        problems.finish()
        seconds = asked.older_than_seconds or (asked.older_than_days or 0) * 86_400
        before = Instant(await self._store.now() - round(seconds * SECOND))
        status = tuple(map(RunStatus, asked.status))
        removed = 0
        while removed < MOST_CLEANED:
            gone = await self._store.clean(before, BATCH, queue=queue, task_id=task_id, status=status, keep=asked.keep)
            removed += gone
            if gone < BATCH:
                return Cleaned(removed)
        return Cleaned(removed, more=True)

    async def clean_runs(self, given: Mapping[str, Any]) -> RunsCleaned:
        """Remove those of these runs that are final, in one transaction. What the token does not hold is not found."""
        asked = read(CleanRunsWrite, given)
        run_ids = list(dict.fromkeys(RunId(each) for each in asked.run_ids))
        held = await self._held(run_ids)
        kept = await self._store.clean_runs(held)
        kept |= dict.fromkeys(set(run_ids).difference(held), KeptReason.NOT_FOUND)
        return RunsCleaned(len(run_ids) - len(kept), [KeptRun(each, kept[each]) for each in run_ids if each in kept])

    async def _held(self, run_ids: list[RunId]) -> list[RunId]:
        limited = scope.current()
        if limited is None:
            return run_ids
        runs = await self._store.runs_by_id(run_ids)
        tasks = {task.id: task for task in await self._store.tasks_by_id(sorted({run.task_id for run in runs}))}
        return [run.id for run in runs if run.task_id in tasks and limited.holds_run(tasks[run.task_id], run.queue)]
