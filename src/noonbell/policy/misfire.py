"""Misfire: which of the slots that are due still count, when more than one is or the only one is late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from noonbell.model.run import DropReason
from noonbell.model.task import MisfirePolicy, TaskSpec
from noonbell.when.due import Due
from noonbell.when.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row of slots that do not count: `count` of them, from `first` to `last`, in epoch seconds."""

    first: int
    last: int
    count: int
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Misfire:
    kept: tuple[int, ...]
    dropped: tuple[Dropped, ...]


def keep(spec: TaskSpec, schedule: Schedule, cap: int) -> int:
    """How many of the newest due slots can count at most. `cap` is what FIRE_NOW is held to."""
    if schedule.kind == "once" or schedule.is_fixed_delay:
        return 1
    match spec.misfire_policy:
        case MisfirePolicy.FIRE_NOW:
            return max(1, cap)
        case MisfirePolicy.FIRE_ONCE | MisfirePolicy.SKIP:
            return 1
        case MisfirePolicy.CATCH_UP_LIMITED:
            return max(1, spec.catchup_limit)
        case _:
            assert_never(spec.misfire_policy)


def decide(spec: TaskSpec, schedule: Schedule, due: Due, now_slot: int) -> Misfire:
    """`due` lists the newest slots, as many as `keep` allows, and sums up the older ones: those are dropped."""
    older: tuple[Dropped, ...] = ()
    if due.dropped and due.first_dropped is not None and due.last_dropped is not None:
        older = (Dropped(due.first_dropped, due.last_dropped, due.dropped, _reason(spec)),)
    if not due.newest or now_slot - due.newest[-1] <= spec.misfire_grace_seconds or _runs_late(spec, schedule):
        return Misfire(due.newest, older)
    # Only one slot can be here: whoever minds lateness keeps no more than the newest.
    late = due.newest[-1]
    first = older[0].first if older else late
    return Misfire((), (Dropped(first, late, due.dropped + 1, DropReason.MISFIRE),))


def forget(due: Due) -> Misfire:
    """Nothing of it counts: a node that starts and wants to know nothing of the time before."""
    if due.first_dropped is None or due.last_dropped is None:
        return Misfire((), ())
    return Misfire((), (Dropped(due.first_dropped, due.last_dropped, due.dropped, DropReason.MISFIRE),))


def _runs_late(spec: TaskSpec, schedule: Schedule) -> bool:
    """Whether the newest due slot runs however late it is."""
    if schedule.kind == "once":
        return schedule.run_if_late
    return schedule.is_fixed_delay or spec.misfire_policy is not MisfirePolicy.SKIP


def _reason(spec: TaskSpec) -> DropReason:
    return DropReason.CATCHUP_CAP if spec.misfire_policy is MisfirePolicy.FIRE_NOW else DropReason.MISFIRE
