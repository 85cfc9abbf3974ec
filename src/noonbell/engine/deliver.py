"""Deliver: bring notices to their channels, each attempt counted, with growing pauses between them.

A delivery that was claimed and never settled (the process died) comes due again when its claim runs out, with the same
id: a receiver may hear a notice twice, and can tell.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from noonbell.errors import StoreUnavailable
from noonbell.model.alert import Channel, Delivery, DeliveryStatus, Notice
from noonbell.ports import AlertStore, Courier, Undeliverable

logger = logging.getLogger("noonbell.alerts")

MOST_ATTEMPTS = 8
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
_AT_ONCE = 20
_CLAIMED = 60.0
"""Seconds: longer than any courier takes."""


def pause_after(attempts: int) -> float:
    """Seconds to the next attempt: 5, 10, 20 … 320."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempts - 1)))


class Deliveries:
    def __init__(
        self,
        store: AlertStore,
        couriers: Mapping[str, Courier],
        observe: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._couriers, self._observe, self._monotonic = store, couriers, observe, monotonic
        self.channels: Mapping[str, Channel] = {}
        """Those that are in use, by name."""
        self._due_at: float | None = 0.0
        self._sending: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Something is to be sent."""
        self._due_at = 0.0

    def is_due(self, now: float) -> bool:
        return self._due_at is not None and now >= self._due_at

    async def send(self) -> None:
        """Begin with what is due, unless the last ones are on their way still: a slow channel holds up no look-out."""
        if self._sending is not None and self._sending.done():
            self._sending = None
        if self._sending is None and self.is_due(self._monotonic()):
            claimed = await self._store.claim_deliveries(_AT_ONCE, _CLAIMED)
            seconds = await self._store.next_delivery()
            self._due_at = None if seconds is None else self._monotonic() + seconds
            if claimed:
                self._sending = asyncio.create_task(self._send_all(claimed), name="noonbell deliveries")

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=5)
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self, claimed: Sequence[Delivery]) -> None:
        await asyncio.gather(*(self._send_one(delivery) for delivery in claimed))

    async def _send_one(self, delivery: Delivery) -> None:
        try:
            await self._attempt(delivery)
        except StoreUnavailable as error:
            logger.warning("delivery %d is not written down: %s; it may come twice", delivery.id, error.message)
        except Exception:
            logger.exception("delivery %d failed", delivery.id)

    async def _attempt(self, delivery: Delivery) -> None:
        channel = self.channels.get(delivery.channel)
        try:
            if channel is None:
                raise Undeliverable(f"there is no channel {delivery.channel!r} in use", again=False)
            code = await self._bring(channel, delivery.notice, f"alert_{delivery.id}")
        except Undeliverable as problem:
            await self._failed(delivery, problem)
        else:
            self._note("delivered")
            await self._store.settle_delivery(delivery, DeliveryStatus.DELIVERED, response_code=code)

    async def _failed(self, delivery: Delivery, problem: Undeliverable) -> None:
        again = problem.again and delivery.attempts < MOST_ATTEMPTS
        self._note("retried" if again else "failed")
        logger.warning("channel %s: attempt %d failed: %s", delivery.channel, delivery.attempts, problem)
        pause = pause_after(delivery.attempts)
        if again:
            due_at = self._monotonic() + pause
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
        await self._store.settle_delivery(
            delivery,
            DeliveryStatus.PENDING if again else DeliveryStatus.FAILED,
            delay_seconds=pause,
            error=str(problem),
            response_code=problem.response_code,
        )

    async def _bring(self, channel: Channel, notice: Mapping[str, object], delivery_id: str) -> int | None:
        courier = self._couriers.get(channel.kind)
        if courier is None:
            raise Undeliverable(f"nobody brings notices to a channel of kind {channel.kind!r}", again=False)
        return await courier.send(channel, notice, delivery_id)

    def _note(self, outcome: str) -> None:
        if self._observe is not None:
            self._observe(outcome)

    async def send_directly(self, channels: Sequence[Channel], notice: Notice) -> None:
        """Once to each, without the store."""

        async def one(channel: Channel) -> None:
            try:
                await self._bring(channel, msgspec.to_builtins(notice), f"alert_{secrets.token_hex(8)}")
                self._note("delivered")
            except Undeliverable as problem:
                self._note("failed")
                logger.warning("channel %s: %s", channel.name, problem)

        await asyncio.gather(*(one(channel) for channel in channels))
