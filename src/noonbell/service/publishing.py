"""Publishing: runs outside the schedule. One by a trigger, many by a batch, one for each past slot by a backfill."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, rfc3339, slot_of
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.publish import publish
from noonbell.errors import ConcurrencyLimit, InvalidArgument, InvalidState, NotFound
from noonbell.fields import FROM_TO, Moment, meta, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.request import (
    DEDUPE_PREFIX,
    Dedupe,
    DedupeMode,
    IfFinished,
    Publication,
    PublishOutcome,
    PublishResult,
)
from noonbell.model.run import Origin, RunId
from noonbell.model.task import Task, TaskId
from noonbell.ports import Store, Wakeup
from noonbell.service import scope
from noonbell.service.filters import BY_NAME, TaskRef, is_name
from noonbell.service.tasks import Tasks
from noonbell.when.due import Bounds, first

MOST_RUNS: Final = 10_000
"""In one batch."""
_AT_ONCE: Final = 100
"""Runs of a batch that are read in one turn of the event loop."""

LONGEST_DELAY: Final = 315_360_000.0
"""Ten years, in seconds."""


Priority = Annotated[int, meta("Higher runs first.", ge=-1_000_000_000, le=1_000_000_000)]


class TriggerWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One run outside the schedule."""

    noun: ClassVar[str] = "a run to publish"
    example: ClassVar[dict[str, Any]] = {"override_body": '{"day": "2026-11-15"}', "key": "stats-2026-11-15"}

    override_body: Annotated[
        str | None, meta("HTTP: the body, instead of the task's template.", max_length=1_048_576, lines=True)
    ] = None
    force_async: Annotated[bool, meta("HTTP: expect a callback, even if the task is SYNC.")] = False
    payload: Annotated[Any, meta("The payload, instead of the task's.")] = msgspec.UNSET
    key: Annotated[str | None, meta("Idempotency key.", min_length=1)] = None
    if_finished: Annotated[
        IfFinished | msgspec.UnsetType, meta("What to do if the run of this `key` is final.", default="keep")
    ] = msgspec.UNSET
    update_waiting: Annotated[bool, meta("Change the run of this `key`, if it is waiting.")] = False
    delay_seconds: Annotated[
        float | msgspec.UnsetType,
        meta("Start no earlier than this many seconds from now.", ge=0, le=LONGEST_DELAY, default=0),
    ] = msgspec.UNSET
    run_at: Annotated[Moment | None, meta("Start no earlier than this time.")] = None
    priority: Annotated[Priority | None, meta("Instead of the task's priority; higher runs first.")] = None
    specific_worker_ids: Annotated[
        tuple[str, ...] | None, meta("Only these workers, instead of the task's.", max_length=1_000)
    ] = None
    dedupe: Annotated[
        Dedupe | None, meta("Instead of a `key`: which of several publishes create a run, and when it starts.")
    ] = None
    concurrency_key: Annotated[
        str | None,
        meta(
            "The key itself, instead of what the task's `concurrency_key` finds in the payload: at most `max_per_key` runs of the task with the same key run at once.",
            min_length=1,
            examples=["acme"],
        ),
    ] = None
    expires_in_seconds: Annotated[
        int | None,
        meta(
            "Instead of the task's: skipped as `expired` if no worker has claimed it this long after it was due.",
            ge=1,
            le=int(LONGEST_DELAY),
        ),
    ] = None


class BatchRun(TriggerWrite, frozen=True, kw_only=True):
    """A run of a batch: the same, with the task that it is of."""

    task: Annotated[
        Annotated[int, meta(ge=1, le=2**53 - 1)] | Annotated[str, meta(min_length=1, max_length=260)],
        meta("Its id, or its name.", expected="the id or the name of a task"),
    ]


class PublishBatch(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "BatchWrite"
    noun: ClassVar[str] = "a batch"
    example: ClassVar[dict[str, Any]] = {
        "runs": [
            {"task": "send_mail", "payload": {"to": "a@example.com"}, "key": "mail-1"},
            {"task": 1, "delay_seconds": 30, "priority": 5},
        ]
    }

    runs: Annotated[list[BatchRun], meta("All of them, or none.", min_length=1, max_length=MOST_RUNS)]


class Triggered(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    outcome: Annotated[PublishOutcome | msgspec.UnsetType, meta("With a `key` or `dedupe`: what was done.")] = (
        msgspec.UNSET
    )


class ShownPublished(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Published"

    run_id: Annotated[RunId | None, meta(examples=[7340033])]
    outcome: PublishOutcome
    reason: str | msgspec.UnsetType = msgspec.UNSET


class BatchAnswer(msgspec.Struct, frozen=True):
    runs: list[ShownPublished]


class Publishing:
    def __init__(self, store: Store, wakeup: Wakeup, cache: TaskCache) -> None:
        self._store, self._wakeup, self._cache = store, wakeup, cache

    async def trigger(
        self,
        ref: TaskRef,
        given: Mapping[str, Any] | None = None,
        *,
        origin: Origin = Origin.TRIGGER,
        trace_id: str | None = None,
    ) -> PublishResult:
        """Make one run now, beside the schedule. Raises ConcurrencyLimit, and makes none, for a task at its limit
        that does not queue.
        """
        task_id = await self._id_of(ref)
        at = ReadContext(Problems())
        publication = read_publication(read_into(TriggerWrite, given or {}, at), at, task_id, origin, trace_id)
        at.problems.finish()
        await self._check_overrides([publication])
        (published,) = await publish(self._store, self._wakeup, [publication], self._cache)
        if published.outcome is PublishOutcome.REFUSED:
            raise ConcurrencyLimit(
                "task {task} is at its limit and accepts no more runs ({reason})",
                task=task_id,
                reason=published.reason,
                details={"reason": published.reason},
            )
        return published

    async def publish_batch(
        self, given: Sequence[Any], problems: Problems | None = None, *, trace_id: str | None = None
    ) -> list[PublishResult]:
        """Up to 10,000 runs in one transaction; answers in the order of the requests. `problems`: what was found wrong around them."""
        problems = problems or Problems()
        if not 1 <= len(given) <= MOST_RUNS:
            problems.add("runs", f"are {len(given)}; expected 1 to {MOST_RUNS}")
            problems.finish()
        ids = await self._ids_of(given, problems)
        if not problems.found:
            await scope.check_tasks(self._store, ids)
        publications = []
        for index, (each, task_id) in enumerate(zip(given, ids, strict=True)):
            if problems.are_enough:
                break
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn: a large batch takes a good part of a second
            if isinstance(each, Mapping):
                at = ReadContext(problems, f"runs[{index}]")
                asked = read_into(TriggerWrite, each, at, besides=("task",))
                publications.append(read_publication(asked, at, task_id, Origin.PUBLISH, trace_id))
        problems.finish()
        await self._check_overrides(publications)
        return await publish(self._store, self._wakeup, publications, self._cache)

    async def _id_of(self, ref: TaskRef, field: str | None = None) -> TaskId:
        """`field` is where the task was named, if not in the path."""
        if not isinstance(ref, str):
            return ref
        task = next(iter(scope.held(filter(None, [await self._store.task_named(ref)]))), None)
        if task is None and field is not None:
            raise NotFound(f"{field}: there is no task named {ref!r}", details={field: "there is no such task"})
        if task is None:
            raise NotFound("there is no such task")
        self._cache.note(task)
        return task.id

    async def _ids_of(self, given: Sequence[Any], problems: Problems) -> list[TaskId]:
        """The tasks that a batch names; each name is looked up once."""
        known: dict[str, TaskId] = {}
        ids: list[TaskId] = []
        for index, each in enumerate(given):
            task = each.get("task") if isinstance(each, Mapping) else None
            task_id = TaskId(0)
            if not isinstance(each, Mapping):
                problems.add(f"runs[{index}]", "is not an object")
            elif isinstance(task, str) and is_name(name := task.removeprefix(BY_NAME)):
                if name not in known:
                    known[name] = await self._id_of(name, f"runs[{index}].task")
                task_id = known[name]
            elif isinstance(task, int) and not isinstance(task, bool) and 0 < task < 2**53:
                task_id = TaskId(task)
            else:
                problems.add(f"runs[{index}].task", "expected the id or the name of a task")
            ids.append(task_id)
        return ids

    async def _check_overrides(self, publications: Sequence[Publication]) -> None:
        """An HTTP body or a callback is nothing that a job could use."""
        for task_id in {publication.task_id for publication in publications if publication.overrides}:
            task = await self._store.task(task_id)
            if task is not None and not task.spec.target_kind.takes_overrides:
                given = {n for p in publications if p.task_id == task_id for n in p.overrides or ()}
                names = sorted(given - {"concurrency_key"})
                if names:
                    raise InvalidArgument.fields(
                        dict.fromkeys(names, f"is for HTTP targets, and this task is a {task.spec.exec_type}")
                    )


def read_publication(
    asked: TriggerWrite, at: ReadContext, task_id: TaskId, origin: Origin, trace_id: str | None = None
) -> Publication:
    """What a caller asks for; problems are left with `at`."""
    if asked.run_at is not None and asked.delay_seconds is not msgspec.UNSET:
        at.wrong("run_at", "cannot be combined with delay_seconds; expected one of the two")
    if asked.key is not None and asked.key.startswith(DEDUPE_PREFIX):
        at.wrong("key", f"begins with {DEDUPE_PREFIX!r}, as those of dedupe do; expected another one")
    if asked.key is None and asked.update_waiting:
        at.wrong("update_waiting", "requires a key: it changes the waiting run with that key")
    if asked.key is None and asked.if_finished is not msgspec.UNSET:
        at.wrong("if_finished", "requires a key: it applies to the finished run with that key")
    if asked.dedupe is not None and not any(name.startswith(at.name_of("dedupe")) for name in at.problems.found):
        _check_dedupe(asked, asked.dedupe, at)
    overrides: dict[str, Any] = {} if asked.override_body is None else {"override_body": asked.override_body}
    if asked.force_async:
        overrides["force_async"] = True
    if asked.concurrency_key is not None:
        overrides["concurrency_key"] = asked.concurrency_key
    return Publication(
        task_id=task_id,
        origin=origin,
        payload=asked.payload,
        overrides=overrides or None,
        key=asked.key,
        if_finished=IfFinished.KEEP if asked.if_finished is msgspec.UNSET else asked.if_finished,
        update_waiting=asked.update_waiting,
        delay_seconds=0 if asked.delay_seconds is msgspec.UNSET else asked.delay_seconds,
        run_at=asked.run_at,
        priority=asked.priority,
        specific_worker_ids=asked.specific_worker_ids,
        expires_in_seconds=asked.expires_in_seconds,
        trace_id=trace_id,
        dedupe=asked.dedupe,
    )


def _check_dedupe(asked: TriggerWrite, rule: Dedupe, at: ReadContext) -> None:
    is_key, within = rule.mode is DedupeMode.KEY, at.inside("dedupe")
    if asked.key is not None:
        at.wrong("dedupe", "has its own key, and key is given too; expected one of the two")
    if is_key and rule.seconds is not None:
        within.wrong("seconds", "is only for throttle and debounce; a key counts until its run is final")
    if not is_key and rule.seconds is None:
        within.wrong("seconds", f"is missing; {rule.mode} needs the length of its stretch")
    if rule.max_wait_seconds is not None and rule.mode is not DedupeMode.DEBOUNCE:
        within.wrong("max_wait_seconds", "is for debounce")
    elif rule.max_wait_seconds is not None and rule.seconds is not None and rule.max_wait_seconds < rule.seconds:
        within.wrong("max_wait_seconds", "is less than seconds; expected the same or more")
    if not is_key and (asked.run_at is not None or asked.delay_seconds is not msgspec.UNSET):
        name = "run_at" if asked.run_at is not None else "delay_seconds"
        at.wrong(name, f"says when, and so does a {rule.mode}; expected one of the two")


MOST_SLOTS: Final = 10_000
"""In one call."""


class BackfillWrite(msgspec.Struct, frozen=True, kw_only=True, rename=FROM_TO):
    noun: ClassVar[str] = "a backfill"
    example: ClassVar[dict[str, Any]] = {"from": "2026-11-14T00:00:00Z", "to": "2026-11-15T00:00:00Z", "dry_run": True}

    since: Annotated[Moment, meta("The first slot.", missing="the start of the time range")]
    until: Annotated[Moment | None, meta("The last slot; now if it is left out.")] = None
    limit: Annotated[int, meta("The most slots to fill.", ge=1, le=MOST_SLOTS)] = MOST_SLOTS
    dry_run: Annotated[bool, meta("Only list them.")] = False
    payload: Annotated[Any, meta("The payload, instead of the task's.")] = msgspec.UNSET
    priority: Annotated[Priority | None, meta("Instead of the task's priority; higher runs first.")] = None
    if_finished: Annotated[IfFinished, meta("What to do with a slot that already has such a run.")] = IfFinished.KEEP


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    count: Annotated[int, meta("Slots of the time range, up to the limit.", examples=[2])]
    slots: Annotated[list[Moment], meta(examples=[["2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z"]])]
    run_ids: Annotated[list[RunId], meta(examples=[[7340033, 7340034]])]
    created: Annotated[int, meta(examples=[2])]
    existing: Annotated[int, meta("Slots that had already been filled.")]
    refused: Annotated[int, meta("The task is at its limit and does not queue.")]
    next_from: Annotated[Moment | None, meta("Where to continue, if the limit was reached.", examples=[None])]


class Backfills:
    def __init__(self, store: Store, wakeup: Wakeup, tasks: Tasks) -> None:
        self._store, self._wakeup, self._tasks = store, wakeup, tasks

    async def fill(self, ref: TaskRef, given: Mapping[str, Any], *, trace_id: str | None = None) -> dict[str, Any]:
        """Make one run for each slot from `from` to `to`, both included, and at most one however often it is asked
        for. `next_from` says where to go on if the limit cut it short.
        """
        task = await self._tasks.get(ref)
        at = ReadContext(Problems())
        wanted = read_into(BackfillWrite, given, at)
        now = await self._store.now()
        until = now if wanted.until is None else wanted.until
        if until > now:
            at.wrong("to", "is in the future; expected a time range in the past")
        if "from" not in at.problems.found and wanted.since > until:
            at.wrong("from", "is after the end of the time range")
        at.problems.finish()
        limit = wanted.limit
        asked = Publication(
            task_id=task.id,
            origin=Origin.BACKFILL,
            payload=wanted.payload,
            priority=wanted.priority,
            if_finished=wanted.if_finished,
            trace_id=trace_id,
        )
        found = slots(task, wanted.since, until, limit + 1)
        more, found = found[limit:], found[:limit]
        answer: dict[str, Any] = {
            "count": len(found),
            "slots": [rfc3339(slot) for slot in found],
            "run_ids": [],
            "created": 0,
            "existing": 0,
            "refused": 0,
            "next_from": rfc3339(more[0]) if more else None,
        }
        return answer if wanted.dry_run or not found else {**answer, **await self._publish(task, asked, found)}

    async def _publish(self, task: Task, asked: Publication, found: list[Instant]) -> dict[str, Any]:
        wanted = [msgspec.structs.replace(asked, key=f"backfill:{rfc3339(at)}", scheduled_time=at) for at in found]
        published = await publish(self._store, self._wakeup, wanted, {task.id: task})
        outcomes = [one.outcome for one in published]
        return {
            "run_ids": [one.run_id for one in published if one.run_id is not None],
            "created": outcomes.count(PublishOutcome.CREATED),
            "existing": outcomes.count(PublishOutcome.EXISTS) + outcomes.count(PublishOutcome.RUNNING),
            "refused": outcomes.count(PublishOutcome.REFUSED),
        }


def slots(task: Task, since: Instant, until: Instant, most: int) -> list[Instant]:
    """The slots of the task's schedule as it is now, oldest first; within its bounds, without its repeat count."""
    spec = task.spec
    schedule = when.of_task(spec)
    if schedule is None:
        raise InvalidState("task {task} has no schedule, so it has no slots to fill", task=repr(task.name))
    if schedule.is_fixed_delay:
        raise InvalidState(
            "task {task} runs at an interval after its last run; it has no past slots", task=repr(task.name)
        )
    bounds = Bounds(
        None if spec.start_at is None else slot_of(spec.start_at),
        None if spec.end_at is None else slot_of(spec.end_at),
    )
    first_second = int(slot_of(Instant(since + 999_999)))  # a slot is a whole second: the first one not before `since`
    found: list[Instant] = []
    slot = first(schedule, bounds, first_second - 1)
    while slot is not None and instant_of(slot) <= until and len(found) < most:
        found.append(instant_of(slot))
        slot = first(schedule, bounds, slot)
    return found
