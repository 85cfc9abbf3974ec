"""The claim loop: brings leases in and outcomes out, both in one trip to the store where there are both.

    tick: take ended outcomes, reserve room ─▶ settle and claim in one transaction ─▶ signals for others, leases into `InFlight`

An idle worker claims a run the moment that its signal comes, and settles an outcome the moment that its attempt ends. Under
load a trip takes a while, and what ends meanwhile goes with the next one: the batches grow with the load by themselves. A
worker has a few of these loops, so that one can be on its way while another comes back.

    K3  died after a claim    the leases run out; the sweep gives the runs to others
    K7  died after a settle   what follows from it was written in the same transaction; only the signals are missing
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from noonbell.clock import SECOND, read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import PauseCheck, TaskCache
from noonbell.engine.heartbeat import Heartbeat
from noonbell.engine.in_flight import STALE, EndedAttempt, InFlight, renewal_seconds
from noonbell.engine.loop_runner import AsideSignal, StoreClock, batch_done
from noonbell.engine.settle import unwritable
from noonbell.errors import StoreUnavailable
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Lease, Origin, RunId, Settlement, SettleResult, Transition
from noonbell.model.task import TaskId
from noonbell.ports import PLAN, Store, Wakeup, queue_topic

logger = logging.getLogger("noonbell.engine")

_LONG = 60.0
_TURNS = 8
"""Turns of the event loop that a trip lets pass while short runs are ending by the dozen: it then carries more."""

SettledAttempt = tuple[Lease, Settlement, SettleResult, float | None]
"""The last is how many seconds the target took; None if it did not end by itself."""
Observe = Callable[[Sequence[SettledAttempt]], None]
"""Gets every settlement with the store's answer, a batch at a time."""


class ClaimLoop:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        tasks: TaskCache,
        in_flight: InFlight,
        heartbeat: Heartbeat,
        request: ClaimRequest,
        *,
        poll: float,
        observe: Observe | None = None,
        pause_check: PauseCheck | None = None,
    ) -> None:
        """`request.max` is the largest batch. A loop with a `poll` below infinity finds runs whose signal was lost."""
        self._store, self._wakeup, self._tasks = store, wakeup, tasks
        self._in_flight, self._heartbeat = in_flight, heartbeat
        self._request, self._poll, self._observe = request, min(poll, _LONG), observe
        self._pause_check = pause_check or PauseCheck(store)
        self._clock = StoreClock(store)
        self._aside = AsideSignal(wakeup, self._clock)

    def claim_from(self, queues: Sequence[str]) -> None:
        """Claim from these queues, from the next trip on."""
        self._request = msgspec.structs.replace(self._request, queues=tuple(queues))

    async def tick(self) -> float:
        """One trip: settle what has ended, claim what there is room for. Seconds to wait; 0 = there may be more."""
        in_flight = self._in_flight
        in_flight.hand_back_waiting(STALE)
        for _ in range(_TURNS):
            if not in_flight.has_more_soon(self._request.max):
                break
            await asyncio.sleep(0)
        ended = in_flight.take_ended(self._request.max)
        room = in_flight.reserve(self._request.max)
        if not ended and not room:
            return self._poll
        asked_at = read_monotonic()
        try:
            claimed = await self._trip(ended, room)
        finally:
            in_flight.unreserve(room)
        batch_done()
        if claimed.is_paused:
            in_flight.hand_back_waiting()
        elif room:
            self._pause_check.found_open(asked_at)
        for queue in claimed.split:
            self._wakeup.signal(queue_topic(queue))
        if claimed.leases:
            failpoint.hit("K3")
            await self._hold(claimed.leases, asked_at)
        await self._aside.tell(claimed.aside_until)
        if room and len(claimed.leases) >= room:
            in_flight.changed.notify()  # there is more than one trip can carry: let another loop go as well
            return 0.0
        return 0.0 if in_flight.take_refused() or in_flight.has_ended else await self._pause(claimed)

    async def wait(self, seconds: float) -> None:
        await self._in_flight.changed.wait(seconds)

    async def _pause(self, claimed: Claimed) -> float:
        if claimed.next_at is None:
            return self._poll
        await self._clock.refresh()
        return max(0.001, min(self._poll, self._clock.until(claimed.next_at) + 0.001))

    # In

    async def _hold(self, leases: Sequence[Lease], asked_at: float) -> None:
        try:
            await self._tasks.load(leases)
        except StoreUnavailable:
            pass  # they are ours all the same; each attempt reads its task when it starts
        finally:
            passed = read_monotonic() - asked_at
            spans = {lease.expires_at - lease.claimed_at for lease in leases}
            if min(spans) / SECOND / 3 > passed:
                due = []
            else:
                due = [lease for lease in leases if passed >= renewal_seconds(lease)]
            self._add(leases if not due else [lease for lease in leases if passed < renewal_seconds(lease)])
        if due:
            self._add(await self._renewed(due, asked_at))

    def _add(self, leases: Sequence[Lease]) -> None:
        known: dict[tuple[TaskId, int, int], float] = {}  # one claim gives the runs of a task leases of one length

        def ping_seconds(lease: Lease) -> float:
            key = lease.task_id, lease.task_version, lease.expires_at - lease.claimed_at
            seconds = known.get(key)
            if seconds is None:
                seconds = known[key] = self._ping_seconds(lease)
            return seconds

        self._heartbeat.expect(self._in_flight.add(leases, ping_seconds))

    def _ping_seconds(self, lease: Lease) -> float:
        task = self._tasks.get(lease)
        third = renewal_seconds(lease)
        return third if task is None else min(third, task.spec.ping_interval_ms / 1000)

    async def _renewed(self, due: Sequence[Lease], asked_at: float) -> list[Lease]:
        """Of leases whose heartbeat is due before they are held: those that no other worker can have by now.

        Either the store took long to answer, or the event loop was blocked when the answer came.
        """
        lost: set[RunId] = set()
        since = read_monotonic()
        try:
            answer = await self._store.heartbeat(self._request.worker_id, [(one.run_id, one.token) for one in due])
            lost = {order.run_id for order in answer.orders if order.lease_expires_at is None}
        except StoreUnavailable:
            since = asked_at
        passed = read_monotonic() - since
        ours = [lease for lease in due if lease.run_id not in lost and passed < 3 * renewal_seconds(lease)]
        if len(ours) < len(due):
            logger.warning("%d runs are not started: their leases expired during the claim", len(due) - len(ours))
        return ours

    # Out

    async def _trip(self, ended: list[EndedAttempt], room: int) -> Claimed:
        settlements = [settlement for _, settlement in ended]
        request = msgspec.structs.replace(self._request, max=room)
        try:
            if not ended:
                return await self._store.claim(request)
            if room:
                answers, claimed = await self._store.settle_and_claim(settlements, request)
            else:
                answers, claimed = await self._store.settle(settlements), Claimed([])
        except StoreUnavailable:
            self._in_flight.put_back(ended)
            raise
        except Exception as error:
            if not ended:
                raise
            logger.warning("a batch of outcomes was refused (%s); they are settled one by one", error)
            await self._one_by_one(ended)
            return Claimed([])
        except BaseException:
            self._in_flight.put_back(ended)
            raise
        self._settled(ended, answers)
        return claimed

    async def _one_by_one(self, ended: list[EndedAttempt]) -> None:
        """Settle outcomes one by one: one that the store cannot take must not keep the others from being settled."""
        rest = list(ended)
        try:
            while rest:
                state, settlement = rest[0]
                answers = await self._settle_one(settlement)
                rest.pop(0)
                batch_done()
                self._settled([(state, settlement)], answers)
        finally:
            self._in_flight.put_back(rest)

    async def _settle_one(self, settlement: Settlement) -> list[SettleResult]:
        try:
            return await self._store.settle([settlement])
        except StoreUnavailable:
            raise
        except Exception as error:
            logger.exception("the outcome of run %d could not be stored", settlement.run_id)
            return await self._store.settle([unwritable(settlement, error)])

    def _settled(self, ended: Sequence[EndedAttempt], answers: Sequence[SettleResult]) -> None:
        if failpoint.is_armed:
            _hit_after(ended)
        self._in_flight.remove(ended)
        if self._observe is not None:
            seen = zip(ended, answers, strict=True)
            self._observe([(state.lease, made, answer, state.latency_seconds) for (state, made), answer in seen])
        topics: set[str] = set()
        for (state, made), answer in zip(ended, answers, strict=True):
            # Where steps or runs with its key wait because of it, the store says by itself.
            is_over = made.transition is Transition.FINISH and (made.plain or made.in_flow or made.keyed)
            if not is_over and answer is SettleResult.DONE:
                topics |= self._topics_after(state.lease, made)
        for topic in sorted(topics):
            self._wakeup.signal(topic)

    def _topics_after(self, lease: Lease, made: Settlement) -> set[str]:
        """The signals for loops that may have something to do because of it; a signal that gets lost costs a poll."""
        task = self._tasks.get(lease)
        schedule = None if task is None else task.spec.schedule
        is_planned = made.transition is Transition.RETRY or (schedule or {}).get("mode") == "fixed_delay"
        return {PLAN, queue_topic(lease.queue)} if is_planned else {queue_topic(lease.queue)}


def _hit_after(ended: Sequence[EndedAttempt]) -> None:
    failpoint.hit("K7")
    for state, made in ended:
        if made.transition is Transition.GATHER:
            failpoint.hit("K19")
        if state.lease.origin is Origin.SPAWN:
            failpoint.hit("K21")
