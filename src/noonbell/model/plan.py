"""What the engine has to know of plans: that a task is one, and where its results are told.

A plan is a task like any other, made and read in another vocabulary (`service.plans`). Its `meta` says so.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from noonbell.model.task import TaskSpec

MARK: Final = "plan"
"""The field of `meta` that makes a task a plan."""

JOB_TYPE: Final = "plan"
"""What a worker of the station carries out, whatever the plan."""


class PlanTarget(enum.StrEnum):
    API = "api"
    """One worker of the station, whichever is free."""
    PUB = "pub"
    """Whoever listens to the station's topic: the run is told as an event, and done."""
    VOTE = "vote"
    """Every worker of the station, each with a result of its own."""


class Address(NamedTuple):
    """What the events of a plan's results are filed under."""

    topic: str
    subject: str


def target_of(spec: TaskSpec) -> PlanTarget | None:
    """None: not a plan. Anybody may write anything into `meta`, so it is looked at twice."""
    mark = spec.meta.get(MARK) if spec.meta else None
    value = mark.get("target") if isinstance(mark, dict) else None
    return PlanTarget(value) if isinstance(value, str) and value in _TARGETS else None


def is_told(spec: TaskSpec) -> bool:
    """Whether its runs need no worker: they are told to whoever listens, and that is all there is to do."""
    return target_of(spec) is PlanTarget.PUB


def address_of(spec: TaskSpec) -> Address | None:
    """Where the results of its runs are told; None where nobody asked for it."""
    target = target_of(spec)
    if target is None:
        return None
    return Address(spec.queue if target is PlanTarget.PUB else spec.name, spec.external_id or spec.name)


_TARGETS: Final = frozenset(str(target) for target in PlanTarget)
