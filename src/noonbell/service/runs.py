"""Runs: read, cancel, retry, promote, one by one or all that a filter finds; and runs as JSON, or as a file
(CSV, or one line of JSON each) that is made page by page.

Answers show times as RFC 3339 and secrets masked; callback tokens are not shown.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.publish import cancel, publish
from noonbell.errors import ConcurrencyLimit, InvalidArgument, InvalidState, NotFound
from noonbell.fields import Moment, list_of, meta, plain
from noonbell.fields.problems import shown as quoted
from noonbell.model.event import Callback, LogLine
from noonbell.model.flow import FlowGraph, StepInGraph, StepState, StepStatus
from noonbell.model.request import Canceled, Page, Publication, PublishOutcome, PublishResult, RunQuery
from noonbell.model.run import (
    FINAL,
    MOST_ATTEMPTS,
    SUCCEEDED,
    Attempt,
    FinalStatus,
    Origin,
    Run,
    RunBodies,
    RunId,
    RunStatus,
    idempotency_key_of,
    trace_id_of,
)
from noonbell.model.task import SYSTEM_TASK_IDS, Step, TaskId
from noonbell.ports import Store, Wakeup, queue_topic
from noonbell.service.calls import ShownCall
from noonbell.service.filters import LOOKED_AT, PageNumbers, RunFilter, from_the_top
from noonbell.service.secrets import masked
from noonbell.service.workers import Level, from_level

BULK_LIMIT: Final = 10_000
"""Runs that one bulk change touches, at most."""

_BATCH: Final = 500
_ERRORS: Final = 100
"""Steps of a flow whose errors its graph has."""


_FAILED: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT, RunStatus.CANCELED)


def cancelable(query: RunQuery) -> tuple[RunStatus, ...]:
    """The statuses that a bulk cancel covers: all that are not final, as far as the query asks for them."""
    return tuple(status for status in query.status or tuple(RunStatus) if status not in FINAL)


def retryable(query: RunQuery) -> tuple[RunStatus, ...]:
    """Of a bulk retry: what failed or was canceled, and of other final ones those that the query asks for."""
    return tuple(status for status in query.status or _FAILED if status in FINAL)


class RunsCanceled(msgspec.Struct, frozen=True):
    matched: Annotated[int, meta("Runs that match the filter.", examples=[12])]
    canceled: Annotated[int, meta(examples=[12])]
    more: Annotated[bool, meta("There are more: call again.")] = False


class RunsRetried(msgspec.Struct, frozen=True):
    matched: Annotated[int, meta("Runs that match the filter.", examples=[3])]
    retried: Annotated[int, meta(examples=[3])]
    more: Annotated[bool, meta("There are more: call again.")] = False


class CancelWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a cancel"

    reason: Annotated[str, meta("The reason, kept with the run.", max_length=1_000, examples=["wrong day"])] = ""


class BulkRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a bulk change is about: those of a filter, or all."""

    noun: ClassVar[str] = "a bulk change"
    example: ClassVar[dict[str, Any]] = {"filter": {"task": "sync_stats", "status": ["SCHEDULED"]}}

    filter: RunFilter | None = None
    all: Annotated[bool, meta("All runs, instead of a filter.")] = False
    dry_run: Annotated[bool, meta("Only count them.")] = False


class ShownCancel(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Canceled"

    run_id: Annotated[RunId, meta(examples=[7340033])]
    status: Annotated[RunStatus, meta(examples=["CANCELED"])]
    canceled: Annotated[bool, meta("False: it was already final, and is not changed.", examples=[True])]


class RetryWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a retry"

    from_step: Annotated[
        str | None,
        meta(
            "For a flow: run this step again, and all steps that need it; failed steps are always run again.",
            min_length=1,
            max_length=64,
            examples=["load"],
        ),
    ] = None


class Retried(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta("The new run.", examples=[7340099])]
    retry_of_run_id: Annotated[RunId, meta(examples=[7340033])]


class ShownPromotion(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Promoted"

    run_id: Annotated[RunId, meta(examples=[7340033])]
    status: RunStatus
    run_at: Moment


class Attempts(msgspec.Struct, frozen=True):
    items: list[ShownAttempt]
    next_after: Annotated[
        int | msgspec.UnsetType,
        meta("If there are more: continue after this attempt.", examples=[1000]),
    ] = msgspec.UNSET


class AttemptList(msgspec.Struct, frozen=True):
    after: Annotated[
        int, meta("Attempts after this one: `next_after` of the previous response.", ge=0, le=2**53 - 1)
    ] = 0
    limit: Annotated[int, meta("The most to return.", ge=1, le=MOST_ATTEMPTS)] = MOST_ATTEMPTS


class LogLines(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Log"

    items: list[ShownLine]
    next_after: Annotated[int, meta("Continue after this line.", examples=[1])]


class LogList(msgspec.Struct, frozen=True):
    after: Annotated[int, meta("Lines after this one: `next_after` of the previous response.", ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, meta("The most to return.", ge=1, le=10_000)] = 1_000
    level: Annotated[Level | None, meta("Only lines of this level and above.", examples=["warning"])] = None
    search: Annotated[str | None, meta("Only lines that have this text in them.", min_length=1, max_length=255)] = None


class Runs:
    def __init__(self, store: Store, wakeup: Wakeup, cache: TaskCache) -> None:
        self._store, self._wakeup, self._cache = store, wakeup, cache

    async def get(self, run_id: RunId) -> Run:
        run = await self._store.run(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run

    async def show(self, run_id: RunId) -> dict[str, Any]:
        """The run with the bodies of its newest attempt and its payload."""
        run = await self.get(run_id)
        bodies = await self._store.bodies(run_id)
        return {
            **shown(run),
            **shown_bodies(bodies),
            "payload": await self._store.payload(run_id),
            "call": await self.call_of(run),
        }

    async def call_of(self, run: Run) -> dict[str, Any] | None:
        """What a call without a task calls, its secrets masked; None of any other run."""
        if run.task_id <= SYSTEM_TASK_IDS:
            return None
        inputs = await self._store.inputs([run.id])
        return ShownCall.of(inputs[run.id].overrides) if run.id in inputs else None

    async def bodies(self, run_id: RunId, attempt: int | None = None) -> RunBodies:
        """The bodies of that attempt, or of the newest, as they are stored, secrets included."""
        return await self._store.bodies(run_id, attempt) or RunBodies()

    async def page(self, query: RunQuery) -> Page[Run]:
        return await self._store.runs(query)

    async def sample(self, query: RunQuery, size: int = 1) -> Page[Run]:
        """The newest of them, and how many a bulk change would find: counted as far as one call goes and one page looks."""
        first = {"sort": "-id", "page": 1, "page_size": size, "cursor": None}
        wanted = msgspec.structs.replace(query, **first, look=query.look or LOOKED_AT, count_to=BULK_LIMIT)
        return await self._store.runs(wanted)

    async def attempts(
        self, run_id: RunId, after: int = 0, limit: int = MOST_ATTEMPTS
    ) -> tuple[list[Attempt], int | None]:
        """Oldest first, each with its bodies; and the number after which there are more."""
        await self.get(run_id)
        found = await self._store.attempts(run_id, after, limit, bodies=True)
        more = len(found) == limit and await self._store.attempts(run_id, found[-1].attempt, 1)
        return found, found[-1].attempt if more else None

    async def log(self, run_id: RunId, asked: LogList) -> list[LogLine]:
        await self.get(run_id)
        levels = () if asked.level is None else from_level(asked.level)
        return await self._store.log_lines(run_id, asked.after, asked.limit, levels=levels, text=asked.search)

    async def cancel(self, run_id: RunId, *, by: str | None = None, reason: str = "") -> Canceled:
        """Cancel a run, and answer with its true status: a run that is final stays as it is."""
        answers = await cancel(self._store, self._wakeup, [run_id], by=by, reason=reason)
        if not answers:
            raise NotFound("there is no such run")
        return answers[0]

    async def retry(self, run_id: RunId, *, by: str | None = None, from_step: str | None = None) -> RunId:
        """Publish a new run with what a final run carried. That of a flow that did not succeed keeps the steps that did."""
        del by  # the run itself says that it is a retry, and of which; the audit log says who asked
        run = await self.get(run_id)
        if run.status not in FINAL:
            raise InvalidState(
                "run {run} is {status}; only a run that is final can be retried", run=run_id, status=run.status
            )
        if run.step_id is not None:
            raise InvalidState(
                "run {run} is step {step} of run {parent}; retry that one, with from_step",
                run=run_id,
                step=repr(run.step_id),
                parent=run.parent_id,
            )
        if run.parent_id is not None:
            raise InvalidState("run {run} is part of run {parent}; retry that one", run=run_id, parent=run.parent_id)
        if from_step is not None:
            await self._check_step(run, from_step)
        published = (await self._publish_again([run], once=False, from_step=from_step)).get(run_id)
        if published is None:
            raise NotFound("there is no such run")
        if published.outcome is PublishOutcome.REFUSED or published.run_id is None:
            raise ConcurrencyLimit(
                "task {task} is at its limit and accepts no more runs ({reason})",
                task=run.task_id,
                reason=published.reason,
            )
        return published.run_id

    async def _check_step(self, run: Run, from_step: str) -> None:
        task = await self._store.task(run.task_id)
        steps = [] if task is None else [step.id for step in task.spec.steps]
        if not steps:
            raise InvalidArgument.field("from_step", "applies only to runs of flows, and this is not one; leave it out")
        if from_step not in steps:
            raise InvalidArgument.field(
                "from_step",
                f"is {quoted(from_step)}, which is not a step of the flow; expected one of {', '.join(steps[:20])}",
            )
        if not await self._store.flow_states(run.id):
            raise InvalidState(
                "run {run} ended before its flow started: there is nothing to keep; retry the whole run", run=run.id
            )

    async def graph(self, run_id: RunId) -> FlowGraph:
        """A run of a flow with its steps; InvalidState for any other."""
        run = await self.get(run_id)
        if run.step_id is not None:
            raise InvalidState(f"run {run_id} is step {run.step_id!r} of run {run.parent_id}: that run has the graph")
        found = {state.step_id: state for state in await self._store.flow_states(run_id)}
        task = await self._store.task_as_of(run.task_id, run.task_version)
        if task is None or not task.spec.steps:
            raise InvalidState(f"run {run_id} is not a run of a flow: it has no graph")
        steps = [step_in_graph(step, found.get(step.id), run.status) for step in task.spec.steps]
        return FlowGraph(
            run_id=run_id,
            task_id=run.task_id,
            task_version=run.task_version,
            status=run.status,
            retry_of_run_id=run.retry_of_run_id,
            steps=await self._with_errors(steps),
        )

    async def _with_errors(self, steps: list[StepInGraph]) -> list[StepInGraph]:
        """With what the runs of the first steps that failed say of it."""
        failed = [step.run_id for step in steps if step.status is StepStatus.FAILED and step.run_id is not None]
        runs = await self._store.runs_by_id(failed[:_ERRORS])
        said = {run.id: run.error_message for run in runs if run.error_message}
        told = [None if step.run_id is None else said.get(step.run_id) for step in steps]
        return [
            msgspec.structs.replace(step, message=error) if error else step
            for step, error in zip(steps, told, strict=True)
        ]

    async def _publish_again(
        self, runs: list[Run], *, once: bool, from_step: str | None = None
    ) -> dict[RunId, PublishResult]:
        """By the run that it repeats, but for those that are gone. `once`: what was run again so before is not again."""
        wanted = await self.again(runs, once=once, from_step=from_step)
        published = await publish(self._store, self._wakeup, list(wanted.values()), self._cache)
        return dict(zip(wanted, published, strict=True))

    async def again(
        self, runs: Sequence[Run], *, once: bool = False, from_step: str | None = None
    ) -> dict[RunId, Publication]:
        """What to publish for each of these to be run again, but for those that are gone. Nothing is written."""
        inputs = await self._store.inputs([run.id for run in runs])
        flows = await self._flows(runs)
        return {
            run.id: Publication(
                task_id=run.task_id,
                origin=Origin.RETRY,
                payload=inputs[run.id].payload,
                overrides=_again_with_key(run, from_step, inputs[run.id].overrides)
                if run.task_id in flows
                else inputs[run.id].overrides,
                priority=run.priority,
                scheduled_time=run.scheduled_time,
                retry_of_run_id=run.id,
                key=f"redrive:{run.id}" if once else None,
            )
            for run in runs
            if run.id in inputs
        }

    async def _flows(self, runs: Sequence[Run]) -> set[TaskId]:
        """The tasks of these runs that are flows."""
        tasks = await self._store.tasks_by_id(sorted({run.task_id for run in runs}))
        return {task.id for task in tasks if task.spec.steps}

    async def promote(self, run_id: RunId) -> Run:
        """A delayed or retrying run becomes due now; InvalidState if it does not wait for its time."""
        if not await self._store.promote_run(run_id):
            run = await self.get(run_id)
            raise InvalidState("run {run} is {status} and cannot be started early", run=run_id, status=run.status)
        run = await self.get(run_id)
        self._wakeup.signal(queue_topic(run.queue))
        return run

    async def cancel_where(self, query: RunQuery, *, by: str | None = None, dry_run: bool = False) -> RunsCanceled:
        """Every run that the query finds and that is not final."""

        async def cancel_page(runs: list[Run]) -> int:
            return sum(answer.canceled for answer in (await self.cancel_each(runs, by=by)).values())

        return RunsCanceled(*await self._each(query, cancelable(query), None if dry_run else cancel_page))

    async def retry_where(
        self, query: RunQuery, *, by: str | None = None, dry_run: bool = False, once: bool = False
    ) -> RunsRetried:
        """Every run that the query finds and that failed or was canceled; others only where their status is asked for.

        With `once`, each of them once, however often this is called.
        """
        del by

        async def retry(runs: list[Run]) -> int:
            answers = await self.retry_each(runs, once=once)
            return sum(answer is not None and answer.outcome is PublishOutcome.CREATED for answer in answers)

        return RunsRetried(*await self._each(query, retryable(query), None if dry_run else retry))

    async def retry_each(self, runs: list[Run], *, once: bool = False) -> list[PublishResult | None]:
        """What became of each of these final runs, in order; None where the task is in ERROR, or no longer there."""
        try:
            answers = await self._publish_again(runs, once=once)
        except (InvalidState, NotFound):  # such a task must not keep the others back
            answers = {}
            for run in runs:
                with suppress(InvalidState, NotFound):
                    answers |= await self._publish_again([run], once=once)
        return [answers.get(run.id) for run in runs]

    async def cancel_each(self, runs: list[Run], *, by: str | None = None) -> dict[RunId, Canceled]:
        """What became of each run that is still there."""
        answers = await cancel(self._store, self._wakeup, [run.id for run in runs], by=by)
        return {answer.run_id: answer for answer in answers}

    async def _each(
        self, query: RunQuery, statuses: tuple[RunStatus, ...], change: Callable[[list[Run]], Awaitable[int]] | None
    ) -> tuple[int, int, bool]:
        """How many were found and changed, and whether BULK_LIMIT cut it short; without a `change` they are counted.

        The pages follow the ids downwards: what a change makes is not found again.
        """
        matched = changed = 0
        cursor: str | None = from_the_top("-id")
        wanted = msgspec.structs.replace(query, status=statuses, sort="-id", page=1, page_size=_BATCH)
        while statuses and cursor is not None and matched < BULK_LIMIT:
            page = await self._store.runs(msgspec.structs.replace(wanted, cursor=cursor))
            matched += len(page.items)
            changed += 0 if change is None else await change(page.items)
            cursor = page.next_cursor
        return matched, changed, bool(statuses) and cursor is not None


def again(run: Run, from_step: str | None = None) -> dict[str, Any]:
    """What the run of a flow carries that is a retry of another."""
    return {"retry": {"run_id": run.id, **({} if from_step is None else {"from_step": from_step})}}


def _again_with_key(run: Run, from_step: str | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the new run takes over from this one. A run that succeeded has nothing to go on with: without a step to
    start from, all of it is carried out again.
    """
    kept = {name: value for name, value in (overrides or {}).items() if name == "concurrency_key"}
    return kept if from_step is None and run.status in SUCCEEDED else {**kept, **again(run, from_step)}


def step_in_graph(step: Step, state: StepState | None, status: RunStatus) -> StepInGraph:
    """`state` is None for a flow that has not started."""
    never = StepStatus.WAITING
    if status in FINAL:
        never = StepStatus.SKIPPED if status is RunStatus.SKIPPED else StepStatus.CANCELED
    shown = StepInGraph(
        id=step.id,
        needs=list(step.needs),
        on=step.on,
        when=step.when,
        foreach=step.foreach is not None,
        allow_failure=step.allow_failure,
        exec_type=step.exec_type,
        calls=step.called,
        queue=step.queue,
        status=never,
    )
    if state is None:
        return shown
    return msgspec.structs.replace(
        shown, run_id=state.step_run_id, **{name: getattr(state, name) for name in _OF_STEP_STATE}
    )


_OF_STEP_STATE: Final = (
    *("status", "reason", "message", "total", "succeeded", "failed", "copied_from", "started_at", "ended_at"),
)
"""What the graph shows of the state of a step, under the same name."""


Milliseconds = Annotated[int | None, meta(examples=[180])]


class RunInList(Run, frozen=True, kw_only=True):
    """A run without its bodies, which lists do not read."""

    duration_ms: Milliseconds
    final_status: Annotated[
        FinalStatus | None,
        meta("Null until it is final; TIMEOUT and FAILED_TIMEOUT count as FAILED.", examples=["SUCCESS"]),
    ]


class WholeRun(RunInList, frozen=True, kw_only=True):
    component: ClassVar[str] = "Run"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (RunBodies,)
    without: ClassVar[tuple[str, ...]] = ("omitted",)

    payload: Any = None
    call: Annotated[ShownCall | None, meta("For a call without a task, what it calls; else null.")] = None


class ShownAttempt(Attempt, frozen=True, kw_only=True):
    component: ClassVar[str] = "Attempt"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (RunBodies,)
    without: ClassVar[tuple[str, ...]] = ("bodies",)

    resent: Annotated[
        bool, meta("The request was sent a second time, because its first connection was lost.", examples=[False])
    ]
    duration_ms: Milliseconds


class ShownLine(LogLine, frozen=True, kw_only=True):
    component: ClassVar[str] = "LogLine"
    without: ClassVar[tuple[str, ...]] = ("run_id",)


RunPage = list_of("RunPage", RunInList, PageNumbers)


def shown(run: Run) -> dict[str, Any]:
    """Every field but the bodies, which lists do not read."""
    return {
        **plain(run),
        "trace_id": trace_id_of(run.id, run.scheduled_time, run.trace_id),
        "idempotency_key": idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key),
        "duration_ms": run.duration_ms,
        "final_status": run.final_status,
    }


def shown_bodies(bodies: RunBodies | None) -> dict[str, Any]:
    bodies = bodies or RunBodies()
    return {
        **plain(bodies),
        "request_headers": None if bodies.request_headers is None else masked(bodies.request_headers),
        "response_headers": None if bodies.response_headers is None else masked(bodies.response_headers),
    }


def shown_attempt(attempt: Attempt) -> dict[str, Any]:
    start, end = attempt.start_time, attempt.end_time
    own = plain(msgspec.structs.replace(attempt, bodies=None))
    del own["bodies"]
    kept = shown_bodies(attempt.bodies)
    omitted = {**own.pop("omitted", {}), **kept.pop("omitted", {})}
    return {
        **own,
        "duration_ms": None if start is None or end is None else (end - start) // 1000,
        "resent": attempt.is_resent,
        **kept,
        **({"omitted": omitted} if omitted else {}),
    }


def shown_callback(callback: Callback) -> dict[str, Any]:
    return {**plain(callback), "headers": masked(callback.headers)}


EXPORT_FORMATS: Final = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson; charset=utf-8"}
"""Each with its media type."""
EXPORT_COLUMNS: Final = (
    *("id", "task_id", "task_name", "status", "origin", "key", "queue", "worker_id", "attempt"),
    *("scheduled_time", "start_time", "end_time", "duration_ms"),
    *("response_code", "skip_reason", "error_message", "result"),
)
"""Of the CSV."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_PAGE: Final = 500


class RunExport(RunFilter, frozen=True, kw_only=True):
    format: Annotated[
        str, meta("CSV with a header line, or one line of JSON for each run.", choices=tuple(EXPORT_FORMATS))
    ] = "csv"


async def exported(find: Callable[[RunQuery], Awaitable[Page[Run]]], query: RunQuery, form: str) -> AsyncIterator[str]:
    """The text, newest run first. Only a page of runs is in memory at a time."""
    query = msgspec.structs.replace(query, sort="-id", page=1, page_size=_PAGE, cursor=from_the_top("-id"))
    yield csv_lines([EXPORT_COLUMNS]) if form == "csv" else ""
    while True:
        page = await find(query)
        yield written((shown(run) for run in page.items), form)
        if page.next_cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def written(runs: Iterable[Mapping[str, Any]], form: str) -> str:
    """`runs` are as the API shows them."""
    if form == "csv":
        return csv_lines([run[name] for name in EXPORT_COLUMNS] for run in runs)
    return "".join(f"{json.dumps(run, ensure_ascii=False, separators=(',', ':'), default=str)}\n" for run in runs)


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    lines = io.StringIO()
    csv.writer(lines).writerows([csv_cell(value) for value in row] for row in rows)
    return lines.getvalue()


def csv_cell(value: Any) -> str:
    """Marked so that no spreadsheet takes it for a formula."""
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
