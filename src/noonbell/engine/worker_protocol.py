"""The worker protocol: what a worker in another process, of any language, does by the API.

It claims, renews and settles as the built-in worker does, with the same words and the same fences; only the execution is
elsewhere. No node keeps anything that another node would need: a worker may call any of them, a different one each time.

`LongPoll` keeps claims waiting. Waiters that ask for the same (queues, job types, version) form one group with one listener.
After a signal the group serves its waiters one after the other, the longest wait first, until a few in a row got nothing; so
a published run costs a claim or two, however many wait. Runs that name workers are looked up for all waiters at once. A
slow poll for each group finds runs whose signal was lost.

    a waiter leaves while it is served   what was claimed for it is handed back, not counted as an attempt
    the process dies                     the leases run out; the sweep gives the runs to others
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec

from noonbell.engine.attempt_runner import FRESH, TaskCache, previous_of
from noonbell.engine.loop_runner import AsideSignal, StoreClock
from noonbell.engine.settle import Subject, released, settlement, subject_of
from noonbell.errors import LeaseLost, NotFound, RateLimited, StoreUnavailable
from noonbell.fields import counted
from noonbell.model.request import Claimed, ClaimRequest, HeartbeatAnswer
from noonbell.model.run import Assignment, Lease, Outcome, Run, RunId, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import Delivery, Task
from noonbell.model.worker import Attendance, LeaseOrder, Order, WorkerDeclaration, WorkerInfo, WorkerState, label_pairs
from noonbell.ports import ANY_QUEUE, ORDERS, PAUSE, PLAN, Store, Wakeup, queue_topic

logger = logging.getLogger("noonbell.engine")

INCARNATION = "api"
"""Of every worker that comes by the API: what it holds is identified by tokens, not by processes."""

_TRIES = 4
"""Waiters of a group that get nothing, one after the other, before it is taken to be dry: some may not have what is there."""
_CALM = 0.2
"""Seconds between two refreshes, however many orders there are."""


class Waiter:
    """A worker that waits. The first who serves it sets `answer`: to an empty list if an operator wants something of it."""

    __slots__ = ("answer", "attendance", "is_busy", "missed", "request")

    def __init__(self, request: ClaimRequest, attendance: Attendance) -> None:
        self.request, self.attendance = request, attendance
        self.answer: asyncio.Future[list[Lease]] = asyncio.get_running_loop().create_future()
        self.is_busy = True
        """A claim for it is under way."""
        self.missed = False
        """A signal came meanwhile."""

    @property
    def is_open(self) -> bool:
        return self.attendance.state is WorkerState.RUNNING and self.attendance.concurrency > 0

    def answer_with(self, leases: list[Lease]) -> bool:
        """False if it is gone."""
        if self.answer.done():
            return False
        self.answer.set_result(leases)
        return True


class ClaimKind(NamedTuple):
    """What the waiters of one group have in common."""

    queues: tuple[str, ...]
    job_types: tuple[str, ...] | None
    version: int
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: ClaimRequest) -> ClaimKind:
        return cls(request.queues, request.job_types, request.version, request.labels)


class LongPoll:
    def __init__(
        self, store: Store, wakeup: Wakeup, *, poll: float = 1.0, refresh: float = 5.0, most: int = 5_000
    ) -> None:
        """`poll`: the net of a group, in seconds. `refresh`: seconds between two signs of life for all who wait."""
        self.store, self.wakeup, self.poll = store, wakeup, poll
        self.time = StoreClock(store)
        self._aside = AsideSignal(wakeup, self.time)
        self.is_closed = False
        self._refresh, self._most = refresh, most
        self._groups: dict[ClaimKind, WaitGroup] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._handing_back: set[asyncio.Task[None]] = set()

    async def claim(self, request: ClaimRequest, attendance: Attendance, seconds: float) -> list[Lease]:
        """Up to `request.max` runs, at once if there are any, else as soon as there are, or none after `seconds`.

        None at once if what an operator wants of the worker changes. Canceled, it gives back what it had got.
        """
        if seconds <= 0 or self.is_closed:
            waiter = Waiter(request, attendance)
            return await self._claim(waiter) if waiter.is_open else []
        waiter = self._join(request, attendance)
        group = self._groups[ClaimKind.of(request)]
        try:
            leases = await self._claim_at_once(waiter)
            return leases or await self._wait(waiter, seconds)
        finally:
            group.leave(waiter)

    def hand_back(self, leases: Sequence[Lease]) -> None:
        """In the background: the waiter that wanted them is gone. If that fails, the leases run out."""
        if leases:
            task = asyncio.get_running_loop().create_task(self._hand_back(leases))
            self._handing_back.add(task)
            task.add_done_callback(self._handing_back.discard)

    async def close(self) -> None:
        """Answer every waiter with nothing; from now on a claim does not wait."""
        self.is_closed = True
        groups = list(self._groups.values())
        for group in groups:
            for waiter in group.waiters:
                waiter.answer_with([])
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        for group in groups:
            await group.close()
        if self._handing_back:
            await asyncio.wait(self._handing_back, timeout=5)

    @property
    def waiting(self) -> int:
        return sum(len(group.waiters) for group in self._groups.values())

    def _join(self, request: ClaimRequest, attendance: Attendance) -> Waiter:
        if self.waiting >= self._most:
            raise RateLimited(f"{self._most} workers already wait at this node; ask another node, or use a wait of 0")
        waiter, kind = Waiter(request, attendance), ClaimKind.of(request)
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = WaitGroup(self, kind, lambda: self._groups.pop(kind, None))
        group.enter(waiter)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(
                self._refresh_all(), name="noonbell long poll refresh"
            )
        return waiter

    async def _claim_at_once(self, waiter: Waiter) -> list[Lease]:
        """What is there already. Once more if a signal came while it was looked for."""
        while waiter.is_open:
            waiter.missed = False
            leases = await self._claim(waiter)
            if leases or not waiter.missed:
                waiter.is_busy = False
                return leases
        waiter.is_busy = False
        return []

    async def _wait(self, waiter: Waiter, seconds: float) -> list[Lease]:
        try:
            await asyncio.wait([waiter.answer], timeout=seconds)
        except asyncio.CancelledError:
            if waiter.answer.done():
                self.hand_back(waiter.answer.result())
            raise
        return waiter.answer.result() if waiter.answer.done() else []

    async def _claim(self, waiter: Waiter) -> list[Lease]:
        """In a task of its own: a claim that is under way when its waiter leaves is seen to its end."""
        claiming = asyncio.get_running_loop().create_task(self.claim_now(waiter))
        try:
            return (await asyncio.shield(claiming)).leases
        except asyncio.CancelledError:
            claiming.add_done_callback(self._unwanted)
            raise

    def _unwanted(self, claiming: asyncio.Task[Claimed]) -> None:
        if not claiming.cancelled() and claiming.exception() is None:
            self.hand_back(claiming.result().leases)

    async def claim_now(self, waiter: Waiter) -> Claimed:
        """Never more than the worker's concurrency leaves."""
        request = waiter.request
        held = (await self.store.held([request.worker_id])).get(request.worker_id, 0)
        room = min(request.max, waiter.attendance.concurrency - held)
        if room <= 0:
            return Claimed([])
        asked_at = time.monotonic()
        claimed = await self.store.claim(msgspec.structs.replace(request, max=room))
        if (
            claimed.leases
            and time.monotonic() - asked_at >= FRESH
            and await self.store.installation_pause() is not None
        ):
            self.hand_back(claimed.leases)  # everything was paused while the claim was on its way
            return Claimed([], is_paused=True)
        for queue in claimed.split:
            self.wakeup.signal(queue_topic(queue))
        await self._aside.tell(claimed.aside_until)
        return claimed

    async def _hand_back(self, leases: Sequence[Lease]) -> None:
        try:
            await self.store.settle([released(subject_of(lease), begun=False) for lease in leases])
        except Exception as error:
            logger.warning("%s could not be handed back (%s): expiry takes over", counted(len(leases), "run"), error)
            return
        for queue in sorted({lease.queue for lease in leases}):
            self.wakeup.signal(queue_topic(queue))

    async def _refresh_all(self) -> None:
        """Tell the store that the waiters are alive, and answer those of which an operator wants something. Ends with
        the last waiter.
        """
        due = 0.0
        while self._groups:
            await self.wakeup.wait((ORDERS,), max(0.0, due - time.monotonic()))
            waiters = [waiter for group in self._groups.values() for waiter in group.waiters]
            try:
                if time.monotonic() >= due:
                    attendance = await self.store.attend(
                        sorted({one.request.worker_id for one in waiters}), INCARNATION
                    )
                    due = time.monotonic() + self._refresh
                else:  # an order: read only, or a store that signals every commit would signal this one for ever
                    attendance = {one.id: Attendance(one.state, one.concurrency) for one in await self.store.workers()}
            except Exception as error:
                logger.warning("the refresh of waiting workers failed (%s); it continues", error)
            else:
                for waiter in waiters:
                    if attendance.get(waiter.request.worker_id) != waiter.attendance:
                        waiter.answer_with([])
            await asyncio.sleep(_CALM)


class WaitGroup:
    def __init__(self, long_poll: LongPoll, kind: ClaimKind, on_empty: Callable[[], object]) -> None:
        self.waiters: deque[Waiter] = deque()
        """Who has waited longest, or was asked longest ago, first."""
        self._long_poll, self._on_empty = long_poll, on_empty
        self._topics = [*map(queue_topic, kind.queues), ANY_QUEUE, PAUSE]
        self._is_idle = False
        self._listening: asyncio.Task[None] | None = None

    def enter(self, waiter: Waiter) -> None:
        self.waiters.append(waiter)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="noonbell long poll")

    def leave(self, waiter: Waiter) -> None:
        waiter.answer.cancel()
        if waiter in self.waiters:
            self.waiters.remove(waiter)

    async def close(self) -> None:
        """A claim under way is seen to its end."""
        if self._listening is not None:
            if self._is_idle:
                self._listening.cancel()
            await asyncio.wait([self._listening], timeout=5)

    async def _listen(self) -> None:
        """Ends with the last waiter."""
        pause = self._long_poll.poll
        try:
            while self.waiters and not self._long_poll.is_closed:
                self._is_idle = True
                await self._long_poll.wakeup.wait(self._topics, pause)
                self._is_idle = False
                pause = await self._serve_carefully()
        finally:
            self._listening = None
            self._on_empty()

    async def _serve_carefully(self) -> float:
        try:
            return await self._serve()
        except StoreUnavailable:
            return self._long_poll.poll
        except Exception:
            logger.exception("waiting workers could not be served; they will be in a moment")
            return self._long_poll.poll

    async def _serve(self) -> float:
        """One round; how long to wait for the next, at most, in seconds."""
        asked: set[Waiter] = set()
        empty, next_at = 0, None
        for waiter in [one for one in self.waiters if one.is_open]:
            if empty >= _TRIES:
                break
            if waiter.is_busy:
                waiter.missed = True
                continue
            if waiter.answer.done():
                continue
            asked.add(waiter)
            claimed = await self._serve_one(waiter)
            empty = 0 if claimed.leases else empty + 1
            next_at = claimed.next_at or next_at
        await self._serve_named(asked)
        if next_at is None:
            return self._long_poll.poll
        await self._long_poll.time.refresh()
        return max(0.001, min(self._long_poll.poll, self._long_poll.time.until(next_at) + 0.001))

    async def _serve_named(self, asked: set[Waiter]) -> None:
        """Those who were not asked, where a run names them."""
        others = [one for one in self.waiters if one not in asked and one.is_open and not one.is_busy]
        if not others:
            return
        named = await self._long_poll.store.pinned([one.request.worker_id for one in others])
        for waiter in others:
            if waiter.request.worker_id in named and not waiter.answer.done():
                await self._serve_one(waiter)

    async def _serve_one(self, waiter: Waiter) -> Claimed:
        waiter.is_busy = True
        try:
            claimed = await self._long_poll.claim_now(waiter)
        finally:
            waiter.is_busy = False
        if claimed.leases and not waiter.answer_with(claimed.leases):
            self._long_poll.hand_back(claimed.leases)
        if not claimed.leases and waiter in self.waiters:
            self.waiters.remove(waiter)
            self.waiters.append(waiter)
        return claimed


_FRESH_ENOUGH = 5.0
"""Seconds for which a task's policies are taken as known."""
_REMEMBERED = 10_000
"""Workers whose words are remembered here, so that they are not registered again with every claim."""

_LEASES = 20_000
"""Leases handed out here that are remembered, so that settling one needs no question. Any node can settle any of them."""

DEFAULT_CONCURRENCY = 100
"""Of a worker that does not say how many runs it wants to hold."""


class WorkerBackend:
    """What the store and the long poll do for workers that come by the API. `service.workers` reads their messages."""

    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        tasks: TaskCache,
        long_poll: LongPoll,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._wakeup, self._tasks, self._long_poll, self._draw = store, wakeup, tasks, long_poll, draw
        self._known: dict[str, WorkerDeclaration] = {}
        self._leases: dict[tuple[RunId, int], Lease] = {}
        self._batcher = _SettleBatcher(store)

    # Claim

    async def claim(
        self, worker_id: str, said: WorkerDeclaration, most: int, wait_seconds: float
    ) -> tuple[list[Assignment], Attendance]:
        """Runs for this worker, and what an operator wants of it. Canceled, it gives back what it had got."""
        attendance = await self._attendance(worker_id, said)
        request = ClaimRequest(
            worker_id=worker_id,
            queues=said.queues,
            max=most,
            job_types=said.job_types,
            version=said.version,
            labels=label_pairs(dict(said.labels)),
        )
        leases = await self._long_poll.claim(request, attendance, wait_seconds)
        try:
            return await self._assigned(leases), await self._attendance(worker_id, said) if not leases else attendance
        except BaseException:
            self._long_poll.hand_back(leases)
            raise

    def hand_back(self, assignments: Sequence[Assignment]) -> None:
        """The worker is gone before it got an answer. What at most once has begun stays begun."""
        self._long_poll.hand_back(
            [one.lease for one in assignments if one.task.spec.delivery is Delivery.AT_LEAST_ONCE]
        )

    async def _assigned(self, leases: Sequence[Lease]) -> list[Assignment]:
        await self._tasks.load(leases)
        found = [(lease, task) for lease in leases if (task := self._tasks.get(lease)) is not None]
        once = [lease for lease, task in found if task.spec.delivery is Delivery.AT_MOST_ONCE]
        begun = await self._store.begin(once) if once else set()
        self._leases.update({(lease.run_id, lease.token): lease for lease, _ in found})
        while len(self._leases) > _LEASES:
            del self._leases[next(iter(self._leases))]
        return [
            Assignment(lease=lease, task=task, previous_scheduled_time=previous_of(task, lease))
            for lease, task in found
            if lease not in once or lease.run_id in begun
        ]

    async def _attendance(self, worker_id: str, said: WorkerDeclaration) -> Attendance:
        """The worker is alive. Registered if it is new, or says something else of itself than before."""
        if self._known.get(worker_id) == said:
            found = (await self._store.attend([worker_id], INCARNATION)).get(worker_id)
            if found is not None:
                return found
        worker = await self._register(worker_id, said)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[worker_id] = said
        return Attendance(worker.state, worker.concurrency)

    async def _register(self, worker_id: str, said: WorkerDeclaration) -> WorkerInfo:
        there = next((one for one in await self._store.workers() if one.id == worker_id), None)
        concurrency = DEFAULT_CONCURRENCY if said.concurrency is None else said.concurrency
        meta = {"over": INCARNATION, "said_concurrency": said.concurrency}
        if there is not None and there.state is not WorkerState.LOST and there.meta == meta:
            concurrency = there.concurrency  # an operator may have set it; the worker says nothing new
        return await self._store.register_worker(
            WorkerInfo(
                id=worker_id,
                incarnation=INCARNATION,
                version=said.version,
                queues=said.queues,
                job_types=said.job_types,
                concurrency=concurrency,
                meta=meta,
                labels=dict(said.labels),
            )
        )

    # While it is held

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[RunId, int]]) -> HeartbeatAnswer:
        return await self._store.heartbeat(worker_id, held, incarnation=INCARNATION)

    async def progress(self, worker_id: str, run_id: RunId, token: int, progress: Mapping[str, Any]) -> LeaseOrder:
        order = await self._order(worker_id, run_id, token)
        if not await self._store.progress(run_id, token, progress):
            raise _gone(run_id, Order.LOST)
        return order

    async def log(self, worker_id: str, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> LeaseOrder:
        order = await self._order(worker_id, run_id, token)
        if not await self._store.log(run_id, token, lines):
            raise _gone(run_id, Order.LOST)
        return order

    async def extend(self, worker_id: str, run_id: RunId, token: int, seconds: float) -> LeaseOrder:
        await self._order(worker_id, run_id, token)
        if not await self._store.extend(run_id, token, seconds):
            raise _gone(run_id, Order.LOST)
        return await self._order(worker_id, run_id, token)

    async def _order(self, worker_id: str, run_id: RunId, token: int) -> LeaseOrder:
        """LeaseLost unless this worker holds the run with this token. No lease is renewed."""
        beat = await self._store.heartbeat(worker_id, [(run_id, token)], incarnation=INCARNATION, renew=False)
        (order,) = beat.orders
        if order.lease_expires_at is None:
            await self._known_run(run_id)
            raise _gone(run_id, order.order)
        return order

    # Settle

    async def settle(self, worker_id: str, run_id: RunId, token: int, outcome: Outcome | None) -> RunStatus:
        """How the attempt ended; None hands it back, not counted as an attempt. The status that follows."""
        held = self._recalled(worker_id, run_id, token) or await self._looked_up(worker_id, run_id, token)
        spec = held.task.spec
        if outcome is None:
            made = released(held.subject, begun=spec.delivery is Delivery.AT_MOST_ONCE)
        else:
            made = settlement(spec, held.subject, outcome, self._draw())
        if await self._batcher.settle(made) is not SettleResult.DONE:
            run = await self._known_run(run_id)
            raise _gone(run_id, Order.CANCEL if run.status is RunStatus.CANCELED else Order.LOST, run)
        self._leases.pop((run_id, token), None)
        self._follow(held, made)
        return _status_after(made)

    def _recalled(self, worker_id: str, run_id: RunId, token: int) -> _HeldRun | None:
        """Handed out by this node, and not so long ago that it has been forgotten."""
        lease = self._leases.get((run_id, token))
        task = None if lease is None else self._tasks.get(lease)
        if lease is None or task is None:
            return None
        subject = msgspec.structs.replace(subject_of(lease, task.version), worker_id=worker_id)
        return _HeldRun(task, subject, lease.queue, lease.plain)

    async def _looked_up(self, worker_id: str, run_id: RunId, token: int) -> _HeldRun:
        """Handed out by another node, or never."""
        run = await self._known_run(run_id)
        if run.step_id is None:
            task = await self._tasks.newest(run.task_id, _FRESH_ENOUGH)
        else:
            task = await self._store.run_task(run_id)
        if task is None:
            raise _gone(run_id, Order.LOST, run)
        subject = Subject(
            run_id=run.id,
            token=token,
            retry_count=run.retry_count,
            lost_count=run.lost_count,
            worker_id=worker_id,
            task_version=task.version,
        )
        return _HeldRun(task, subject, run.queue, is_plain=False)

    async def _known_run(self, run_id: RunId) -> Run:
        run = await self._store.run(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run

    def _follow(self, held: _HeldRun, made: Settlement) -> None:
        """Signal the loops that may have something to do because of it; a signal that gets lost costs a poll."""
        if held.is_plain and made.transition is Transition.FINISH:
            return
        if made.transition is Transition.RETRY or (held.task.spec.schedule or {}).get("mode") == "fixed_delay":
            self._wakeup.signal(PLAN)
        self._wakeup.signal(queue_topic(held.queue))


class _HeldRun(NamedTuple):
    """A run that a worker wants to settle."""

    task: Task
    subject: Subject
    queue: str
    is_plain: bool
    """No limit, no follow-up: no other loop has anything to do because of its end."""


class _SettleBatcher:
    """Settlements of many workers, written together: while one batch is on its way, the next one gathers."""

    def __init__(self, store: Store, most: int = 200) -> None:
        self._store, self._most = store, most
        self._waiting: deque[tuple[Settlement, asyncio.Future[SettleResult]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def settle(self, made: Settlement) -> SettleResult:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SettleResult] = loop.create_future()
        self._waiting.append((made, answer))
        if self._writer is None:
            self._writer = loop.create_task(self._write_all())
        return await answer

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                count = min(self._most, len(self._waiting))
                await self._write([self._waiting.popleft() for _ in range(count)])
        finally:
            self._writer = None

    async def _write(self, batch: Sequence[tuple[Settlement, asyncio.Future[SettleResult]]]) -> None:
        try:
            answers: Sequence[SettleResult | Exception] = await self._store.settle([made for made, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for one in batch:  # one that cannot be written must not keep the others from it
                    await self._write([one])
                return
            answers = [error] * len(batch)
        for (_, answer), result in zip(batch, answers, strict=True):
            if answer.done():  # the caller is gone; what was written stands
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)


def _gone(run_id: RunId, order: Order, run: Run | None = None) -> LeaseLost:
    what = "was canceled" if order is Order.CANCEL else "is not held with this token by this worker any longer"
    details: dict[str, Any] = {"order": str(order)}
    if run is not None:
        details["status"] = str(run.status)
    return LeaseLost(f"run {run_id} {what}; stop working on it", details=details)


def _status_after(made: Settlement) -> RunStatus:
    match made.transition:
        case Transition.FINISH:
            return made.status or RunStatus.FAILED
        case Transition.RETRY:
            return RunStatus.RETRYING
        case Transition.PARK:
            return RunStatus.CALLBACK_PENDING
        case Transition.GATHER:
            return RunStatus.RUNNING
        case Transition.RELEASE | Transition.LOSE:
            return RunStatus.SCHEDULED
        case _:
            assert_never(made.transition)
