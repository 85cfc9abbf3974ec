"""One slot that counts: a run is born for it, or it is skipped, and the next slot sees which.

overlap, failure, concurrency, in this order; the first of them that decides against a run names the reason.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from noonbell.clock import SECOND, Instant, instant_of
from noonbell.model.run import OVERLAPPING, RunStatus, SkipReason
from noonbell.model.task import Round, Task
from noonbell.policy import concurrency, failure, overlap
from noonbell.policy.overlap import Overlap
from noonbell.when.due import jitter


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions rest on, as of the same transaction. Left at rest where `needs` says so."""

    round: Round | None = None
    """The previous round: the newest started run born of schedule or trigger."""
    occupied: int = 0
    """Runs RUNNING or CALLBACK_PENDING, plus the waiting."""
    waiting: int = 0
    """Runs SCHEDULED and due."""


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
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
    answers_run_id: int | None = None
    """The failed round that this skip answers: its `skipped_run_id` from now on."""
    blocking_run_id: int | None = None
    """The round that stood in the way, where a round did: a count names nobody."""


def decide(task: Task, slot: int, facts: Facts) -> tuple[Birth | Skip, Facts]:
    """One slot, and the facts as the next one finds them."""
    spec, seen, replace, bypass = task.spec, facts, False, False
    match overlap.decide(spec, facts.round, facts.waiting):
        case Overlap.GO_ON:
            pass
        case Overlap.SKIP:
            return Skip(slot=slot, reason=SkipReason.OVERLAP, blocking_run_id=_under_way(facts.round)), facts
        case Overlap.REPLACE:
            # Decide as if they were gone already. They are canceled only if this run is really born.
            replace, seen = True, _without_started(facts)
        case Overlap.BYPASS:
            bypass = True
        case other:
            assert_never(other)

    answer = failure.decide(spec, seen.round, slot, seen.waiting)
    if isinstance(answer, failure.Hold):
        skip = Skip(
            slot=slot,
            reason=answer.reason,
            answers_run_id=answer.answers_run_id,
            blocking_run_id=None if seen.round is None else seen.round.run_id,
        )
        return skip, _answered(facts, answer)

    place = concurrency.decide(spec, seen.occupied, seen.waiting, bypass=bypass)
    if isinstance(place, concurrency.Refuse):
        return Skip(slot=slot, reason=place.reason), facts

    again = answer if isinstance(answer, failure.Again) else None
    birth = Birth(
        slot=slot,
        run_at=Instant(instant_of(slot) + round(jitter(task.id, slot, spec.jitter_seconds) * SECOND)),
        attempt_base=again.attempt_base if again else 0,
        retry_of_run_id=again.of_run_id if again else None,
        gated=place.gated,
        cancel_previous=replace,
    )
    return birth, Facts(round=seen.round, occupied=seen.occupied + 1, waiting=seen.waiting + 1)


def _under_way(previous: Round | None) -> int | None:
    return previous.run_id if previous is not None and previous.status in OVERLAPPING else None


def _without_started(facts: Facts) -> Facts:
    """Every started run of the task is canceled to make room: those that wait are all that is left."""
    if facts.round is None:
        return facts
    replaced = msgspec.structs.replace(facts.round, status=RunStatus.CANCELED, replaced=True)
    return Facts(round=replaced, occupied=facts.waiting, waiting=facts.waiting)


def _answered(facts: Facts, hold: failure.Hold) -> Facts:
    if facts.round is None or hold.answers_run_id is None:
        return facts
    answered = msgspec.structs.replace(facts.round, skipped_run_id=hold.answers_run_id)
    return msgspec.structs.replace(facts, round=answered)
