"""Plans: messages to stations by interval, weekday or day of month. Tasks and runs, in another vocabulary.

`plan_fields` reads them, `plan_json` shows them; what is here is what can be done with one. There is no second model and
no second table: everything that can be done with a task can be done with a plan, by its `task_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from noonbell.clock import Instant, Slot, instant_of, rfc3339, slot_of
from noonbell.errors import AlreadyExists, InvalidArgument, InvalidId, InvalidState, NotFound
from noonbell.model.plan import MARK
from noonbell.model.request import Page, RunQuery, TaskChange, TaskQuery
from noonbell.model.run import Origin, Run, RunStatus
from noonbell.model.task import Task, TaskSpec, TaskStatus
from noonbell.model.worker import WorkerState
from noonbell.ports import Store, Wakeup
from noonbell.service import plan_json
from noonbell.service.filters import from_the_top
from noonbell.service.plan_fields import LABEL, ONE_SHOT, PlanType, plan_id_of, read_plan, repeat_of, schedule_of
from noonbell.service.plan_json import PlanFacts
from noonbell.service.rules import Rules

MOST_RESULTS: Final = 20
"""Runs that a plan shows with their results, the newest first. All of them: `GET /tasks/{task_id}/runs`."""

MOST_PARTS: Final = 1_000
_AT_ONCE: Final = 8
"""Plans that are looked into side by side."""

_NEWEST: Final = from_the_top("-id")
_FAR: Final = Instant(2**53)
_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)


class Plans:
    def __init__(self, store: Store, wakeup: Wakeup, rules: Rules) -> None:
        self._store = store
        self._wakeup = wakeup
        self._rules = rules

    async def publish(self, given: Mapping[str, Any], *, by: str | None = None) -> Task:
        """Raises InvalidArgument with every wrong field, AlreadyExists for a plan_id that is taken."""
        draft = read_plan(given, await self._store.now(), self._rules)
        plan_id = draft.spec.external_id
        try:
            task = await self._store.create_task(draft.spec, status=draft.status, by=by)
        except AlreadyExists as error:
            raise AlreadyExists(
                f"plan_id: there is a plan {plan_id} already", details={"plan_id": "is taken", **_task_in(error)}
            ) from None
        self._wake(task)
        return task

    async def get(self, plan_id: str) -> Task:
        """The plan that is not removed. InvalidId, NotFound."""
        wanted = plan_id_of(plan_id)
        if wanted is None:
            raise InvalidId(f"{plan_id[:60]!r} is not the id of a plan; expected 1 to 32 hexadecimal digits")
        query = TaskQuery(external_id=wanted, sort="-id", page_size=1, cursor=_NEWEST)
        found = (await self._store.tasks(query)).items
        if not found or plan_json.written(found[0]) is None:
            raise NotFound("there is no such plan")
        return found[0]

    async def show(self, task: Task) -> dict[str, Any]:
        plan = _plan_of(task)
        return plan_json.shown(task, plan, await self._facts(task))

    async def show_whole(self, task: Task) -> dict[str, Any]:
        """With the newest runs: who took part, and what came of it. They are read last: a closed plan has its results."""
        shown = await self.show(task)
        page = await self._store.runs(RunQuery(task_id=task.id, page_size=MOST_RESULTS, cursor=_NEWEST))
        results = [plan_json.shown_result(run, await self._parts(task, run)) for run in page.items]
        return {**shown, "results": results}

    async def page(self, query: TaskQuery, types: tuple[PlanType, ...] = ()) -> Page[dict[str, Any]]:
        wanted = tuple(str(kind) for kind in types or PlanType)
        page = await self._store.tasks(msgspec.structs.replace(query, label_in=(LABEL, wanted)))
        plans = [task for task in page.items if plan_json.written(task) is not None]
        shown: list[dict[str, Any]] = []
        for start in range(0, len(plans), _AT_ONCE):
            shown += await asyncio.gather(*(self.show(task) for task in plans[start : start + _AT_ONCE]))
        return Page(shown, page.total, page.next_cursor)

    # What operators do

    async def pause(self, plan_id: str, *, by: str | None = None) -> Task:
        """No further slot until it is resumed; a run that waits or executes already goes on."""
        return await self._turn(plan_id, TaskStatus.DISABLED, by, refused=(TaskStatus.ERROR, TaskStatus.COMPLETED))

    async def resume(self, plan_id: str, *, by: str | None = None) -> Task:
        """From now on; what lay in between is not caught up."""
        return await self._turn(plan_id, TaskStatus.ENABLED, by, refused=(TaskStatus.ERROR, TaskStatus.COMPLETED))

    async def reset(self, plan_id: str, *, by: str | None = None) -> Task:
        """Back into the queue with its whole count, from whatever it was. What was to be skipped no longer is.

        A one-shot plan whose moment is used up runs again, now.
        """
        task = await self.get(plan_id)
        now = await self._store.now()

        def edit(task: Task) -> TaskChange:
            return TaskChange(spec=_afresh(task, now), status=TaskStatus.ENABLED, recount=True, skip_next=0)

        task = await self._store.change_task(task.id, edit, by=by)
        self._wake(task)
        return task

    async def skip(self, plan_id: str, count: int, *, by: str | None = None) -> Task:
        """The next `count` slots are skipped and used up; 0 takes it back, -1 skips until it is taken back or reset."""
        task = await self.get(plan_id)
        repeat = repeat_of(_plan_of(task))
        if repeat is not None and count >= repeat:
            raise InvalidArgument.field(
                "count", f"is {count}, and the plan runs {repeat} times in all; expected fewer, or close it"
            )
        return await self._store.skip_next(task.id, count, by=by)

    async def close(self, plan_id: str, *, by: str | None = None) -> Task:
        """No further slot, for good; a run that waits is canceled, one that executes may end."""
        task = await self._turn(plan_id, TaskStatus.COMPLETED, by)
        waiting = await self._store.runs(RunQuery(task_id=task.id, status=_WAITING, page_size=1_000))
        if waiting.items:
            await self._store.cancel([run.id for run in waiting.items], by=by, reason="its plan was closed")
        return task

    async def remove(self, plan_id: str, *, by: str | None = None) -> None:
        """Whatever its state; its plan_id is free again, the history of its runs stays until retention takes it."""
        task = await self.get(plan_id)
        self._wake(await self._store.delete_task(task.id, by=by))

    async def _turn(
        self, plan_id: str, status: TaskStatus, by: str | None, *, refused: tuple[TaskStatus, ...] = ()
    ) -> Task:
        task = await self.get(plan_id)
        task = await self._store.change_task(task.id, _turning(status, refused), by=by)
        self._wake(task)
        return task

    def _wake(self, task: Task) -> None:
        for topic in ("plan", "orders", f"queue:{task.spec.queue}"):
            self._wakeup.signal(topic)

    # What its runs say

    async def _facts(self, task: Task) -> PlanFacts:
        # By cursor, so that a long history is not counted for the sake of its newest run.
        newest = await self._store.runs(
            RunQuery(task_id=task.id, origin=Origin.SCHEDULE, page_size=1, cursor=_NEWEST, sort="-id")
        )
        since = plan_json.counted_from(task)
        dropped = sum(each.count for each in await self._store.dropped(task.id, since, _FAR))
        if not newest.items:
            return PlanFacts(skipped=dropped)
        last = newest.items[0]
        skipped = await self._count(task, RunStatus.SKIPPED, since)
        waiting = await self._count(task, RunStatus.SCHEDULED, since) + await self._canceled_unbegun(task, since)
        unattended = last.status is RunStatus.SCHEDULED and await self._is_unattended(task)
        return PlanFacts(last=last, unbegun=waiting, skipped=skipped + dropped, is_unattended=unattended)

    async def _count(self, task: Task, status: RunStatus, since: Instant) -> int:
        query = RunQuery(task_id=task.id, origin=Origin.SCHEDULE, status=(status,), since=since, page_size=1)
        return (await self._store.runs(query)).total or 0

    async def _canceled_unbegun(self, task: Task, since: Instant) -> int:
        query = RunQuery(task_id=task.id, origin=Origin.SCHEDULE, status=(RunStatus.CANCELED,), since=since)
        canceled = (await self._store.runs(msgspec.structs.replace(query, page_size=1_000))).items
        return sum(run.start_time is None for run in canceled)

    async def _is_unattended(self, task: Task) -> bool:
        spec = task.spec
        return not any(
            worker.state is WorkerState.RUNNING
            and spec.queue in worker.queues
            and (worker.job_types is None or spec.job_type in worker.job_types)
            for worker in await self._store.workers()
        )

    async def _parts(self, task: Task, run: Run) -> list[Run]:
        if task.spec.fanout is None:
            return []
        return (await self._store.runs(RunQuery(parent_id=run.id, sort="id", page_size=MOST_PARTS))).items


def _plan_of(task: Task) -> Mapping[str, Any]:
    plan = plan_json.written(task)
    if plan is None:
        raise NotFound("there is no such plan")
    return plan


def _turning(status: TaskStatus, refused: tuple[TaskStatus, ...]) -> Callable[[Task], TaskChange]:
    """Decided where the task is held, so that nobody changes it in between."""

    def edit(task: Task) -> TaskChange:
        if task.status in refused:
            ended = (
                "has lost its right to run"
                if task.status is TaskStatus.ERROR
                else "is closed, or its last slot is past"
            )
            raise InvalidState(f"the plan {ended}; reset it first", details={"status": task.status})
        return TaskChange(spec=task.spec, status=status)

    return edit


def _afresh(task: Task, now: Instant) -> TaskSpec:
    plan, schedule, at_once = _plan_of(task), task.spec.schedule, instant_of(slot_of(now))
    if plan["plan_type"] not in ONE_SHOT:
        schedule = schedule_of(plan, repeat_of(plan))
    elif task.fired and schedule is not None:
        # A slot has one outcome: within the second of the one before it, the new one is the next second.
        fresh = max(at_once, instant_of(Slot(slot_of(task.accounted_to) + 1)))
        schedule = {**schedule, "at": rfc3339(fresh), "run_if_late": True}
    mark = {"target": plan["target"], "reset_at": int(at_once)}
    return msgspec.structs.replace(task.spec, schedule=schedule, meta={**task.spec.meta, MARK: mark})


def _task_in(error: AlreadyExists) -> dict[str, Any]:
    return {"task_id": error.details["id"]} if "id" in error.details else {}
