"""The account of one task: what becomes of each of its due slots, and where its cursor goes.

Every store calls this inside the transaction that reads the facts and writes the answer. Each due slot ends in exactly
one place: a run, a skip, or a range of dropped slots. The misfire policy comes first: it decides which of the due slots
still count, when more than one is due or the only one is late.

    due slots ──misfire──▶ those that count ──operator──▶ ──overlap──▶ ──failure──▶ ──concurrency──▶ run
                  │                              └────────────┴────────────┴──────────────┴────────▶ skip
                  └──▶ dropped range

Under a calendar the slots of closed days are taken out first, as skips; the others go by their effective times (`when.calendar`).

A slot that counts is asked in this order: `overlap`, whether the previous round is still under way; `failure`, whether it
failed; `concurrency`, whether the task has as many runs as it may. The first that decides against a run names the reason,
and the next slot sees it. A slot's own time is compared, not the planner's: a late pass decides as a punctual one would have.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import assert_never

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.model.run import FAILURES, OVERLAPPING, SUCCEEDED, DropReason, RunStatus, SkipReason
from noonbell.model.task import (
    ConcurrencyPolicy,
    FailureAction,
    LastRun,
    MisfirePolicy,
    OverlapAction,
    Task,
    TaskSpec,
)
from noonbell.policy.calendar import placement_of
from noonbell.when.calendar import Placed, PlacedDue
from noonbell.when.due import Bounds, Due, due, jitter
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


def most_kept(spec: TaskSpec, schedule: Schedule, cap: int) -> int:
    """How many of the newest due slots can count at most. `cap` is what FIRE_NOW is held to."""
    if schedule.is_single or schedule.is_fixed_delay:
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


def decide_misfire(spec: TaskSpec, schedule: Schedule, due: Due, now_slot: int) -> Misfire:
    """`due` lists the newest slots, as many as `keep` allows, and sums up the older ones: those are dropped."""
    older: tuple[Dropped, ...] = ()
    if due.dropped and due.first_dropped is not None and due.last_dropped is not None:
        older = (Dropped(due.first_dropped, due.last_dropped, due.dropped, _reason(spec)),)
    if not due.newest or now_slot - due.newest[-1] <= spec.misfire_grace_seconds or _runs_late(spec, schedule):
        return Misfire(due.newest, older)
    # Only one slot can be here: a policy that minds lateness keeps no more than the newest.
    late = due.newest[-1]
    first = older[0].first if older else late
    return Misfire((), (Dropped(first, late, due.dropped + 1, DropReason.MISFIRE),))


def all_dropped(due: Due) -> Misfire:
    """Nothing of it counts: a node that starts and wants to know nothing of the time before."""
    if due.first_dropped is None or due.last_dropped is None:
        return Misfire((), ())
    return Misfire((), (Dropped(due.first_dropped, due.last_dropped, due.dropped, DropReason.MISFIRE),))


def _runs_late(spec: TaskSpec, schedule: Schedule) -> bool:
    """Whether the newest due slot runs however late it is."""
    if schedule.is_single:
        return schedule.run_if_late
    return schedule.is_fixed_delay or spec.misfire_policy is not MisfirePolicy.SKIP


def _reason(spec: TaskSpec) -> DropReason:
    return DropReason.CATCHUP_CAP if spec.misfire_policy is MisfirePolicy.FIRE_NOW else DropReason.MISFIRE


BUDGET = 100_000
"""Steps that one account may take over slots that can only be counted one by one: a fraction of a second."""


class Needs(msgspec.Struct, frozen=True):
    """Which facts the policies of a task ask for. What is False need not be read."""

    round: bool
    occupied: bool
    """`occupied` and `waiting`, both."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    outcomes: tuple[DueRun | Skip, ...] = ()
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
    accounted_to: Instant | None = None
    """Under a calendar: the last effective time among the slots. Else it follows from the slots."""


_NO_NEEDS = Needs(round=False, occupied=False)


def needs(spec: TaskSpec) -> Needs:
    by_round = spec.overlap_action is not OverlapAction.ALLOW or spec.failure_action is not FailureAction.RUN_NEW
    by_waiting = spec.overlap_action is OverlapAction.SKIP or spec.failure_action is FailureAction.HALF_OPEN
    by_count = by_waiting or needs_counts(spec)
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
    withheld: SkipReason | None = None,
) -> Account:
    """Account for the slots from the task's cursor up to `now`, as far as `budget` goes.

    `cap` is the most that FIRE_NOW catches up. Where the budget runs out, the cursor stays due: come again. With `skip`
    they are all dropped under any misfire policy; but a fixed delay has one slot at a time, as late as it is. With
    `withheld` each that counts is skipped for that reason.
    """
    cursor = task.next_fire_at
    if cursor is None or cursor > now:
        return Account(next_fire_at=cursor, fired=task.fired, skip_next=task.skip_next)
    if task.calendar_use is not None and not schedule.is_fixed_delay:
        return _account_under_calendar(task, schedule, facts, slot_of(now), cap, skip=skip, withheld=withheld)
    spec, now_slot, bounds = task.spec, slot_of(now), bounds_of(task.spec)
    forget = skip and not schedule.is_fixed_delay
    keep = 0 if forget else most_kept(spec, schedule, cap)
    found = due(schedule, bounds, slot_of(cursor), now_slot, keep, remaining_of(task, schedule), budget)
    verdict = all_dropped(found) if forget else decide_misfire(spec, schedule, found, now_slot)
    outcomes, facts, skip_next = _decide_each(task, verdict.kept, facts, task.skip_next, withheld)
    fired = task.fired + found.used
    if schedule.is_fixed_delay and outcomes:
        return _account_fixed_delay(task, schedule, now_slot, outcomes, facts, skip_next, withheld)
    return Account(
        outcomes=outcomes,
        dropped=verdict.dropped,
        next_fire_at=None if found.next is None else instant_of(found.next),
        fired=fired,
        skip_next=skip_next,
        completed=found.next is None,
    )


def _account_under_calendar(
    task: Task, schedule: Schedule, facts: Facts, now_slot: int, cap: int, *, skip: bool, withheld: SkipReason | None
) -> Account:
    """The same, where a calendar moves slots or closes their days."""
    spec, use = task.spec, task.calendar_use
    assert use is not None and task.next_fire_at is not None  # noqa: S101, PT018 the caller has seen to it
    placed = placement_of(spec, use, schedule, bounds_of(spec))
    keep, keep_closed = (0, 0) if skip else (most_kept(spec, schedule, cap), max(1, cap))
    found = placed.due(slot_of(task.next_fire_at), now_slot, keep, keep_closed, remaining_of(task, schedule))
    kept, dropped = _misfired(spec, schedule, found, now_slot, skip=skip)
    outcomes, facts, skip_next = _decide_each(task, kept, facts, task.skip_next, withheld)
    closed = [Skip(slot=one.slot, reason=SkipReason.CALENDAR) for one in found.closed]
    outcomes = tuple(sorted((*outcomes, *closed), key=_effective))
    return Account(
        outcomes=outcomes,
        dropped=dropped,
        next_fire_at=None if found.next is None else instant_of(found.next),
        fired=task.fired + found.used,
        skip_next=skip_next,
        completed=found.next is None,
        accounted_to=None if found.last is None else instant_of(found.last),
    )


def _effective(outcome: DueRun | Skip) -> tuple[int, int]:
    return (outcome.slot if outcome.at is None else outcome.at, outcome.slot)


def _misfired(
    spec: TaskSpec, schedule: Schedule, found: PlacedDue, now_slot: int, *, skip: bool
) -> tuple[tuple[Placed, ...], tuple[Dropped, ...]]:
    """Which of the newest still count, and what is dropped, in the order of the slots."""
    reason = DropReason.MISFIRE if skip else _reason(spec)
    dropped = [Dropped(one.first, one.last, one.count, reason) for one in found.dropped]
    dropped += [Dropped(one.first, one.last, one.count, DropReason.CALENDAR) for one in found.closed_before]
    kept = found.newest
    if kept and now_slot - kept[-1].at > spec.misfire_grace_seconds and not _runs_late(spec, schedule):
        # Only one slot can be here: a policy that minds lateness keeps no more than the newest.
        late = kept[-1].slot
        dropped.append(Dropped(late, late, 1, DropReason.MISFIRE))
        kept = ()
    return kept, tuple(sorted(dropped, key=lambda one: one.first))


def cursor_after_run(task: Task, schedule: Schedule, end_time: Instant) -> Instant | None:
    """Where the cursor of a fixed_delay task goes when its scheduled run has ended. None: no further slot."""
    remaining = remaining_of(task, schedule)
    ended = -(-end_time // SECOND)  # rounded up, so that the delay is never shorter than the step
    slot = schedule.after_run(max(ended, slot_of(task.accounted_to)))  # the clock may have been set back meanwhile
    if remaining == 0 or not bounds_of(task.spec).admit(slot):
        return None
    return instant_of(slot)


def _account_fixed_delay(
    task: Task,
    schedule: Schedule,
    now_slot: int,
    outcomes: tuple[DueRun | Skip, ...],
    facts: Facts,
    skip_next: int,
    withheld: SkipReason | None,
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
        more, facts, skip_next = _decide_each(task, (newest,), facts, skip_next, withheld)
        outcomes, slot, fired = outcomes + more, newest, fired + behind
    used_up = schedule.repeat is not None and fired >= schedule.repeat
    born = isinstance(outcomes[-1], DueRun)
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
    task: Task,
    slots: tuple[int, ...] | tuple[Placed, ...],
    facts: Facts,
    skip_next: int,
    withheld: SkipReason | None,
) -> tuple[tuple[DueRun | Skip, ...], Facts, int]:
    outcomes: list[DueRun | Skip] = []
    for each in slots:
        slot, at = (each, None) if isinstance(each, int) else (each.slot, each.at if each.is_moved else None)
        if withheld is not None:
            outcomes.append(Skip(slot=slot, reason=withheld, at=at))
            continue
        if skip_next != 0:
            outcomes.append(Skip(slot=slot, reason=SkipReason.OPERATOR, at=at))
            skip_next -= skip_next > 0  # below zero: until an operator takes it back
            continue
        outcome, facts = decide_slot(task, slot, facts, at)
        outcomes.append(outcome)
    return tuple(outcomes), facts, skip_next


def remaining_of(task: Task, schedule: Schedule) -> int | None:
    """What its repeat count leaves; None: for ever."""
    return None if schedule.repeat is None else max(0, schedule.repeat - task.fired)


def bounds_of(spec: TaskSpec) -> Bounds:
    """Both ends belong to it: the start is rounded up to a whole second, the end down."""
    if spec.start_at is None and spec.end_at is None:
        return _UNBOUNDED
    start = None if spec.start_at is None else -(-spec.start_at // SECOND)
    return Bounds(start, None if spec.end_at is None else slot_of(spec.end_at))


_UNBOUNDED = Bounds()


class Overlap(enum.Enum):
    GO_ON = enum.auto()
    SKIP = enum.auto()
    REPLACE = enum.auto()
    """Cancel every started run of the task that is not final, and go on."""
    BYPASS = enum.auto()
    """Go on, past the concurrency limit."""


def decide_overlap(spec: TaskSpec, previous: LastRun | None, waiting: int) -> Overlap:
    """`waiting`: runs of the task that are due and not claimed yet. Only SKIP minds them."""
    under_way = previous is not None and previous.status in OVERLAPPING
    match spec.overlap_action:
        case OverlapAction.ALLOW:
            return Overlap.GO_ON
        case OverlapAction.SKIP:
            return Overlap.SKIP if under_way or waiting > 0 else Overlap.GO_ON
        case OverlapAction.CANCEL_PREV:
            return Overlap.REPLACE if under_way else Overlap.GO_ON
        case OverlapAction.PARALLEL:
            return Overlap.BYPASS if under_way else Overlap.GO_ON
        case _:
            assert_never(spec.overlap_action)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new round, from attempt 1."""


@dataclass(frozen=True, slots=True)
class Again:
    """A new round that goes on counting where a failed one stopped."""

    attempt_base: int
    of_run_id: int


@dataclass(frozen=True, slots=True)
class Hold:
    """No run for this slot."""

    reason: SkipReason
    answers_run_id: int | None = None
    """The failed round that has been answered with this skip, so that it is not answered twice."""


FRESH = Fresh()
CIRCUIT_OPEN = Hold(SkipReason.CIRCUIT_OPEN)


def failed(previous: LastRun | None) -> bool:
    """An operator's cancel counts as a failure; making room for the next round does not."""
    return previous is not None and previous.status in FAILURES and not previous.replaced


def decide_failure(spec: TaskSpec, previous: LastRun | None, slot: int, waiting: int) -> Fresh | Again | Hold:
    """`waiting`: runs of the task that are due and not claimed yet; one of them may be the probe of an open circuit."""
    if previous is None:
        return FRESH
    match spec.failure_action:
        case FailureAction.RUN_NEW:
            return FRESH
        case FailureAction.RETRY:
            return Again(previous.attempt, previous.run_id) if failed(previous) else FRESH
        case FailureAction.SKIP:
            unanswered = failed(previous) and previous.skipped_run_id != previous.run_id
            return Hold(SkipReason.FAILURE, answers_run_id=previous.run_id) if unanswered else FRESH
        case FailureAction.BACKOFF:
            held = failed(previous) and _within(_backoff_seconds(spec, previous), previous, slot)
            return Hold(SkipReason.BACKOFF) if held else FRESH
        case FailureAction.HALF_OPEN:
            return _circuit(spec, previous, slot, waiting)
        case _:
            assert_never(spec.failure_action)


def _circuit(spec: TaskSpec, previous: LastRun, slot: int, waiting: int) -> Fresh | Hold:
    if previous.failures < spec.circuit.failures or previous.status in SUCCEEDED:
        return FRESH
    if previous.status in OVERLAPPING or waiting > 0:
        return CIRCUIT_OPEN  # the probe is on its way, and one is enough
    if failed(previous) and _within(spec.circuit.cool_down_seconds, previous, slot):
        return CIRCUIT_OPEN
    return FRESH


def _within(seconds: float, previous: LastRun, slot: int) -> bool:
    return previous.end_time is not None and instant_of(slot) < previous.end_time + seconds * SECOND


def _backoff_seconds(spec: TaskSpec, previous: LastRun) -> float:
    policy = spec.retries
    doublings = min(max(previous.failures, 1) - 1, 64)  # more would only overflow on the way to the cap
    return min(policy.initial_delay * 2.0**doublings, policy.max_delay)


@dataclass(frozen=True, slots=True)
class Admit:
    gated: bool
    """It starts only when the gate has a place for it. False: no limit, or one that it passes by."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: SkipReason


def needs_counts(spec: TaskSpec) -> bool:
    """Whether `admit` looks at `occupied` and `waiting`; if not, pass zeros and spare the query."""
    if spec.max_concurrency is None:
        return False
    match spec.concurrency_policy:
        case ConcurrencyPolicy.SKIP:
            return True
        case ConcurrencyPolicy.QUEUE:
            return spec.queue_depth is not None
        case ConcurrencyPolicy.PARALLEL:
            return False
        case _:
            assert_never(spec.concurrency_policy)


def admit(spec: TaskSpec, occupied: int, waiting: int, *, bypass: bool = False) -> Admit | Refuse:
    """`occupied`: runs that execute, await their callback, or are due and wait; `waiting`: the last of these alone.

    `bypass` is the overlap policy's PARALLEL. A limit of 0 stops everything, that one too.
    """
    limit = spec.max_concurrency
    if limit is None or (bypass and limit > 0):
        return Admit(gated=False)
    match spec.concurrency_policy:
        case ConcurrencyPolicy.PARALLEL:
            return Admit(gated=False) if limit > 0 else Refuse(SkipReason.CONCURRENCY)
        case ConcurrencyPolicy.SKIP:
            # Gated all the same: a retry or a run delayed by jitter may take the place that is free now.
            return Admit(gated=True) if occupied < limit else Refuse(SkipReason.CONCURRENCY)
        case ConcurrencyPolicy.QUEUE:
            full = spec.queue_depth is not None and occupied >= limit
            if full and _queued(limit, occupied, waiting) >= (spec.queue_depth or 0):
                return Refuse(SkipReason.QUEUE_FULL)
            return Admit(gated=True)
        case _:
            assert_never(spec.concurrency_policy)


def _queued(limit: int, occupied: int, waiting: int) -> int:
    """How many of the waiting find no place: the others are only waiting to be claimed, which may be a moment away."""
    free = max(0, limit - (occupied - waiting))
    return waiting - free


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions rest on, as of the same transaction. Left at rest where `needs` says so."""

    round: LastRun | None = None
    """The previous round: the newest started run born of schedule or trigger."""
    occupied: int = 0
    """Runs RUNNING or CALLBACK_PENDING, plus the waiting."""
    waiting: int = 0
    """Runs SCHEDULED and due."""


class DueRun(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    at: int | None = None
    """Where a calendar has moved the slot to; None where it is not moved."""
    run_at: Instant
    """The slot, moved by the task's jitter."""
    attempt_base: int = 0
    """The first claim makes it one more."""
    retry_of_run_id: int | None = None
    gated: bool = False
    """Waits at the task's gate. False where there is no limit, or the run passes it by."""
    cancel_previous: bool = False
    """First cancel every started run of the task that is not final, as replaced."""


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    reason: SkipReason
    at: int | None = None
    """As that of a run."""
    answers_run_id: int | None = None
    """The failed round that this skip answers: its `skipped_run_id` from now on."""
    blocking_run_id: int | None = None
    """The round that stood in the way, where a round did: a count has no run."""


def decide_slot(task: Task, slot: int, facts: Facts, at: int | None = None) -> tuple[DueRun | Skip, Facts]:
    """One slot, and the facts as the next one finds them. `at`: its effective time, where a calendar has moved it."""
    spec, seen, replace, bypass = task.spec, facts, False, False
    effective = slot if at is None else at
    match decide_overlap(spec, facts.round, facts.waiting):
        case Overlap.GO_ON:
            pass
        case Overlap.SKIP:
            return Skip(slot=slot, reason=SkipReason.OVERLAP, blocking_run_id=_under_way(facts.round), at=at), facts
        case Overlap.REPLACE:
            # Decide as if they were gone already. They are canceled only if this run is really born.
            replace, seen = True, _without_started(facts)
        case Overlap.BYPASS:
            bypass = True
        case other:
            assert_never(other)

    answer = decide_failure(spec, seen.round, effective, seen.waiting)
    if isinstance(answer, Hold):
        skip = Skip(
            slot=slot,
            reason=answer.reason,
            answers_run_id=answer.answers_run_id,
            blocking_run_id=None if seen.round is None else seen.round.run_id,
            at=at,
        )
        return skip, _answered(facts, answer)

    place = admit(spec, seen.occupied, seen.waiting, bypass=bypass)
    if isinstance(place, Refuse):
        return Skip(slot=slot, reason=place.reason, at=at), facts

    again = answer if isinstance(answer, Again) else None
    birth = DueRun(
        slot=slot,
        at=at,
        run_at=Instant(instant_of(effective) + round(jitter(task.id, slot, spec.jitter_seconds) * SECOND)),
        attempt_base=again.attempt_base if again else 0,
        retry_of_run_id=again.of_run_id if again else None,
        gated=place.gated,
        cancel_previous=replace,
    )
    return birth, Facts(round=seen.round, occupied=seen.occupied + 1, waiting=seen.waiting + 1)


def _under_way(previous: LastRun | None) -> int | None:
    return previous.run_id if previous is not None and previous.status in OVERLAPPING else None


def _without_started(facts: Facts) -> Facts:
    """Every started run of the task is canceled to make room: those that wait are all that is left."""
    if facts.round is None:
        return facts
    replaced = msgspec.structs.replace(facts.round, status=RunStatus.CANCELED, replaced=True)
    return Facts(round=replaced, occupied=facts.waiting, waiting=facts.waiting)


def _answered(facts: Facts, hold: Hold) -> Facts:
    if facts.round is None or hold.answers_run_id is None:
        return facts
    answered = msgspec.structs.replace(facts.round, skipped_run_id=hold.answers_run_id)
    return msgspec.structs.replace(facts, round=answered)
