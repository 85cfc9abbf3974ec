"""Alerting: one loop reads events, finds what is overdue, raises alerts and sends their notices to channels.

Every node runs the loop. The node that holds the duty `alerts` does the work; the others stand by and take over when its
lease runs out. One transaction writes what a pass decided and how far it read, fenced by the duty's token.

    died before the write             nothing was raised; the next holder reads the same events
    died after it                     the deliveries are written; the next holder sends them
    held up, then goes on             its token is old: the store refuses what it writes; a delivery is claimed by its count
    died between claim and settling   the delivery comes due again with the same id: a receiver can drop the second copy

A store that does not answer cannot be asked for rules: each node keeps them in memory and reports the outage by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from noonbell.alerts.channel_kind import Undeliverable
from noonbell.alerts.channels import ChannelSender
from noonbell.alerts.wording import in_language, message_of
from noonbell.clock import SECOND, Clock, Instant, SystemClock
from noonbell.engine.loop_runner import Backoff
from noonbell.errors import StoreUnavailable
from noonbell.model.alert import (
    AlertDelivery,
    AlertMessage,
    AlertMessageType,
    AlertState,
    AlertStep,
    Channel,
    DeliveryStatus,
    LeaderLease,
    Mute,
    OverdueTask,
    Rule,
    RuleKind,
)
from noonbell.model.calendar import QuietAction
from noonbell.model.event import Event
from noonbell.model.failure_text import CAUSE, SAID, failure_text, said_in
from noonbell.policy import alerts
from noonbell.policy.alerts import Pass
from noonbell.policy.quiet import quiet_at
from noonbell.ports import Store

logger = logging.getLogger("noonbell.alerts")

DUTY = "alerts"
_HELD = 6.0
"""Seconds for which the duty is held; a node that is gone is replaced after that."""
_POLL = 1.0
_SELDOM = 5.0
"""Seconds between two looks that cost more: late starts, slow runs, silent workers."""
_UPKEEP = 30.0
_PATIENCE = 5.0
"""Seconds that the store may take to answer the first question of a tick."""
_PAGES = 20
_LIMIT = 100
_LOOKED_UP = 100
"""Failed runs of which the error is read, in one pass."""
_WRITE_ANYWAY = 5.0
_LOG_KEPT = 30 * 86_400.0
_REMOVED_AT_ONCE = 500
_REMOVALS = 60
"""Batches that go in one upkeep: a thousand rows a second, and the watch is not kept waiting for long."""


class AlertLoop:
    def __init__(
        self,
        store: Store,
        sender: ChannelSender,
        *,
        retention: float = 90_000.0,
        name: str | None = None,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        """`observe` is called with the outcome of each delivery's attempt."""
        self._store, self._retention, self._monotonic = store, retention, monotonic
        self._clock = clock or SystemClock()
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.deliveries = DeliverySender(store, sender, observe, monotonic, self._clock)
        self._rules: list[Rule] = []
        self._channels: list[Channel] = []
        self._mutes: list[Mute] = []
        self._duty: LeaderLease | None = None
        self._held_until = 0.0
        self._position = 0
        self._written_at = 0.0
        self._seldom_at = 0.0
        self._upkeep_at = 0.0
        self._away_since: float | None = None
        self._away_told = False
        self._backoff = Backoff(_POLL, 5.0)

    async def tick(self) -> float:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._learn()
            await self._watch()
        except (StoreUnavailable, TimeoutError) as error:
            await self._missing(str(error) or "no answer")
            return self._backoff.pause()
        await self._found()
        self._backoff.reset()
        return _POLL

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """What is on its way is finished; the duty is free for others."""
        await self.deliveries.close()
        if self._duty is not None:
            await self._store.leave_duty(DUTY, self.name)

    async def _learn(self) -> None:
        self._rules = [rule for rule in await self._store.alert_rules() if rule.enabled]
        self._channels = await self._store.alert_channels()
        self._mutes = await self._store.alert_mutes()
        channels = {channel.name: channel for channel in self._channels if channel.enabled}
        if channels != self.deliveries.channels:
            self.deliveries.channels = channels
            self.deliveries.soon()  # what the quiet hours of one held may be due

    # The work of the one who has the duty

    async def _watch(self) -> None:
        now = self._monotonic()
        if now < self._upkeep_at and not self._rules and not self.deliveries.is_due(now):
            return
        if not await self._take(now):
            return
        if now >= self._upkeep_at:
            self._upkeep_at = now + _UPKEEP
            await self._upkeep()
        if self._rules:
            await self._judge(now)
        await self.deliveries.send()

    async def _take(self, now: float) -> bool:
        """Hold the duty. Taken again when a third of its time is gone, not at every look."""
        if self._duty is None or now > self._held_until - 2 / 3 * _HELD:
            duty = await self._store.take_duty(DUTY, self.name, _HELD)
            if duty is not None and (self._duty is None or self._duty.token != duty.token):
                self._position, self._written_at = duty.position, now
                self.deliveries.soon()  # the last holder may have left some
            self._duty, self._held_until = duty, now + _HELD
        return self._duty is not None

    async def _judge(self, now: float) -> None:
        for rule in self._rules:
            alerts.concerns(rule, "")  # compiles its patterns, unless they are known
            await asyncio.sleep(0)
        states = {(state.rule, state.subject): state for state in await self._store.alert_states()}
        acknowledged = {(one.rule, one.subject) for one in await self._store.acknowledgements()} if states else set()
        for _ in range(_PAGES):
            types = alerts.types_wanted(self._rules, states.values())
            page = await self._store.event_page(self._position, 500, types)
            labels = await self._labels([*states.values(), *page.events])
            judged = Pass(
                self._rules, sorted(self.deliveries.channels), states, labels, self._mutes, frozenset(acknowledged)
            )
            for event in await self._explained(page.events):
                judged.hear(event)
                await asyncio.sleep(0)  # others have their turn: many rules with many patterns take milliseconds
            if not page.is_full:
                await self._look(judged, now)
            if not await self._write(judged, page.upto, now):
                return
            if not page.is_full:
                return

    async def _look(self, judged: Pass, now: float) -> None:
        """What no event tells: what has not happened."""
        instant = await self._store.now()
        is_seldom = now >= self._seldom_at
        if is_seldom:
            self._seldom_at = now + _SELDOM
        for rule in self._rules:
            late: Sequence[OverdueTask]
            if rule.kind is RuleKind.OVERDUE:
                late = await self._store.overdue_tasks(rule.patience, _LIMIT)
            elif rule.kind is RuleKind.LATE_START and is_seldom:
                late = await self._store.waiting_tasks(rule.patience, _LIMIT)
            elif rule.kind is RuleKind.SLOW and is_seldom:
                late = await self._store.slow_tasks(rule.patience, rule.factor)
            else:
                continue
            judged.labels = {**judged.labels, **await self._labels(late)}
            judged.read(rule, late, instant, is_whole=len(late) < _LIMIT)
        judged.tell_unmuted(instant)

    async def _labels(self, concerned: Sequence[AlertState | Event | OverdueTask]) -> Mapping[int, Mapping[str, str]]:
        """The labels of the tasks that these are about, where a rule or a mute asks for labels."""
        if not any(rule.labels for rule in self._rules) and not any(mute.labels for mute in self._mutes):
            return {}
        return await self._store.labels_of_tasks({one.task_id for one in concerned if one.task_id is not None})

    async def _write(self, judged: Pass, upto: int, now: float) -> bool:
        """False if the duty was lost: what was judged is void."""
        step = judged.step()
        is_idle = not (step.states or step.closed or step.notices or step.told)
        if self._duty is None or (is_idle and now - self._written_at < _WRITE_ANYWAY):
            self._position = upto
            return self._duty is not None
        if is_idle and upto == self._position:
            return True
        if not await self._store.alert(self._duty, upto, step):
            self._duty = None
            return False
        self._position, self._written_at = upto, now
        for what, state in step.told:
            logger.info("%s: %s %s %s", what, state.rule, state.task_name or state.subject, state.message)
        if step.notices:
            self.deliveries.soon()
        return True

    async def _explained(self, events: Sequence[Event]) -> list[Event]:
        """Failed runs with what went wrong, as far as there are not too many."""
        explained = []
        looked_up = 0
        for event in events:
            told = event
            if event.type == "run.failed" and event.run_id is not None and looked_up < _LOOKED_UP:
                looked_up += 1
                run = await self._store.run(event.run_id)
                if run is not None:
                    details = run.error_details or {}
                    more = {name: details.get(name) for name in ("kind", SAID, CAUSE)}
                    error = (run.error_message or "")[:500]
                    told = msgspec.structs.replace(event, data={**event.data, "error": error, **more})
            explained.append(told)
        return explained

    async def _upkeep(self) -> None:
        await self._store.notice_workers()
        newest = await self._store.last_event()  # gives numbers, so that a first listener finds little left to do
        if not self._rules and self._duty is not None and newest != self._position:
            # There is no rule: that is made later begins here, not in the past.
            await self._store.alert(self._duty, newest, AlertStep())
            self._position = newest
        now = await self._store.now()
        before = Instant(now - round(self._retention * SECOND))
        for _ in range(_REMOVALS):
            if await self._store.forget_events(before, _REMOVED_AT_ONCE) < _REMOVED_AT_ONCE:
                break
            await asyncio.sleep(0.05)  # others want to write, too
        await self._store.forget_mutes()
        await self._store.forget_deliveries(Instant(now - round(_LOG_KEPT * SECOND)), _REMOVED_AT_ONCE)
        self.deliveries.soon()

    # The store itself

    async def _missing(self, said: str) -> None:
        now = self._monotonic()
        self._duty = None
        if self._away_since is None:
            self._away_since = now
        rule = self._store_rule()
        if rule is not None and not self._away_told and now - self._away_since >= rule.patience:
            self._away_told = True
            facts = {"node": self.name, "error": said}
            await self._tell_store(rule, AlertMessageType.RAISED, "store_away", facts)

    async def _found(self) -> None:
        if self._away_since is None:
            return
        seconds = self._monotonic() - self._away_since
        rule = self._store_rule()
        if self._away_told and rule is not None:
            facts = {"node": self.name, "seconds": round(seconds)}
            await self._tell_store(rule, AlertMessageType.RECOVERED, "store_back", facts)
        self._away_since, self._away_told = None, False

    def _store_rule(self) -> Rule | None:
        return next((rule for rule in self._rules if rule.kind is RuleKind.STORE), None)

    async def _tell_store(self, rule: Rule, what: AlertMessageType, code: str, facts: dict[str, Any]) -> None:
        """At once and past the log, since that is kept in the store."""
        now = self._clock.now()
        away = self._monotonic() - (self._away_since or self._monotonic())
        state = AlertState(
            rule=rule.name,
            subject="store",
            count=1,
            since=Instant(now - round(away * SECOND)),
            told_at=now,
            message=alerts.in_english(code, facts),
            code=code,
            facts=facts,
        )
        logger.warning("%s: %s", what, state.message)
        now = self._clock.now()
        if alerts.mute_of([mute for mute in self._mutes if mute.until > now], state, {}) is not None:
            return
        channels = [c for name, c in self.deliveries.channels.items() if not rule.channels or name in rule.channels]
        await self.deliveries.send_directly(channels, alerts.notice(what, rule, state))


MOST_ATTEMPTS = 8
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
_AT_ONCE = 20
_CLAIMED = 60.0
"""Seconds: longer than any sender takes."""


def pause_after(attempts: int) -> float:
    """Seconds to the next attempt: 5, 10, 20 … 320."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempts - 1)))


class DeliverySender:
    def __init__(
        self,
        store: Store,
        sender: ChannelSender,
        observe: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Clock | None = None,
    ) -> None:
        self._store, self._sender, self._observe, self._monotonic = store, sender, observe, monotonic
        self.channels: Mapping[str, Channel] = {}
        """Those that are in use, by name."""
        self._now = (clock or SystemClock()).now
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

    async def _send_all(self, claimed: Sequence[AlertDelivery]) -> None:
        await asyncio.gather(*(self._send_one(delivery) for delivery in claimed))

    async def _send_one(self, delivery: AlertDelivery) -> None:
        try:
            await self._attempt(delivery)
        except StoreUnavailable as error:
            logger.warning(
                "delivery %d could not be recorded: %s; it may be delivered twice", delivery.id, error.message
            )
        except Exception:
            logger.exception("delivery %d failed", delivery.id)

    async def _attempt(self, delivery: AlertDelivery) -> None:
        channel = self.channels.get(delivery.channel)
        if channel is not None and channel.quiet:
            if await self._rests(delivery):
                return
            # It may have changed since the channels were read.
            there = (one for one in await self._store.alert_channels() if one.name == delivery.channel and one.enabled)
            channel = next(there, None)
        try:
            if channel is None:
                raise Undeliverable(failure_text("alert_no_channel", name=delivery.channel), again=False)
            code = await self._sender.send(
                channel, in_language(message_of(delivery), channel.language), f"alert_{delivery.id}"
            )
        except Undeliverable as problem:
            await self._failed(delivery, problem)
        except Exception as error:  # a fault of ours: without an end, it would be tried again for ever
            logger.exception("delivery %d failed", delivery.id)
            await self._failed(delivery, Undeliverable(failure_text("alert_fault", error=type(error).__name__)))
        else:
            self._note("delivered")
            await self._store.settle_delivery(delivery, DeliveryStatus.DELIVERED, response_code=code)

    async def _rests(self, delivery: AlertDelivery) -> bool:
        """In quiet hours of the channel: it is put off until they end, which counts as no attempt, or skipped."""
        status = await self._store.rest_delivery(delivery)
        if status is DeliveryStatus.SKIPPED:
            self._note("skipped")
        elif status is DeliveryStatus.PENDING:
            seconds = await self._store.next_delivery()
            due_at = self._monotonic() + (seconds or 0)
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
        return status is not None

    async def _failed(self, delivery: AlertDelivery, problem: Undeliverable) -> None:
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
            error=said_in(problem),
            response_code=problem.response_code,
        )

    def _note(self, outcome: str) -> None:
        if self._observe is not None:
            self._observe(outcome)

    async def send_directly(self, channels: Sequence[Channel], notice: AlertMessage) -> None:
        """Once to each, without the store; also in quiet hours that hold, for there is no place to keep it."""

        async def one(channel: Channel) -> None:
            quiet = quiet_at(channel.quiet, "UTC", self._now())
            if quiet is not None and quiet.action is QuietAction.SKIP:
                return
            try:
                written = in_language(msgspec.to_builtins(notice), channel.language)
                await self._sender.send(channel, written, f"alert_{secrets.token_hex(8)}")
                self._note("delivered")
            except Undeliverable as problem:
                self._note("failed")
                logger.warning("channel %s: %s", channel.name, problem)

        await asyncio.gather(*(one(channel) for channel in channels))
