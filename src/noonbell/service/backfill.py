"""Backfill: runs for slots of the past, beside whatever became of them then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, rfc3339, slot_of
from noonbell.errors import InvalidState
from noonbell.model.request import IfFinished, Outcome, Publication
from noonbell.model.run import Origin
from noonbell.model.task import Task
from noonbell.ports import Store, Wakeup
from noonbell.service.naming import TaskRef
from noonbell.service.reader import Problems, Reader
from noonbell.service.tasks import Tasks
from noonbell.when.due import Bounds, first

MOST_SLOTS: Final = 10_000
"""In one call."""


class Backfills:
    def __init__(self, store: Store, wakeup: Wakeup, tasks: Tasks) -> None:
        self._store, self._wakeup, self._tasks = store, wakeup, tasks

    async def fill(self, ref: TaskRef, given: Mapping[str, Any], *, trace_id: str | None = None) -> dict[str, Any]:
        """One run for each slot from `from` to `to`, both included, and at most one however often it is asked for.

        `next_from` is where to go on if the limit cut it short.
        """
        task = await self._tasks.get(ref)
        problems = Problems()
        reader = Reader(given, problems)
        now = await self._store.now()
        since, until = _read_stretch(reader, now)
        limit = reader.integer("limit", MOST_SLOTS, 1, MOST_SLOTS)
        dry_run = reader.flag("dry_run", default=False)
        asked = Publication(
            task_id=task.id,
            origin=Origin.BACKFILL,
            payload=reader.json("payload", msgspec.UNSET),
            priority=reader.integer("priority", None, -1_000_000_000, 1_000_000_000),
            if_finished=reader.choice("if_finished", IfFinished, IfFinished.KEEP),
            trace_id=trace_id,
        )
        reader.finish("a backfill")
        problems.finish()
        found = slots(task, since, until, limit + 1)
        more, found = found[limit:], found[:limit]
        answer: dict[str, Any] = {
            "count": len(found),
            "slots": [rfc3339(slot) for slot in found],
            "run_ids": [],
            "created": 0,
            "existing": 0,
            "refused": 0,
            "next_from": rfc3339(more[0]) if more else None,
        }
        return answer if dry_run or not found else {**answer, **await self._publish(task, asked, found)}

    async def _publish(self, task: Task, asked: Publication, found: list[Instant]) -> dict[str, Any]:
        published = await self._store.publish(
            [msgspec.structs.replace(asked, key=f"backfill:{rfc3339(at)}", scheduled_time=at) for at in found]
        )
        self._wakeup.signal(f"queue:{task.spec.queue}")
        outcomes = [one.outcome for one in published]
        return {
            "run_ids": [one.run_id for one in published if one.run_id is not None],
            "created": outcomes.count(Outcome.CREATED),
            "existing": outcomes.count(Outcome.EXISTS) + outcomes.count(Outcome.RUNNING),
            "refused": outcomes.count(Outcome.REFUSED),
        }


def slots(task: Task, since: Instant, until: Instant, most: int) -> list[Instant]:
    """The slots of the task's schedule as it is now, oldest first; within its bounds, whatever its repeat count."""
    spec = task.spec
    if spec.schedule is None:
        raise InvalidState(f"task {task.name!r} has no schedule, and so no slots to fill")
    schedule = when.parse(spec.schedule, spec.timezone)
    if schedule.is_fixed_delay:
        raise InvalidState(f"task {task.name!r} runs a while after its last run; it has no slots of the past")
    bounds = Bounds(
        None if spec.start_at is None else slot_of(spec.start_at),
        None if spec.end_at is None else slot_of(spec.end_at),
    )
    first_second = int(slot_of(Instant(since + 999_999)))  # a slot is a whole second: the first one not before `since`
    found: list[Instant] = []
    slot = first(schedule, bounds, first_second - 1)
    while slot is not None and instant_of(slot) <= until and len(found) < most:
        found.append(instant_of(slot))
        slot = first(schedule, bounds, slot)
    return found


def _read_stretch(reader: Reader, now: Instant) -> tuple[Instant, Instant]:
    since, until = reader.moment("from"), reader.moment("to")
    if reader.get("from") is None:
        reader.wrong("from", "is missing; expected where the stretch begins")
    if until is not None and until > now:
        reader.wrong("to", "is in the future; expected a stretch of the past")
    if since is not None and since > (now if until is None else until):
        reader.wrong("from", "is after the end of the stretch")
    return Instant(0) if since is None else since, now if until is None else until
