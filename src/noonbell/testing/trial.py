"""An App in a test: on a store in memory, with a clock that stands still until it is moved.

Everything else is real: the planner, the policies, the worker, the handlers. Nothing happens by itself, so nothing has to be
waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from noonbell.clock import Instant, ManualClock, from_datetime, to_datetime
from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.in_flight import AbandonedThreads
from noonbell.engine.settle import failure
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.errors import InvalidArgument, InvalidState
from noonbell.model.request import ExpiredRun, RunQuery
from noonbell.model.run import Assignment, Outcome, OutcomeKind, Run
from noonbell.model.target_kind import COMMAND_TYPE, HTTP, OWN_QUEUES, ExecType
from noonbell.ports import Target
from noonbell.service import Rules, Services
from noonbell.service.filters import every
from noonbell.settings.kinds import seconds_of
from noonbell.stores.sql.active_runs import DUE, Place
from noonbell.stores.sql.statement import Fetch, Now, Work
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets.http import template
from noonbell.targets.jobs.handler import Handlers
from noonbell.testing.fast_path import Begun, BegunElsewhere, FastPath
from noonbell.testing.thread_runs import TrialJobs

if TYPE_CHECKING:
    from noonbell.app import App, Flow, Job

Answers = Callable[[Assignment], int]
"""Stands in for what is called over the network: from an attempt to the status that it is answered with."""

_MOST_PASSES = 100_000


@contextlib.asynccontextmanager
async def trial(
    app: App | None = None,
    *,
    at: datetime | None = None,
    http: Answers | None = None,
    without: Iterable[Job[..., Any] | Flow[..., Any] | str] = (),
    fast: bool = True,
) -> AsyncIterator[Trial]:
    """Enter it with `async with`: the App is connected, its tasks are declared, and the time is `at`.

    The tasks of the jobs in `without`, by name or itself, are disabled: their schedules do not fire. They can be published.
    Without an App it is a scheduler for tasks made by `running.services`. `http` answers for HTTP targets, brokers and gRPC
    servers; without it their runs fail. Commands always fail: a trial starts no program. With `fast=False` every slot has its own
    transactions, as on a node; what becomes of it is the same.
    """
    left_out = [job if isinstance(job, str) else job.name for job in without]
    known = () if app is None else (*app.jobs, *app.flows)
    for name in left_out:
        if name not in known:
            raise InvalidArgument.field("without", f"has {name!r}, which is not a job of the App")
    clock = ManualClock(at or datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
    store, wakeup = MemoryStore(clock), LocalWakeup()
    await store.open()
    try:
        services = Services(store, wakeup, Rules(check_template=template.check))
        async with app.attached(services) if app is not None else contextlib.nullcontext():
            handlers = app.handlers if app is not None else Handlers()
            running = Trial(clock, store, services, handlers, http, fast=fast)
            await running.open()
            for name in left_out:
                await services.tasks.disable(name)
            yield running
            await running.close()
    finally:
        await store.close()


class Trial:
    def __init__(
        self,
        clock: ManualClock,
        store: MemoryStore,
        services: Services,
        handlers: Handlers,
        http: Answers | None,
        *,
        fast: bool = True,
    ) -> None:
        self.clock, self.store, self.services = clock, store, services
        tasks, abandoned = TaskCache(store), AbandonedThreads()
        self._jobs = TrialJobs(handlers, store, abandoned)
        calls = [exec_type for kind in OWN_QUEUES.values() for exec_type in kind.exec_types]
        called = dict.fromkeys(calls, _Http(http))
        begun: Begun = {}
        quick: dict[ExecType, Target] = {ExecType.JOB: self._jobs, **called}
        targets: dict[ExecType, Target] = {kind: BegunElsewhere(target, begun) for kind, target in quick.items()}
        targets[ExecType.COMMAND] = _NoCommands()

        def worker(worker_id: str, job_types: Sequence[str] | None = None) -> Worker:
            return Worker(
                store,
                services.wakeup,
                targets,
                worker_id=worker_id,
                queues=(*handlers.queues(), "default", *OWN_QUEUES),
                concurrency=100,
                job_types=job_types,
                tasks=tasks,
                abandoned=abandoned,
            )

        # Commands are claimed only by workers that name them.
        self._workers = [worker("trial"), worker("trial-commands", (COMMAND_TYPE,))]
        self._fast = FastPath(clock, store, self._workers[0], self._jobs, called, begun) if fast else None
        self._next_slot_at: int | None = None
        self._next_delayed_at: int | None = None
        self._standing: Standing = []
        self._sweeper = Sweeper(store, services.wakeup, tasks=tasks, draw=lambda: 0.5)

    async def open(self) -> None:
        await self._jobs.open()
        for worker in self._workers:
            await worker.register()

    async def close(self) -> None:
        await self._jobs.close()

    @property
    def now(self) -> datetime:
        return to_datetime(self.clock.now())

    async def run_until_idle(self) -> None:
        """Everything that is due now is planned and carried out, and what follows from it too, until nothing is left."""
        for _ in range(_MOST_PASSES):
            planned = await self.store.plan(500)
            promoted = await self.store.promote(500)
            before = await self._work()
            if planned.tasks or promoted.count:
                continue
            late = await self._late(before)
            await self._sweeper.tick()
            self._standing = await self.store._read(_standing)
            if before == self._standing and late == await self._late(before):
                self._next_slot_at, self._next_delayed_at = planned.next_at, promoted.next_at
                return
        raise InvalidState("this never ends: something creates new runs as fast as they are executed")

    async def _work(self) -> Standing:
        """Claim from the queues that have something due, and from no other: most have nothing, most of the time."""
        standing = await self.store._read(_standing)
        while True:
            before = standing
            for worker, is_for_commands in zip(self._workers, (False, True), strict=True):
                due = {
                    name for place, name, is_command, *_ in standing if place in DUE and is_command == is_for_commands
                }
                queues = [name for name in worker.queues if name in due]
                if queues:
                    worker.claim_loops[0].claim_from(queues)
                    await worker.run_until_idle()
                    standing = await self.store._read(_standing)
            if standing == before:
                return standing

    async def _late(self, standing: Standing) -> list[ExpiredRun]:
        return await self.store.overdue(500) if any(place in _WITH_DEADLINE for place, *_ in standing) else []

    async def advance(self, by: timedelta | float | str | None = None, *, until: datetime | None = None) -> None:
        """Let time pass: for a span (a number is seconds, a text such as "90m"), or until a moment. Every moment in between
        happens, in order.
        """
        if (by is None) == (until is None):
            raise InvalidArgument.field("by", "or `until`: expected one of them")
        end = from_datetime(until) if until else Instant(self.clock.now() + round(_seconds(by) * 1_000_000))
        while True:
            await self.run_until_idle()
            following = self._next()
            if following is None or following > end:
                break
            if self._fast is not None and await self._fast.run(end, self._others_at()):
                continue
            self.clock.set(Instant(max(following, self.clock.now() + 1)))
        self.clock.set(Instant(max(end, self.clock.now())))
        await self.run_until_idle()

    async def runs(self, job: Any = None) -> list[Run]:
        """All runs, oldest first; of one job or task, by its name or itself."""
        name = getattr(job, "name", job)
        task = None if name is None else await self.services.tasks.get(name, deleted=True)
        query = RunQuery(task_id=None if task is None else task.id, sort="id")
        return [run async for run in every(self.store.runs, query)]

    def _next(self) -> int | None:
        """The next moment at which something is due: a slot, a delayed run, the end of a lease or of a callback's wait."""
        moments = (self._next_slot_at, self._others_at())
        return min((each for each in moments if each is not None), default=None)

    def _others_at(self) -> int | None:
        """The same without the slots."""
        now = self.clock.now()
        waits = [at for place, *_, at in self._standing if place in _WITH_DEADLINE and at is not None and at > now]
        return min((each for each in (self._next_delayed_at, *waits) if each is not None), default=None)


_WITH_DEADLINE = (Place.LEASED, Place.PARKED)

Standing = list[tuple[int, str, bool, int, int | None]]
"""How many runs wait at each place: with their queue, whether they are commands, and the first deadline among them."""


def _standing() -> Work[Standing]:
    now = yield Now()
    rows = yield Fetch(
        "select place, queue, coalesce(job_type, '') = :command, count(*), min(case when at > :now then at end)"
        " from live group by place, queue, coalesce(job_type, '') = :command order by 1, 2, 3",
        {"command": COMMAND_TYPE, "now": now},
    )
    return [(place, queue, bool(is_command), count, at) for place, queue, is_command, count, at in rows]


class _NoCommands:
    """A test must not start the programs of a task."""

    async def execute(self, assignment: Assignment) -> Outcome:
        name = assignment.task.name
        return failure(
            "error", f"a trial carries out no commands, so not that of {name}: noonbell worker --commands does"
        )


def _seconds(by: Any) -> float:
    if isinstance(by, timedelta):
        return by.total_seconds()
    try:
        return seconds_of(by)
    except ValueError:
        raise InvalidArgument.field(
            "by", f"is {by!r}; expected seconds, a timedelta, or a text such as '90m'"
        ) from None


def _called(assignment: Assignment) -> str:
    kind = OWN_QUEUES.get(assignment.task.spec.queue)
    return "HTTP calls" if kind is None or kind is HTTP else f"{kind.name} targets"


class _Http:
    """What is called over the network, played by the test."""

    def __init__(self, answers: Answers | None) -> None:
        self._answers = answers

    async def execute(self, assignment: Assignment) -> Outcome:
        if self._answers is None:
            return failure("error", f"nothing answers {_called(assignment)} in this trial; give it http=…")
        status = self._answers(assignment)
        if 200 <= status < 300:
            accepted = assignment.task.spec.awaits_callback
            return Outcome(kind=OutcomeKind.ACCEPTED if accepted else OutcomeKind.SUCCESS, response_code=status)
        kind = "http_5xx" if status >= 500 else "http_4xx"
        return msgspec.structs.replace(failure(kind, f"the target returned {status}"), response_code=status)
