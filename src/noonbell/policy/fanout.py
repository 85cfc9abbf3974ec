"""Fan-out: how many parts a run has, and what their endings make of the whole."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from noonbell.model.task import Fanout


class Verdict(enum.StrEnum):
    UNDECIDED = "undecided"
    SUCCESS = "success"
    FAILED = "failed"


def parts(fanout: Fanout, alive_workers: Sequence[str]) -> int | list[str]:
    """A number: that many parts, each for whichever worker comes first. A list: one part for each of these workers.

    An empty list means that nobody is there: the run waits.
    """
    if isinstance(fanout.workers, int):
        return fanout.workers
    return sorted(set(alive_workers))


def verdict(success: int | str, total: int, succeeded: int, failed: int) -> Verdict:
    """Given as soon as no part that is still out can change it. `success` is "all", "any" or how many must succeed."""
    if total == 0:
        return Verdict.UNDECIDED
    needed = {"all": total, "any": 1}[success] if isinstance(success, str) else success
    if succeeded >= needed:
        return Verdict.SUCCESS
    if total - failed < needed:
        return Verdict.FAILED
    return Verdict.UNDECIDED
