"""The event hub: one reader per process follows the stream of events, for any number of listeners.

    store ──page──▶ Hub ──EventBatch──▶ Listener, Listener, …      listeners share a batch: what is made of it is made once

The hub reads after a signal, and by a slow poll if that was lost; without listeners it does not read at all. A listener
that starts in the past reads up to where the hub is by itself, then goes along with it. One that does not keep up is cut:
it knows the last event it got, and goes on from there when it comes back.

Listening must not slow the run path. Under a backlog the hub rests after each page, in proportion to the time that
reading took and to the bytes that were sent; listeners get their events a little later, and never fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Final

from noonbell.engine.loop_runner import Signal
from noonbell.errors import StoreUnavailable
from noonbell.model.event import EVERYTHING, WHOLE, Event, EventPage, Filter, Position
from noonbell.ports import EVENTS, PLAN, Store, Wakeup, queue_topic

logger = logging.getLogger("noonbell.events")

MOST_BEHIND: Final = 50_000
"""Events that may wait for a listener before it is cut. Batches are shared, so they are in memory once."""
STALLED_AFTER: Final = 30.0
"""Seconds without taking anything after which a listener that reads the past is cut."""
_EVENTS_A_PAGE = 1_000
"""About how many events are read at once: more would hold up the event loop, and come in gusts."""
_MANY, _GATHER = 50, 0.25
"""From this many events at once, work is in full swing: let more gather, for this many seconds. To number them takes a write."""
_FEWEST, _MOST = 4, 256
"""Rows of a first page, and of any: a row may tell of one run or of hundreds."""
_REST: Final = (9.0, 1.0)
"""Under a backlog, rest this many times as long as reading took: while runs go on, and when it is calm."""
_BYTES_A_SECOND: Final = (12e6, 150e6)
"""What all listeners together are sent under a backlog, likewise."""


class EventBatch:
    """Some events, in order. What listeners with the same filter make of it is made once and kept with it."""

    __slots__ = ("_chosen", "_rendered", "end", "events", "has_gap")

    def __init__(self, events: list[Event], end: Position, *, has_gap: bool = False) -> None:
        self.events, self.end, self.has_gap = events, end, has_gap
        self._chosen: dict[Filter, list[Event]] = {}
        self._rendered: dict[Filter, bytes] = {}

    def chosen(self, wanted: Filter) -> list[Event]:
        if wanted == EVERYTHING:
            return self.events
        found = self._chosen.get(wanted)
        if found is None:
            found = self._chosen[wanted] = [event for event in self.events if wanted.wants(event)]
        return found

    def rendered(self, wanted: Filter, render: Callable[[Iterable[Event]], bytes]) -> bytes:
        found = self._rendered.get(wanted)
        if found is None:
            found = self._rendered[wanted] = render(self.chosen(wanted))
        return found


class Listener:
    """What one listener has still to get. Made by `Hub.listen`."""

    def __init__(self, hub: Hub, wanted: Filter, after: Position) -> None:
        self.wanted, self.after = wanted, after
        self.is_cut = False
        """It was too slow, or the hub ends: there will be no more."""
        self.behind = 0
        """Events that wait for it."""
        self._hub = hub
        self._waiting: deque[EventBatch] = deque()
        self._read_to = -1
        self._signal, self._room = Signal(), Signal()

    async def next(self, seconds: float = 3600.0) -> EventBatch | None:
        """The next batch; None when the time is up, or when it is cut."""
        while not self._waiting and not self.is_cut:
            # The signal may have been for what was taken already; that happens once, so waiting anew is short.
            if not await self._signal.wait(seconds):
                return None
        if not self._waiting:
            return None
        batch = self._waiting.popleft()
        self.behind -= len(batch.events)
        self.after = batch.end
        self._room.notify()
        return batch

    async def room(self, seconds: float) -> bool:
        """Wait until it has taken half of what may wait for it. False if it took nothing for that many seconds."""
        while self.behind > self._hub.most_behind // 2 and not self.is_cut:
            if not await self._room.wait(seconds):
                return False
        return True

    def sent(self, size: int) -> None:
        """Count the bytes that were written for this listener."""
        self._hub.sent += size

    def push(self, batch: EventBatch) -> bool:
        """False if that is more than it may be behind: it is cut."""
        if batch.end.seq <= self._read_to:
            return True
        if batch.events and batch.events[0].seq <= self._read_to:  # it has read a part of this by itself
            batch = EventBatch([event for event in batch.events if event.seq > self._read_to], batch.end)
        if self._waiting and self.behind + len(batch.events) > self._hub.most_behind:
            self.cut()
            return False
        self._read_to = batch.end.seq
        self.behind += len(batch.events)
        self._waiting.append(batch)
        self._signal.notify()
        return True

    def cut(self) -> None:
        self.is_cut = True
        self._waiting.clear()
        self._signal.notify()


class Hub:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        *,
        poll: float = 1.0,
        most_behind: int = MOST_BEHIND,
        stalled_after: float = STALLED_AFTER,
        observe: Callable[[int, int], None] | None = None,
    ) -> None:
        """`observe` is called with the number of listeners, and of those that were cut since the last call."""
        self._store, self._wakeup, self._poll, self._observe = store, wakeup, poll, observe
        self.most_behind, self._stalled_after = most_behind, stalled_after
        self._listeners: set[Listener] = set()
        self._position = Position(0)
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._catching_up = asyncio.Semaphore(2)
        self._rows = _FEWEST
        self._newest = 0
        self.is_closed = False
        self.sent = 0
        """Bytes written for all listeners since the last page."""

    async def open(self) -> None:
        """Nothing to open: it reads while there are listeners."""

    async def close(self) -> None:
        """Every listener is cut, with what it has not got yet still in the store."""
        self.is_closed = True
        for listener in self._listeners:
            listener.cut()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Filter = EVERYTHING, after: Position | None = None) -> AsyncIterator[Listener]:
        """Listen from now on; or after a position, as far as the stream reaches back: `EventBatch.has_gap` says if it
        does not.
        """
        async with self._starting:
            if not self._listeners:
                self._position = Position(await self._store.last_event())
            listener = Listener(self, wanted, after or self._position)
            if after is None:
                self._join(listener)
        past = None if after is None else asyncio.create_task(self._catch_up(listener, after))
        try:
            yield listener
        finally:
            if past is not None:
                past.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await past
            self._listeners.discard(listener)
            self._tell()

    def _join(self, listener: Listener) -> None:
        if self.is_closed:
            listener.cut()
            return
        self._listeners.add(listener)
        self._tell()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read(), name="noonbell events")

    def _tell(self, cut: int = 0) -> None:
        if self._observe is not None:
            self._observe(len(self._listeners), cut)

    # Reading

    async def _read(self) -> None:
        """Ends with the last listener."""
        while self._listeners:
            try:
                rest = await self._page()
            except StoreUnavailable as error:
                logger.warning("events wait for the store: %s", error.message)
                rest = self._poll
            except Exception:  # any error: listeners are not left without a reader
                logger.exception("reading events failed; it continues in %g s", self._poll)
                rest = self._poll
            if rest:
                await asyncio.sleep(rest)
            else:
                await self._wakeup.wait((EVENTS,), self._poll)

    async def _page(self) -> float:
        """Read on and hand out what there is. Seconds to rest before there is more, or 0: wait for news."""
        loop = asyncio.get_running_loop()
        began, position = loop.time(), self._position
        sent, self.sent = self.sent, 0
        page = await self._store.event_page(position.seq, self._rows)
        if self._position is not position:
            return 0.0  # the last listener left meanwhile, and another one begins elsewhere
        self._hand_out(page)
        self._rows = _fitting(self._rows, page)
        is_calm = page.newest <= self._newest
        self._newest = page.newest
        if not page.is_full and len(page.events) < _EVENTS_A_PAGE // 2:
            return _GATHER if len(page.events) >= _MANY else 0.0
        return max(_REST[is_calm] * (loop.time() - began), sent / _BYTES_A_SECOND[is_calm])

    def _hand_out(self, page: EventPage) -> None:
        self._position = Position(page.upto)
        if not page.events:
            return
        batch = EventBatch(page.events, self._position, has_gap=page.has_gap)
        cut = [listener for listener in self._listeners if not listener.push(batch)]
        for listener in cut:
            self._listeners.discard(listener)
            logger.info("a listener was disconnected: it is more than %d events behind", self.most_behind)
        if cut:
            self._tell(len(cut))

    async def _catch_up(self, listener: Listener, after: Position) -> None:
        """Read what lies between `after` and the hub for one listener alone, then let it go along with the others.

        Two listeners at a time may read from the store. The place is given up before waiting for the listener, so that
        one that takes nothing does not keep the others from reading.
        """
        is_whole = after.index == WHOLE
        seq, rows, first = after.seq if is_whole else after.seq - 1, _FEWEST, True
        try:
            while not listener.is_cut:
                async with self._catching_up:
                    page = await self._store.event_page(seq, rows)
                self._push_past(listener, page, after, is_first=first)
                seq, rows, first = page.upto, _fitting(rows, page), False
                if seq >= self._position.seq:
                    break
                if not await listener.room(self._stalled_after):
                    logger.info("a listener was disconnected: it read no event for %g s", self._stalled_after)
                    listener.cut()
        except StoreUnavailable:
            listener.cut()
            return
        self._join(listener)

    @staticmethod
    def _push_past(listener: Listener, page: EventPage, after: Position, *, is_first: bool) -> None:
        events = [event for event in page.events if (event.seq, event.index) > (after.seq, after.index)]
        has_gap = False
        if is_first and page.has_gap:
            goes_on_at = page.events[0].seq if page.events else page.upto
            has_gap = goes_on_at not in (after.seq, after.seq + 1)
        if events or has_gap:
            listener.push(EventBatch(events, Position(page.upto), has_gap=has_gap))


def _fitting(rows: int, page: EventPage) -> int:
    """How many rows to read next, so that they hold about as many events as a page should."""
    if len(page.events) > 2 * _EVENTS_A_PAGE:
        return max(1, rows * _EVENTS_A_PAGE // len(page.events))
    if page.is_full and len(page.events) < _EVENTS_A_PAGE // 2:
        return min(_MOST, rows * 2)
    return rows


APART = 0.05
"""Seconds between two signals, at least."""


class DebouncedSignal:
    """Signals at once where it has been quiet, else as soon as the time is up: the last one is never left out."""

    def __init__(self, wakeup: Wakeup, apart: float = APART) -> None:
        self._wakeup, self._apart = wakeup, apart
        self._next_at = 0.0
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._later is not None:
            return
        loop = asyncio.get_running_loop()
        left = self._next_at - loop.time()
        if left <= 0:
            self._signal(loop)
        else:
            self._later = loop.call_later(left, self._signal, loop)

    def close(self) -> None:
        """Before the wake-up is closed: a signal that was put off is sent now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
            self._wakeup.signal(EVENTS)

    def _signal(self, loop: asyncio.AbstractEventLoop) -> None:
        self._later = None
        self._next_at = loop.time() + self._apart
        self._wakeup.signal(EVENTS)


def signal_events(store: Store, wakeup: Wakeup) -> Callable[[], None]:
    """From now on the store's transitions that write events signal EVENTS; and where the end of a run has put others on
    queues, those are signalled. Call what is returned before the wake-up closes.
    """
    signal = DebouncedSignal(wakeup)

    def feed(queues: Collection[str]) -> None:
        for topic in (PLAN, *sorted(queue_topic(queue) for queue in queues)):  # PLAN: it may wait for its time
            wakeup.signal(topic)

    store.on_events, store.on_fed = signal, feed

    def close() -> None:
        store.on_events = store.on_fed = None
        signal.close()

    return close
