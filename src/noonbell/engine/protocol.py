"""The worker protocol: what a worker in another process, of any language, does by the API.

It claims, renews and settles as the built-in worker does, with the same words and the same fences; only the carrying out
is elsewhere. Nothing is kept here that another node would need: a worker may come by any of them, by another each time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec

from noonbell.engine.carry import previous_of
from noonbell.engine.door import INCARNATION, Door
from noonbell.engine.know import Tasks
from noonbell.engine.settle import Subject, released, settlement, subject_of
from noonbell.engine.wake import PLAN, queue_topic
from noonbell.errors import LeaseLost, NotFound, StoreUnavailable
from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.request import ClaimRequest, Heartbeat
from noonbell.model.run import Lease, Run, RunId, RunStatus
from noonbell.model.settlement import Move, Settled, Settlement
from noonbell.model.task import Delivery, Task
from noonbell.model.worker import Attendance, Declared, LeaseOrder, Order, Worker, WorkerState
from noonbell.ports import Store, Wakeup

_FRESH_ENOUGH = 5.0
"""Seconds for which a task's policies are taken as known."""
_REMEMBERED = 10_000
"""Workers whose words are remembered here, so that they are not registered again with every claim."""

_LEASES = 20_000
"""Leases handed out here that are remembered, so that settling one needs no question. Any node can settle any of them."""

DEFAULT_CONCURRENCY = 100
"""Of a worker that does not say how many runs it wants to hold."""


class Protocol:
    def __init__(
        self, store: Store, wakeup: Wakeup, tasks: Tasks, door: Door, draw: Callable[[], float] = random.random
    ) -> None:
        self._store, self._wakeup, self._tasks, self._door, self._draw = store, wakeup, tasks, door, draw
        self._known: dict[str, Declared] = {}
        self._leases: dict[tuple[RunId, int], Lease] = {}
        self._together = _Together(store)

    # Claim

    async def claim(
        self, worker_id: str, said: Declared, most: int, wait_seconds: float
    ) -> tuple[list[Assignment], Attendance]:
        """Runs for this worker, and what an operator wants of it. Canceled, it gives back what it had got."""
        attendance = await self._attendance(worker_id, said)
        request = ClaimRequest(
            worker_id=worker_id, queues=said.queues, max=most, job_types=said.job_types, version=said.version
        )
        leases = await self._door.claim(request, attendance, wait_seconds)
        try:
            return await self._assigned(leases), await self._attendance(worker_id, said) if not leases else attendance
        except BaseException:
            self._door.hand_back(leases)
            raise

    def hand_back(self, assignments: Sequence[Assignment]) -> None:
        """The worker is gone before it could be told. What at most once has begun stays begun."""
        self._door.hand_back([one.lease for one in assignments if one.task.spec.delivery is Delivery.AT_LEAST_ONCE])

    async def _assigned(self, leases: Sequence[Lease]) -> list[Assignment]:
        await self._tasks.learn(leases)
        found = [(lease, task) for lease in leases if (task := self._tasks.of(lease)) is not None]
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

    async def _attendance(self, worker_id: str, said: Declared) -> Attendance:
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

    async def _register(self, worker_id: str, said: Declared) -> Worker:
        there = next((one for one in await self._store.workers() if one.id == worker_id), None)
        concurrency = DEFAULT_CONCURRENCY if said.concurrency is None else said.concurrency
        meta = {"over": INCARNATION, "said_concurrency": said.concurrency}
        if there is not None and there.state is not WorkerState.LOST and there.meta == meta:
            concurrency = there.concurrency  # an operator may have set it; the worker says nothing new
        return await self._store.register_worker(
            Worker(
                id=worker_id,
                incarnation=INCARNATION,
                version=said.version,
                queues=said.queues,
                job_types=said.job_types,
                concurrency=concurrency,
                meta=meta,
            )
        )

    # While it is held

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[RunId, int]]) -> Heartbeat:
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
        if await self._together.settle(made) is not Settled.DONE:
            run = await self._known_run(run_id)
            raise _gone(run_id, Order.CANCEL if run.status is RunStatus.CANCELED else Order.LOST, run)
        self._leases.pop((run_id, token), None)
        self._follow(held, made)
        return _status_after(made)

    def _recalled(self, worker_id: str, run_id: RunId, token: int) -> _Held | None:
        """Handed out by this node, and not so long ago that it has been forgotten."""
        lease = self._leases.get((run_id, token))
        task = None if lease is None else self._tasks.of(lease)
        if lease is None or task is None:
            return None
        subject = msgspec.structs.replace(subject_of(lease, task.version), worker_id=worker_id)
        return _Held(task, subject, lease.queue, lease.plain)

    async def _looked_up(self, worker_id: str, run_id: RunId, token: int) -> _Held:
        """Handed out by another node, or never."""
        run = await self._known_run(run_id)
        task = await self._tasks.newest(run.task_id, _FRESH_ENOUGH)
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
        return _Held(task, subject, run.queue, is_plain=False)

    async def _known_run(self, run_id: RunId) -> Run:
        run = await self._store.run(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run

    def _follow(self, held: _Held, made: Settlement) -> None:
        """Tell whoever may have something to do because of it; a signal that gets lost costs a poll."""
        if held.is_plain and made.move is Move.FINISH:
            return
        if made.move is Move.RETRY or (held.task.spec.schedule or {}).get("mode") == "fixed_delay":
            self._wakeup.signal(PLAN)
        self._wakeup.signal(queue_topic(held.queue))


class _Held(NamedTuple):
    """A run that somebody wants to settle."""

    task: Task
    subject: Subject
    queue: str
    is_plain: bool
    """No limit, no follow-up: nobody else has anything to do because of its end."""


class _Together:
    """Settlements of many workers, written together: while one batch is on its way, the next one gathers."""

    def __init__(self, store: Store, most: int = 200) -> None:
        self._store, self._most = store, most
        self._waiting: deque[tuple[Settlement, asyncio.Future[Settled]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def settle(self, made: Settlement) -> Settled:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Settled] = loop.create_future()
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

    async def _write(self, batch: Sequence[tuple[Settlement, asyncio.Future[Settled]]]) -> None:
        try:
            answers: Sequence[Settled | Exception] = await self._store.settle([made for made, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for one in batch:  # one that cannot be written must not keep the others from it
                    await self._write([one])
                return
            answers = [error] * len(batch)
        for (_, answer), told in zip(batch, answers, strict=True):
            if answer.done():  # whoever asked is gone; what was written stands
                continue
            if isinstance(told, Exception):
                answer.set_exception(told)
            else:
                answer.set_result(told)


def _gone(run_id: RunId, order: Order, run: Run | None = None) -> LeaseLost:
    what = "was canceled" if order is Order.CANCEL else "is not held with this token by this worker any longer"
    details: dict[str, Any] = {"order": str(order)}
    if run is not None:
        details["status"] = str(run.status)
    return LeaseLost(f"run {run_id} {what}; stop working on it", details=details)


def _status_after(made: Settlement) -> RunStatus:
    match made.move:
        case Move.FINISH:
            return made.status or RunStatus.FAILED
        case Move.RETRY:
            return RunStatus.RETRYING
        case Move.PARK:
            return RunStatus.CALLBACK_PENDING
        case Move.RELEASE | Move.LOSE:
            return RunStatus.SCHEDULED
        case _:
            assert_never(made.move)
