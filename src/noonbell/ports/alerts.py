"""Events and alerts, and who carries them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from noonbell.clock import Instant
from noonbell.model.alert import AlertState, AlertStep, Channel, Delivery, DeliveryStatus, Duty, Late, Notice, Rule
from noonbell.model.event import EventPage
from noonbell.model.run import Run, RunId


class EventStore(Protocol):
    """The stream of events, for readers that go along with it. Every store keeps it."""

    async def event_page(self, after: int, limit: int = 500, types: Collection[str] | None = None) -> EventPage:
        """Events after number `after`, from `limit` rows at most, in the order of commit; a row tells of a whole batch.

        Nothing is ever added behind `upto`. With `types`, others are passed over. `has_gap` if events after `after` have
        been removed, or `after` is a number that was never given.
        """

    async def last_event(self) -> int:
        """The number of the newest event that is committed."""

    async def forget_events(self, before: Instant, limit: int) -> int:
        """Remove up to `limit` of the oldest rows of events that happened before; how many it was."""


class AlertStore(EventStore, Protocol):
    """What alerts are made of. Every store keeps it."""

    async def now(self) -> Instant:
        """The store's clock."""

    async def run(self, run_id: RunId) -> Run | None: ...

    async def alert_rules(self) -> list[Rule]:
        """By name."""

    async def put_alert_rule(self, rule: Rule) -> Rule:
        """A new rule, or another text for the one of that name."""

    async def remove_alert_rule(self, name: str) -> bool:
        """With all that it remembers. False if there was none."""

    async def alert_channels(self) -> list[Channel]:
        """By name."""

    async def put_alert_channel(self, channel: Channel) -> Channel:
        """A new channel, or another text for the one of that name."""

    async def remove_alert_channel(self, name: str) -> bool:
        """With what waits to be sent there; the log of what was sent stays. False if there was none."""

    async def take_duty(self, name: str, holder: str, seconds: float) -> Duty | None:
        """The duty is this holder's for so many seconds; None while another has it.

        A holder that takes it again in time keeps its token. Anybody else gets a higher one. A duty that nobody ever had
        begins at the newest event.
        """

    async def leave_duty(self, name: str, holder: str) -> None:
        """Let others have it at once."""

    async def alert_states(self) -> list[AlertState]:
        """What the rules remember, by rule and subject."""

    async def alert(self, duty: Duty, position: int, step: AlertStep) -> bool:
        """Write a pass: states, deliveries, events, and how far it has read, in one transaction.

        False, and nothing written, if the duty is no longer held with this token.
        """

    async def overdue_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        """Tasks with a slot that was due so many seconds ago and that nobody has planned, the oldest first."""

    async def waiting_tasks(self, seconds: float, limit: int = 100) -> list[Late]:
        """Tasks with a run that has been due for so many seconds and that nobody has taken; not on paused queues."""

    async def slow_tasks(self, seconds: float, factor: float, limit: int = 50) -> list[Late]:
        """Tasks with a run under way for longer than `seconds` and than `factor` times the median of its last runs."""

    async def notice_workers(self) -> int:
        """Tell, once each, of workers that have fallen silent (`worker.lost`) and are back (`worker.returned`)."""

    async def note_delivery(
        self,
        channel: str,
        notice: Notice,
        status: DeliveryStatus,
        *,
        error: str | None = None,
        response_code: int | None = None,
    ) -> int:
        """Put a delivery that was made already in the log; its id."""

    async def claim_deliveries(self, limit: int, seconds: float) -> list[Delivery]:
        """Deliveries that are due, each counted as one attempt more; nobody else gets them for so many seconds."""

    async def next_delivery(self) -> float | None:
        """Seconds until a delivery is due, 0 if one is; None if none waits."""

    async def settle_delivery(
        self,
        delivery: Delivery,
        status: DeliveryStatus,
        *,
        delay_seconds: float = 0,
        error: str | None = None,
        response_code: int | None = None,
    ) -> bool:
        """Write how an attempt at a delivery went; PENDING tries again after the delay.

        False, and nothing written, if it has been claimed again since.
        """

    async def alert_deliveries(
        self, limit: int = 100, *, before: int | None = None, channel: str | None = None
    ) -> list[Delivery]:
        """Newest first; those with a smaller id than `before`."""

    async def forget_deliveries(self, before: Instant, limit: int) -> int:
        """Remove deliveries that ended before, from among the `limit` oldest; how many it was."""


class Undeliverable(Exception):
    """A notice did not arrive. `again`: another attempt may bring it."""

    def __init__(self, message: str, *, again: bool = True, response_code: int | None = None) -> None:
        super().__init__(message)
        self.again, self.response_code = again, response_code


class Courier(Protocol):
    """Brings a notice to a channel of one kind."""

    async def send(self, channel: Channel, notice: Mapping[str, Any], delivery_id: str) -> int | None:
        """The response code, where there is one. Undeliverable says why it did not arrive, and whether to try again.

        The id is the same for every attempt, so that a receiver can tell a repeat.
        """
