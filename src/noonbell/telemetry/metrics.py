"""The numbers of one process, as Prometheus reads them. docs/reference/metrics.md explains each name.

Counters and histograms tell what this node did itself, so that summing over nodes is right. Gauges tell what
stands in the store, and are the same on every node.

All that a node does to runs goes through its store, and the answers say what really happened: `StoreMetrics` observes them.
So no other place counts, and what was refused is not counted. Counting never disturbs the call that it observes.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, Generic, TypeVar, cast

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from noonbell.clock import SECOND
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model.account import StoreReturn
from noonbell.model.event import Callback
from noonbell.model.request import (
    CallbackSubject,
    Canceled,
    Claimed,
    ClaimRequest,
    ExpiredRun,
    ExpiredSkips,
    HeartbeatAnswer,
    JoinsSwept,
    Planned,
    Publication,
    PublishResult,
    RunQuery,
    TaskQuery,
)
from noonbell.model.request import PublishOutcome as Published_
from noonbell.model.rollup import DAY, Figures, Scope, Sketch, stretch_of
from noonbell.model.run import (
    FINAL,
    Assignment,
    Lease,
    Origin,
    Outcome,
    Precondition,
    RunStatus,
    Settlement,
    SettleResult,
    SkipReason,
    Transition,
)
from noonbell.model.sla import SlaSwept
from noonbell.model.task import TaskStatus
from noonbell.model.worker import Order, WorkerState
from noonbell.ports import Store, Target
from noonbell.version import __version__

OTHER: Final = "other"
"""The `task_id` of all tasks past the limit."""

_RUN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600)
_LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_STALL_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60)

M = TypeVar("M", bound=Counter | Histogram)


class PerTask(Generic[M]):
    """One instrument with a series for each of the first tasks that it meets, or with one series for all."""

    def __init__(self, metric: M, limit: int | None) -> None:
        self._metric = metric
        self._limit = limit
        self._known: dict[int, M] = {}

    def of(self, task_id: int) -> M:
        if self._limit is None:
            return self._metric
        if (child := self._known.get(task_id)) is not None:
            return child
        if len(self._known) >= self._limit:
            return self._child(OTHER)
        child = self._known[task_id] = self._child(str(task_id))
        return child

    def _child(self, label: str) -> M:
        return cast("M", self._metric.labels(label))


class Untyped(Gauge):
    """A gauge whose name says counter: shown without a type, so that no reader takes its rate or lints its name."""

    _type = "unknown"


class Metrics:
    def __init__(self, *, task_id_label: bool = True, task_id_limit: int = 200, pool_size: int = 0) -> None:
        # Series `…_created` double the page and are of no use here. The switch is one for the whole process.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._name_as_in_the_documents(("task_id",) if task_id_label else (), task_id_limit if task_id_label else None)
        self._name_runs_and_queues()
        self._name_the_store(pool_size)
        self._name_the_process()
        self._gauge("noonbell_build_info", "Always 1.", ("version",)).labels(__version__).set(1)
        self._stand_at_zero()

    def _name_as_in_the_documents(self, by_task: tuple[str, ...], limit: int | None) -> None:
        """The names of documents 000 and 002. `limit` is for the label of tasks; None if there is none."""
        self.task_total = Untyped(
            "cronjob_task_total", "Tasks that are not deleted, by status.", ("status",), registry=self.registry
        )
        self.run_total = self._counter("cronjob_run", "Runs that ended on this node, by final status.", ("status",))
        self.runs_total = self._counter("runs", "The same as cronjob_run_total.", ("status",))
        self.run_duration = PerTask(
            self._histogram(
                "cronjob_run_duration_seconds",
                "From the claim of the last attempt to the end of the run.",
                by_task,
                buckets=_RUN_SECONDS,
            ),
            limit,
        )
        self.run_retries = PerTask(
            self._counter("cronjob_run_retries", "Attempts that ended in RETRYING.", by_task), limit
        )
        self.misfires = PerTask(
            self._counter("cronjob_misfire", "Slots that the misfire policy dropped.", by_task), limit
        )
        self.http_requests = self._counter(
            "cronjob_http_request",
            "Calls to targets, by method and status code, or by what went wrong if there was no response.",
            ("method", "code"),
        )
        self.callback_pending = self._gauge("cronjob_callback_pending", "Runs that wait for their callback.")
        self.scan_latency = self._histogram(
            "cronjob_scheduler_scan_latency", "How long a planning pass took, in seconds.", buckets=_STORE_SECONDS
        )
        self.overlap_skipped = self._counter(
            "task_overlap_skipped", "Slots skipped because the previous run had not ended."
        )
        self.concurrency_skipped = self._counter(
            "concurrency_skipped", "Runs rejected because the task was at its limit."
        )
        self.failure_retries = self._counter("task_failure_retry", "Runs started by failure_action RETRY.")
        self.timeouts = self._counter("task_timeout", "Attempts that ran past their timeout.")

    def _name_runs_and_queues(self) -> None:
        self.start_lag = self._histogram(
            "noonbell_start_lag_seconds",
            "From when a slot's run is due to the claim of its first attempt.",
            buckets=_LAG_SECONDS,
        )
        self.executing = self._gauge("noonbell_runs_executing", "Runs that this node holds a lease for.")
        self.flow_steps = self._counter(
            "noonbell_flow_steps", "Runs of flow steps that ended on this node, by final status.", ("status",)
        )
        self.lease_losses = self._counter(
            "noonbell_lease_losses",
            "Leases that expired: found by this node's sweep, or reported to this node's worker.",
            ("found_by",),
        )
        self.callbacks = self._counter(
            "noonbell_callbacks", "Callbacks that this node received: RECEIVED or IGNORED.", ("status",)
        )
        self.queue_depth = self._gauge(
            "noonbell_queue_depth",
            "Runs in a queue that are not final; held: waiting runs whose key is full.",
            ("queue", "state"),
        )
        self.queue_age = self._gauge(
            "noonbell_queue_oldest_age_seconds", "How long the oldest due run has waited.", ("queue",)
        )
        self.queue_unserved = self._gauge(
            "noonbell_queue_unserved",
            "Due runs, among the first in the queue, that no connected worker can take, by what the workers lack.",
            ("queue", "lack"),
        )
        self.day_runs = self._gauge(
            "noonbell_runs_ended_24h",
            "Runs of all nodes that ended within the last 24 hours, by status, as in the overview.",
            ("status",),
        )
        self.day_times = self._gauge(
            "noonbell_run_times_24h_seconds",
            "Percentiles over the runs of all nodes that ended within the last 24 hours, as in the overview.",
            ("time", "percentile"),
        )
        self.workers = self._gauge("noonbell_workers", "Workers, by state.", ("state",))
        self.followed = self._counter(
            "noonbell_followed",
            "Runs of tasks that run after others: created, skipped by a policy, or skipped because an upstream was missing.",
            ("outcome",),
        )
        self.sla_breaches = self._counter(
            "noonbell_sla_breaches", "Breaches of runs' service levels that this node reported, or expected.", ("kind",)
        )
        self.bulk = self._gauge("noonbell_bulk_operations", "Bulk operations that have not ended.")
        self.paused = self._gauge("noonbell_paused", "1 while everything is paused: no run starts on any node.")
        self.joins_open = self._gauge("noonbell_joins_open", "Waits of tasks for the tasks that they run after.")
        self.keys_full = self._gauge(
            "noonbell_keys_full", "Keys at their limit of running runs, with more runs waiting."
        )
        self.key_waiting = self._gauge("noonbell_key_waiting_runs", "Runs that wait because their key is full.")

    def _name_the_store(self, pool_size: int) -> None:
        self.store_latency = self._histogram(
            "noonbell_store_latency_seconds",
            "Duration of calls to the store, by call.",
            ("call",),
            buckets=_STORE_SECONDS,
        )
        self.store_errors = self._counter("noonbell_store_errors", "Failed calls to the store, by call.", ("call",))
        self.store_up = self._gauge("noonbell_store_up", "1 if the store responded to the last call.")
        self.clock_steps = self._counter(
            "noonbell_store_clock_steps",
            "Times that this node saw the store's clock set by more than 2 s.",
            ("direction",),
        )
        self.store_returns = self._counter(
            "noonbell_store_returns", "Times that this node noticed that the store went back to an earlier state."
        )
        self.pool_used = self._gauge("noonbell_store_pool_used", "Calls to the store in progress.")
        self.pool_size = self._gauge("noonbell_store_pool_size", "Maximum connections to the store; 0 without a pool.")
        self.pool_size.set(pool_size)

    def _name_the_process(self) -> None:
        self.loop_stalled = self._gauge(
            "noonbell_loop_stalled", "1 if a loop of this node has made no progress for 5 s.", ("loop",)
        )
        self.event_listeners = self._gauge("noonbell_event_listeners", "Listeners of the event stream on this node.")
        self.event_cuts = self._counter(
            "noonbell_event_listeners_cut", "Listeners that were disconnected because they did not keep up."
        )
        self.alert_deliveries = self._counter(
            "noonbell_alert_deliveries",
            "Attempts to deliver a notification to a channel, by outcome: delivered, retried, failed or skipped.",
            ("outcome",),
        )
        self.webhook_deliveries = self._counter(
            "noonbell_webhook_deliveries",
            "Attempts to post an event to the receiver of a subscription, by outcome: delivered or failed.",
            ("subscription", "outcome"),
        )
        self.webhook_pending = self._gauge(
            "noonbell_webhook_pending", "Deliveries of a subscription that wait for a retry.", ("subscription",)
        )
        self.webhook_behind = self._gauge(
            "noonbell_webhook_behind",
            "Entries of the event log that a subscription has not read yet.",
            ("subscription",),
        )
        self.loop_stalls = self._histogram(
            "noonbell_loop_stall_seconds",
            "How long the event loop stalled, for each stall of more than 0.25 s.",
            buckets=_STALL_SECONDS,
        )

    def _stand_at_zero(self) -> None:
        """Series exist before their first count, so that a rate over it is right."""
        for status in sorted(FINAL):
            self.run_total.labels(status)
            self.runs_total.labels(status)
            self.flow_steps.labels(status)
        for found_by in ("sweep", "worker"):
            self.lease_losses.labels(found_by)
        for kind in ("breached", "foreseen"):
            self.sla_breaches.labels(kind)
        for outcome in ("run", "skip", "missing"):
            self.followed.labels(outcome)
        for outcome in ("delivered", "retried", "failed", "skipped"):
            self.alert_deliveries.labels(outcome)

    def delivered(self, outcome: str) -> None:
        """Count an attempt to send a notice to a channel, with this result."""
        self.alert_deliveries.labels(outcome).inc()

    def webhook(self, subscription: str, outcome: str) -> None:
        """Count an attempt to post an event to a subscription's receiver, with this result."""
        self.webhook_deliveries.labels(subscription, outcome).inc()

    def listening(self, listeners: int, cut: int) -> None:
        """Show how many listeners are connected now, and count those that were cut since the last call."""
        self.event_listeners.set(listeners)
        self.event_cuts.inc(cut)

    def ended(self, status: RunStatus, count: int = 1) -> None:
        """Count runs that came to this final status."""
        self.run_total.labels(status).inc(count)
        self.runs_total.labels(status).inc(count)

    async def render(self) -> bytes:
        """The page. Made in a thread: with many series it takes longer than the loop should wait."""
        return await asyncio.to_thread(generate_latest, self.registry)


class Readings:
    """The gauges that come from the store, read again when a page is asked for and they are older than `max_age`."""

    def __init__(
        self,
        metrics: Metrics,
        store: Store,
        *,
        max_age: float = 5.0,
        patience: float = 2.0,
        stalled: Callable[[], Mapping[str, bool]] | None = None,
    ) -> None:
        """`stalled`: by kind of loop, whether one of this node is stalled."""
        self._metrics = metrics
        self._store = store
        self._stalled = stalled
        self._max_age = max_age
        self._patience = patience
        self._fresh_until = 0.0
        self._reading = asyncio.Lock()

    async def page(self) -> bytes:
        """Always a page: with a store that does not answer, the last readings and `noonbell_store_up 0`."""
        async with self._reading:
            if asyncio.get_running_loop().time() >= self._fresh_until:
                await self._refresh()
        for kind, is_stalled in ({} if self._stalled is None else self._stalled()).items():
            self._metrics.loop_stalled.labels(kind).set(is_stalled)
        return await self._metrics.render()

    async def _refresh(self) -> None:
        self._metrics.store_up.set(0)
        with contextlib.suppress(NoonbellError, TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._read()
            self._metrics.store_up.set(1)
        self._fresh_until = asyncio.get_running_loop().time() + self._max_age

    async def _read(self) -> None:
        metrics, store = self._metrics, self._store
        for status in TaskStatus:
            tasks = await store.tasks(TaskQuery(status=status, page_size=1))
            metrics.task_total.labels(status).set(tasks.total or 0)
        pending = await store.runs(RunQuery(status=(RunStatus.CALLBACK_PENDING,), page_size=1))
        metrics.callback_pending.set(pending.total or 0)
        metrics.joins_open.set(await self._store.open_joins())
        metrics.bulk.set(await self._store.bulk_under_way())
        metrics.paused.set(await self._store.installation_pause() is not None)
        keys, runs = await self._store.held_by_keys()
        metrics.keys_full.set(keys)
        metrics.key_waiting.set(runs)
        await self._read_day()
        await self._read_queues()
        await self._read_subscriptions()
        states = [worker.state for worker in await store.workers()]
        for state in WorkerState:
            metrics.workers.labels(state).set(states.count(state))

    async def _read_day(self) -> None:
        """From the roll-ups: of whatever node, and still there after a restart."""
        now = await self._store.now()
        found = await self._store.rollups(Scope.ALL, stretch_of(now - DAY.length, now, now), names=[""])
        figures = found[0].figures if found else Figures()
        for status in FINAL:
            self._metrics.day_runs.labels(status).set(figures.counts.get(str(status), 0))
        self._metrics.day_times.clear()
        for time in ("duration", "start_delay", "queue_time"):
            sketch: Sketch = getattr(figures, time)
            for percentile, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                if (value := sketch.percentile(share)) is not None:
                    self._metrics.day_times.labels(time, percentile).set(value / SECOND)

    async def _read_subscriptions(self) -> None:
        self._metrics.webhook_pending.clear()
        self._metrics.webhook_behind.clear()
        if not (known := await self._store.subscriptions()):
            return
        newest = await self._store.last_event()
        for held in known:
            name = held.subscription.name
            self._metrics.webhook_pending.labels(name).set(held.state.pending)
            self._metrics.webhook_behind.labels(name).set(max(0, newest - held.state.position))

    async def _read_queues(self) -> None:
        queues, now = await self._store.queues(), await self._store.now()
        self._metrics.queue_depth.clear()
        self._metrics.queue_age.clear()
        for queue in queues:
            depths: Iterable[tuple[str, int]] = (
                ("waiting", queue.waiting),
                ("held", queue.held),
                ("delayed", queue.delayed),
                ("running", queue.running),
            )
            for state, depth in depths:
                self._metrics.queue_depth.labels(queue.name, state).set(depth)
            age = 0.0 if queue.oldest_at is None else max(0, now - queue.oldest_at) / SECOND
            self._metrics.queue_age.labels(queue.name).set(age)
        self._metrics.queue_unserved.clear()
        for one in await self._store.stranded():
            self._metrics.queue_unserved.labels(one.queue, one.lack).inc(one.count)


log = logging.getLogger(__name__)

_REMEMBERED = 100_000
"""Runs whose start is kept, at most: no settlement comes here for a lease that was claimed here and settled on another node."""


class StoreMetrics:
    """The observer of a store, or of several over one database: times their calls and counts what the answers say."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._ledger = Ledger(metrics)
        self._latencies: dict[str, Histogram] = {}

    def called(self, name: str) -> None:
        del name
        self._metrics.pool_used.inc()

    def answered(self, name: str, seconds: float, answer: Any, given: tuple[Any, ...]) -> None:
        self._ended(name, seconds)
        note = getattr(self._ledger, name, None)
        if note is not None:
            try:
                note(answer, *given)
            except Exception:  # a miscount must not lose the answer
                log.exception("counting %s failed", name)

    def failed(self, name: str, seconds: float, error: BaseException) -> None:
        self._ended(name, seconds)
        if isinstance(error, StoreUnavailable):
            self._metrics.store_errors.labels(name).inc()

    def followed(self, made: int, skipped: int) -> None:
        self._ledger.followed(made, skipped)

    def went_back(self, noted: StoreReturn) -> None:
        self._metrics.store_returns.inc()
        self._metrics.ended(RunStatus.SKIPPED, noted.skipped)

    def _ended(self, name: str, seconds: float) -> None:
        self._metrics.pool_used.dec()
        latency = self._latencies.get(name)
        if latency is None:
            latency = self._latencies[name] = self._metrics.store_latency.labels(name)
            self._metrics.store_errors.labels(name)  # there from the first call on, so that a rate can be taken
        latency.observe(seconds)
        if name == "plan":
            self._metrics.scan_latency.observe(seconds)


class Ledger:
    """One method for each call of the store whose answer counts: the answer first, then what the call was given."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tasks: dict[int, int] = {}
        self._began: dict[int, float] = {}
        self._parked: dict[int, float] = {}
        self._steps: dict[int, None] = {}

    def task_of(self, run_id: int, task_id: int) -> None:
        if len(self._tasks) >= _REMEMBERED:
            oldest = next(iter(self._tasks))
            self._forget(oldest)
        self._tasks[run_id] = task_id

    def sweep_sla(self, swept: SlaSwept, limit: int) -> None:
        del limit
        self._metrics.sla_breaches.labels("breached").inc(swept.breached)
        self._metrics.sla_breaches.labels("foreseen").inc(swept.foreseen)

    def followed(self, made: int, skipped: int) -> None:
        self._metrics.followed.labels("run").inc(made)
        if skipped:
            self._metrics.followed.labels("skip").inc(skipped)
            self._metrics.ended(RunStatus.SKIPPED, skipped)

    def sweep_joins(self, swept: JoinsSwept, *_: Any) -> None:
        if swept.missing:
            self._metrics.followed.labels("missing").inc(len(swept.missing))
            self._metrics.ended(RunStatus.SKIPPED, len(swept.missing))

    def expire(self, expired: ExpiredSkips, *_: Any) -> None:
        if expired.tasks:
            self._metrics.ended(RunStatus.SKIPPED, len(expired.tasks))

    def note_clock_step(self, _noted: object, seconds: float, *_: Any) -> None:
        """Also one that another node has noted: each node counts what it saw."""
        self._metrics.clock_steps.labels("forward" if seconds > 0 else "back").inc()

    def plan(self, planned: Planned, *_: Any) -> None:
        metrics = self._metrics
        if planned.skipped:
            metrics.ended(RunStatus.SKIPPED, planned.skipped)
        if planned.event_only:
            metrics.ended(RunStatus.SUCCESS, planned.event_only)
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

    def publish(self, published: Sequence[PublishResult], _: Sequence[Publication]) -> None:
        refused = sum(answer.outcome is Published_.REFUSED for answer in published)
        if refused:
            self._metrics.concurrency_skipped.inc(refused)

    def claim(self, claimed: Claimed, _: ClaimRequest) -> None:
        now = perf_counter()
        for lease in claimed.leases:
            self._begin(lease, now)
        self._metrics.executing.set(len(self._began))

    def _begin(self, lease: Lease, now: float) -> None:
        if lease.step is not None and lease.parent_id is not None:
            self._steps[lease.run_id] = None
            while len(self._steps) > _REMEMBERED:
                del self._steps[next(iter(self._steps))]
        if lease.parent_id is not None:
            return  # the parts of a fan-out and the steps of a flow stay out of the counters of runs
        self.task_of(lease.run_id, lease.task_id)
        self._began[lease.run_id] = now
        if lease.retry_count == lease.lost_count == 0:
            if lease.origin is Origin.SCHEDULE:
                self._metrics.start_lag.observe(
                    max(0, lease.claimed_at - (lease.run_at or lease.scheduled_time)) / SECOND
                )
            if lease.attempt > 1 and not lease.executed_us:
                self._metrics.failure_retries.inc()

    def settle(self, answers: Sequence[SettleResult], settlements: Sequence[Settlement]) -> None:
        ended: collections.Counter[RunStatus] = collections.Counter()
        now = perf_counter()
        for answer, settlement in zip(answers, settlements, strict=True):
            task_id = self._tasks.get(settlement.run_id)
            if settlement.transition is Transition.FINISH and settlement.run_id in self._steps:
                del self._steps[settlement.run_id]
                if answer is SettleResult.DONE:
                    self._metrics.flow_steps.labels(settlement.status or RunStatus.FAILED).inc()
            if answer is SettleResult.DONE and task_id is not None:
                self._count(settlement, task_id, now, ended)
            if answer is SettleResult.DONE and settlement.transition is Transition.PARK:
                self._park(settlement.run_id)
            else:
                self._forget(settlement.run_id)
        for status, count in ended.items():
            self._metrics.ended(status, count)
        self._metrics.executing.set(len(self._began))

    def _count(self, settlement: Settlement, task_id: int, now: float, ended: collections.Counter[RunStatus]) -> None:
        metrics = self._metrics
        if settlement.status is RunStatus.TIMEOUT:
            metrics.timeouts.inc()
        if settlement.transition is Transition.LOSE or settlement.precondition is Precondition.EXPIRED:
            metrics.lease_losses.labels("sweep").inc()
        if settlement.transition is Transition.RETRY:
            metrics.run_retries.of(task_id).inc()
        elif settlement.transition is Transition.FINISH:
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
        self, answer: tuple[list[SettleResult], Claimed], settlements: Sequence[Settlement], request: ClaimRequest
    ) -> None:
        self.settle(answer[0], settlements)
        self.claim(answer[1], request)

    def overdue(self, found: Sequence[ExpiredRun], *_: Any) -> None:
        for one in found:
            if one.run_id not in self._tasks:
                self.task_of(one.run_id, one.task_id)

    def callback(self, answer: tuple[CallbackSubject | None, Callback], *_: Any) -> None:
        subject, recorded = answer
        self._metrics.callbacks.labels(recorded.status).inc()
        if subject is not None and subject.settlement is not None:
            self.task_of(subject.run_id, subject.task_id)
            self.settle([SettleResult.DONE], [subject.settlement])

    def cancel(self, canceled: Sequence[Canceled], *_: Any) -> None:
        count = sum(answer.canceled for answer in canceled)
        if count:
            self._metrics.ended(RunStatus.CANCELED, count)
        for answer in canceled:
            self._forget(answer.run_id)
        self._metrics.executing.set(len(self._began))

    def heartbeat(self, beat: HeartbeatAnswer, *_: Any) -> None:
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
        self._counters: dict[tuple[str, int | str], Counter] = {}

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

    def _counter(self, method: str, code: int | str) -> Counter:
        """Kept by what it counts: to find it by its labels takes longer than to count."""
        found = self._counters.get((method, code))
        if found is None:
            found = self._counters[method, code] = self._metrics.http_requests.labels(method, str(code))
        return found
