"""The attempt runner: one lease from claim to settlement, in small steps; with its task cache and its deadline.

    K3  died before `begin`           the lease runs out; another worker gets the run
    K4  died after it, nothing sent   at least once: again. At most once: FAILED, kind `unknown`
    K6, K8, K12  died with the outcome in memory, before it was settled: as K4, and the target has done its work

With `retry_policy.local` the store records a failed attempt before the next one begins: a process that dies in between, or
in the next attempt, loses that next attempt and no other. K5, bytes sent and no response yet, is in the HTTP target.

An attempt has one deadline: the attempt runner sets it, the target may extend it and names its end.

    timeout over       the attempt's task is canceled. A target that knows more than "it took too long" catches that, asks
                       `expired_alone` and returns an outcome in its own words; the attempt runner speaks for the others
    GRACE later        the task is canceled once more: its target did not end, or caught the first one and went on
    still not ended    the sweep, on any node, finds the attempt past its deadline in the store

A deadline in a blocked event loop cannot fire. The target asks `late_by` when the loop turns again.

While everything is paused, no attempt starts: see `PauseCheck`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, read_monotonic, slot_of
from noonbell.engine import failpoint
from noonbell.engine.in_flight import LeaseState, StopReason
from noonbell.engine.loop_runner import Backoff
from noonbell.engine.settle import described, failed, failure, failure_of, released, settlement_of, subject_of
from noonbell.errors import StoreUnavailable
from noonbell.model.failure_text import failure_text
from noonbell.model.run import Assignment, Lease, Origin, Outcome, OutcomeKind, Settlement
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Delivery, Task, TaskId
from noonbell.policy import retry
from noonbell.policy.retry import Retry
from noonbell.ports import Store, Target


class TaskCache:
    def __init__(self, store: Store, size: int = 20_000, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._store, self._size, self._monotonic = store, size, monotonic
        self._by_version: dict[tuple[TaskId, int], Task] = {}
        self._newest: dict[TaskId, tuple[float, Task]] = {}

    def get(self, lease: Lease) -> Task | None:
        """The task of a lease, if it is known here: after `load`, None means that it was purged.

        Of a step of a flow and of a call, with what that run itself does.
        """
        task = self._by_version.get((lease.task_id, lease.task_version))
        if task is None or lease.step is None:
            return task
        return msgspec.structs.replace(task, version=lease.task_version, spec=lease.step)

    async def load(self, leases: Iterable[Lease]) -> None:
        """Read the tasks of these leases that are not known yet, each of them once."""
        wanted: dict[TaskId, list[int]] = {}
        for lease in leases:
            if (lease.task_id, lease.task_version) not in self._by_version:
                wanted.setdefault(lease.task_id, []).append(lease.task_version)
        if not wanted:
            return
        for task in await self._store.tasks_by_id(list(wanted)):
            for version in wanted[task.id]:
                self._put(task, version)  # a newer version, if the task was edited since: the attempt uses that one

    async def newest(self, task_id: TaskId, max_age: float = 0.0) -> Task | None:
        """The task as it is now, or was not more than `max_age` seconds ago."""
        found = self.recent(task_id, max_age) if max_age > 0 else None
        if found is not None:
            return found
        task = await self._store.task(task_id)
        if task is not None:
            self.note(task)
        return task

    def note(self, task: Task) -> None:
        """The caller has just read it from the store."""
        self._put(task, task.version)

    def recent(self, task_id: TaskId, max_age: float) -> Task | None:
        """The newest version that was seen here, if that was not more than `max_age` seconds ago. Reads nothing."""
        found = self._newest.get(task_id)
        return None if found is None or self._monotonic() - found[0] > max_age else found[1]

    def _put(self, task: Task, version: int) -> None:
        self._by_version[task.id, version] = task
        self._newest[task.id] = (self._monotonic(), task)
        while len(self._by_version) > self._size:
            del self._by_version[next(iter(self._by_version))]
        while len(self._newest) > self._size:
            del self._newest[next(iter(self._newest))]


GRACE = 0.5
"""Seconds from the first cancellation of an attempt whose time is over to the second."""

_EARLY = 0.001
"""Seconds by which the loop may call before its time."""
_STEP = 0.05
"""Seconds between two looks at the deadlines, at least."""


class Deadline:
    """Cancels the attempt's task when its time is over, and knows that it did."""

    __slots__ = ("_cancels", "_deadlines", "canceling", "due", "has_expired", "task")

    def __init__(self, deadlines: Deadlines, task: asyncio.Task[Any], due: float) -> None:
        self._deadlines, self.task, self.due = deadlines, task, due
        """`due` is in the loop's time."""
        self.canceling = task.cancelling()
        self.has_expired = False
        self._cancels = 0

    def extend(self, seconds: float) -> None:
        """The attempt has this many seconds from now."""
        if not self.has_expired:
            self.due = self._deadlines.at(self.task, seconds)

    @property
    def late_by(self) -> float:
        """Seconds since its time was over, where it could not end the attempt: the loop was blocked. 0: it is not late."""
        return 0.0 if self.has_expired else max(0.0, self.task.get_loop().time() - self.due)

    @property
    def is_canceled(self) -> bool:
        """Whether the attempt was asked to end, by its deadline or by an order."""
        return self.task.cancelling() > self.canceling

    def expired_alone(self) -> bool:
        """Whether a CancelledError that arrived was the deadline's and no other's. If so, the caller need not raise it."""
        if not self.has_expired:
            return False
        self.withdraw()
        return self.task.cancelling() <= self.canceling

    def withdraw(self) -> None:
        """The attempt has ended: take back the deadline's cancellations. Those of others still count."""
        while self._cancels:
            self._cancels -= 1
            self.task.uncancel()

    def expire(self) -> None:
        self.has_expired = True
        self._cancels += 1
        self.task.cancel()


class Deadlines:
    """The deadlines of attempts under way. They share one timer: nearly every attempt ends long before its time is over."""

    def __init__(self) -> None:
        self._active: dict[Deadline, None] = {}
        """In the order in which they began."""
        self._timer: asyncio.TimerHandle | None = None
        self._next = float("inf")

    def start(self, task: asyncio.Task[Any], seconds: float) -> Deadline:
        loop = task.get_loop()
        due = loop.time() + seconds
        if due < self._next:
            self._arm(loop, due)
        deadline = Deadline(self, task, due)
        self._active[deadline] = None
        return deadline

    def of_attempt(self, seconds: float) -> Deadline:
        """The deadline of the attempt in which this is called; outside of one, a new one for the calling task."""
        deadline = _current.get()
        if deadline is not None:
            return deadline
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        return self.start(task, seconds)

    def remove(self, deadline: Deadline) -> None:
        """Drop this deadline. One that belongs to another `Deadlines` stays as it is."""
        self._active.pop(deadline, None)

    def at(self, task: asyncio.Task[Any], seconds: float) -> float:
        """The loop's time in that many seconds; the timer goes off by then."""
        loop = task.get_loop()
        due = loop.time() + seconds
        if due < self._next:
            self._arm(loop, due)
        return due

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = when
        self._timer = loop.call_at(when, self._expire_due, loop)

    def _expire_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._next = None, float("inf")
        now, soonest = loop.time(), float("inf")
        for deadline in list(self._active):
            if deadline.due <= now + _EARLY:
                if deadline.has_expired:
                    self._active.pop(deadline, None)
                else:
                    deadline.due = now + GRACE
                deadline.expire()
            if deadline in self._active:
                soonest = min(soonest, deadline.due)
        if self._active:
            self._arm(loop, max(soonest, now + _STEP))


_current: ContextVar[Deadline | None] = ContextVar("noonbell_deadline", default=None)


def attempt_of(task: asyncio.Task[Any]) -> asyncio.Task[Any]:
    """The attempt's own task, of one that an attempt has started; else the same. For any thread."""
    if sys.version_info < (3, 12):
        return task
    deadline = task.get_context().get(_current)
    return task if deadline is None else deadline.task


def extend(seconds: float) -> None:
    """Called by a target in the attempt's own task: the attempt has `seconds` from now."""
    deadline = _current.get()
    if deadline is not None:
        deadline.extend(seconds)


T = TypeVar("T")

FRESH = 1.0
"""Seconds for which it is taken to hold that everything was not paused."""


class PauseCheck:
    """Keeps attempts from starting while everything is paused, those of runs that were claimed before it too.

    A claim that was not refused has found, after it was sent off, that nothing is paused. For `FRESH` seconds from then
    that is good enough to start what it brought. An attempt that is to start later (the claim took long, the worker was
    full, its event loop was blocked, a local retry waited) has the store asked first, one question for all that wait;
    if everything is paused, its run is handed back. So no attempt starts more than `FRESH` seconds after a pause was
    committed, plus the time from the answer to the first byte; and while claims are quick this costs no statement.
    """

    def __init__(self, store: Store, monotonic: Callable[[], float] = read_monotonic) -> None:
        self._store, self._monotonic = store, monotonic
        self._open_at = float("-inf")
        """Monotonic: when the question was sent off that was last answered with "not paused"."""
        self._asking = asyncio.Lock()

    def found_open(self, asked_at: float) -> None:
        """A claim that was sent off then was not refused."""
        self._open_at = max(self._open_at, asked_at)

    def is_fresh(self) -> bool:
        """Whether it was found open so lately that the store need not be asked."""
        return self._monotonic() - self._open_at < FRESH

    async def is_paused(self) -> bool:
        if self.is_fresh():
            return False
        async with self._asking:
            if self.is_fresh():
                return False
            asked_at = self._monotonic()
            if await _insist(self._store.installation_pause) is not None:
                return True
            self.found_open(asked_at)
            return False


CallbackUrl = Callable[[str], str]
"""From a callback token to the complete address that a target calls."""

_SLACK = 5.0
"""Seconds that a local retry is given beyond its delay and timeout, before the store takes it for lost."""


class AttemptRunner:
    """Takes a lease from claim to settlement. It keeps no state of its own between attempts."""

    def __init__(
        self,
        store: Store,
        tasks: TaskCache,
        targets: Mapping[ExecType, Target],
        callback_url: CallbackUrl | None = None,
        draw: Callable[[], float] = random.random,
        pause_check: PauseCheck | None = None,
    ) -> None:
        """`pause_check` is shared with the claim loops, which tell it what claims have found."""
        self._store, self._tasks, self._targets = store, tasks, targets
        self._pause_check = pause_check or PauseCheck(store)
        self._callback_url, self._draw = callback_url, draw
        self._deadlines = Deadlines()

    async def run(self, state: LeaseState) -> Settlement | None:
        """What to settle the attempt with; None if there is nothing to settle: it was lost, canceled or purged.

        Called in the attempt's own task.
        """
        try:
            settlement = await self._run(state)
        except asyncio.CancelledError:
            if state.stop_reason in (StopReason.CANCELED, StopReason.LOST):
                return None
            return released(subject_of(state.lease), begun=state.begun)  # without a reason: the loop is going down
        return settlement if state.stop_reason in (None, StopReason.STOPPED) else None

    async def _run(self, state: LeaseState) -> Settlement | None:
        """Execute; with `retry_policy.local`, again and again while the policy says so, the lease held."""
        lease = state.lease
        task = self._tasks.get(lease) or await self._loaded(lease)
        if task is None:
            return None
        if not self._pause_check.is_fresh() and await self._pause_check.is_paused():
            return released(subject_of(lease), begun=False)
        if task.spec.delivery is Delivery.AT_MOST_ONCE and not await self._begin(state):
            return None
        failpoint.hit("K4")
        assignment = self._assignment(lease, task)
        target = self._targets.get(task.spec.exec_type)
        if target is None:
            outcome = failure("error", failure_text("no_target", kind=str(task.spec.exec_type)))
            return settlement_of(assignment, outcome, self._draw())
        attempt = state.task or asyncio.current_task()
        assert attempt is not None  # noqa: S101 - a coroutine that runs has a task
        while True:
            began = read_monotonic()
            outcome = await execute(assignment, target, attempt, self._deadlines)
            state.latency_seconds = read_monotonic() - began
            if failpoint.is_armed:
                _hit_after(assignment, outcome)
            delay = None if outcome.kind is OutcomeKind.SUCCESS else self._local_delay(assignment, outcome)
            if delay is None:
                return settlement_of(assignment, outcome, self._draw())
            if not await self._recorded(assignment, outcome, delay):
                return None
            await asyncio.sleep(delay)  # stopped while it waits, it is handed back, and the store retries it
            if await self._pause_check.is_paused():
                return released(subject_of(lease), begun=state.begun)
            assignment = _once_more(assignment)

    async def _loaded(self, lease: Lease) -> Task | None:
        """The claim loop could not read the task: the store was away."""
        await _insist(lambda: self._tasks.load([lease]))
        return self._tasks.get(lease)

    async def _begin(self, state: LeaseState) -> bool:
        """At most once: nothing is sent before the store knows that it may have been."""
        state.begun = True  # before asking: if the answer is lost, it may have been written
        return state.lease.run_id in await _insist(lambda: self._store.begin([state.lease]))

    async def _recorded(self, assignment: Assignment, outcome: Outcome, delay: float) -> bool:
        """Whether the run is still held, with the failed attempt on record and the next one counted."""
        lease, task = assignment.lease, assignment.task
        record = failed(subject_of(lease, task.version), Retry(delay), outcome)
        seconds = delay + task.spec.timeout_seconds + _SLACK
        return await _insist(lambda: self._store.retry_held(record, lease.attempt, seconds))

    def _local_delay(self, assignment: Assignment, outcome: Outcome) -> float | None:
        spec, lease = assignment.task.spec, assignment.lease
        if outcome.kind is not OutcomeKind.FAILURE or not spec.retries.local:
            return None
        decision = retry.decide(spec, lease.retry_count, lease.lost_count, failure_of(outcome), self._draw())
        return decision.delay_seconds if isinstance(decision, Retry) else None

    def _assignment(self, lease: Lease, task: Task) -> Assignment:
        url = None
        if lease.callback_token is not None and self._callback_url is not None:
            url = self._callback_url(lease.callback_token)
        return Assignment(lease=lease, task=task, previous_scheduled_time=previous_of(task, lease), callback_url=url)


async def execute(assignment: Assignment, target: Target, task: asyncio.Task[Any], deadlines: Deadlines) -> Outcome:
    """Never raises for the attempt's own failure. Canceled, it lets the target clean up; then CancelledError goes on.

    `task` is the one that this runs in, and the attempt's own.
    """
    deadline = deadlines.start(task, assignment.timeout_seconds)
    before = _current.set(deadline)  # in the task's own context: no other attempt sees this deadline
    try:
        outcome = await target.execute(assignment)
    except asyncio.CancelledError:
        if deadline.expired_alone():
            return failure("timeout", failure_text("took_longer", seconds=f"{assignment.task.spec.timeout_seconds:g}"))
        raise
    except (Exception, SystemExit) as error:  # a target's defect is the failure of this attempt alone
        outcome = failure("error", described(error))
    finally:
        deadlines.remove(deadline)
        _current.reset(before)
    if deadline.has_expired:
        deadline.withdraw()
    return outcome


def previous_of(task: Task, lease: Lease) -> Instant | None:
    """The other end of the data interval; None for a run without a slot."""
    return previous_slot(task, lease) if lease.origin in (Origin.SCHEDULE, Origin.BACKFILL) else None


def previous_slot(task: Task, lease: Lease) -> Instant | None:
    """The slot before the one that a run was born from; None if that was the first, or its place depends on runs."""
    spec = task.spec
    schedule = when.of_task(spec)
    if schedule is None:
        return None
    slot = None if schedule.is_fixed_delay else schedule.previous(slot_of(lease.scheduled_time))
    if slot is None or (spec.start_at is not None and instant_of(slot) < spec.start_at):
        return None
    return instant_of(slot)


def _once_more(assignment: Assignment) -> Assignment:
    lease = assignment.lease
    lease = msgspec.structs.replace(lease, attempt=lease.attempt + 1, retry_count=lease.retry_count + 1, executed_us=0)
    return msgspec.structs.replace(assignment, lease=lease)


def _hit_after(assignment: Assignment, outcome: Outcome) -> None:
    if outcome.kind is OutcomeKind.ACCEPTED:
        failpoint.hit("K8")
    failpoint.hit(assignment.task.spec.target_kind.kill_point)


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store until it answers. The lease is held meanwhile; an order to stop interrupts the wait."""
    backoff = Backoff(0.1, 5.0)
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(backoff.pause())
