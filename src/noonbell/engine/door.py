"""The door: workers of other processes wait here for runs, as long as their long poll lasts.

Those that ask for the same (queues, job types, version) wait in one room. A room listens to its queues with one ear. When
something is signalled, the visitors are served one after the other, whoever has waited longest first, until a few in a row
have got nothing; so a run that is published costs a claim or two, however many are waiting. Runs that name workers are
looked up for all visitors at once. A slow poll for each room is the net for lost signals.

    a visitor leaves while it is served   what was claimed for it is handed back, not counted as an attempt
    the process dies                      the leases run out; the sweep gives the runs to others
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from noonbell.engine.measure import StoreTime
from noonbell.engine.settle import released, subject_of
from noonbell.engine.wake import ANY_QUEUE, ORDERS, queue_topic
from noonbell.errors import RateLimited, StoreUnavailable
from noonbell.model.request import Claimed, ClaimRequest
from noonbell.model.run import Lease
from noonbell.model.worker import Attendance, WorkerState
from noonbell.ports import Store, Wakeup

logger = logging.getLogger("noonbell.engine")

INCARNATION = "api"
"""Of every worker that comes by the API: what it holds is told apart by tokens, not by processes."""

_TRIES = 4
"""Visitors of a room that get nothing, one after the other, before it is taken to be dry: some may not have what is there."""
_CALM = 0.2
"""Seconds between two roll calls, however many orders there are."""


class Visitor:
    """A worker that waits. `answer` is set by whoever serves it first, to an empty list if it is to be told something."""

    __slots__ = ("answer", "attendance", "is_busy", "missed", "request")

    def __init__(self, request: ClaimRequest, attendance: Attendance) -> None:
        self.request, self.attendance = request, attendance
        self.answer: asyncio.Future[list[Lease]] = asyncio.get_running_loop().create_future()
        self.is_busy = True
        """Somebody is claiming for it at this moment."""
        self.missed = False
        """A signal came meanwhile."""

    @property
    def is_open(self) -> bool:
        return self.attendance.state is WorkerState.RUNNING and self.attendance.concurrency > 0

    def tell(self, leases: list[Lease]) -> bool:
        """False if it is gone."""
        if self.answer.done():
            return False
        self.answer.set_result(leases)
        return True


class Wanted(NamedTuple):
    """What the visitors of one room have in common."""

    queues: tuple[str, ...]
    job_types: tuple[str, ...] | None
    version: int

    @classmethod
    def by(cls, request: ClaimRequest) -> Wanted:
        return cls(request.queues, request.job_types, request.version)


class Door:
    def __init__(
        self, store: Store, wakeup: Wakeup, *, poll: float = 1.0, roll_call: float = 5.0, most: int = 5_000
    ) -> None:
        """`poll`: the net of a room, in seconds. `roll_call`: seconds between two signs of life for all who wait."""
        self.store, self.wakeup, self.poll = store, wakeup, poll
        self.time = StoreTime(store)
        self.is_closed = False
        self._roll_call, self._most = roll_call, most
        self._rooms: dict[Wanted, Room] = {}
        self._roll: asyncio.Task[None] | None = None
        self._handing: set[asyncio.Task[None]] = set()

    async def claim(self, request: ClaimRequest, attendance: Attendance, seconds: float) -> list[Lease]:
        """Up to `request.max` runs, at once if there are any, else as soon as there are, or none after so long.

        None at once if what an operator wants of the worker changes. Canceled, it gives back what it had got.
        """
        if seconds <= 0 or self.is_closed:
            visitor = Visitor(request, attendance)
            return await self._claim(visitor) if visitor.is_open else []
        visitor = self._enter(request, attendance)
        room = self._rooms[Wanted.by(request)]
        try:
            leases = await self._first(visitor)
            return leases or await self._wait(visitor, seconds)
        finally:
            room.leave(visitor)

    def hand_back(self, leases: Sequence[Lease]) -> None:
        """In the background: whoever wanted them is gone. If that fails, the leases run out."""
        if leases:
            task = asyncio.get_running_loop().create_task(self._hand_back(leases))
            self._handing.add(task)
            task.add_done_callback(self._handing.discard)

    async def close(self) -> None:
        """Let everybody go, with nothing; from now on nobody waits."""
        self.is_closed = True
        rooms = list(self._rooms.values())
        for room in rooms:
            for visitor in room.visitors:
                visitor.tell([])
        if self._roll is not None:
            self._roll.cancel()
            await asyncio.wait([self._roll])
        for room in rooms:
            await room.close()
        if self._handing:
            await asyncio.wait(self._handing, timeout=5)

    @property
    def waiting(self) -> int:
        return sum(len(room.visitors) for room in self._rooms.values())

    def _enter(self, request: ClaimRequest, attendance: Attendance) -> Visitor:
        if self.waiting >= self._most:
            raise RateLimited(f"{self._most} workers wait at this node already; ask another, or with a wait of 0")
        visitor, wanted = Visitor(request, attendance), Wanted.by(request)
        room = self._rooms.get(wanted)
        if room is None:
            room = self._rooms[wanted] = Room(self, wanted, lambda: self._rooms.pop(wanted, None))
        room.enter(visitor)
        if self._roll is None or self._roll.done():
            self._roll = asyncio.get_running_loop().create_task(self._call_roll(), name="noonbell roll call")
        return visitor

    async def _first(self, visitor: Visitor) -> list[Lease]:
        """What is there already. Once more if a signal came while it was looked for."""
        while visitor.is_open:
            visitor.missed = False
            leases = await self._claim(visitor)
            if leases or not visitor.missed:
                visitor.is_busy = False
                return leases
        visitor.is_busy = False
        return []

    async def _wait(self, visitor: Visitor, seconds: float) -> list[Lease]:
        try:
            await asyncio.wait([visitor.answer], timeout=seconds)
        except asyncio.CancelledError:
            if visitor.answer.done():
                self.hand_back(visitor.answer.result())
            raise
        return visitor.answer.result() if visitor.answer.done() else []

    async def _claim(self, visitor: Visitor) -> list[Lease]:
        """In a task of its own: a claim that is under way when its visitor leaves is seen to its end."""
        claiming = asyncio.get_running_loop().create_task(self.claim_now(visitor))
        try:
            return (await asyncio.shield(claiming)).leases
        except asyncio.CancelledError:
            claiming.add_done_callback(self._unwanted)
            raise

    def _unwanted(self, claiming: asyncio.Task[Claimed]) -> None:
        if not claiming.cancelled() and claiming.exception() is None:
            self.hand_back(claiming.result().leases)

    async def claim_now(self, visitor: Visitor) -> Claimed:
        """Never more than the worker's concurrency leaves, whatever it asks for."""
        request = visitor.request
        held = (await self.store.held([request.worker_id])).get(request.worker_id, 0)
        room = min(request.max, visitor.attendance.concurrency - held)
        if room <= 0:
            return Claimed([])
        claimed = await self.store.claim(msgspec.structs.replace(request, max=room))
        for queue in claimed.split:
            self.wakeup.signal(queue_topic(queue))
        return claimed

    async def _hand_back(self, leases: Sequence[Lease]) -> None:
        try:
            await self.store.settle([released(subject_of(lease), begun=False) for lease in leases])
        except Exception as error:
            logger.warning("%d runs could not be handed back (%s); their leases run out", len(leases), error)
            return
        for queue in sorted({lease.queue for lease in leases}):
            self.wakeup.signal(queue_topic(queue))

    async def _call_roll(self) -> None:
        """Who waits is alive, and hears what an operator wants. Ends with the last visitor."""
        due = 0.0
        while self._rooms:
            await self.wakeup.wait((ORDERS,), max(0.0, due - time.monotonic()))
            visitors = [visitor for room in self._rooms.values() for visitor in room.visitors]
            try:
                if time.monotonic() >= due:
                    told = await self.store.attend(sorted({one.request.worker_id for one in visitors}), INCARNATION)
                    due = time.monotonic() + self._roll_call
                else:  # an order: read only, or a store that signals every commit would signal this one for ever
                    told = {one.id: Attendance(one.state, one.concurrency) for one in await self.store.workers()}
            except Exception as error:
                logger.warning("the roll call failed (%s); it goes on", error)
            else:
                for visitor in visitors:
                    if told.get(visitor.request.worker_id) != visitor.attendance:
                        visitor.tell([])
            await asyncio.sleep(_CALM)


class Room:
    def __init__(self, door: Door, wanted: Wanted, on_empty: Callable[[], object]) -> None:
        self.visitors: deque[Visitor] = deque()
        """Who has waited longest, or was asked longest ago, first."""
        self._door, self._on_empty = door, on_empty
        self._topics = [*map(queue_topic, wanted.queues), ANY_QUEUE]
        self._is_idle = False
        self._ear: asyncio.Task[None] | None = None

    def enter(self, visitor: Visitor) -> None:
        self.visitors.append(visitor)
        if self._ear is None:
            self._ear = asyncio.get_running_loop().create_task(self._listen(), name="noonbell room")

    def leave(self, visitor: Visitor) -> None:
        visitor.answer.cancel()
        if visitor in self.visitors:
            self.visitors.remove(visitor)

    async def close(self) -> None:
        """A claim under way is seen to its end."""
        if self._ear is not None:
            if self._is_idle:
                self._ear.cancel()
            await asyncio.wait([self._ear], timeout=5)

    async def _listen(self) -> None:
        """Ends with the last visitor."""
        pause = self._door.poll
        try:
            while self.visitors and not self._door.is_closed:
                self._is_idle = True
                await self._door.wakeup.wait(self._topics, pause)
                self._is_idle = False
                pause = await self._serve_carefully()
        finally:
            self._ear = None
            self._on_empty()

    async def _serve_carefully(self) -> float:
        try:
            return await self._serve()
        except StoreUnavailable:
            return self._door.poll
        except Exception:
            logger.exception("workers that wait could not be served; they are in a moment")
            return self._door.poll

    async def _serve(self) -> float:
        """One round; how long to wait for the next, at most, in seconds."""
        asked: set[Visitor] = set()
        empty, next_at = 0, None
        for visitor in [one for one in self.visitors if one.is_open]:
            if empty >= _TRIES:
                break
            if visitor.is_busy:
                visitor.missed = True
                continue
            if visitor.answer.done():
                continue
            asked.add(visitor)
            claimed = await self._serve_one(visitor)
            empty = 0 if claimed.leases else empty + 1
            next_at = claimed.next_at or next_at
        await self._serve_named(asked)
        if next_at is None:
            return self._door.poll
        await self._door.time.refresh()
        return max(0.001, min(self._door.poll, self._door.time.until(next_at) + 0.001))

    async def _serve_named(self, asked: set[Visitor]) -> None:
        """Those who were not asked, where a run names them."""
        others = [one for one in self.visitors if one not in asked and one.is_open and not one.is_busy]
        if not others:
            return
        named = await self._door.store.pinned([one.request.worker_id for one in others])
        for visitor in others:
            if visitor.request.worker_id in named and not visitor.answer.done():
                await self._serve_one(visitor)

    async def _serve_one(self, visitor: Visitor) -> Claimed:
        visitor.is_busy = True
        try:
            claimed = await self._door.claim_now(visitor)
        finally:
            visitor.is_busy = False
        if claimed.leases and not visitor.tell(claimed.leases):
            self._door.hand_back(claimed.leases)
        if not claimed.leases and visitor in self.visitors:
            self.visitors.remove(visitor)
            self.visitors.append(visitor)
        return claimed
