"""The sweeper: finds what time has run out on, decides, and settles it. Any number of nodes may sweep; the store takes
one answer.

    lease run out          its worker is gone: `on_lost` and `max_lost` decide
    past its deadline      `timeout`, and the retry policy decides
    no callback in time    `callback_timeout`, and the retry policy decides
    no worker for it       nothing is settled; the event `task.no_worker` tells of it
    runs that ended        their figures are added up
    a new minute           the store writes down how many runs wait in each queue
    a key with room        the store lets in what it holds back; that is seldom left to the sweep
    a pause with an end    the store resumes the task
    a service level        the store tells of what is broken, and of what will be
    never claimed in time  the store ends it as a skip, `expired`
    a join out of time     the store ends it as a skip, `upstream_missing`, and goes on with what was too much for one transaction

A worker that ends its own attempts at their deadline (ours do) and did not is probably gone, and what it held is then
lost rather than too slow. So the sweep waits for a sign: a heartbeat after the deadline means that the worker lives and
the attempt hangs; a lease that runs out means that it was lost. Other workers get no such benefit of the doubt.

An attempt that hangs goes on as long as its process lives: it blocks its event loop, or ignores that it was canceled.
If no retry is left, its run ends here. Else it stays with its worker, whose heartbeats renew it, until that settles it
as `timeout` or dies: a retry that began before would overlap with it.

Died before or after its commit: the next sweep, on any node, finds what is still overdue and nothing else.

`HistoryLoop`: partitions of history are there before the first run falls into them, where the store has any. Any number of
nodes may make them; the store lets one make each. Died at any point: the next tick, on any node, goes on.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from noonbell.clock import SECOND, Instant, read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.loop_runner import TimedLoop, batch_done
from noonbell.engine.settle import Subject, failed, failure
from noonbell.engine.worker import ENFORCES_TIMEOUT
from noonbell.model.failure_text import failure_text
from noonbell.model.request import ExpiredRun
from noonbell.model.run import Precondition, RunId, Settlement, SettleResult, Transition
from noonbell.model.target_kind import COMMAND_TYPE
from noonbell.model.task import Task, TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.policy import retry
from noonbell.policy.retry import Failure
from noonbell.ports import ANY_QUEUE, ORDERS, PLAN, Sign, Store, Wakeup, queue_topic, unsigned

logger = logging.getLogger("noonbell.engine")

_WAITING: Final[Mapping[str | None, str]] = {None: "an HTTP call", COMMAND_TYPE: "a command"}
_SIGN = 1 * SECOND
"""A heartbeat counts as a sign of life for an attempt only this long after it was found past its deadline."""
_FORGOTTEN = 1_000
"""Old sums that are removed in one transaction."""
_FORGET = 24 * 3600 * SECOND
"""A worker that has been silent for a day is taken off the list."""
_FOLD = 2.0
"""Seconds between two times that figures are added up. Until then they are read from what each batch left."""
_FOLDED = 500
"""Deltas that are added in one transaction, or rows of history that are counted again."""
_WATCHED = 10_000
"""Attempts past their deadline that are remembered at once."""


class Sweeper(TimedLoop):
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        *,
        batch: int = 200,
        poll: float = 0.5,
        upkeep: float = 3600.0,
        draw: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = read_monotonic,
        tasks: TaskCache | None = None,
        look: float = 5.0,
        grace: float = 5.0,
        sign: Sign | None = unsigned,
    ) -> None:
        """`upkeep`: seconds between two checks of the counters and of the list of workers.

        `look`: seconds between two looks for runs that no worker could take; they count once they have waited for `grace`.
        `sign`: signs what is written to the audit log. None: pauses of tasks that end are left to other nodes.
        """
        self._store, self._wakeup, self._tasks = store, wakeup, tasks or TaskCache(store)
        self._batch, self._poll, self._upkeep = batch, poll, upkeep
        self._draw, self._monotonic = draw, monotonic
        self._audit_sign = sign
        self._overtime: dict[tuple[RunId, int], Instant] = {}
        self._upkeep_at = monotonic() + upkeep * (0.5 + 0.5 * draw())
        self._fold_at = monotonic() + _FOLD * draw()
        self._sample_at = monotonic()
        self._look, self._grace, self._look_at = look, grace, monotonic() + look * (0.5 + 0.5 * draw())

    async def tick(self) -> float:
        wanted = self._batch + len(self._overtime)  # those that wait for a sign must not stand before the others
        late = await self._store.overdue(wanted)
        batch_done()
        decided = await self._decide(late)
        if decided:
            answers = await self._store.settle([settlement for _, settlement in decided])
            self._tell(decided, answers)
            batch_done()
        due = await self._store.due_sweeps()
        batch_done()
        is_full = due.expiries and await self._expire()
        is_full |= due.pauses and await self._resume_tasks()
        is_full |= due.joins and await self._sweep_joins()
        is_full |= due.keys and await self._sweep_keys()
        is_full |= due.service_levels and await self._sweep_service_levels()
        if self._monotonic() >= self._look_at:
            self._look_at = self._monotonic() + self._look
            await self.look_for_workers()
            batch_done()
        is_full |= await self._fold()
        if self._monotonic() >= self._sample_at:
            left = await self._store.sample_queues()
            self._sample_at = self._monotonic() + left
            batch_done()
        if self._monotonic() >= self._upkeep_at:
            self._upkeep_at = self._monotonic() + self._upkeep
            await self.clean_up()
        is_full |= len(late) >= wanted and bool(decided)
        return 0.0 if is_full else self._poll * (0.75 + 0.5 * self._draw())  # so that nodes do not sweep in step

    async def _expire(self) -> bool:
        """End runs that no worker has claimed in time. This, and each of the next, says whether there may be more to do."""
        expired = await self._store.expire(self._batch)
        if expired.tasks:
            failpoint.hit("K25")
            self._wakeup.signal(PLAN)  # a fixed delay goes on from here
        batch_done()
        return expired.looked_at >= self._batch

    async def _resume_tasks(self) -> bool:
        """Resume tasks whose pause has ended."""
        if self._audit_sign is None:
            return False
        resumed = await self._store.resume_due(self._batch, self._audit_sign)
        for task in resumed.tasks:
            logger.info("task %d (%s) was resumed: its pause has ended", task.id, task.name)
        if resumed.tasks:
            self._wakeup.signal(PLAN)
        batch_done()
        return resumed.looked_at >= self._batch

    async def _sweep_joins(self) -> bool:
        swept = await self._store.sweep_joins(self._batch)
        batch_done()
        return swept.looked_at >= self._batch or swept.resumed > 0

    async def _sweep_keys(self) -> bool:
        opened = await self._store.sweep_keys(self._batch)
        batch_done()
        return opened >= self._batch

    async def _sweep_service_levels(self) -> bool:
        levels = await self._store.sweep_sla(self._batch)
        for queue in levels.raised:
            self._wakeup.signal(queue_topic(queue))
        batch_done()
        return levels.looked_at >= self._batch

    async def _fold(self) -> bool:
        """Add up the figures of runs that ended, a batch at a time; whether there is more to add."""
        if self._monotonic() < self._fold_at:
            return False
        folded = await self._store.fold_rollups(_FOLDED)
        batch_done()
        more = folded < _FOLDED and await self._store.rebuild_rollups(_FOLDED)
        batch_done()
        is_full = more or folded >= _FOLDED
        if not is_full:
            self._fold_at = self._monotonic() + _FOLD
        return is_full

    async def look_for_workers(self) -> None:
        """Log each task whose runs no worker alive could take, once; the store writes the event in the same call."""
        for found in await self._store.unserved(self._grace):
            if found.is_over:
                logger.info("task %d has a worker again, or nothing that waits for one", found.task_id)
            else:
                what = _WAITING.get(found.job_type) or f"job type {found.job_type!r}"
                logger.warning(
                    "no worker could take the runs of task %d (%s on queue %r)", found.task_id, what, found.queue
                )

    async def clean_up(self) -> None:
        """Now and then: counters that a limit relies on are checked, workers long gone are forgotten."""
        wrong = await self._store.recount()
        batch_done()
        if wrong:
            logger.warning("%d counters of limits were wrong and have been corrected", wrong)
            self._wakeup.signal(ANY_QUEUE)
        while await self._store.forget_rollups(_FORGOTTEN) >= _FORGOTTEN:
            batch_done()
        while await self._store.forget_queue_depths(_FORGOTTEN) >= _FORGOTTEN:
            batch_done()
        now = await self._store.now()
        for worker in await self._store.workers():
            if worker.heartbeat_at < now - _FORGET:
                await self._store.remove_worker(worker.id, worker.incarnation)
                batch_done()

    async def _decide(self, late: Sequence[ExpiredRun]) -> list[tuple[Task, Settlement]]:
        judged = await self._judge(late)
        decided: list[tuple[Task, Settlement]] = []
        for one, precondition, hangs in judged:
            if one.is_step:
                task = await self._store.run_task(one.run_id)
            else:
                task = await self._tasks.newest(one.task_id, self._poll)
            batch_done()
            if task is None:
                continue
            settlement = decide(task.spec, one, precondition, self._draw(), hangs=hangs)
            if not hangs or settlement.transition is not Transition.RETRY:
                decided.append((task, settlement))
        return decided

    async def _judge(self, late: Sequence[ExpiredRun]) -> list[tuple[ExpiredRun, Precondition, bool]]:
        """What to take each of them for, and whether it hangs in a worker that lives; who needs a sign first is left out."""
        doubtful = [one for one in late if one.precondition is Precondition.OVERTIME]
        if not doubtful:
            self._overtime.clear()
            return [(one, one.precondition, False) for one in late]
        now = await self._store.now()
        workers = {worker.id: worker for worker in await self._store.workers() if worker.meta.get(ENFORCES_TIMEOUT)}
        judged: list[tuple[ExpiredRun, Precondition, bool]] = []
        seen: dict[tuple[RunId, int], Instant] = {}
        for one in late:
            precondition: Precondition | None = one.precondition
            worker = workers.get(one.worker_id or "")
            enforces = one.precondition is Precondition.OVERTIME and worker is not None
            if enforces and worker is not None:
                found_at = seen[one.run_id, one.token] = self._overtime.get((one.run_id, one.token), now)
                precondition = await self._sign(one, worker, found_at, now)
                batch_done()
            if precondition is not None:
                judged.append((one, precondition, enforces and precondition is Precondition.OVERTIME))
        self._overtime = dict(list(seen.items())[-_WATCHED:])
        return judged

    async def _sign(self, one: ExpiredRun, worker: WorkerInfo, found_at: Instant, now: Instant) -> Precondition | None:
        run = await self._store.run(one.run_id)
        if run is None or run.lease_expires_at is None:
            return None
        if run.lease_expires_at <= now:
            return Precondition.EXPIRED
        same_process = run.start_time is None or worker.started_at <= run.start_time
        return Precondition.OVERTIME if same_process and worker.heartbeat_at >= found_at + _SIGN else None

    def _tell(self, decided: Sequence[tuple[Task, Settlement]], answers: Sequence[SettleResult]) -> None:
        topics: set[str] = set()
        for (task, settlement), answer in zip(decided, answers, strict=True):
            if answer is SettleResult.DONE:
                topics.add(PLAN if settlement.transition is Transition.RETRY else queue_topic(task.spec.queue))
                topics |= {ORDERS, PLAN} if settlement.precondition is Precondition.OVERTIME else {PLAN}
        for topic in sorted(topics):
            self._wakeup.signal(topic)


def decide(
    spec: TaskSpec, one: ExpiredRun, precondition: Precondition, unit: float, *, hangs: bool = False
) -> Settlement:
    """What becomes of something that time has run out on. `unit` is a random draw from [0, 1).

    `hangs`: its worker lives, and ends attempts at their deadline by itself where it can.
    """
    subject = Subject(
        run_id=one.run_id,
        token=one.token,
        retry_count=one.retry_count,
        lost_count=one.lost_count,
        precondition=precondition,
    )
    match precondition:
        case Precondition.EXPIRED:
            verdict: retry.Decision = retry.lost(spec, one.lost_count, started=one.begun)
            outcome = failure("lost", failure_text("lost", worker=one.worker_id))
        case Precondition.UNANSWERED:
            verdict = retry.decide(spec, one.retry_count, one.lost_count, Failure("callback_timeout"), unit)
            outcome = failure("callback_timeout", failure_text("no_callback", seconds=spec.callback_seconds))
        case Precondition.OVERTIME:
            verdict = retry.decide(spec, one.retry_count, one.lost_count, Failure("timeout"), unit)
            code = "took_longer_hangs" if hangs else "took_longer"
            outcome = failure("timeout", failure_text(code, seconds=f"{spec.timeout_seconds:g}"))
        case Precondition.HELD | Precondition.ANSWERED:
            raise ValueError(f"the sweep does not speak for what is {precondition}")
        case _:
            assert_never(precondition)
    return failed(subject, verdict, outcome)


HISTORY_EVERY = 600.0
"""Seconds between two looks."""


class HistoryLoop(TimedLoop):
    def __init__(
        self,
        store: Store,
        *,
        kept: float,
        events_kept: float,
        every: float = HISTORY_EVERY,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`kept` and `events_kept`: for how many seconds runs and events are kept."""
        self._store, self._kept, self._events_kept = store, kept, events_kept
        self._every, self._draw = every, draw

    async def tick(self) -> float:
        changed = await self._store.tend_history(self._kept, self._events_kept)
        batch_done()
        return 0.0 if changed else self._every * (0.75 + 0.5 * self._draw())  # so that nodes do not look in step
