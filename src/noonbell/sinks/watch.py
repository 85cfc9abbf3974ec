"""Metrics from the seams: a store and a target that count what passes through them.

All that a node does to runs goes through its store, and the answers say what really happened; so nobody else has to
remember to count, and what was refused is not counted. Counting never disturbs the call that it watches.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, cast

import prometheus_client

from noonbell.clock import SECOND
from noonbell.errors import StoreUnavailable
from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.request import (
    CallbackIn,
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    Heartbeat,
    Overdue,
    Planned,
    Publication,
    Published,
)
from noonbell.model.request import Outcome as Published_
from noonbell.model.run import Lease, Origin, RunStatus, SkipReason
from noonbell.model.settlement import Expect, Move, Settled, Settlement
from noonbell.model.worker import Order
from noonbell.ports import Store, Target
from noonbell.sinks.metrics import Metrics

log = logging.getLogger(__name__)

_REMEMBERED = 100_000
"""Runs whose start is kept, at most: a lease that was claimed here and settled on another node is never heard of again."""


def watch_store(store: Store, metrics: Metrics) -> Store:
    """The same store; its calls are timed and their answers counted."""
    return cast("Store", _WatchedStore(store, metrics))


def watch_beside(watched: Store, other: Store) -> Store:
    """The other store, over the same database; it counts together with the one that is watched already, if it is."""
    if not isinstance(watched, _WatchedStore):
        return other
    return cast("Store", _WatchedStore(other, watched._metrics, watched._ledger))


class _WatchedStore:
    def __init__(self, store: Store, metrics: Metrics, ledger: Ledger | None = None) -> None:
        self._store = store
        self._metrics = metrics
        self._ledger = ledger or Ledger(metrics)

    def __getattr__(self, name: str) -> Any:
        """Asked once for each name: what is found stays as an attribute."""
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method) or name in ("open", "close"):
            return method
        watched = self._watched(name, method)
        setattr(self, name, watched)
        return watched

    def _watched(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        metrics, note = self._metrics, getattr(self._ledger, name, None)
        latency, errors = metrics.store_latency.labels(name), metrics.store_errors.labels(name)

        async def call(*given: Any, **named: Any) -> Any:
            began = perf_counter()
            metrics.pool_used.inc()
            try:
                answer = await method(*given, **named)
            except StoreUnavailable:
                errors.inc()
                raise
            finally:
                metrics.pool_used.dec()
                took = perf_counter() - began
                latency.observe(took)
                if name == "plan":
                    metrics.scan_latency.observe(took)
            if note is not None:
                try:
                    note(answer, *given)
                except Exception:  # a miscount must not lose the answer
                    log.exception("counting %s failed", name)
            return answer

        return call

    async def callback(
        self, callback: CallbackIn, decide: Callable[[CallbackSubject], Settlement | str]
    ) -> tuple[CallbackSubject | None, Any]:
        decided: list[Settlement | str] = []

        def remember(subject: CallbackSubject) -> Settlement | str:
            decided.append(decide(subject))
            return decided[-1]

        subject, stored = await self._store.callback(callback, remember)
        self._metrics.callbacks.labels(stored.status).inc()
        if subject is not None and stored.status == "RECEIVED" and decided and isinstance(decided[-1], Settlement):
            self._ledger.task_of(subject.run_id, subject.task_id)
            self._ledger.settle([Settled.DONE], [decided[-1]])
        return subject, stored


class Ledger:
    """One method for each call of the store whose answer counts: the answer first, then what the call was given."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tasks: dict[int, int] = {}
        self._began: dict[int, float] = {}
        self._parked: dict[int, float] = {}

    def task_of(self, run_id: int, task_id: int) -> None:
        if len(self._tasks) >= _REMEMBERED:
            oldest = next(iter(self._tasks))
            self._forget(oldest)
        self._tasks[run_id] = task_id

    def plan(self, planned: Planned, *_: Any) -> None:
        metrics = self._metrics
        if planned.skipped:
            metrics.ended(RunStatus.SKIPPED, planned.skipped)
        if planned.told:
            metrics.ended(RunStatus.SUCCESS, planned.told)
        if planned.canceled:
            metrics.ended(RunStatus.CANCELED, len(planned.canceled))
            for run_id in planned.canceled:
                self._forget(run_id)
        for _task_id, reason in planned.skips:
            if reason == SkipReason.OVERLAP:
                metrics.overlap_skipped.inc()
            elif reason in (SkipReason.CONCURRENCY, SkipReason.QUEUE_FULL):
                metrics.concurrency_skipped.inc()
        for task_id, count in planned.misfires:
            metrics.misfires.of(task_id).inc(count)

    def publish(self, published: Sequence[Published], _: Sequence[Publication]) -> None:
        refused = sum(answer.outcome is Published_.REFUSED for answer in published)
        if refused:
            self._metrics.concurrency_skipped.inc(refused)

    def claim(self, claimed: Claimed, _: ClaimRequest) -> None:
        now = perf_counter()
        for lease in claimed.leases:
            self._begin(lease, now)
        self._metrics.executing.set(len(self._began))

    def _begin(self, lease: Lease, now: float) -> None:
        if lease.parent_id is not None:
            return  # the parts of a fan-out stay out of the counters
        self.task_of(lease.run_id, lease.task_id)
        self._began[lease.run_id] = now
        if lease.retry_count == lease.lost_count == 0:
            if lease.origin is Origin.SCHEDULE:
                self._metrics.start_lag.observe(max(0, lease.claimed_at - lease.scheduled_time) / SECOND)
            if lease.attempt > 1:
                self._metrics.failure_retries.inc()

    def settle(self, answers: Sequence[Settled], settlements: Sequence[Settlement]) -> None:
        ended: Counter[RunStatus] = Counter()
        now = perf_counter()
        for answer, settlement in zip(answers, settlements, strict=True):
            task_id = self._tasks.get(settlement.run_id)
            if answer is Settled.DONE and task_id is not None:
                self._count(settlement, task_id, now, ended)
            if answer is Settled.DONE and settlement.move is Move.PARK:
                self._park(settlement.run_id)
            else:
                self._forget(settlement.run_id)
        for status, count in ended.items():
            self._metrics.ended(status, count)
        self._metrics.executing.set(len(self._began))

    def _count(self, settlement: Settlement, task_id: int, now: float, ended: Counter[RunStatus]) -> None:
        metrics = self._metrics
        if settlement.status is RunStatus.TIMEOUT:
            metrics.timeouts.inc()
        if settlement.move is Move.LOSE or settlement.expect is Expect.EXPIRED:
            metrics.lease_losses.labels("sweep").inc()
        if settlement.move is Move.RETRY:
            metrics.run_retries.of(task_id).inc()
        elif settlement.move is Move.FINISH:
            ended[settlement.status or RunStatus.FAILED] += 1
            began = self._began.get(settlement.run_id, self._parked.get(settlement.run_id))
            if began is not None:
                metrics.run_duration.of(task_id).observe(now - began)

    def retry_held(self, is_held: bool, failed: Settlement, _attempt: int, _seconds: float) -> None:
        task_id = self._tasks.get(failed.run_id)
        if not is_held or task_id is None:
            return
        self._metrics.run_retries.of(task_id).inc()
        if failed.status is RunStatus.TIMEOUT:
            self._metrics.timeouts.inc()
        self._began[failed.run_id] = perf_counter() + failed.delay_seconds

    def settle_and_claim(
        self, answer: tuple[list[Settled], Claimed], settlements: Sequence[Settlement], request: ClaimRequest
    ) -> None:
        self.settle(answer[0], settlements)
        self.claim(answer[1], request)

    def overdue(self, found: Sequence[Overdue], *_: Any) -> None:
        for one in found:
            if one.run_id not in self._tasks:
                self.task_of(one.run_id, one.task_id)

    def cancel(self, canceled: Sequence[Canceled], *_: Any) -> None:
        count = sum(answer.canceled for answer in canceled)
        if count:
            self._metrics.ended(RunStatus.CANCELED, count)
        for answer in canceled:
            self._forget(answer.run_id)
        self._metrics.executing.set(len(self._began))

    def heartbeat(self, beat: Heartbeat, *_: Any) -> None:
        for order in beat.orders:
            if order.order is Order.LOST and order.run_id in self._began:
                self._metrics.lease_losses.labels("worker").inc()
            if order.order is not Order.CONTINUE:
                self._forget(order.run_id)
        self._metrics.executing.set(len(self._began))

    def _park(self, run_id: int) -> None:
        if (began := self._began.pop(run_id, None)) is not None:
            self._parked[run_id] = began

    def _forget(self, run_id: int) -> None:
        self._tasks.pop(run_id, None)
        self._began.pop(run_id, None)
        self._parked.pop(run_id, None)


class WatchedTarget:
    """An HTTP target whose calls are counted by method and status code."""

    def __init__(self, target: Target, metrics: Metrics) -> None:
        self._target = target
        self._metrics = metrics
        self._counters: dict[tuple[str, int | str], prometheus_client.Counter] = {}

    async def execute(self, assignment: Assignment) -> Outcome:
        method = assignment.task.spec.http_method
        try:
            outcome = await self._target.execute(assignment)
        except asyncio.CancelledError:
            self._counter(method, "canceled").inc()
            raise
        code = outcome.response_code
        self._counter(method, code if code is not None else outcome.failure or "none").inc()
        return outcome

    def _counter(self, method: str, code: int | str) -> prometheus_client.Counter:
        """Kept by what it counts: to find it by its labels takes longer than to count."""
        found = self._counters.get((method, code))
        if found is None:
            found = self._counters[method, code] = self._metrics.http_requests.labels(method, str(code))
        return found
