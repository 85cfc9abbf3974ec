"""Bulk operations: one change of many runs or tasks that the nodes carry out batch by batch, whether or not a page watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment, meta
from noonbell.model.request import Publication, TaskChange
from noonbell.model.task import Task, TaskStatus


class BulkKind(StrEnum):
    RETRY_RUNS = "retry_runs"
    REDRIVE_RUNS = "redrive_runs"
    CANCEL_RUNS = "cancel_runs"
    ENABLE_TASKS = "enable_tasks"
    DISABLE_TASKS = "disable_tasks"
    TRIGGER_TASKS = "trigger_tasks"
    DELETE_TASKS = "delete_tasks"
    CHANGE_TASKS = "change_tasks"

    @property
    def is_of_runs(self) -> bool:
        return self.value.endswith("_runs")


OPPOSITES: Final = {BulkKind.ENABLE_TASKS: BulkKind.DISABLE_TASKS, BulkKind.DISABLE_TASKS: BulkKind.ENABLE_TASKS}
"""The kinds that can be undone, and by what. Each item that they changed is kept."""
TURNS: Final = {BulkKind.ENABLE_TASKS: TaskStatus.ENABLED, BulkKind.DISABLE_TASKS: TaskStatus.DISABLED}


class BulkStatus(StrEnum):
    RUNNING = "RUNNING"
    DONE = "DONE"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


Count = Annotated[int, meta(examples=[12])]


class BulkOperation(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[int, meta("Below 2^53, roughly in the order of time.", examples=[7340033])]
    kind: Annotated[BulkKind, meta(examples=["retry_runs"])]
    status: Annotated[BulkStatus, meta(examples=["RUNNING"])]
    created_at: Annotated[Moment, meta("Later runs and tasks, and runs that ended later, are not touched.")]
    created_by: Annotated[str | None, meta("The name of the token, if one was used.", examples=["alice"])] = None
    ended_at: Annotated[Moment | None, meta("Null while it is running.", examples=[None])] = None
    canceled_by: Annotated[str | None, meta("Who canceled it, if known.", examples=[None])] = None
    filter: Annotated[
        dict[str, Any],
        meta("The filter for runs or tasks, as requested; empty: all.", examples=[{"status": ["FAILED"]}]),
    ] = {}
    listed: Annotated[int | None, meta("How many ids were given instead of a filter.", examples=[None])] = None
    undo_of: Annotated[int | None, meta("The operation that it undoes.", examples=[None])] = None
    change: Annotated[dict[str, Any], meta("What `change_tasks` sets.", examples=[{}])] = {}
    total: Annotated[int, meta("How many matched at its start; when it has ended, how many it handled.", examples=[40])]
    total_is_least: Annotated[bool, meta("There are more than `total`; they are not counted in advance.")] = False
    done: Annotated[int, meta("How many were changed.", examples=[12])] = 0
    skipped: Annotated[int, meta("How many were skipped.", examples=[1])] = 0
    reasons: Annotated[
        dict[str, Count],
        meta(
            "Why they were skipped, and how many each: already, error, limit, gone, refused, exists, final, going, part,"
            " managed, unfit, later.",
            examples=[{"limit": 1}],
        ),
    ] = {}
    error: Annotated[str | None, meta("Why it failed as a whole.", examples=[None])] = None


class NewBulk(msgspec.Struct, frozen=True, kw_only=True):
    """An operation to be started: see `Store.start_bulk`."""

    kind: BulkKind
    query: dict[str, Any] = {}
    """The filter as it was read when the operation was asked for: names and relative times mean what they meant then."""
    filter: dict[str, Any] = {}
    ids: tuple[int, ...] | None = None
    undo_of: int | None = None
    change: dict[str, Any] = {}
    total: int = 0
    total_is_least: bool = False
    by: str | None = None


class BulkItem(msgspec.Struct, frozen=True):
    id: Annotated[int, meta("Of the run or the task.", examples=[7340033])]
    name: Annotated[str, meta("Of the task.", examples=["sync_stats"])]
    why: Annotated[str, meta("Why it was skipped; empty: it was changed.", examples=["limit"])] = ""


@dataclass(frozen=True, slots=True)
class BulkLease:
    """An operation that one node carries out for now."""

    operation: BulkOperation
    query: dict[str, Any]
    ids: tuple[int, ...] | None
    place: str | None
    """Where the next batch begins; None: at the beginning."""
    holder: str
    token: int
    expires_at: Instant


def _unchanged(task: Task) -> TaskChange:
    return TaskChange(spec=task.spec, status=task.status)


@dataclass(frozen=True, slots=True)
class BulkBatch:
    """What the holder of an operation does next, all of it in one transaction: one of the lists, by the kind."""

    next: str | None
    """Where the batch after this one begins; None: this is the last."""
    publications: Sequence[tuple[int, str, Publication]] = ()
    """With the id that the answer is about (a run for a retry, a task for a trigger) and the task's name."""
    runs: Sequence[tuple[int, str]] = ()
    """To be canceled."""
    tasks: Sequence[tuple[int, str]] = ()
    """To be enabled, disabled, deleted or changed."""
    edit: Callable[[Task], TaskChange] = _unchanged
    skipped: Sequence[BulkItem] = ()
    """Those that need no look inside the transaction."""


@dataclass(frozen=True, slots=True)
class BulkAdvance:
    """What has become of a batch."""

    lease: BulkLease
    """With the operation as it stands now."""
    items: Sequence[BulkItem]
