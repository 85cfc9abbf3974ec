"""Claim: bring work in and outcomes out, both in one trip to the store where there are both.

Idle, a run is claimed the moment that somebody signals it, and its outcome is settled the moment that it ends. Under load
the trips take a while, and what ends meanwhile goes with the next one: the batches grow with the load by themselves.
A worker has a few lanes, so that one can be on its way while another comes back.

    K3  died after a claim    the leases run out; the sweep gives the runs to others
    K7  died after a settle   what follows from it was written in the same transaction; only the signals are missing
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from noonbell.clock import SECOND
from noonbell.engine import failpoint
from noonbell.engine.hold import STALE, Ended, Hands
from noonbell.engine.know import Tasks
from noonbell.engine.measure import StoreTime
from noonbell.engine.progress import batch_done
from noonbell.engine.settle import unwritable
from noonbell.engine.wake import PLAN, Bell, queue_topic
from noonbell.errors import StoreUnavailable
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Lease, RunId
from noonbell.model.settlement import Move, Settled, Settlement
from noonbell.ports import Store, Wakeup

logger = logging.getLogger("noonbell.engine")

_LONG = 60.0
_TURNS = 8
"""Turns of the event loop that a trip lets pass while short runs are ending by the dozen: it then carries more."""

Observe = Callable[[Sequence[tuple[Lease, Settlement, Settled]]], None]
"""Hears of every settlement and what the store made of it, a batch at a time."""


class Lane:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        tasks: Tasks,
        hands: Hands,
        bell: Bell,
        request: ClaimRequest,
        *,
        poll: float,
        observe: Observe | None = None,
    ) -> None:
        """`request.max` is the largest batch. A lane with a `poll` below infinity is the net for lost signals."""
        self._store, self._wakeup, self._tasks, self._hands, self._bell = store, wakeup, tasks, hands, bell
        self._request, self._poll, self._observe = request, min(poll, _LONG), observe
        self._time = StoreTime(store)

    async def tick(self) -> float:
        """One trip: settle what has ended, claim what there is room for. Seconds to wait; 0 = there may be more."""
        hands = self._hands
        hands.hand_back_waiting(STALE)
        for _ in range(_TURNS):
            if not hands.has_more_soon(self._request.max):
                break
            await asyncio.sleep(0)
        ended = hands.ended(self._request.max)
        room = hands.ask(self._request.max)
        if not ended and not room:
            return self._poll
        asked = time.monotonic()
        try:
            claimed = await self._trip(ended, room)
        finally:
            hands.answered(room)
        batch_done()
        for queue in claimed.split:
            self._wakeup.signal(queue_topic(queue))
        if claimed.leases:
            failpoint.hit("K3")
            await self._take(claimed.leases, asked)
        if room and len(claimed.leases) >= room:
            self._bell.ring()  # there is more than one trip can carry: let another lane go as well
            return 0.0
        return 0.0 if hands.missed() or hands.has_ended else await self._pause(claimed)

    async def wait(self, seconds: float) -> None:
        await self._bell.wait(seconds)

    async def _pause(self, claimed: Claimed) -> float:
        if claimed.next_at is None:
            return self._poll
        await self._time.refresh()
        return max(0.001, min(self._poll, self._time.until(claimed.next_at) + 0.001))

    async def _take(self, leases: Sequence[Lease], asked: float) -> None:
        try:
            await self._tasks.learn(leases)
        except StoreUnavailable:
            pass  # they are ours all the same; each asks for its task when it is started
        finally:
            passed = time.monotonic() - asked
            due = [lease for lease in leases if passed >= _seconds(lease) / 3]
            self._hands.take(leases if not due else [lease for lease in leases if passed < _seconds(lease) / 3])
        if due:
            self._hands.take(await self._renewed(due, asked))

    async def _renewed(self, due: Sequence[Lease], asked: float) -> list[Lease]:
        """Of leases whose heartbeat is due before they are in hand: those that no other worker can have by now.

        Either the store took long to answer, or the event loop was blocked when the answer came.
        """
        lost: set[RunId] = set()
        since = time.monotonic()
        try:
            answer = await self._store.heartbeat(self._request.worker_id, [(one.run_id, one.token) for one in due])
            lost = {order.run_id for order in answer.orders if order.lease_expires_at is None}
        except StoreUnavailable:
            since = asked
        passed = time.monotonic() - since
        ours = [lease for lease in due if lease.run_id not in lost and passed < _seconds(lease)]
        if len(ours) < len(due):
            logger.warning("%d runs are not started: their leases ran out during the claim", len(due) - len(ours))
        return ours

    async def _trip(self, ended: list[Ended], room: int) -> Claimed:
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
            self._hands.put_back(ended)
            raise
        except Exception as error:
            if not ended:
                raise
            logger.warning("a batch of outcomes was refused (%s); they are settled one by one", error)
            await self._one_by_one(ended)
            return Claimed([])
        except BaseException:
            self._hands.put_back(ended)
            raise
        self._settled(ended, answers)
        return claimed

    async def _one_by_one(self, ended: list[Ended]) -> None:
        """One outcome that the store cannot take must not keep the others from being settled."""
        rest = list(ended)
        try:
            while rest:
                held, settlement = rest[0]
                answers = await self._settle_one(settlement)
                rest.pop(0)
                batch_done()
                self._settled([(held, settlement)], answers)
        finally:
            self._hands.put_back(rest)

    async def _settle_one(self, settlement: Settlement) -> list[Settled]:
        try:
            return await self._store.settle([settlement])
        except StoreUnavailable:
            raise
        except Exception as error:
            logger.exception("the outcome of run %d could not be stored", settlement.run_id)
            return await self._store.settle([unwritable(settlement, error)])

    def _settled(self, ended: Sequence[Ended], answers: Sequence[Settled]) -> None:
        failpoint.hit("K7")
        self._hands.let_go(ended)
        told = [(held.lease, settlement, answer) for (held, settlement), answer in zip(ended, answers, strict=True)]
        if self._observe is not None:
            self._observe(told)
        topics: set[str] = set()
        for lease, settlement, answer in told:
            if answer is Settled.DONE and (not lease.plain or settlement.move is not Move.FINISH):
                self._follow(lease, settlement, topics)
        for topic in sorted(topics):
            self._wakeup.signal(topic)

    def _follow(self, lease: Lease, settlement: Settlement, topics: set[str]) -> None:
        """Who may have something to do because of it is told; a signal that gets lost costs a poll."""
        task = self._tasks.of(lease)
        schedule = None if task is None else task.spec.schedule
        if settlement.move is Move.RETRY or (schedule is not None and schedule.get("mode") == "fixed_delay"):
            topics.add(PLAN)
        topics.add(queue_topic(lease.queue))


def _seconds(lease: Lease) -> float:
    """From the claim to the end of the lease."""
    return (lease.expires_at - lease.claimed_at) / SECOND
