"""Beat: renew the leases in hand, and obey what comes back: cancel, stop, drain, another concurrency.

    K11  died while holding leases   they run out; the sweep gives the runs to others

A heartbeat that the store does not answer is tried again soon. The work goes on meanwhile: if the lease runs out, the
outcome is refused when it is settled, and nothing is written twice.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import assert_never

from noonbell.engine import failpoint
from noonbell.engine.hold import Hands, Held, Word
from noonbell.engine.wake import Bell
from noonbell.model.request import Heartbeat
from noonbell.model.worker import LeaseOrder, Order, WorkerState
from noonbell.ports import Store

INTERVAL = 5.0
"""Seconds between heartbeats of a worker that holds nothing."""


class Heart:
    def __init__(
        self,
        store: Store,
        hands: Hands,
        bell: Bell,
        worker_id: str,
        incarnation: str,
        *,
        register: Callable[[], Awaitable[None]],
        obey: Callable[[WorkerState], None],
    ) -> None:
        """`register` is called when the store has forgotten this worker; `obey` with each state that it wants."""
        self._store, self._hands, self._bell = store, hands, bell
        self._worker_id, self._incarnation = worker_id, incarnation
        self._register, self._obey = register, obey
        self._next = 0.0

    def expect(self, seconds: float) -> None:
        """A lease wants a heartbeat in so many seconds: if the next one is later, it comes now."""
        if time.monotonic() + seconds < self._next:
            self._next = 0.0
            self._bell.ring()

    async def tick(self) -> float:
        held = [one for one in self._hands.held.values() if one.word is None or one.word is Word.STOPPED]
        if held:
            failpoint.hit("K11")
        answer = await self._store.heartbeat(self._worker_id, [one.key for one in held], incarnation=self._incarnation)
        for one, order in zip(held, answer.orders, strict=True):
            self._heed(one, order)
        await self._follow(answer)
        pause = min(INTERVAL, self._hands.ping_seconds(INTERVAL))
        self._next = time.monotonic() + pause
        return pause

    async def wait(self, seconds: float) -> None:
        await self._bell.wait(seconds)

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

    async def _follow(self, answer: Heartbeat) -> None:
        if answer.concurrency is None:
            await self._register()
        else:
            self._hands.resize(answer.concurrency)
        self._obey(answer.state)
