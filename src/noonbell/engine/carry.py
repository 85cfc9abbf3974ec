"""Carry: one lease from claim to settlement, in small steps.

    K3  died before `begin`           the lease runs out; another worker gets the run
    K4  died after it, nothing sent   at least once: again. At most once: FAILED, kind `unknown`
    K6, K8, K12  died with the outcome in hand, before it was settled: as K4, and the target has done its work

With `retry_policy.local` a failed attempt is on record before the next one begins: who dies in between, or in the next,
loses that next attempt and no other.

K5, bytes sent and no response yet, is in the HTTP target.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from noonbell import when
from noonbell.clock import Instant, instant_of, slot_of
from noonbell.engine import failpoint
from noonbell.engine.execute import Belts, execute, failure
from noonbell.engine.hold import Held, Word
from noonbell.engine.keep import Backoff
from noonbell.engine.know import Tasks
from noonbell.engine.settle import failed, failure_of, released, settlement_of, subject_of
from noonbell.errors import StoreUnavailable
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.run import Lease, Origin
from noonbell.model.settlement import Settlement
from noonbell.model.task import Delivery, ExecType, Task
from noonbell.policy import retry
from noonbell.policy.retry import Retry
from noonbell.ports import Store, Target

T = TypeVar("T")

CallbackUrl = Callable[[str], str]
"""From a callback token to the complete address that a target calls."""

_SLACK = 5.0
"""Seconds that a local retry is given beyond its delay and timeout, before the store takes it for lost."""


class Carrier:
    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        targets: Mapping[ExecType, Target],
        callback_url: CallbackUrl | None = None,
        expect_beat: Callable[[float], None] | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`expect_beat` is told how soon a run wants its heartbeat, in seconds."""
        self._store, self._tasks, self._targets = store, tasks, targets
        self._callback_url, self._expect_beat, self._draw = callback_url, expect_beat, draw
        self._belts = Belts()

    async def carry(self, held: Held) -> Settlement | None:
        """What to settle the attempt with; None if there is nothing to settle: it was lost, canceled or purged."""
        try:
            settlement = await self._attempt(held)
        except asyncio.CancelledError:
            return self._interrupted(held)
        return settlement if held.word in (None, Word.STOPPED) else None

    def _interrupted(self, held: Held) -> Settlement | None:
        match held.word:
            case Word.CANCELED | Word.LOST:
                return None
            case Word.STOPPED | None:  # None: the loop itself is going down
                return released(subject_of(held.lease), begun=held.begun)

    async def _attempt(self, held: Held) -> Settlement | None:
        task = self._tasks.of(held.lease) or await self._learned(held.lease)
        if task is None:
            return None
        ping_seconds = task.spec.ping_interval_ms / 1000
        if ping_seconds < held.ping_seconds:
            held.ping_seconds = ping_seconds
            if self._expect_beat is not None:
                self._expect_beat(ping_seconds)
        if task.spec.delivery is Delivery.AT_MOST_ONCE and not await self._begin(held):
            return None
        failpoint.hit("K4")
        assignment = self._assignment(held.lease, task)
        target = self._targets.get(task.spec.exec_type)
        if target is None:
            outcome = failure("error", f"this worker has no target for {task.spec.exec_type} tasks")
            return settlement_of(assignment, outcome, self._draw())
        return await self._until_it_ends(held, assignment, target)

    async def _learned(self, lease: Lease) -> Task | None:
        await _insist(lambda: self._tasks.learn([lease]))
        return self._tasks.of(lease)

    async def _begin(self, held: Held) -> bool:
        """At most once: nothing is sent before the store knows that it may have been."""
        held.begun = True  # before asking: if the answer is lost, nobody knows
        return held.lease.run_id in await _insist(lambda: self._store.begin([held.lease]))

    async def _until_it_ends(self, held: Held, assignment: Assignment, target: Target) -> Settlement | None:
        """Execute; with `retry_policy.local`, again and again while the policy says so, the lease held."""
        runner = held.runner or asyncio.current_task()
        assert runner is not None  # noqa: S101 - a coroutine that runs has a task
        while True:
            outcome = await execute(assignment, target, runner, self._belts)
            _hit_after(assignment, outcome)
            delay = self._local_delay(assignment, outcome)
            if delay is None:
                return settlement_of(assignment, outcome, self._draw())
            if not await self._counted(assignment, outcome, delay):
                return None
            await asyncio.sleep(delay)  # stopped while it waits, it is handed back, and the store retries it
            assignment = _once_more(assignment)

    async def _counted(self, assignment: Assignment, outcome: Outcome, delay: float) -> bool:
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


def previous_of(task: Task, lease: Lease) -> Instant | None:
    """The other end of the data interval; None for a run that was born from no slot."""
    return previous_slot(task, lease) if lease.origin in (Origin.SCHEDULE, Origin.BACKFILL) else None


def previous_slot(task: Task, lease: Lease) -> Instant | None:
    """The slot before the one that a run was born from; None if that was the first, or its place depends on runs."""
    spec = task.spec
    if spec.schedule is None:
        return None
    schedule = when.parse(spec.schedule, spec.timezone)
    slot = None if schedule.is_fixed_delay else schedule.previous(slot_of(lease.scheduled_time))
    if slot is None or (spec.start_at is not None and instant_of(slot) < spec.start_at):
        return None
    return instant_of(slot)


def _once_more(assignment: Assignment) -> Assignment:
    lease = assignment.lease
    lease = msgspec.structs.replace(lease, attempt=lease.attempt + 1, retry_count=lease.retry_count + 1)
    return msgspec.structs.replace(assignment, lease=lease)


def _hit_after(assignment: Assignment, outcome: Outcome) -> None:
    if outcome.kind is OutcomeKind.ACCEPTED:
        failpoint.hit("K8")
    failpoint.hit("K12" if assignment.task.spec.exec_type is ExecType.JOB else "K6")


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store until it answers: the lease is held, and whoever wants it back interrupts."""
    backoff = Backoff(0.1, 5.0)
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(backoff.pause())
