"""Overlap: a slot arrives while the previous round is still under way."""

from __future__ import annotations

import enum
from typing import assert_never

from noonbell.model.run import OVERLAPPING
from noonbell.model.task import OverlapAction, Round, TaskSpec


class Overlap(enum.Enum):
    GO_ON = enum.auto()
    SKIP = enum.auto()
    REPLACE = enum.auto()
    """Cancel every started run of the task that is not final, and go on."""
    BYPASS = enum.auto()
    """Go on, past the concurrency limit."""


def decide(spec: TaskSpec, previous: Round | None, waiting: int) -> Overlap:
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
