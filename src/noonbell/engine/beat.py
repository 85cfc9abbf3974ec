"""Beat: renew the leases in hand, and obey what comes back: cancel, stop, drain, another concurrency.

    K11  died while holding leases   they run out; the sweep gives the runs to others

A heartbeat that the store does not answer is tried again soon. The work goes on meanwhile: if the lease runs out, the
outcome is refused when it is settled, and nothing is written twice.

With a `pulse` the heart beats in a thread of its own, so that a blocked event loop loses no lease; what comes back is carried
out in the worker's loop all the same. Without one (simulations, the store in memory) it beats in that loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, assert_never

from noonbell.engine import failpoint
from noonbell.engine.execute import task_of
from noonbell.engine.hold import Hands, Held, Word
from noonbell.engine.know import Tasks
from noonbell.engine.pulse import Pulse
from noonbell.engine.settle import released, subject_of
from noonbell.engine.wake import Bell
from noonbell.errors import NoonbellError
from noonbell.model.request import Heartbeat
from noonbell.model.run import Lease
from noonbell.model.worker import LeaseOrder, Order, WorkerState
from noonbell.ports import Store

logger = logging.getLogger("noonbell.engine")

INTERVAL = 5.0
"""Seconds between heartbeats of a worker that holds nothing."""


class Heart:
    def __init__(
        self,
        store: Store,
        hands: Hands,
        tasks: Tasks,
        worker_id: str,
        incarnation: str,
        *,
        register: Callable[[Store], Awaitable[None]],
        obey: Callable[[WorkerState], None],
        pulse: Pulse | None = None,
        died: Callable[[], None] | None = None,
    ) -> None:
        """`register` is called when the store has forgotten this worker; `obey` with each state that it wants.

        `died` is called when the thread of the pulse has died, and this heart beats in the worker's loop from then on.
        """
        self._store, self._hands, self._tasks, self._bell = store, hands, tasks, Bell()
        self._worker_id, self._incarnation = worker_id, incarnation
        self._register, self._obey, self._pulse, self._died = register, obey, pulse, died
        self._next = 0.0

    def expect(self, seconds: float) -> None:
        """A lease wants a heartbeat in so many seconds: if the next one is later, it comes now."""
        if time.monotonic() + seconds < self._next:
            self._next = 0.0
            self.ring()

    def ring(self) -> None:
        """Called in the worker's loop: beat now."""
        if self._pulse is None:
            self._bell.ring()
        else:
            self._pulse.call(self._bell.ring)

    async def tick(self) -> float:
        pulse = self._pulse
        # A settlement under way in a loop that stands still may hold the rows of its runs: they are left out then.
        all_of_them = pulse is None or await pulse.answers(self._hands.ping_seconds(INTERVAL) / 2)
        held = [
            one for one in list(self._hands.held.values()) if one.is_renewed and (all_of_them or not one.is_leaving)
        ]
        if held:
            failpoint.hit("K11")
        store = self._store if pulse is None else pulse.store
        answer = await store.heartbeat(self._worker_id, [one.key for one in held], incarnation=self._incarnation)
        if answer.concurrency is None:
            await self._register(store)
        if pulse is None:
            self._follow(held, answer)
        else:
            pulse.tell(self._follow, held, answer)
        # First of all, so that a lease that is taken between the next two lines rings the bell.
        self._next = time.monotonic() + INTERVAL
        pause = min(INTERVAL, self._hands.ping_seconds(INTERVAL))
        self._next = time.monotonic() + pause
        return pause

    async def wait(self, seconds: float) -> None:
        await self._bell.wait(seconds)

    # For the pulse

    def executed_by(self, task: asyncio.Task[Any]) -> tuple[Lease, str] | None:
        attempt = task_of(task)
        held = next((one for one in list(self._hands.held.values()) if one.runner is attempt), None)
        if held is None:
            return None
        known = self._tasks.of(held.lease)
        return held.lease, "?" if known is None else known.spec.job_type or known.spec.name

    async def loop_is_blocked(self) -> None:
        """What has not begun would wait for as long as the block lasts: it goes back."""
        if self._pulse is None:
            return
        idle = self._hands.abandon_idle()
        if not idle:
            return
        try:
            await self._pulse.store.settle([released(subject_of(one.lease), begun=False) for one in idle])
        except NoonbellError as error:
            logger.warning("%d runs could not be handed back (%s); their leases run out", len(idle), error.message)
        else:
            logger.info("worker %s handed back %d runs that had not begun", self._worker_id, len(idle))
        self._pulse.tell(self._hands.forget, idle)

    def thread_died(self) -> None:
        self._pulse, self._bell = None, Bell()
        if self._died is not None:
            self._died()

    # In the worker's loop

    def _follow(self, held: Sequence[Held], answer: Heartbeat) -> None:
        for one, order in zip(held, answer.orders, strict=True):
            self._heed(one, order)
        if answer.concurrency is not None:
            self._hands.resize(answer.concurrency)
        self._obey(answer.state)

    def _heed(self, held: Held, order: LeaseOrder) -> None:
        if order.ping_interval_ms is not None:
            lease_third = (held.lease.expires_at - held.lease.claimed_at) / 3_000_000
            held.ping_seconds = min(lease_third, order.ping_interval_ms / 1000)
        match order.order:
            case Order.CONTINUE:
                return
            case Order.CANCEL:
                # With an expiry the lease is still ours: this worker may not have the run any longer.
                word = Word.CANCELED if order.lease_expires_at is None else Word.STOPPED
            case Order.LOST:
                word = Word.LOST
            case _:
                assert_never(order.order)
        self._hands.interrupt(held, word)
