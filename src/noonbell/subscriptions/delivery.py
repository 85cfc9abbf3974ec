"""The loop that delivers events to webhook subscriptions: at least once, and in order per run.

Every node runs it. A subscription is held by one node at a time, by a lease on its row; the others stand by.

    tick ──▶ take or renew leases ──▶ for each subscription that has something to do: a task of its own
    task ──▶ read events after the position ──▶ filter ──▶ send, keys beside each other ──▶ one transaction, fenced ──▶ again

A pass sends up to 100 deliveries. Its transaction writes what was delivered, what failed and waits, what waits behind that,
and the new position. So a failing event holds back its own run and nothing else, until 1,000 deliveries wait: then the
subscription reads no further. An event is sent only after the one before it, of the same run, was answered with 2xx.

    K34  died after a delivery, before the position is written    the next holder sends the same events again
    K35  died when the position was written                       the next holder goes on behind them
    held up for longer than the lease                             another has sent the same events; what it writes is refused
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from noonbell.clock import SECOND, Instant
from noonbell.engine import failpoint
from noonbell.engine.loop_runner import Signal
from noonbell.errors import StoreUnavailable
from noonbell.model.event import WHOLE, Event, EventPage, Position
from noonbell.model.subscription import (
    KEPT,
    WINDOW,
    DeliveryAttempt,
    DeliveryStep,
    HeldSubscription,
    RetryRules,
    Subscription,
    WebhookAnswer,
    WebhookDelivery,
)
from noonbell.model.task import TaskId
from noonbell.policy import subscriptions as policy
from noonbell.ports import EVENTS, Store, Wakeup
from noonbell.subscriptions.sender import WebhookPoster, cloud_event

logger = logging.getLogger("noonbell.subscriptions")

HELD: Final = 6.0
"""Seconds for which a subscription is held; a node that is gone is replaced after that."""
_POLL: Final = 1.0
_APART: Final = 0.25
"""Seconds between two ticks, at least."""
_NONE_ACTIVE: Final = 2.0
"""Seconds between two looks where there is no active subscription."""
_UPKEEP: Final = 30.0
_WRITE_ANYWAY: Final = 5.0
"""Seconds after which a position is written that passed over events which are not wanted."""
_CONCURRENCY: Final = 8
"""Requests to one receiver at a time."""
_DOWN_AFTER: Final = 8
"""Failures in a row after which the rest of a pass is not tried, but waits for the next one."""
_FIRST_ROWS, _MOST_ROWS = 16, 256
"""Rows of events that are read at once: one may tell of hundreds of runs."""
_EVENTS_A_PAGE: Final = 1_000
"""About how many events are read at once: more would hold up the event loop."""
_REMOVED_AT_ONCE: Final = 1_000


class _Held:
    """A subscription in this node's hands."""

    def __init__(self, held: HeldSubscription, until: float) -> None:
        self.subscription, self.state = held.subscription, held.state
        self.read_to = held.state.read_to
        """May be ahead of the position that is written: over events that are not wanted."""
        self.missed = 0
        self.held_until = until
        self.written_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None
        self.upkeep_at = 0.0
        self.events: list[Event] = []
        """Of the page that was read last; those before `place` are dealt with."""
        self.place = 0
        self.upto = self.read_to
        """Where that page ends."""
        self.is_full = False
        self.rows = _FIRST_ROWS

    @property
    def name(self) -> str:
        return self.subscription.name

    @property
    def has_more(self) -> bool:
        """There are events to read at once."""
        return self.place < len(self.events) or self.is_full

    def pass_over(self, found: Sequence[int], taken: int) -> None:
        """`taken` of the events that were `found` are dealt with, and so are those between them that are not wanted."""
        if taken < len(found):
            self.place = found[taken - 1] + 1 if taken else self.place
        elif len(found) == policy.AT_ONCE:
            self.place = found[-1] + 1
        else:
            self.place = len(self.events)
        if self.place == len(self.events):
            self.read_to = max(self.read_to, self.upto)
        elif self.place:
            last = self.events[self.place - 1]
            self.read_to = max(self.read_to, Position(last.seq, last.index))


class SubscriptionLoop:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        poster: WebhookPoster,
        *,
        installation_id: Callable[[], Awaitable[str | None]],
        rules: RetryRules | None = None,
        keep: float = 604_800.0,
        name: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        observe: Callable[[str, str], None] | None = None,
    ) -> None:
        """`observe` is called with the name of the subscription and the outcome of each attempt: delivered or failed."""
        self._store, self._wakeup, self._poster, self._monotonic = store, wakeup, poster, monotonic
        self._installation_id, self._rules, self._keep = installation_id, rules or RetryRules(), keep
        self._observe = observe
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._source = ""
        self._held: dict[str, _Held] = {}
        self._taken_at = -HELD
        self._labels: dict[TaskId, Mapping[str, str]] = {}
        self._page: tuple[tuple[int, int], EventPage] | None = None
        self._newest = 0
        """The number of the newest event, as of the last tick."""
        self._ticked_at = 0.0
        self._signal = Signal()
        self._is_closing = False

    async def tick(self) -> float:
        now = self._ticked_at = self._monotonic()
        if now - self._taken_at >= HELD / 3:
            await self._take(now)
        if not self._held:
            return _NONE_ACTIVE
        self._newest = await self._store.last_event()
        instant = await self._store.now()
        self._labels = {}
        for held in list(self._held.values()):
            if held.task is not None and held.task.done():
                held.task = None
            if held.task is None and self._has_work(held, instant, now):
                held.task = asyncio.create_task(self._deliver(held), name=f"noonbell subscription {held.name}")
        return _POLL

    async def wait(self, seconds: float) -> None:
        """While events keep coming, a few ticks a second: to number events takes a write."""
        if not self._held:
            await self._signal.wait(seconds)
            return
        await asyncio.sleep(max(0.0, self._ticked_at + _APART - self._monotonic()))
        waits: list[asyncio.Future[bool]] = [
            asyncio.ensure_future(self._wakeup.wait((EVENTS,), seconds)),
            asyncio.ensure_future(self._signal.wait(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def idle(self) -> None:
        """Until the deliveries that the last tick began are over."""
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def soon(self) -> None:
        """A subscription was changed here: look at once."""
        self._taken_at = -HELD
        self._signal.notify()

    async def close(self) -> None:
        """What is on its way may end; the subscriptions are free for others."""
        self._is_closing = True
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._held:
            with contextlib.suppress(StoreUnavailable):
                await self._store.leave_subscriptions(self.name)
        self._held = {}

    # Holding

    async def _take(self, now: float) -> None:
        known = {name: held.state for name, held in self._held.items()}
        is_any = any(each.subscription.active for each in await self._store.subscriptions())
        taken = await self._store.take_subscriptions(self.name, HELD) if is_any else []
        self._taken_at = now
        if not self._source and taken:
            self._source = f"/installations/{await self._installation_id() or 'unknown'}"
        names = {each.subscription.name for each in taken}
        for held in [held for held in self._held.values() if held.name not in names]:
            del self._held[held.name]
        for each in taken:
            there = self._held.get(each.subscription.name)
            if there is None or there.state.token != each.state.token:
                self._held[each.subscription.name] = _Held(each, now + HELD)
                if there is not None:
                    self._held[each.subscription.name].task = there.task
            else:
                there.held_until = now + HELD
                if there.state is known.get(there.name) and (there.task is None or there.task.done()):
                    there.state = each.state  # a replay may have made something due

    def _has_work(self, held: _Held, instant: Instant, now: float) -> bool:
        is_due = held.state.next_at is not None and held.state.next_at <= instant
        return is_due or self._has_news(held) or now >= held.upkeep_at

    def _has_news(self, held: _Held) -> bool:
        return not held.state.failures and held.state.pending < WINDOW and held.read_to < Position(self._newest)

    def _let_go(self, held: _Held) -> None:
        """The next tick takes what is to be had, with what is written of it."""
        if self._held.get(held.name) is held:
            del self._held[held.name]
            self._taken_at = -HELD

    def is_ours(self, held: _Held) -> bool:
        return (
            not self._is_closing
            and self._held.get(held.name) is held
            and self._monotonic() < held.held_until
            and held.subscription.active
        )

    # Delivering

    async def _deliver(self, held: _Held) -> None:
        try:
            if self._monotonic() >= held.upkeep_at:
                held.upkeep_at = self._monotonic() + _UPKEEP
                before = Instant(await self._store.now() - round(self._keep * SECOND))
                await self._store.forget_webhooks(held.name, before, KEPT, _REMOVED_AT_ONCE)
            while self.is_ours(held) and await self._pass(held):
                pass
            if self._has_news(held):
                self._signal.notify()  # they came when the last page had been read
        except StoreUnavailable as error:
            logger.warning("subscription %s waits for the store: %s", held.name, error.message)
            self._let_go(held)
        except Exception:  # any error: the next tick takes it anew
            logger.exception("delivering for subscription %s failed", held.name)
            self._let_go(held)

    async def _pass(self, held: _Held) -> bool:
        """Whether there may be more to do at once."""
        state, now = held.state, await self._store.now()
        is_due = state.next_at is not None and state.next_at <= now
        is_down = state.failures > 0
        if is_down and not is_due:
            return False
        waiting = await self._store.waiting_deliveries(held.name) if state.pending else []
        room = max(0, WINDOW - len(waiting))
        found = await self._read(held) if room else []
        new = [self._delivery(held, held.events[place]) for place in found]
        planned = policy.plan(waiting, new, now, is_down=is_down, room=room)
        attempts = await self._send(held, planned)
        if room:
            held.pass_over(found, planned.taken)
        if attempts:
            failpoint.hit("K34")
        if not await self._write(held, attempts):
            return False
        return not held.state.failures and (bool(attempts) or held.has_more)

    async def _read(self, held: _Held) -> list[int]:
        """The places of the next events that are wanted, as many as one pass may send, among those that `held` has read."""
        if held.place == len(held.events):
            await self._read_page(held)
        labels = await self._labels_of(held.events[held.place :]) if held.subscription.labels else {}
        found: list[int] = []
        for place in range(held.place, len(held.events)):
            if len(found) == policy.AT_ONCE:
                break
            if policy.wants(held.subscription, held.events[place], labels):
                found.append(place)
        return found

    async def _read_page(self, held: _Held) -> None:
        after = held.read_to
        is_whole = after.index == WHOLE
        page = await self._page_after(after.seq if is_whole else after.seq - 1, held.rows)
        held.missed += _missed(page, after, is_whole=is_whole)
        held.events = [event for event in page.events if (event.seq, event.index) > (after.seq, after.index)]
        held.place, held.upto, held.is_full = 0, Position(page.upto), page.is_full
        held.rows = _fitting(held.rows, page)

    async def _page_after(self, seq: int, rows: int) -> EventPage:
        """Subscriptions that stand at the same place share what is read."""
        kept = self._page
        if kept is not None and kept[0] == (seq, rows) and kept[1].newest >= self._newest:
            return kept[1]
        page = await self._store.event_page(seq, rows)
        self._page = ((seq, rows), page)
        return page

    async def _labels_of(self, events: Sequence[Event]) -> Mapping[TaskId, Mapping[str, str]]:
        unknown = {event.task_id for event in events if event.task_id is not None} - self._labels.keys()
        if unknown:
            found = {task.id: task.spec.labels for task in await self._store.tasks_by_id(sorted(unknown))}
            self._labels.update({task_id: found.get(task_id, {}) for task_id in unknown})
        return self._labels

    def _delivery(self, held: _Held, event: Event) -> WebhookDelivery:
        return WebhookDelivery(
            subscription=held.name,
            event_seq=event.seq,
            event_index=event.index,
            type=event.type,
            order_key=policy.order_key(event),
            body=cloud_event(event, self._source).decode(),
        )

    async def _send(self, held: _Held, planned: policy.SendPlan) -> list[DeliveryAttempt]:
        kept = [delivery.id for group in planned.groups for delivery in group if delivery.id]
        bodies = await self._store.webhook_bodies(kept) if kept else {}
        sending = _Sending(self, held, bodies)
        await asyncio.gather(*(sending.group(group) for group in planned.groups))
        held_back = [DeliveryAttempt(delivery=each, answer=None) for each in planned.held]
        return [*sending.attempts, *held_back]

    async def _write(self, held: _Held, attempts: Sequence[DeliveryAttempt]) -> bool:
        """False if it is not ours any more: what was sent will be sent again by another."""
        now = self._monotonic()
        is_idle = not attempts and not held.missed
        if is_idle and (held.read_to == held.state.read_to or now - held.written_at < _WRITE_ANYWAY):
            return True
        step = DeliveryStep(read_to=held.read_to, attempts=tuple(attempts), missed=held.missed)
        told = HeldSubscription(subscription=held.subscription, state=held.state)
        state = await self._store.settle_deliveries(told, step, self._rules)
        if state is None:
            self._let_go(held)
            return False
        if attempts:
            failpoint.hit("K35")
        if held.missed:
            logger.warning(
                "subscription %s: %d entries of the event log were removed before they could be delivered",
                *(held.name, held.missed),
            )
        held.state, held.written_at, held.missed = state, now, 0
        if state.disabled_at is not None:
            logger.warning("subscription %s is disabled: %s", held.name, state.disabled_reason)
            self._let_go(held)
            return False
        return True

    async def post(self, subscription: Subscription, message_id: str, body: bytes) -> WebhookAnswer:
        answer = await self._poster.post(subscription, message_id, body)
        if self._observe is not None:
            self._observe(subscription.name, "delivered" if answer.error is None else "failed")
        return answer


class _Sending:
    """One pass: groups beside each other, each in its order."""

    def __init__(self, loop: SubscriptionLoop, held: _Held, bodies: Mapping[int, str]) -> None:
        self._loop, self._held, self._bodies = loop, held, bodies
        self._places = asyncio.Semaphore(_CONCURRENCY)
        self.attempts: list[DeliveryAttempt] = []
        self._in_a_row = 0
        """Failures since the last success."""

    async def group(self, group: Sequence[WebhookDelivery]) -> None:
        goes_on = True
        for delivery in group:
            answer = None
            if goes_on:
                async with self._places:
                    if self._in_a_row < _DOWN_AFTER and self._loop.is_ours(self._held):
                        answer = await self._post(delivery)
            goes_on = answer is not None and answer.error is None
            if answer is not None or not delivery.id:
                self.attempts.append(DeliveryAttempt(delivery=delivery, answer=answer))

    async def _post(self, delivery: WebhookDelivery) -> WebhookAnswer:
        body = self._bodies.get(delivery.id, "") if delivery.id else delivery.body
        answer = await self._loop.post(self._held.subscription, delivery.message_id, body.encode())
        if answer.error is None:
            self._in_a_row = 0
        else:
            self._in_a_row += 1
            logger.info("subscription %s: event %s: %s", self._held.name, delivery.event_id, answer.error)
        return answer


def _fitting(rows: int, page: EventPage) -> int:
    """How many rows to read next, so that they hold about as many events as a page should."""
    if len(page.events) > 2 * _EVENTS_A_PAGE:
        return max(1, rows // 2)
    return min(_MOST_ROWS, rows * 2) if page.is_full and len(page.events) < _EVENTS_A_PAGE // 2 else rows


def _missed(page: EventPage, after: Position, *, is_whole: bool) -> int:
    """Entries that were removed between the position and the first that is still there."""
    if not page.has_gap:
        return 0
    goes_on_at = page.events[0].seq if page.events else page.upto + 1
    return max(0, goes_on_at - after.seq - 1) if is_whole else max(0, goes_on_at - after.seq)
