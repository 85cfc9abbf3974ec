"""The port of events and alerts, as the SQL stores keep it: each method runs one transition in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TypeVar

from noonbell.clock import Instant
from noonbell.model.alert import AlertState, AlertStep, Channel, Delivery, DeliveryStatus, Duty, Late, Notice, Rule
from noonbell.model.event import EventPage
from noonbell.stores.sql import alerts, events, watching
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

T = TypeVar("T")


class AlertMethods(ABC):
    dialect: Dialect

    @abstractmethod
    async def _write(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    @abstractmethod
    async def _read(self, work: Callable[[], Work[T]]) -> T: ...

    @abstractmethod
    async def _settled(self, work: Callable[[TaskView], Work[T]]) -> T: ...

    # Events

    async def event_page(self, after: int, limit: int = 500, types: Collection[str] | None = None) -> EventPage:
        if await self._read(events.waiting):
            await self._write(lambda _: events.number(self.dialect))
        return await self._read(lambda: events.page(self.dialect, after, limit, types))

    async def last_event(self) -> int:
        while await self._read(events.waiting):
            await self._write(lambda _: events.number(self.dialect))
        return await self._read(events.last)

    async def forget_events(self, before: Instant, limit: int) -> int:
        return await self._write(lambda _: events.forget(self.dialect, before, limit))

    # Rules and channels

    async def alert_rules(self) -> list[Rule]:
        return await self._read(lambda: alerts.named("alert_rules", Rule))

    async def put_alert_rule(self, rule: Rule) -> Rule:
        return await self._settled(lambda _: alerts.put(self.dialect, "alert_rules", rule))

    async def remove_alert_rule(self, name: str) -> bool:
        return await self._write(lambda _: alerts.remove_rule(name))

    async def alert_channels(self) -> list[Channel]:
        return await self._read(lambda: alerts.named("alert_channels", Channel))

    async def put_alert_channel(self, channel: Channel) -> Channel:
        return await self._settled(lambda _: alerts.put(self.dialect, "alert_channels", channel))

    async def remove_alert_channel(self, name: str) -> bool:
        return await self._write(lambda _: alerts.remove_channel(name))

    # Watching

    async def take_duty(self, name: str, holder: str, seconds: float) -> Duty | None:
        return await self._settled(lambda _: alerts.take_duty(self.dialect, name, holder, seconds))

    async def leave_duty(self, name: str, holder: str) -> None:
        await self._write(lambda _: alerts.leave_duty(name, holder))

    async def alert_states(self) -> list[AlertState]:
        return await self._read(alerts.states)

    async def alert(self, duty: Duty, position: int, step: AlertStep) -> bool:
        return await self._write(lambda _: alerts.step(self.dialect, duty, position, step))

    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        return await self._read(lambda: watching.overdue_tasks(seconds, limit))

    async def waiting_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        return await self._read(lambda: watching.waiting_tasks(seconds, limit))

    async def slow_tasks(self, seconds: float, factor: float, limit: int = 50) -> list[Late]:
        return await self._read(lambda: watching.slow_tasks(seconds, factor, limit))

    async def notice_workers(self) -> int:
        return await self._settled(lambda _: watching.notice_workers())

    # Deliveries

    async def note_delivery(
        self,
        channel: str,
        notice: Notice,
        status: DeliveryStatus,
        *,
        error: str | None = None,
        response_code: int | None = None,
    ) -> int:
        return await self._write(lambda _: alerts.note_delivery(channel, notice, status, error, response_code))

    async def claim_deliveries(self, limit: int, seconds: float) -> list[Delivery]:
        return await self._write(lambda _: alerts.claim_deliveries(self.dialect, limit, seconds))

    async def next_delivery(self) -> float | None:
        return await self._read(alerts.next_delivery)

    async def settle_delivery(
        self,
        delivery: Delivery,
        status: DeliveryStatus,
        *,
        delay_seconds: float = 0,
        error: str | None = None,
        response_code: int | None = None,
    ) -> bool:
        return await self._write(
            lambda _: alerts.settle_delivery(self.dialect, delivery, status, delay_seconds, error, response_code)
        )

    async def alert_deliveries(
        self, limit: int = 100, *, before: int | None = None, channel: str | None = None
    ) -> list[Delivery]:
        return await self._read(lambda: alerts.deliveries(limit, before, channel))

    async def forget_deliveries(self, before: Instant, limit: int) -> int:
        return await self._write(lambda _: alerts.forget_deliveries(self.dialect, before, limit))
