"""Trigger and publish: a run outside the schedule. Overlap and failure are not asked, only the limit."""

from __future__ import annotations

from noonbell.model.task import TaskSpec
from noonbell.policy import concurrency
from noonbell.policy.concurrency import Admit, Refuse

__all__ = ["Admit", "Refuse", "admit", "needs_counts"]


def needs_counts(spec: TaskSpec) -> bool:
    """Whether `admit` looks at `occupied` and `waiting`; if not, pass zeros and spare the query."""
    return concurrency.counts(spec)


def admit(spec: TaskSpec, occupied: int, waiting: int) -> Admit | Refuse:
    """At the limit QUEUE waits at the gate, PARALLEL goes on, SKIP is refused, and so is a queue that is full."""
    return concurrency.decide(spec, occupied, waiting)
