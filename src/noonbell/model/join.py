"""A join: a task that runs after other tasks (`after`), and how far one wait for them has come.

A final run of an upstream arrives at the join of its root: the slot that the run belongs to, or the run that it goes back to.
The join fills one place for each upstream, and is over when it has made a run, when its time has run out, or when the task
that follows was switched off.

    OPEN ──every place filled──▶ DONE      one run of origin `upstream`
      ├────within_seconds─────▶ MISSING    one SKIPPED run, `upstream_missing`
      └────switched off───────▶ DISABLED   no run
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar

import msgspec

from noonbell.clock import Instant
from noonbell.fields import meta

MOST_UPSTREAMS = 100
_YEAR = 31_536_000


class UpstreamOutcome(enum.StrEnum):
    """Which endings of an upstream's run count."""

    SUCCESS = "success"
    FAILURE = "failure"
    """It failed, ran out of time, or was canceled."""
    SKIPPED = "skipped"
    ANY = "any"


class JoinMode(enum.StrEnum):
    ALL = "all"
    ANY = "any"


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "an upstream"

    task: Annotated[
        Annotated[int, meta(ge=1, le=2**53 - 1)] | Annotated[str, meta(min_length=1, max_length=255)],
        meta(
            "The task that goes before, by its name or id.",
            expected="the name or the id of a task",
            missing="the name or the id of a task",
            examples=["extract"],
        ),
    ]
    """By its id where it is stored."""
    on: Annotated[UpstreamOutcome, meta("Which endings of its runs count.")] = UpstreamOutcome.SUCCESS


class After(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks a task runs after, and how their runs are brought together."""

    noun: ClassVar[str] = "after"

    tasks: Annotated[
        tuple[Upstream, ...],
        meta(
            "The tasks that go before.",
            min_length=1,
            max_length=MOST_UPSTREAMS,
            expected=f"a list of 1 to {MOST_UPSTREAMS} tasks",
            missing="the tasks that go before",
            examples=[[{"task": "extract", "on": "success"}]],
        ),
    ]
    join: Annotated[JoinMode, meta("Wait for all of them, or for the first.")] = JoinMode.ALL
    same_slot: Annotated[
        bool, meta("Only runs of the same slot belong together; else one of each since the last run.")
    ] = True
    within_seconds: Annotated[
        int, meta("How long to wait for the others, from the first that ended.", ge=1, le=_YEAR)
    ] = 86_400

    @property
    def upstream_ids(self) -> tuple[int, ...]:
        """Of a stored task, where each is named by its id."""
        return tuple(upstream.task for upstream in self.tasks if isinstance(upstream.task, int))


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """A task that runs after another one."""

    task_id: int
    name: str
    on: UpstreamOutcome


class JoinState(enum.StrEnum):
    OPEN = "open"
    DONE = "done"
    MISSING = "missing"
    DISABLED = "disabled"


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """The run of an upstream that a join knows of: the one that fills its place, else the newest."""

    upstream_id: int
    run_id: int
    status: str
    fills: bool = False


class Join(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    task_id: int
    """The task that follows."""
    root: str
    """`slot:MICROSECONDS` or `run:ID`; empty while a join without `same_slot` is open."""
    edge_version: int
    """The version of the task with which `after` last changed."""
    redrive: int
    """How often the root was joined before: a redrive makes a new join."""
    state: JoinState
    first_at: Instant
    due_at: Instant | None
    """Null where it is over."""
    scheduled_time: Instant
    run_id: int | None = None
    arrivals: tuple[Arrival, ...] = ()
