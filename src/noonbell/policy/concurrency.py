"""Concurrency: may one more run of a task go on, and does it wait at the task's gate for a place?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from noonbell.model.run import SkipReason
from noonbell.model.task import ConcurrencyPolicy, TaskSpec


@dataclass(frozen=True, slots=True)
class Admit:
    gated: bool
    """It starts only when the gate has a place for it. False: no limit, or one that it passes by."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: SkipReason


def counts(spec: TaskSpec) -> bool:
    """Whether `decide` looks at the numbers at all: if not, they need not be counted."""
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


def decide(spec: TaskSpec, occupied: int, waiting: int, *, bypass: bool = False) -> Admit | Refuse:
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
