"""The week before: lived through by the store's own transitions, on a clock that is moved by hand from moment to moment.

So every chart, list and account shows what a real week would have left: policies have decided, retries have waited, a
callback has been missed, and for an hour and a half nobody planned.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from noonbell.clock import SECOND, Instant, ManualClock, rfc3339, slot_of
from noonbell.demo.tasks import OWNER, PAUSED, Act, act, declared
from noonbell.engine import callback
from noonbell.engine.know import Tasks
from noonbell.engine.settle import settlement_of
from noonbell.engine.sweep import Sweeper
from noonbell.errors import InvalidState
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.request import CallbackIn, ClaimRequest
from noonbell.model.run import Lease, RunBodies
from noonbell.model.settlement import Move
from noonbell.model.task import HTTP_QUEUE, Task
from noonbell.ports import Store
from noonbell.service import Rules, build
from noonbell.service.reconcile import reconcile
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets import template

DAYS: Final = 7
_DAY: Final = 86_400 * SECOND
_OUTAGE: Final = (round(3.4 * _DAY), round(3.4 * _DAY) + 5400 * SECOND)
"""When nobody planned, counted from the beginning."""
_PAUSED_AT: Final = round(4.3 * _DAY)
_WORKER: Final = "demo"
_LEASE: Final = 10.0
"""Seconds; what takes longer gets its lease extended, as heartbeats would."""

Deed = Callable[[], Awaitable[None]]


class History:
    def __init__(self, store: Store, clock: ManualClock, url: str) -> None:
        """`store` is open, empty, and goes by `clock`. `url` is where the targets will be."""
        self._store, self._clock, self._url = store, clock, url
        self._wakeup = LocalWakeup()
        self._tasks = Tasks(store)
        self._services = build(store, self._wakeup, Rules(check_template=template.check), _no_callbacks)
        self._sweeper = Sweeper(
            store, self._wakeup, tasks=self._tasks, draw=lambda: 0.5, upkeep=float("inf"), look=float("inf")
        )
        self._later: list[tuple[int, int, Deed]] = []
        self._count = 0
        self._work_at = 0
        """When there is something to plan, promote or claim: between two such moments runs only end."""

    async def live(self, until: Instant, tell: Callable[[float], None] = lambda _: None) -> None:
        """From the clock's present to `until`. `tell` hears which part of it has passed, 0 to 1."""
        began = self._clock.now()
        outage = range(began + _OUTAGE[0], began + _OUTAGE[1])
        await reconcile(self._services, OWNER, declared(self._url), by=OWNER)
        self._at(began + _PAUSED_AT, self._pause)
        while (now := self._clock.now()) < until:
            await self._do_what_is_due()
            if now in outage:
                self._work_at = outage.stop
            elif now >= self._work_at:
                self._work_at = await self._work()
            following = min(self._work_at, *(later[0] for later in self._later[:1]), until)
            self._clock.set(Instant(max(following, now + 1)))
            tell((self._clock.now() - began) / (until - began))
        while self._later:  # what was under way at the end has just ended, but callbacks may still be missed
            deed = heapq.heappop(self._later)[2]
            if deed != self._sweep:
                await deed()

    async def _pause(self) -> None:
        await self._services.tasks.disable(PAUSED, by="ann")

    async def _sweep(self) -> None:
        await self._sweeper.tick()

    def _at(self, moment: int, deed: Deed) -> None:
        self._count += 1
        heapq.heappush(self._later, (moment, self._count, deed))

    async def _do_what_is_due(self) -> None:
        while self._later and self._later[0][0] <= self._clock.now():
            await heapq.heappop(self._later)[2]()

    async def _work(self) -> int:
        """Plan, promote and claim what is due; the next moment at which something will be."""
        planned, promoted = await self._store.plan(500), await self._store.promote(500)
        while True:
            claimed = await self._store.claim(ClaimRequest(worker_id=_WORKER, queues=(HTTP_QUEUE,), max=100))
            for lease in claimed.leases:
                await self._start(lease)
            if not claimed.leases:
                break
        moments = [planned.next_at, promoted.next_at]
        return min((moment for moment in moments if moment is not None), default=self._clock.now() + 3600 * SECOND)

    async def _start(self, lease: Lease) -> None:
        task = await self._store.task(lease.task_id)
        if task is None:
            return
        does = act(task.name, slot_of(lease.scheduled_time), lease.attempt)
        if does.seconds > _LEASE:
            await self._store.extend(lease.run_id, lease.token, does.seconds + _LEASE)

        async def end() -> None:
            await self._end(lease, task, does)

        self._at(self._clock.now() + round(does.seconds * SECOND), end)

    async def _end(self, lease: Lease, task: Task, does: Act) -> None:
        now = self._clock.now()
        outcome = _outcome(task, lease, does)
        settlement = settlement_of(Assignment(lease=lease, task=task), outcome, 0.5)
        await self._store.settle([settlement])
        if settlement.move is Move.RETRY:
            self._work_at = now
        if outcome.kind is not OutcomeKind.ACCEPTED:
            return
        if does.calls_back_after is None:
            self._at(now + round((task.spec.callback_timeout_sec + 0.5) * SECOND), self._sweep)
            return
        message = callback.Message(status=callback.CallbackStatus.SUCCESS, data={"rows": slot_of(now) % 997})

        async def call_back() -> None:
            body = json.dumps({"status": message.status, "data": message.data})
            given = CallbackIn(token=lease.callback_token, body=body, headers={"content-type": "application/json"})
            await callback.receive(self._store, self._wakeup, self._tasks, given, message, draw=lambda: 0.5)

        self._at(now + round(does.calls_back_after * SECOND), call_back)


def _outcome(task: Task, lease: Lease, does: Act) -> Outcome:
    answer = {"task": task.name, "slot": rfc3339(lease.scheduled_time), "took": round(does.seconds, 3)}
    bodies = RunBodies(
        request_headers={"X-Noonbell-Run": str(lease.run_id), "X-Noonbell-Attempt": str(lease.attempt)},
        response_headers={"content-type": "application/json"},
        response_body=json.dumps(answer),
    )
    if does.status < 300:
        kind = OutcomeKind.ACCEPTED if does.status == 202 else OutcomeKind.SUCCESS
        return Outcome(kind=kind, response_code=does.status, bodies=bodies)
    return Outcome(
        kind=OutcomeKind.FAILURE,
        failure="http_5xx",
        response_code=does.status,
        error_message=f"the target answered {does.status}",
        error_details={"kind": "http_5xx"},
        bodies=bodies,
    )


async def _no_callbacks(*_given: Any) -> NoReturn:
    raise InvalidState("callbacks of the past are received as they were")
