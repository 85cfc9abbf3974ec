"""The coming slots of a task, also those that will pass without a run, each with the reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from noonbell import when
from noonbell.clock import Instant, instant_of, slot_of
from noonbell.model.task import Task, TaskStatus
from noonbell.policy.account import bounds_of
from noonbell.when.due import first, initial


@dataclass(frozen=True, slots=True)
class Coming:
    at: Instant
    why: str = ""
    """Why nothing will run: `operator` (skip_next), `paused`, `error`. Empty: it fires."""


@dataclass(frozen=True, slots=True)
class Ahead:
    slots: list[Coming]
    ends: str = ""
    """Why there are no more: `demand`, `deleted`, `completed`, `after_run`, `end_at`, `repeat`. Empty: they go on."""


_OFF = {TaskStatus.DISABLED: "paused", TaskStatus.ERROR: "error"}


def ahead(task: Task, now: Instant, count: int) -> Ahead:
    """The next `count` slots from the cursor on; for a task that is off, those that it would have had."""
    if task.spec.schedule is None or task.deleted_at is not None:
        return Ahead([], "demand" if task.deleted_at is None else "deleted")
    if task.status is TaskStatus.COMPLETED:
        return Ahead([], "completed")
    schedule, bounds = when.parse(task.spec.schedule, task.spec.timezone), bounds_of(task.spec)
    off = _OFF.get(task.status, "")
    slot = initial(schedule, bounds, int(slot_of(now))) if off else _cursor(task)
    if schedule.is_fixed_delay:
        known = [] if slot is None else [Coming(instant_of(slot), off or ("operator" if task.skip_next else ""))]
        return Ahead(known, "after_run")
    left = None if schedule.repeat is None else max(0, schedule.repeat - task.fired)
    slots: list[Coming] = []
    while slot is not None and len(slots) < count and len(slots) != left:
        is_skipped = task.skip_next < 0 or len(slots) < task.skip_next
        slots.append(Coming(instant_of(slot), off or ("operator" if is_skipped else "")))
        slot = first(schedule, bounds, slot)
    if left is not None and len(slots) == left:
        return Ahead(slots, "repeat")
    if slot is None:
        return Ahead(slots, "end_at" if task.spec.end_at is not None else "completed")
    return Ahead(slots)


def _cursor(task: Task) -> int | None:
    return None if task.next_fire_at is None else int(slot_of(task.next_fire_at))
