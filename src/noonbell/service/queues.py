"""Queues: what is in them, what limits them, and emptying them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import LATEST, instant_of, read_monotonic
from noonbell.errors import InvalidId
from noonbell.fields import Moment, filled, list_of, meta, plain, read, read_into
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.account import Pause
from noonbell.model.request import RunQuery, UnclaimableRuns
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import TaskId
from noonbell.model.worker import Lack, Queue, QueueLimits, WorkerState
from noonbell.policy.quiet import hours_problems
from noonbell.ports import Store, Wakeup, queue_topic
from noonbell.service.filters import RunFilter, RunList
from noonbell.service.pauses import QueuePauseWrite
from noonbell.service.runs import Runs, RunsCanceled, RunsRetried

DEAD: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT)
"""Finally failed: no further attempt is made."""

_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_LONG_LOOK: Final = 0.05
"""Seconds."""
_END: Final = instant_of(LATEST)


class UnservedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Due runs that no living worker could take."""

    component: ClassVar[str] = "Unserved"

    job_type: Annotated[str | None, meta("Null: HTTP.", examples=["resize"])]
    lack: Annotated[
        Lack,
        meta(
            "What no connected worker has: none serves the queue, supports the job type, is new enough, has the labels that the task requires, is named by the run, or has not run another part of the same fan-out.",
            examples=["job_type"],
        ),
    ]
    count: Annotated[int, meta(examples=[2])]
    is_least: Annotated[
        bool, meta("There may be more than `count`: only the first runs of each queue are checked.", examples=[False])
    ]
    run_id: Annotated[RunId, meta("The one that has waited longest.", examples=[7340033])]
    task_id: Annotated[TaskId, meta(examples=[1])]
    since: Annotated[Moment, meta("Since when it has been due.")]


class QueuePause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queue is paused, by whom and since when."""

    reason: Annotated[str, meta("Empty: none was given.", examples=["the vendor mends its API"])]
    by: Annotated[str | None, meta("Who paused it, or changed the reason last.", examples=["alice"])]
    since: Annotated[Moment, meta(examples=["2026-11-15T02:30:00Z"])]


class ShownQueue(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Queue"
    beside: ClassVar[tuple[type[msgspec.Struct], ...]] = (Queue,)

    pause: Annotated[QueuePause | None, meta("Null: it is not paused.", examples=[None])]
    unserved: Annotated[
        list[UnservedRuns], meta("Due runs, among the first in the queue, that no connected worker can take.")
    ]


AllQueues = list_of("Queues", ShownQueue)


class DeadRunFilter(RunFilter, frozen=True, kw_only=True):
    """As for all runs; the queue is named by the path."""

    without: ClassVar[tuple[str, ...]] = ("queue",)


class DeadRuns(RunList, frozen=True, kw_only=True):
    without: ClassVar[tuple[str, ...]] = ("queue",)


class RedriveWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs that failed for good are run again; without a filter, all of the queue."""

    noun: ClassVar[str] = "a redrive"
    example: ClassVar[dict[str, Any]] = {"filter": {"from": "2026-11-15T00:00:00Z"}, "dry_run": False}

    filter: DeadRunFilter | None = None
    dry_run: Annotated[bool, meta("Only count them.")] = False


class Queues:
    def __init__(self, store: Store, wakeup: Wakeup, runs: Runs) -> None:
        self._store, self._wakeup, self._runs = store, wakeup, runs
        self._named: Sequence[str] = ()
        self._named_until = -math.inf

    async def all(self) -> list[dict[str, Any]]:
        """The queues that have a setting or a run that is not final, that a living worker listens to, or that a task
        names; by name.
        """
        stranded, found = await self._store.stranded(), await self._found()
        return [shown(found[name], stranded, await self._pause_of(found[name])) for name in sorted(found)]

    async def count(self) -> int:
        """How many `all` would list."""
        return len(await self._found())

    async def _found(self) -> dict[str, Queue]:
        found = {queue.name: queue for queue in await self._store.queues()}
        listened = [worker.queues for worker in await self._store.workers() if worker.state is not WorkerState.LOST]
        for name in (*(name for names in listened for name in names), *await self._named_by_tasks()):
            found.setdefault(name, Queue(name=name))
        return found

    async def _named_by_tasks(self) -> Sequence[str]:
        """The queues that tasks name. Where asking takes long, as with a million tasks, the answer is kept for twenty
        times as long.
        """
        begun = read_monotonic()
        if begun >= self._named_until:
            self._named = await self._store.task_queues()
            ended = read_monotonic()
            self._named_until = ended + 20 * (ended - begun) if ended - begun > _LONG_LOOK else -math.inf
        return self._named

    async def get(self, name: str) -> dict[str, Any]:
        """A queue that was never used or set is there all the same, and empty."""
        name = checked_name(name)
        found = next((queue for queue in await self._store.queues() if queue.name == name), None)
        queue = found or Queue(name=name)
        return shown(queue, await self._store.stranded(), await self._pause_of(queue))

    async def _pause_of(self, queue: Queue) -> Pause | None:
        return await self.pause_now(queue.name) if queue.paused else None

    async def limit(self, name: str, given: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Its rate limit, its concurrency and its quiet hours; what is not given is no limit, and no quiet hours."""
        name = checked_name(name)
        problems = Problems()
        limits = read_into(QueueLimits, given, ReadContext(problems))
        if limits.rate_limit is not None and limits.rate_limit.key is not None:
            problems.add("rate_limit.key", "applies to tasks only; the limit of a queue counts all of its starts")
        for field, problem in hours_problems("quiet", limits.quiet).items():
            problems.add(field, problem)
        problems.finish()
        return await self._set(name, by, **msgspec.structs.asdict(limits))

    async def pause_now(self, name: str) -> Pause | None:
        """Since when it is paused, and by whom; None: it is open."""
        # At the end of time, for the clock may have been set back since.
        return next((each for each in await self._store.pauses(name, _END, _END) if each.until is None), None)

    async def pause(
        self, name: str, given: Mapping[str, Any] | None = None, *, by: str | None = None
    ) -> dict[str, Any]:
        """Let nothing more be claimed from the queue; what executes goes on. `given` is a `QueuePauseWrite`: a reason takes the place
        of the one before.
        """
        name, asked = checked_name(name), read(QueuePauseWrite, given or {})
        reason = asked.reason.strip() if "reason" in (given or {}) else None
        return await self._set(name, by, reason=reason, paused=True)

    async def resume(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        return await self._set(checked_name(name), by, paused=False)

    async def drain(self, name: str, *, by: str | None = None) -> RunsCanceled:
        """Cancel what waits, delayed runs and retries included; what executes goes on."""
        return await self._runs.cancel_where(RunQuery(queue=checked_name(name), status=_WAITING), by=by)

    def dead(self, name: str, query: RunQuery) -> RunQuery:
        """The query for the runs of a queue that failed for good."""
        wanted = tuple(status for status in query.status or DEAD if status in DEAD)
        return msgspec.structs.replace(query, queue=checked_name(name), status=wanted or DEAD)

    async def redrive(self, name: str, query: RunQuery, *, by: str | None = None, dry_run: bool = False) -> RunsRetried:
        """Run again what failed for good, each of them once, however often this is asked for."""
        return await self._runs.retry_where(self.dead(name, query), by=by, dry_run=dry_run, once=True)

    async def _set(self, name: str, by: str | None, *, reason: str | None = None, **fields: Any) -> dict[str, Any]:
        await self._store.set_queue(name, lambda queue: msgspec.structs.replace(queue, **fields), by=by, reason=reason)
        self._wakeup.signal(queue_topic(name))
        return await self.get(name)


def checked_name(name: str) -> str:
    if not 1 <= len(name) <= 255 or unfit(name) is not None:
        raise InvalidId("a queue's name has 1 to 255 characters, and none that controls a terminal")
    return name


def shown(queue: Queue, stranded: Sequence[UnclaimableRuns], pause: Pause | None) -> dict[str, Any]:
    """`stranded`: of every queue. `pause`: the one that lasts."""
    unserved = [plain(filled(UnservedRuns, one)) for one in stranded if one.queue == queue.name]
    told = None if pause is None else plain(filled(QueuePause, pause))
    return {**plain(queue), "pause": told, "unserved": unserved}
