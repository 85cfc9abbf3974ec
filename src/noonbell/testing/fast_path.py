"""The fast path of a trial: slots of plain tasks, one after another, without a transaction for each.

A task is plain when nothing but its own slots decides what becomes of it (no limit, key, quiet hours, service level,
follow-up). Each of its slots is decided by the function that decides it in every store (`policy.account`), and its
handler is called through the same target, at the same moment of the clock. What differs is when it is written: the runs
wait in memory and are written together, row for row as the transitions of the store would have written them.

    another transaction, of the handler or of the test   first everything is written; runs under way are planned and claimed
                                                         under the ids that their handlers know, and settled by the worker
    an attempt that does not simply succeed              the same: the worker settles it, and the retry policy decides
    a slot that is no plain run, or what is not plain    the fast path ends before that moment; the planner goes on
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noonbell.clock import SECOND, Instant, ManualClock, instant_of, slot_of
from noonbell.engine.attempt_runner import Deadlines, execute, extend
from noonbell.engine.worker import Worker
from noonbell.model.rollup import MINUTE, Fact, fact
from noonbell.model.run import Assignment, Lease, Origin, Outcome, OutcomeKind, RunId, RunStatus, key_of_slot
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task, TaskId
from noonbell.policy.account import Facts, Skip, account, needs
from noonbell.ports import Target
from noonbell.stores.sql import rollups
from noonbell.stores.sql.active_runs import Place
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.fast_path import event_facts, is_plain_task
from noonbell.stores.sql.finish import REPORTED, report_of
from noonbell.stores.sql.limits import PAUSED
from noonbell.stores.sql.planning import MOVED, cursor_of
from noonbell.stores.sql.rows import Known, TaskView, known_tasks
from noonbell.stores.sql.statement import Fetch, InsertMany, UpdateMany, Work
from noonbell.stores.sqlite import MemoryStore
from noonbell.targets.jobs.handler import Handler
from noonbell.testing.thread_runs import Handover, TrialJobs, has_work
from noonbell.when.schedule import Schedule

_AT_REST = Facts()
_TURN = 0.01
"""Seconds after which other tasks get a turn in any case."""
_OTHER_IDS = 4
"""Ids that the transitions take for the runs of a moment, after those of the runs: three events, and the figures."""
_BUSY = 3
"""Runs of a task in a row that had to be written before they ended; after that the fast path leaves the task to the planner."""

_NO_END = 1e9
"""Seconds."""

Begun = dict[tuple[TaskId, Instant], "asyncio.Future[Outcome]"]
"""Attempts that the fast path has begun, of runs that were written before they ended, by task and slot."""

_RUN_COLUMNS = (
    *("id", "task_id", "task_version", "origin", "status", "slot", "scheduled_time", "run_at", "created_at"),
    *("queue", "priority", "attempt", "retry_count", "lost_count", "start_time", "worker_id", "idempotency_key"),
    *("updated_at", "end_time"),
)
_ORIGIN, _SCHEDULED, _RUNNING = str(Origin.SCHEDULE), str(RunStatus.SCHEDULED), str(RunStatus.RUNNING)
_STATUS = str(RunStatus.SUCCESS)


class BegunElsewhere:
    """A target whose attempts the fast path may have begun: of such a run it waits for the end, once."""

    def __init__(self, target: Target, begun: Begun) -> None:
        self._target, self._begun = target, begun

    async def execute(self, assignment: Assignment) -> Outcome:
        begun = self._begun.pop((assignment.task.id, assignment.lease.scheduled_time), None)
        if begun is None:
            return await self._target.execute(assignment)
        extend(_NO_END)  # it has a deadline already, which its handler may have moved
        return await begun


class _Plain:
    """A plain task and how far its slots are accounted for."""

    __slots__ = ("handler", "known", "schedule", "target", "task")

    def __init__(
        self, known: Known, task: Task, schedule: Schedule, target: Target, handler: Handler | None = None
    ) -> None:
        self.known, self.task, self.schedule, self.target = known, task, schedule, target
        self.handler = handler
        """If it is a plain function."""

    def decide(self, now: Instant) -> Task | None:
        """The task after the slot that is due now, if a plain run is all that becomes of it."""
        task, slot = self.task, slot_of(now)
        result = account(task, self.schedule, _AT_REST, now)
        if result.dropped or result.completed or result.next_fire_at is None or len(result.outcomes) != 1:
            return None
        outcome = result.outcomes[0]
        if isinstance(outcome, Skip) or outcome.run_at != now or outcome.slot != slot or outcome.gated:
            return None
        return msgspec.structs.replace(
            task,
            next_fire_at=result.next_fire_at,
            fired=result.fired,
            skip_next=result.skip_next,
            accounted_to=max(task.accounted_to, now),
        )

    def lease(self, run_id: int, now: Instant, worker_id: str, installation: str) -> Lease:
        """As a claim gives it."""
        task, spec = self.known.task, self.known.task.spec
        return Lease(
            run_id=RunId(run_id),
            task_id=task.id,
            task_version=task.version,
            worker_id=worker_id,
            token=now,
            attempt=1,
            retry_count=0,
            lost_count=0,
            queue=spec.queue,
            priority=spec.priority,
            origin=Origin.SCHEDULE,
            scheduled_time=now,
            claimed_at=now,
            expires_at=Instant(now + spec.worker_timeout_ms * 1000),
            deadline_at=Instant(now + round(spec.timeout_seconds * SECOND)),
            run_at=now,
            payload=spec.payload,
            idempotency_key=key_of_slot(installation, task.uid, now),
            plain=True,
        )

    def assignment(self, lease: Lease) -> Assignment:
        slot = self.schedule.previous(slot_of(lease.scheduled_time))
        start = self.known.task.spec.start_at
        is_first = slot is None or (start is not None and instant_of(slot) < start)
        previous = None if slot is None or is_first else instant_of(slot)
        return Assignment(lease=lease, task=self.known.task, previous_scheduled_time=previous)


class _Moment:
    """The runs of one moment, while they are carried out."""

    __slots__ = ("assignments", "at", "due", "following", "futures", "ids")

    def __init__(
        self,
        at: Instant,
        ids: range,
        due: Sequence[_Plain],
        following: Sequence[Task],
        assignments: Sequence[Assignment],
    ) -> None:
        self.at, self.ids, self.due, self.following, self.assignments = at, ids, due, following, assignments
        self.futures: list[asyncio.Future[Outcome]] | None = None
        """Where the runs were written before they ended: the worker waits for these, and settles them."""


class FastPath:
    def __init__(
        self,
        clock: ManualClock,
        store: MemoryStore,
        worker: Worker,
        jobs: TrialJobs,
        calls: Mapping[ExecType, Target],
        begun: Begun,
    ) -> None:
        """`jobs` and `calls` are not the targets of the worker, which look into `begun`."""
        self._clock, self._store, self._worker, self._jobs, self._begun = clock, store, worker, jobs, begun
        self._targets: dict[ExecType, Target] = {ExecType.JOB: jobs, **calls}
        self._busy: Counter[TaskId] = Counter()
        self._deadlines = Deadlines()
        self._context = contextvars.copy_context()
        self._installation = ""
        self._loop, self._last_turn = asyncio.get_running_loop(), 0.0
        self._moment: _Moment | None = None
        self._task: asyncio.Task[bool]
        self._forget()

    def _forget(self) -> None:
        """What waits to be written: runs, what they returned, events, ids for the figures, tasks whose cursor has moved."""
        self._runs: list[tuple[Any, ...]] = []
        self._reports: list[tuple[Any, ...]] = []
        self._events: list[tuple[int, Instant, str, str]] = []
        self._figures_ids: list[int] = []
        self._moved: dict[TaskId, _Plain] = {}

    async def run(self, end: Instant, others_at: int | None) -> bool:
        """Carry out what is due up to `end`, before `others_at` and before what is not plain; whether there was anything.

        Called when nothing is due now.
        """
        line, others_at = await self._look(others_at)
        if not line or line[0][0] > end or (others_at is not None and line[0][0] >= others_at):
            return False
        self._store.before_transaction = self._write_first
        self._loop, self._last_turn = asyncio.get_running_loop(), time.monotonic()
        carry_out = self._carry_out(line, end if others_at is None else min(end, others_at - 1))
        try:
            self._task = self._loop.create_task(carry_out, context=self._context.copy())
            return await self._task
        finally:
            await self._write_all()

    async def _look(self, others_at: int | None) -> tuple[list[_Due], int | None]:
        """The plain tasks with their cursors, as a heap; and the first moment at which something else is due."""
        self._installation, found = await self._store._write(lambda cache: _cursors(self._store.dialect, cache))
        line: list[_Due] = []
        for known, task in found:
            plain = self._plain(known, task)
            if plain is not None:
                line.append((task.next_fire_at or 0, task.id, plain))
            elif others_at is None or (task.next_fire_at or 0) < others_at:
                others_at = task.next_fire_at
        heapq.heapify(line)
        return line, others_at

    def _plain(self, known: Known, task: Task) -> _Plain | None:
        spec, schedule, target = task.spec, known.schedule, self._targets.get(task.spec.exec_type)
        if schedule is None or target is None or self._busy[task.id] >= _BUSY or spec.queue not in self._worker.queues:
            return None
        is_plain = is_plain_task(known, Origin.SCHEDULE) and not needs(spec).occupied and spec.sla is None
        handler = self._jobs.plain_handler(spec.job_type) if spec.exec_type is ExecType.JOB else None
        return _Plain(known, task, schedule, target, handler) if is_plain else None

    # One moment after another

    async def _carry_out(self, line: list[_Due], end: int) -> bool:
        before, has_run = contextvars.copy_context(), False
        while line and line[0][0] <= end:
            moment = await (self._in_thread(line, end) if _is_for_thread(line) else self._in_loop(line))
            if moment is None:
                return has_run
            has_run = True
            if self._store.before_transaction is None or self._clock.now() != moment.at:
                return True  # what follows may not be what it was
            if contextvars.copy_context() != before:
                return True  # a handler has set a variable: the next run must not see it
        return has_run

    async def _in_loop(self, line: list[_Due]) -> _Moment | None:
        """Carry out what is due first; None: it is no plain run."""
        at, due, following = Instant(line[0][0]), [], []
        while line and line[0][0] == at:
            due.append(heapq.heappop(line)[2])
            after = due[-1].decide(at)
            if after is None:
                return None
            following.append(after)
        moment = self._begin(at, due, following)
        if len(due) == 1:
            outcomes = [await execute(moment.assignments[0], due[0].target, self._task, self._deadlines)]
        else:
            outcomes = await self._execute_together(moment)
        if moment.futures is None and all([_simply_succeeded(outcome) for outcome in outcomes]):  # noqa: C419 - faster
            self._settled(moment, outcomes, line)
        else:
            await self._hand_over(moment, outcomes)
        if self._is_waited_for():
            await self._let_others_go_on()
        return moment

    async def _in_thread(self, line: list[_Due], end: int) -> _Moment | None:
        """Carry out what is due first, and what follows it as long as it is for a thread too; the last moment of that."""
        stretch, done = Handover(self._loop), list[_Moment]()
        stretch.carry_out(self._jobs.threads, lambda: self._call_in_turn(stretch, done, line, end))
        if stretch.call is not None:
            (moment,) = done
            ended = await execute(moment.assignments[0], stretch.call, self._task, self._deadlines)
            if moment.futures is None and _simply_succeeded(ended):
                self._settled(moment, [ended], line)
            else:
                await self._hand_over(moment, [ended])
        if self._is_waited_for():
            await self._let_others_go_on()
        return done[0] if done else None

    def _call_in_turn(self, stretch: Handover, done: list[_Moment], line: list[_Due], end: int) -> None:
        """In the thread."""
        until = time.monotonic() + _TURN
        while _is_for_thread(line) and line[0][0] <= end:
            at, _, one = line[0]
            following = one.decide(Instant(at))
            if following is None or one.handler is None:
                return
            heapq.heappop(line)
            moment = self._begin(Instant(at), (one,), (following,))
            done[:] = [moment]
            ended = stretch.run(self._jobs.call_of(one.handler, moment.assignments[0], self._loop))
            if ended is None:
                return
            self._settled(moment, [ended], line)
            if has_work(self._loop) or self._clock.now() != at or time.monotonic() > until:
                return

    def _begin(self, at: Instant, due: Sequence[_Plain], following: Sequence[Task]) -> _Moment:
        self._clock.set(at)
        ids = self._store.new_ids(len(due) + _OTHER_IDS)
        worker_id, installation = self._worker.id, self._installation
        assignments = [
            one.assignment(one.lease(id_, at, worker_id, installation)) for id_, one in zip(ids, due, strict=False)
        ]
        self._moment = _Moment(at, ids, due, following, assignments)
        return self._moment

    async def _hand_over(self, moment: _Moment, outcomes: Sequence[Outcome]) -> None:
        """The worker settles it."""
        if moment.futures is None:
            await self._write_all()
        for future, outcome in zip(moment.futures or (), outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
        await self._worker.run_until_idle()

    def _settled(self, moment: _Moment, outcomes: Sequence[Outcome], line: list[_Due]) -> None:
        self._moment = None
        if self._busy:
            for one in moment.due:
                self._busy.pop(one.task.id, None)
        self._note(moment, outcomes)
        for one in moment.due:
            heapq.heappush(line, (one.task.next_fire_at or 0, one.task.id, one))

    def _is_waited_for(self) -> bool:
        """By others for the loop, where a handler has started something, and now and then by what waits for the outside."""
        return has_work(self._loop) or time.monotonic() - self._last_turn > _TURN

    async def _let_others_go_on(self) -> None:
        await asyncio.sleep(0)
        self._last_turn = time.monotonic()

    async def _execute_together(self, moment: _Moment) -> list[Outcome]:
        async def attempt(assignment: Assignment, target: Target) -> Outcome:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine that runs has a task
            return await execute(assignment, target, task, self._deadlines)

        together = list(zip(moment.assignments, moment.due, strict=True))
        tasks: dict[TaskId, asyncio.Task[Outcome]] = {}
        async with asyncio.TaskGroup() as group:
            for each, one in sorted(together, key=lambda pair: -pair[0].lease.priority):  # as a claim gives them
                tasks[one.task.id] = group.create_task(attempt(each, one.target), context=self._context.copy())
        return [tasks[one.task.id].result() for one in moment.due]

    # Writing

    def _note(self, moment: _Moment, outcomes: Sequence[Outcome]) -> None:
        """As the transitions would have written it; `_write_all` does."""
        at, end, first, pairs = moment.at, self._clock.now(), moment.ids.stop - _OTHER_IDS, []
        for one, task, each, outcome in zip(moment.due, moment.following, moment.assignments, outcomes, strict=True):
            one.task = task
            self._moved[task.id] = one
            lease = each.lease
            pairs.append((task.id, lease.run_id))
            self._runs.append(
                (
                    *(lease.run_id, task.id, task.version, _ORIGIN, _STATUS, at, at, at, at),
                    *(lease.queue, lease.priority, 1, 0, 0, at, lease.worker_id, lease.idempotency_key, end, end),
                )
            )
            if outcome.result is not None or outcome.response_code is not None or outcome.error_details is not None:
                report = report_of(outcome.response_code, outcome.result, None, outcome.error_details)
                self._reports.append((lease.run_id, *report))
        self._events += (
            (first, at, "run.scheduled", event_facts(pairs, _SCHEDULED)),
            (first + 1, at, "run.started", event_facts(pairs, _RUNNING)),
            (first + 2, end, "run.succeeded", event_facts(pairs, _STATUS)),
        )
        self._figures_ids.append(first + 3)

    async def _write_first(self) -> None:
        """A handler in a thread may ask from an event loop of its own; what is under way is this loop's."""
        if asyncio.get_running_loop() is self._loop:
            await self._write_all()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._write_all(), self._loop))

    async def _write_all(self) -> None:
        """Before any other transaction: what has ended, then the plan and the claim of what is under way."""
        self._store.before_transaction = None
        if self._runs:
            await self._store._write(lambda _: self._written())
            self._forget()
            if self._store.on_events is not None:
                self._store.on_events()
        moment, self._moment = self._moment, None
        if moment is None:
            return
        loop = asyncio.get_running_loop()
        moment.futures = [loop.create_future() for _ in moment.due]
        for one, future in zip(moment.due, moment.futures, strict=True):
            self._busy[one.task.id] += 1
            self._begun[one.task.id, moment.at] = future
        self._store.give_back(moment.ids)
        await self._store.plan(len(moment.due))
        self._worker.claim_loops[0].claim_from(sorted({one.task.spec.queue for one in moment.due}))
        await self._worker.tick()

    def _written(self) -> Work[None]:
        yield InsertMany("runs", _RUN_COLUMNS, self._runs)
        yield UpdateMany("runs", "id", REPORTED, self._reports)
        yield InsertMany("events", ("id", "at", "type", "data"), self._events)
        by_minute: dict[int, list[Fact]] = defaultdict(list)  # figures are found by the moment of their row
        for row in self._runs:
            by_minute[MINUTE.begin((noted := _fact(row)).end_time)].append(noted)
        for id_, facts in zip(self._figures_ids, by_minute.values(), strict=False):
            yield rollups.delta(id_, facts)
        yield UpdateMany("cursors", "task_id", MOVED, [(id_, *cursor_of(one.task)) for id_, one in self._moved.items()])


_Due = tuple[int, TaskId, _Plain]
"""When it is due next; the planner takes those of one moment in the order of their ids."""


def _is_for_thread(line: Sequence[_Due]) -> bool:
    """Whether what is due first is a plain function, alone at its moment."""
    return (
        len(line) > 0
        and line[0][2].handler is not None
        and not (len(line) > 1 and line[1][0] == line[0][0])
        and not (len(line) > 2 and line[2][0] == line[0][0])
    )


def _fact(row: tuple[Any, ...]) -> Fact:
    """What a row of `_RUN_COLUMNS` adds to the figures."""
    queue, worker_id, times = row[9], row[15], (row[7], row[8], row[14], row[18])
    return fact(row[1], queue, worker_id, _STATUS, _ORIGIN, None, 1, times)


def _simply_succeeded(outcome: Outcome) -> bool:
    return outcome.kind is OutcomeKind.SUCCESS and outcome.bodies is None


_IN_THE_WAY = (
    f"select {PAUSED} or exists (select 1 from live where place <> {int(Place.LATER)}) or exists (select 1 from edges)"
    " or exists (select 1 from queues) or exists (select 1 from joins) or exists (select 1 from sla_defaults)"
    " or exists (select 1 from sla_watches) or exists (select 1 from expiries)"
)
"""With any of these, a run may decide what becomes of another, or what a sweep finds may depend on its moment."""


def _cursors(q: Dialect, cache: TaskView) -> Work[tuple[str, list[tuple[Known, Task]]]]:
    """The installation, and the tasks with a slot to come: none of them where something is in the way."""
    if (yield Fetch(_IN_THE_WAY))[0][0]:
        return cache.installation, []
    rows = yield Fetch(
        "select task_id, next_fire_at, fired, skip_next, accounted_to from cursors where next_fire_at is not null"
    )
    tasks = yield from known_tasks(q, cache, [row[0] for row in rows])
    return cache.installation, [
        (tasks[row[0]], msgspec.structs.replace(tasks[row[0]].task, **dict(zip(MOVED, row[1:], strict=True))))
        for row in rows
    ]
