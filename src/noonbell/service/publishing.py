"""Publishing: runs outside the schedule, one at a time by a trigger or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from noonbell.errors import ConcurrencyLimit, InvalidArgument, NotFound
from noonbell.model.request import IfFinished, Outcome, Publication, Published
from noonbell.model.run import Origin
from noonbell.model.task import ExecType, TaskId
from noonbell.ports import Store, Wakeup
from noonbell.service.naming import BY_NAME, TaskRef, is_name
from noonbell.service.reader import Problems, Reader

MOST_RUNS: Final = 10_000
"""In one batch."""
_AT_ONCE: Final = 100
"""Runs of a batch that are read in one turn of the event loop."""

LONGEST_DELAY: Final = 315_360_000.0
"""Ten years, in seconds."""

_REMEMBERED: Final = 10_000


class Publishing:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store = store
        self._wakeup = wakeup
        self._queues: dict[TaskId, str] = {}
        # Where to send the wake-up, without a query for every trigger. A wrong one costs its run a poll, no more.

    async def trigger(
        self,
        ref: TaskRef,
        given: Mapping[str, Any] | None = None,
        *,
        origin: Origin = Origin.TRIGGER,
        trace_id: str | None = None,
    ) -> Published:
        """One run now, whatever the schedule says. A task at its limit that does not queue: ConcurrencyLimit, no run."""
        task_id = await self._id_of(ref)
        problems = Problems()
        publication = read_publication(Reader(given or {}, problems), task_id, origin, trace_id)
        problems.finish()
        await self._check_overrides([publication])
        (published,) = await self._publish([publication])
        if published.outcome is Outcome.REFUSED:
            raise ConcurrencyLimit(
                f"task {task_id} is at its limit and takes no further run ({published.reason})",
                details={"reason": published.reason},
            )
        return published

    async def publish_batch(self, given: Sequence[Any], *, trace_id: str | None = None) -> list[Published]:
        """Up to 10,000 runs in one transaction; answers in the order of the requests."""
        if not 1 <= len(given) <= MOST_RUNS:
            raise InvalidArgument.field("runs", f"are {len(given)}; expected 1 to {MOST_RUNS}")
        problems = Problems()
        ids = await self._ids_of(given, problems)
        publications = []
        for index, (each, task_id) in enumerate(zip(given, ids, strict=True)):
            if problems.are_enough:
                break
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn: a large batch takes a good part of a second
            if isinstance(each, Mapping):
                reader = Reader(each, problems, f"runs[{index}]")
                reader.know(("task",))
                publications.append(read_publication(reader, task_id, Origin.PUBLISH, trace_id))
        problems.finish()
        await self._check_overrides(publications)
        return await self._publish(publications)

    async def _publish(self, publications: Sequence[Publication]) -> list[Published]:
        published = await self._store.publish(publications)
        born = {
            publication.task_id
            for publication, answer in zip(publications, published, strict=True)
            if answer.outcome in (Outcome.CREATED, Outcome.UPDATED)
        }
        await self._wake(born, is_later=any(p.run_at is not None or p.delay_seconds > 0 for p in publications))
        return published

    async def _wake(self, task_ids: Iterable[TaskId], *, is_later: bool) -> None:
        for queue in {await self._queue_of(task_id) for task_id in task_ids}:
            self._wakeup.signal(f"queue:{queue}")
        if is_later:
            self._wakeup.signal("plan")

    async def _queue_of(self, task_id: TaskId) -> str:
        queue = self._queues.get(task_id)
        if queue is None:
            task = await self._store.task(task_id)
            queue = "default" if task is None else task.spec.queue
            if len(self._queues) >= _REMEMBERED:
                self._queues.clear()
            self._queues[task_id] = queue
        return queue

    async def _id_of(self, ref: TaskRef, field: str | None = None) -> TaskId:
        """`field` is where the task was named, if not in the path."""
        if not isinstance(ref, str):
            return ref
        task = await self._store.task_named(ref)
        if task is None and field is not None:
            raise NotFound(f"{field}: there is no task named {ref!r}", details={field: "there is no such task"})
        if task is None:
            raise NotFound("there is no such task")
        self._queues[task.id] = task.spec.queue
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
            if task is not None and task.spec.exec_type is ExecType.JOB:
                names = sorted({n for p in publications if p.task_id == task_id for n in p.overrides or ()})
                raise InvalidArgument.fields(dict.fromkeys(names, "is for HTTP targets, and this task is a JOB"))


def read_publication(reader: Reader, task_id: TaskId, origin: Origin, trace_id: str | None = None) -> Publication:
    """What a caller asks for; problems are left with the reader."""
    run_at = reader.moment("run_at")
    delay = reader.number("delay_seconds", 0, 0, LONGEST_DELAY)
    if run_at is not None and reader.get("delay_seconds") is not None:
        reader.wrong("run_at", "says when, and so does delay_seconds; expected one of the two")
    publication = Publication(
        task_id=task_id,
        origin=origin,
        payload=reader.json("payload", msgspec.UNSET),
        overrides=_read_overrides(reader),
        key=reader.text("key", None, least=1),
        if_finished=reader.choice("if_finished", IfFinished, IfFinished.KEEP),
        update_waiting=reader.flag("update_waiting", default=False),
        delay_seconds=delay,
        run_at=run_at,
        priority=reader.integer("priority", None, -1_000_000_000, 1_000_000_000),
        specific_worker_ids=_read_workers(reader),
        trace_id=trace_id,
    )
    if publication.key is None and reader.get("update_waiting"):
        reader.wrong("update_waiting", "needs a key: it changes the waiting run of that key")
    if publication.key is None and reader.get("if_finished") is not None:
        reader.wrong("if_finished", "needs a key: it is about the finished run of that key")
    reader.finish("a run to publish")
    return publication


def _read_overrides(reader: Reader) -> dict[str, Any] | None:
    overrides: dict[str, Any] = {}
    body = reader.text("override_body", None, most=1_048_576, lines=True)
    if body is not None:
        overrides["override_body"] = body
    if reader.flag("force_async", default=False):
        overrides["force_async"] = True
    return overrides or None


def _read_workers(reader: Reader) -> tuple[str, ...] | None:
    return reader.texts("specific_worker_ids", most=1_000) if reader.get("specific_worker_ids") is not None else None
