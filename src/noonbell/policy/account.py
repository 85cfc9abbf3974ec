"""The account of one task: what becomes of each of its due slots, and where its cursor goes.

Every store calls this inside the transaction that reads the facts and writes the answer. Each due slot ends in exactly
one place: a birth, a skip, or a range of dropped slots.

    due slots ──misfire──▶ those that count ──operator──▶ ──overlap──▶ ──failure──▶ ──concurrency──▶ birth
                  │                              └────────────┴────────────┴──────────────┴────────▶ skip
                  └──▶ dropped range
"""

from __future__ import annotations

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.model.run import DropReason, SkipReason
from noonbell.model.task import FailureAction, OverlapAction, Task, TaskSpec
from noonbell.policy import concurrency, misfire
from noonbell.policy.misfire import Dropped
from noonbell.policy.slot import Birth, Facts, Skip, decide
from noonbell.when.due import Bounds, due
from noonbell.when.schedule import Schedule

__all__ = ["Account", "Birth", "Dropped", "Facts", "Needs", "Skip", "account", "bounds_of", "cursor_after_run", "needs"]

BUDGET = 100_000
"""Steps that one account may take over slots that can only be counted one by one: a fraction of a second."""


class Needs(msgspec.Struct, frozen=True):
    """Which facts the policies of a task ask for. What is False need not be read."""

    round: bool
    occupied: bool
    """`occupied` and `waiting`, both."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    outcomes: tuple[Birth | Skip, ...] = ()
    """One for each slot that counts, in the order of the slots."""
    dropped: tuple[Dropped, ...] = ()
    next_fire_at: Instant | None
    """The new cursor. None: no further slot, or (fixed_delay, not completed) none before the run has ended."""
    fired: int
    """The task's new count of accounted slots."""
    skip_next: int
    """What is left of an operator's skip."""
    completed: bool = False
    """The schedule has no further slot."""


_NO_NEEDS = Needs(round=False, occupied=False)


def needs(spec: TaskSpec) -> Needs:
    by_round = spec.overlap_action is not OverlapAction.ALLOW or spec.failure_action is not FailureAction.RUN_NEW
    by_waiting = spec.overlap_action is OverlapAction.SKIP or spec.failure_action is FailureAction.HALF_OPEN
    by_count = by_waiting or concurrency.counts(spec)
    return Needs(round=by_round, occupied=by_count) if by_round or by_count else _NO_NEEDS


def account(
    task: Task,
    schedule: Schedule,
    facts: Facts,
    now: Instant,
    cap: int = 100,
    budget: int = BUDGET,
    *,
    skip: bool = False,
) -> Account:
    """Account for the slots from the task's cursor up to `now`, as far as `budget` goes.

    `cap` is the most that FIRE_NOW catches up. Where the budget runs out, the cursor stays due: come again. With `skip`
    they are all dropped, whatever the misfire policy; but a fixed delay has one slot at a time, as late as it is.
    """
    cursor = task.next_fire_at
    if cursor is None or cursor > now:
        return Account(next_fire_at=cursor, fired=task.fired, skip_next=task.skip_next)
    spec, now_slot, bounds = task.spec, slot_of(now), bounds_of(task.spec)
    forget = skip and not schedule.is_fixed_delay
    keep = 0 if forget else misfire.keep(spec, schedule, cap)
    found = due(schedule, bounds, slot_of(cursor), now_slot, keep, _remaining(task, schedule), budget)
    verdict = misfire.forget(found) if forget else misfire.decide(spec, schedule, found, now_slot)
    outcomes, facts, skip_next = _decide_each(task, verdict.kept, facts, task.skip_next)
    fired = task.fired + found.used
    if schedule.is_fixed_delay and outcomes:
        return _account_fixed_delay(task, schedule, now_slot, outcomes, facts, skip_next)
    return Account(
        outcomes=outcomes,
        dropped=verdict.dropped,
        next_fire_at=None if found.next is None else instant_of(found.next),
        fired=fired,
        skip_next=skip_next,
        completed=found.next is None,
    )


def cursor_after_run(task: Task, schedule: Schedule, end_time: Instant) -> Instant | None:
    """Where the cursor of a fixed_delay task goes when its scheduled run has ended. None: no further slot."""
    remaining = _remaining(task, schedule)
    ended = -(-end_time // SECOND)  # rounded up, so that the delay is never shorter than the step
    slot = schedule.after_run(max(ended, slot_of(task.accounted_to)))  # the clock may have been set back meanwhile
    if remaining == 0 or not bounds_of(task.spec).admit(slot):
        return None
    return instant_of(slot)


def _account_fixed_delay(
    task: Task, schedule: Schedule, now_slot: int, outcomes: tuple[Birth | Skip, ...], facts: Facts, skip_next: int
) -> Account:
    """After a birth, the run's end names the next slot. After a skip it is one step on.

    If that has passed as well, the newest such slot is decided too, and those in between are dropped.
    """
    step, bounds, fired = schedule.after_run(0), bounds_of(task.spec), task.fired + 1
    slot = outcomes[-1].slot
    dropped: tuple[Dropped, ...] = ()
    remaining = None if schedule.repeat is None else schedule.repeat - fired
    behind = _steps_behind(slot, step, now_slot, bounds, remaining)
    if isinstance(outcomes[-1], Skip) and behind > 0:
        newest = slot + behind * step
        if behind > 1:
            dropped = (Dropped(slot + step, newest - step, behind - 1, DropReason.MISFIRE),)
        more, facts, skip_next = _decide_each(task, (newest,), facts, skip_next)
        outcomes, slot, fired = outcomes + more, newest, fired + behind
    used_up = schedule.repeat is not None and fired >= schedule.repeat
    born = isinstance(outcomes[-1], Birth)
    following = None if born or used_up or not bounds.admit(slot + step) else instant_of(slot + step)
    return Account(
        outcomes=outcomes,
        dropped=dropped,
        next_fire_at=following,
        fired=fired,
        skip_next=skip_next,
        completed=used_up or (following is None and not born),
    )


def _steps_behind(slot: int, step: int, now_slot: int, bounds: Bounds, remaining: int | None) -> int:
    until = now_slot if bounds.end_at is None else min(now_slot, bounds.end_at)
    behind = max(0, (until - slot) // step)
    return behind if remaining is None else min(behind, remaining)


def _decide_each(
    task: Task, slots: tuple[int, ...], facts: Facts, skip_next: int
) -> tuple[tuple[Birth | Skip, ...], Facts, int]:
    outcomes: list[Birth | Skip] = []
    for slot in slots:
        if skip_next != 0:
            outcomes.append(Skip(slot=slot, reason=SkipReason.OPERATOR))
            skip_next -= skip_next > 0  # below zero: until somebody takes it back
            continue
        outcome, facts = decide(task, slot, facts)
        outcomes.append(outcome)
    return tuple(outcomes), facts, skip_next


def _remaining(task: Task, schedule: Schedule) -> int | None:
    return None if schedule.repeat is None else max(0, schedule.repeat - task.fired)


def bounds_of(spec: TaskSpec) -> Bounds:
    """Both ends belong to it: the start is rounded up to a whole second, the end down."""
    if spec.start_at is None and spec.end_at is None:
        return _UNBOUNDED
    start = None if spec.start_at is None else -(-spec.start_at // SECOND)
    return Bounds(start, None if spec.end_at is None else slot_of(spec.end_at))


_UNBOUNDED = Bounds()
