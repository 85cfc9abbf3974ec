"""Bulk operations: started, read, canceled and undone; and `BulkLoop`, which carries them out on every node that
serves.

The filter of an operation is read when it is started, and is frozen then: runs that are made or end later, and tasks
that are made later, are not its own; tasks that were changed later are skipped. A batch is read, then changed in one
transaction together with the place of the operation (`Store.advance_bulk`), so a node that dies loses and repeats
nothing.

What is ticked on a page, a handful of tasks or runs, is changed in one answer instead (`change_tasks`, `change_runs`).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.publish import topics_of
from noonbell.errors import ConcurrencyLimit, InvalidState, NoonbellError, NotFound, StoreUnavailable
from noonbell.fields import list_of, meta, plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.bulk import (
    OPPOSITES,
    BulkAdvance,
    BulkBatch,
    BulkItem,
    BulkKind,
    BulkLease,
    BulkOperation,
    BulkStatus,
    NewBulk,
)
from noonbell.model.request import Publication, PublishOutcome, RunQuery, TaskQuery
from noonbell.model.run import FINAL, Origin, Run, RunId, RunStatus
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.ports import ANY_QUEUE, BULK, ORDERS, PLAN, Store, Wakeup
from noonbell.service.filters import RunFilter, TaskFilter, check_bulk, from_the_top, run_query, task_query
from noonbell.service.queues import DEAD
from noonbell.service.runs import BULK_LIMIT, Runs, cancelable, retryable
from noonbell.service.tasks import Tasks

if TYPE_CHECKING:
    from noonbell.service import Services

log = logging.getLogger("noonbell.bulk")

MOST_IDS: Final = 10_000
SIZE: Final = 200
"""Runs, or tasks, of one batch."""
HELD: Final = 5.0
"""Seconds of a lease; each batch renews it. It is longer where batches are slow, so that they end before another node
takes over.
"""
_LONGEST_HELD: Final = 300.0
POLL: Final = 5.0
"""Seconds between two looks where no signal comes."""
_ACTS: Final = {
    BulkKind.RETRY_RUNS: "retry",
    BulkKind.REDRIVE_RUNS: "redrive",
    BulkKind.CANCEL_RUNS: "cancel",
}


class BulkStart(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with which runs or tasks."""

    noun: ClassVar[str] = "a bulk operation"
    example: ClassVar[dict[str, Any]] = {"kind": "retry_runs", "filter": {"status": ["FAILED"], "task": "sync_stats"}}

    kind: Annotated[BulkKind, meta("What is done with each of them.", examples=["retry_runs"])]
    filter: Annotated[
        dict[str, Any] | None, meta("Which ones, like the filter of `POST /runs/retry` or of `POST /tasks/enable`.")
    ] = None
    ids: Annotated[
        tuple[Annotated[int, meta(ge=1, le=2**53 - 1)], ...] | None,
        meta("Instead of a filter: the ids of the runs or tasks.", min_length=1, max_length=MOST_IDS),
    ] = None
    all: Annotated[bool, meta("All runs or tasks, instead of a filter.")] = False
    change: Annotated[TasksChange | None, meta("What `change_tasks` sets.")] = None


class BulkList(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("The most to return.", ge=1, le=1_000)] = 50
    before: Annotated[int | None, meta("Only operations with a lower id than this.", ge=1, le=2**53 - 1)] = None


class SkippedList(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, meta("The most to return.", ge=1, le=10_000)] = 1_000
    after: Annotated[int, meta("Only those with a higher id than this.", ge=0, le=2**53 - 1)] = 0


BulkOperations = list_of("BulkOperations", BulkOperation)
SkippedItems = list_of("SkippedItems", BulkItem)


class Bulk:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store, self._wakeup = store, wakeup

    async def start(self, given: Mapping[str, Any], *, by: str | None = None) -> BulkOperation:
        """Raises InvalidArgument with every wrong field. The nodes begin at once."""
        problems = Problems()
        at = ReadContext(problems)
        asked = read_into(BulkStart, given, at)
        problems.finish()
        _check(asked, given, at)
        problems.finish()
        new = NewBulk(kind=asked.kind, change={} if asked.change is None else _named(asked.change), by=by)
        if asked.ids is not None:
            ids = tuple(sorted(set(asked.ids), reverse=True))
            return await self._start(msgspec.structs.replace(new, ids=ids, total=len(ids)))
        within = ReadContext(problems, "filter")
        if asked.kind.is_of_runs:
            new = await self._of_runs(new, asked.filter or {}, within)
        else:
            new = await self._of_tasks(new, asked.filter or {}, within)
        problems.finish()
        return await self._start(msgspec.structs.replace(new, filter=asked.filter or {}))

    async def _of_runs(self, new: NewBulk, given: Mapping[str, Any], at: ReadContext) -> NewBulk:
        query = await run_query(read_into(RunFilter, given, at), self._store, at)
        if at.problems.found:
            return new
        statuses = statuses_of(_ACTS[new.kind], query)
        query = msgspec.structs.replace(query, status=statuses, scope=None)
        if not statuses:
            return msgspec.structs.replace(new, query={})
        found = await self._store.runs(msgspec.structs.replace(query, page_size=1, count_to=BULK_LIMIT))
        kept: dict[str, Any] = msgspec.to_builtins(query)
        return msgspec.structs.replace(new, query=kept, total=found.total or 0, total_is_least=found.is_least)

    async def _of_tasks(self, new: NewBulk, given: Mapping[str, Any], at: ReadContext) -> NewBulk:
        query = msgspec.structs.replace(task_query(read_into(TaskFilter, given, at), at), scope=None)
        if at.problems.found:
            return new
        found = await self._store.tasks(msgspec.structs.replace(query, page_size=1))
        return msgspec.structs.replace(new, query=msgspec.to_builtins(query), total=found.total or 0)

    async def _start(self, new: NewBulk) -> BulkOperation:
        operation = await self._store.start_bulk(new)
        self._wakeup.signal(BULK)
        return operation

    async def get(self, operation_id: int) -> BulkOperation:
        operation = await self._store.bulk_operation(operation_id)
        if operation is None:
            raise NotFound("there is no such bulk operation")
        return operation

    async def page(self, asked: BulkList = BulkList()) -> list[BulkOperation]:  # noqa: B008 - frozen
        """The newest first."""
        return await self._store.bulk_operations(asked.limit, asked.before)

    async def skipped(self, operation_id: int, asked: SkippedList = SkippedList()) -> list[BulkItem]:  # noqa: B008
        await self.get(operation_id)
        return await self._store.bulk_items(operation_id, asked.limit, asked.after)

    async def cancel(self, operation_id: int, *, by: str | None = None) -> BulkOperation:
        """What it has done stays. One that has ended stays as it is."""
        operation = await self._store.cancel_bulk(operation_id, by=by)
        if operation is None:
            raise NotFound("there is no such bulk operation")
        return operation

    async def undo(self, operation_id: int, *, by: str | None = None) -> BulkOperation:
        """Start another operation, which turns back every task that this one has enabled or disabled."""
        operation = await self.get(operation_id)
        if operation.kind not in OPPOSITES:
            raise InvalidState("a bulk operation {kind} cannot be undone", kind=operation.kind)
        if operation.status is BulkStatus.RUNNING:
            raise InvalidState("bulk operation {id} is running; cancel it first", id=operation_id)
        new = NewBulk(kind=OPPOSITES[operation.kind], undo_of=operation_id, total=operation.done, by=by)
        return await self._start(new)


def _check(asked: BulkStart, given: Mapping[str, Any], at: ReadContext) -> None:
    if asked.ids is not None and (asked.filter is not None or asked.all):
        at.wrong("ids", "says which ones, and so does filter or all; expected one of them")
    elif asked.ids is None:
        check_bulk(given, everything=asked.all, what="run" if asked.kind.is_of_runs else "task")
        if asked.all and asked.filter:
            at.wrong("all", "takes every one, and there is a filter; expected one of the two")
    if asked.kind is BulkKind.CHANGE_TASKS:
        if asked.change is None or not _named(asked.change):
            at.wrong("change", "is missing or empty; expected the changes to make")
    elif asked.change is not None:
        at.wrong("change", "is only for change_tasks; leave it out")


def _named(change: TasksChange) -> dict[str, Any]:
    return {name: value for name, value in plain(change).items() if value not in (None, {})}


class BatchReader:
    """Reads the next batch of a leased operation. Writes nothing."""

    def __init__(self, store: Store, runs: Runs, tasks: Tasks, size: int = SIZE) -> None:
        self._store, self._runs, self._tasks, self._size = store, runs, tasks, size

    async def read(self, lease: BulkLease) -> BulkBatch:
        if lease.operation.kind.is_of_runs:
            return await self._batch_of_runs(lease)
        return await self._batch_of_tasks(lease)

    async def _batch_of_runs(self, lease: BulkLease) -> BulkBatch:
        operation = lease.operation
        if lease.ids is None:
            runs, following = await self._runs_found(lease)
            skipped: list[BulkItem] = []
        else:
            ids, following = self._listed(lease.ids, lease.place)
            runs = await self._store.runs_by_id([RunId(number) for number in ids])
            there = {run.id for run in runs}
            skipped = [BulkItem(number, "", "gone") for number in ids if number not in there]
        if operation.kind is BulkKind.CANCEL_RUNS:
            return BulkBatch(following, runs=[(run.id, run.task_name) for run in runs], skipped=skipped)
        fit = []
        for run in runs:
            if why := _why_not_again(run):
                skipped.append(BulkItem(run.id, run.task_name, why))
            else:
                fit.append(run)
        again = await self._runs.again(fit, once=operation.kind is BulkKind.REDRIVE_RUNS) if fit else {}
        skipped += [BulkItem(run.id, run.task_name, "gone") for run in fit if run.id not in again]
        publications = [(run.id, run.task_name, again[run.id]) for run in fit if run.id in again]
        return BulkBatch(following, publications=publications, skipped=skipped)

    async def _runs_found(self, lease: BulkLease) -> tuple[list[Run], str | None]:
        """What was there when the operation was started, and for a retry had ended then."""
        if not lease.query:
            return [], None
        query = msgspec.convert(lease.query, RunQuery)
        place = lease.place or from_the_top("-id")
        page = await self._store.runs(
            msgspec.structs.replace(query, sort="-id", page=1, page_size=self._size, cursor=place)
        )
        start = lease.operation.created_at
        if lease.operation.kind is BulkKind.CANCEL_RUNS:
            return [run for run in page.items if run.created_at <= start], page.next_cursor
        return [run for run in page.items if (run.end_time or run.updated_at) <= start], page.next_cursor

    async def _batch_of_tasks(self, lease: BulkLease) -> BulkBatch:
        operation = lease.operation
        skipped: list[BulkItem] = []
        if operation.undo_of is not None:
            tasks, following = await self._tasks_changed_by(operation.undo_of, lease.place)
        elif lease.ids is not None:
            ids, following = self._listed(lease.ids, lease.place)
            found = {task.id: task for task in await self._store.tasks_by_id([TaskId(number) for number in ids])}
            tasks = [found[TaskId(number)] for number in ids if TaskId(number) in found]
            skipped = [BulkItem(number, "", "gone") for number in ids if TaskId(number) not in found]
        else:
            tasks, following, skipped = await self._tasks_found(lease)
        if operation.kind is BulkKind.TRIGGER_TASKS:
            publications = [(task.id, task.name, Publication(task_id=task.id, origin=Origin.TRIGGER)) for task in tasks]
            return BulkBatch(following, publications=publications, skipped=skipped)
        if operation.kind is not BulkKind.CHANGE_TASKS:
            return BulkBatch(following, tasks=_listed_tasks(tasks), skipped=skipped)
        skipped += [BulkItem(task.id, task.name, "managed") for task in tasks if _is_managed(task)]
        change = msgspec.convert(operation.change, TasksChange)
        edit = self._tasks.editing(change.of, await self._store.now())
        return BulkBatch(
            following,
            tasks=_listed_tasks([task for task in tasks if not _is_managed(task)]),
            edit=edit,
            skipped=skipped,
        )

    async def _tasks_found(self, lease: BulkLease) -> tuple[list[Task], str | None, list[BulkItem]]:
        """The newest first: a task that follows another is deleted before that one."""
        query = msgspec.convert(lease.query, TaskQuery)
        place = lease.place or from_the_top("-id")
        page = await self._store.tasks(
            msgspec.structs.replace(query, sort="-id", page=1, page_size=self._size, cursor=place)
        )
        start = lease.operation.created_at
        there = [task for task in page.items if task.created_at <= start]
        skipped = [BulkItem(task.id, task.name, "later") for task in there if task.updated_at > start]
        return [task for task in there if task.updated_at <= start], page.next_cursor, skipped

    async def _tasks_changed_by(self, operation_id: int, place: str | None) -> tuple[list[Task], str | None]:
        items = await self._store.bulk_items(operation_id, self._size, int(place or 0), changed=True)
        tasks = await self._store.tasks_by_id([TaskId(item.id) for item in items])
        return tasks, str(items[-1].id) if len(items) == self._size else None

    def _listed(self, ids: Sequence[int], place: str | None) -> tuple[Sequence[int], str | None]:
        start = int(place or 0)
        end = start + self._size
        return ids[start:end], str(end) if end < len(ids) else None


def _listed_tasks(tasks: Sequence[Task]) -> list[tuple[int, str]]:
    return [(task.id, task.name) for task in tasks]


def _is_managed(task: Task) -> bool:
    """Its file or its code would change it back."""
    return task.spec.managed_by.startswith(("file:", "code:"))


def _why_not_again(run: Run) -> str:
    if run.status not in FINAL:
        return "going"
    return "" if run.parent_id is None else "part"


class BulkLoop:
    """One batch a tick. Operations that are under way at the same time have their batches in turn."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        cache: TaskCache,
        reader: BatchReader,
        *,
        holder: str | None = None,
        held: float = HELD,
        monotonic: Callable[[], float] = read_monotonic,
    ) -> None:
        self._store, self._wakeup, self._cache, self._reader = store, wakeup, cache, reader
        self._holder = holder or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._shortest, self._held, self._monotonic = held, held, monotonic

    async def tick(self) -> float:
        if not await self._store.bulk_under_way():
            return POLL
        lease = await self._store.take_bulk(self._holder, self._held)
        if lease is None:
            return POLL
        began = self._monotonic()
        try:
            batch = await self._reader.read(lease)
            self._note_time(self._monotonic() - began)
            advanced = await self._store.advance_bulk(lease, batch, self._held)
        except StoreUnavailable:
            raise
        except Exception as error:
            log.exception("bulk operation %d failed", lease.operation.id)
            await self._store.fail_bulk(lease, _said(error))
            return 0.0
        if advanced is not None:
            failpoint.hit("K44")
            await self._wake(batch, advanced)
            self._tell(advanced.lease.operation)
        return 0.0

    def _note_time(self, seconds: float) -> None:
        """A lease is three times as long as a batch took to read: with a shorter one, slow nodes would take it from
        each other for ever.
        """
        self._held = min(_LONGEST_HELD, max(self._shortest, self._held * 0.9, 3 * seconds))

    async def wait(self, seconds: float) -> None:
        await self._wakeup.wait((BULK,), seconds)

    async def close(self) -> None:
        """Other nodes go on at once."""
        try:
            await self._store.leave_bulk(self._holder)
        except NoonbellError as error:
            log.debug("bulk operations are free when their lease has run out: %s", error)

    async def _wake(self, batch: BulkBatch, advanced: BulkAdvance) -> None:
        changed = {item.id for item in advanced.items if not item.why}
        topics: set[str] = set()
        if batch.publications:
            made = [each for item_id, _, each in batch.publications if item_id in changed]
            topics.update(await topics_of(made, self._cache))
        elif changed:
            topics |= {ORDERS, ANY_QUEUE, PLAN}
        for topic in sorted(topics):
            self._wakeup.signal(topic)

    def _tell(self, operation: BulkOperation) -> None:
        if operation.status is not BulkStatus.RUNNING:
            log.info(
                "bulk operation %d (%s) is %s: %d changed, %d skipped",
                *(operation.id, operation.kind, operation.status, operation.done, operation.skipped),
            )


def _said(error: Exception) -> str:
    return error.message if isinstance(error, NoonbellError) else f"{type(error).__name__}: {error}"


TASK_ACTS: Final = ("enable", "disable", "trigger", "delete", "change")
RUN_ACTS: Final = ("retry", "redrive", "cancel")


@dataclass(frozen=True, slots=True)
class Left:
    """A task or run that was left as it was."""

    id: int
    name: str
    why: str
    """`already`, `error`, `limit`, `gone`, `refused`, `exists`, `final`, `managed`, `unfit`, `going`, `part`, `active_parts`."""


class TasksChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of many tasks; what is not named stays as each task has it."""

    noun: ClassVar[str] = "a change of tasks"

    labels: Annotated[dict[str, str], meta("Added to the task's labels; an empty value removes the label.")] = {}
    queue: Annotated[str | None, meta("The queue of their next runs.", min_length=1, max_length=255)] = None
    timeout_seconds: Annotated[float | None, meta("Timeout of an attempt.", ge=0.001)] = None
    max_retries: Annotated[int | None, meta("Attempts after the first.", ge=0)] = None
    jitter_seconds: Annotated[int | None, meta("Each slot starts up to this many seconds later.", ge=0)] = None

    def of(self, task: Task) -> dict[str, Any]:
        """The fields of a partial change of that task."""
        names = ("queue", "timeout_seconds", "jitter_seconds")
        given: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.labels:
            given["labels"] = {name: value for name, value in {**task.spec.labels, **self.labels}.items() if value}
        if self.max_retries is not None:
            retry = {} if task.spec.retry_policy is None else plain(task.spec.retry_policy)
            given["retry_policy"] = {**retry, "max_retries": self.max_retries}
        return given


@dataclass(slots=True)
class BulkStep:
    done: list[tuple[int, str]] = field(default_factory=list)
    """Id and name of each that was changed."""
    left: list[Left] = field(default_factory=list)


async def change_tasks(services: Services, act: str, tasks: Sequence[Task], *, by: str | None = None) -> BulkStep:
    """Enable, disable or trigger these."""
    if act in ("enable", "disable"):
        whys = await _turn(services, TaskStatus.ENABLED if act == "enable" else TaskStatus.DISABLED, tasks, by)
    else:
        whys = [await _trigger(services, task) for task in tasks]
    return _step(_listed_tasks(tasks), whys)


def _step(items: Iterable[tuple[int, str]], whys: Iterable[str]) -> BulkStep:
    """`whys`: why each was left as it was; empty where it was changed."""
    step = BulkStep()
    for (id_, name), why in zip(items, whys, strict=True):
        if why:
            step.left.append(Left(id_, name, why))
        else:
            step.done.append((id_, name))
    return step


async def _turn(services: Services, status: TaskStatus, tasks: Sequence[Task], by: str | None) -> list[str]:
    ids = [task.id for task in tasks if task.status not in (status, TaskStatus.ERROR)]
    changed = {task.id for task in await services.tasks.set_status(ids, status, by=by)}
    known = {status: "already", TaskStatus.ERROR: "error"}
    return ["" if task.id in changed else known.get(task.status, "gone") for task in tasks]


async def _trigger(services: Services, task: Task) -> str:
    try:
        await services.publishing.trigger(task.id, {})
    except NotFound:
        return "gone"
    except InvalidState:
        return "error"
    except ConcurrencyLimit:
        return "limit"
    return ""


def statuses_of(act: str, query: RunQuery) -> tuple[RunStatus, ...]:
    """What the act is for, as far as the query asks for it."""
    if act == "cancel":
        return cancelable(query)
    if act == "redrive":
        return tuple(status for status in query.status or DEAD if status in DEAD)
    return retryable(query)


async def change_runs(services: Services, act: str, runs: Sequence[Run], *, by: str | None = None) -> BulkStep:
    whys = await (_cancel(services, runs, by) if act == "cancel" else _retry(services, runs, once=act == "redrive"))
    return _step(((run.id, run.task_name) for run in runs), whys)


async def _cancel(services: Services, runs: Sequence[Run], by: str | None) -> list[str]:
    answers = await services.runs.cancel_each(list(runs), by=by)
    return ["gone" if (found := answers.get(run.id)) is None else "" if found.canceled else "final" for run in runs]


async def _retry(services: Services, runs: Sequence[Run], *, once: bool) -> list[str]:
    answers = await services.runs.retry_each(list(runs), once=once) if runs else []
    named = {PublishOutcome.REFUSED: "limit", PublishOutcome.EXISTS: "exists", PublishOutcome.RUNNING: "exists"}
    return ["gone" if answer is None else named.get(answer.outcome, "") for answer in answers]
