"""Failure: a slot arrives and the previous round failed.

Time is told by the slot, not by when the planner came round to it: a late pass decides as a punctual one would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from noonbell.clock import SECOND, instant_of
from noonbell.model.run import FAILURES, OVERLAPPING, SUCCEEDED, SkipReason
from noonbell.model.task import FailureAction, Round, TaskSpec


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


def failed(previous: Round | None) -> bool:
    """An operator's cancel counts as a failure; making room for the next round does not."""
    return previous is not None and previous.status in FAILURES and not previous.replaced


def decide(spec: TaskSpec, previous: Round | None, slot: int, waiting: int) -> Fresh | Again | Hold:
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


def _circuit(spec: TaskSpec, previous: Round, slot: int, waiting: int) -> Fresh | Hold:
    if previous.failures < spec.circuit.failures or previous.status in SUCCEEDED:
        return FRESH
    if previous.status in OVERLAPPING or waiting > 0:
        return CIRCUIT_OPEN  # the probe is on its way, and one is enough
    if failed(previous) and _within(spec.circuit.cool_down_seconds, previous, slot):
        return CIRCUIT_OPEN
    return FRESH


def _within(seconds: float, previous: Round, slot: int) -> bool:
    return previous.end_time is not None and instant_of(slot) < previous.end_time + seconds * SECOND


def _backoff_seconds(spec: TaskSpec, previous: Round) -> float:
    policy = spec.retries
    doublings = min(max(previous.failures, 1) - 1, 64)  # more would only overflow on the way to the cap
    return min(policy.initial_delay * 2.0**doublings, policy.max_delay)
