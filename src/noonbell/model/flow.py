"""A run of a flow: the state of each of its steps, as the store keeps it and as the graph shows it."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment, meta
from noonbell.model.run import RunId, RunStatus
from noonbell.model.target_kind import ExecType
from noonbell.model.task import StepOn, TaskId


class StepStatus(enum.StrEnum):
    WAITING = "WAITING"
    """For the steps that it needs."""
    RUNNING = "RUNNING"
    """It has runs that are not final."""
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELED = "CANCELED"


OPEN_STEP: Final = frozenset({StepStatus.WAITING, StepStatus.RUNNING})


class StepReason(enum.StrEnum):
    """Why a step was skipped."""

    CONDITION = "condition"
    """Its `when` was false."""
    UPSTREAM = "upstream"
    """The steps that it needs did not end as its `on` says."""


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """One step in one run of a flow."""

    id: int
    """Of its row."""
    run_id: RunId
    """The run of the flow."""
    step_id: str
    position: int
    status: StepStatus = StepStatus.WAITING
    reason: str | None = None
    """Of SKIPPED, a StepReason; of a failure without a run, its kind."""
    message: str | None = None
    needs_open: int = 0
    """How many of the steps that it needs have not ended."""
    needs_failed: int = 0
    needs_skipped: int = 0
    total: int = 0
    """Items of a `foreach`; 1 for any other step that has started."""
    succeeded: int = 0
    failed: int = 0
    next_item: int = 0
    """The first item that has no run yet."""
    step_run_id: RunId | None = None
    """The run of a step without `foreach`."""
    copied_from: RunId | None = None
    """The run of the flow in which it was carried out, where this one kept its result."""
    started_at: Instant | None = None
    ended_at: Instant | None = None


class StepInGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A step as the graph of a run shows it."""

    id: Annotated[str, meta(examples=["extract"])]
    needs: Annotated[list[str], meta("The steps that it needs.", examples=[[]])]
    on: Annotated[StepOn, meta(examples=["success"])]
    when: Annotated[str | None, meta(examples=[None])] = None
    foreach: Annotated[bool, meta("Whether it has a run for each item of a list.")] = False
    allow_failure: bool = False
    exec_type: Annotated[ExecType, meta(examples=["SYNC"])]
    calls: Annotated[str, meta("The URL or the job type.", examples=["http://svc.internal/extract"])] = ""
    queue: Annotated[str, meta(examples=["http"])]
    status: Annotated[StepStatus, meta(examples=["SUCCESS"])]
    reason: Annotated[
        str | None,
        meta(
            "Why it was skipped: `condition` or `upstream`. Of one that failed without a run: `fail`, `too_large`.",
            examples=[None],
        ),
    ] = None
    message: Annotated[
        str | None,
        meta("What went wrong: why no run could be made, or the error of the run. Of the first 100 steps that failed."),
    ] = None
    total: Annotated[int, meta("Items of a `foreach`; 1 for another step that has started.", examples=[1])] = 0
    succeeded: Annotated[int, meta(examples=[1])] = 0
    failed: int = 0
    run_id: Annotated[RunId | None, meta("The run of a step without `foreach`.", examples=[7340035])] = None
    copied_from: Annotated[RunId | None, meta("The run of the flow whose result a retry has kept.")] = None
    started_at: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:00.004Z"])] = None
    ended_at: Annotated[Moment | None, meta(examples=["2026-11-15T02:30:00.184Z"])] = None


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a flow with its steps, in the order in which the task names them."""

    run_id: Annotated[RunId, meta(examples=[7340033])]
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_version: Annotated[int, meta("The version whose steps these are.", examples=[1])]
    status: Annotated[RunStatus, meta(examples=["SUCCESS"])]
    retry_of_run_id: RunId | None = None
    steps: list[StepInGraph]
