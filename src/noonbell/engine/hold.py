"""What a worker has in its hands: runs that wait to be started, runs that execute, outcomes that wait to be settled.

    claim ──▶ waiting ──▶ running ──▶ ended ──▶ settled: let go
                 └── handed back ───────▲

All of them are held: their leases are renewed until the store has taken the outcome. If the process dies, everything here
is gone; the leases run out, and the sweep gives the runs to others.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from noonbell.clock import SECOND
from noonbell.engine.settle import released, subject_of
from noonbell.engine.stray import Strays
from noonbell.engine.wake import Bell
from noonbell.model.run import Lease, RunId
from noonbell.model.settlement import Settlement

logger = logging.getLogger("noonbell.engine")

_AHEAD_SECONDS = 0.25
"""Runs are claimed ahead for so long, at the pace of the last ones."""
_SHORT = 0.05
"""Only while an attempt takes less than this, in seconds, is anything claimed ahead."""
STALE = 1.0
"""A run that was claimed ahead and is not started after so many seconds goes back."""


class Word(enum.Enum):
    """Why a run was interrupted."""

    CANCELED = enum.auto()
    LOST = enum.auto()
    STOPPED = enum.auto()
    """Still ours, but not to be gone on with: it is handed back."""


class Held:
    """One lease and what is going on with it."""

    __slots__ = ("begun", "is_leaving", "is_under_way", "key", "lease", "ping_seconds", "runner", "since", "word")

    def __init__(self, lease: Lease, since: float) -> None:
        self.lease = lease
        self.key: tuple[RunId, int] = (lease.run_id, lease.token)
        self.since = since
        self.ping_seconds = (lease.expires_at - lease.claimed_at) / SECOND / 3
        self.runner: asyncio.Task[None] | None = None
        self.word: Word | None = None
        self.is_under_way = False
        """Its attempt has begun: it is too late to hand it back as if nothing had happened."""
        self.is_leaving = False
        """Its outcome is on the way to the store."""
        self.begun = False
        """At most once: marked in the store, so it cannot be handed back."""

    @property
    def is_renewed(self) -> bool:
        return self.word is None or self.word is Word.STOPPED


Ended = tuple[Held, Settlement]
Carry = Callable[[Held], Coroutine[Any, Any, Settlement | None]]
"""Carries out an attempt. None: nothing is to be settled, because the run is somebody else's or over."""


def _nobody(_seconds: float) -> None:
    """No heart listens yet."""


class Hands:
    def __init__(
        self,
        concurrency: int,
        carry: Carry,
        bell: Bell,
        ahead: int,
        monotonic: Callable[[], float] = time.monotonic,
        strays: Strays | None = None,
    ) -> None:
        """`ahead` is the most that is claimed beyond `concurrency` while attempts are short."""
        self.expect_beat: Callable[[float], None] = _nobody
        """Told how soon, in seconds, the leases in hand want a heartbeat."""
        self.concurrency = concurrency
        self.is_open = True
        """False: nothing more is taken."""
        self.held: dict[tuple[RunId, int], Held] = {}
        self.running = 0
        self.strays = strays or Strays()
        """What nobody waits for and goes on all the same: it keeps its place."""
        self.strays.freed = self._one_stray_less
        self._carry, self._bell, self._ahead, self._monotonic = carry, bell, ahead, monotonic
        self._waiting: deque[Held] = deque()
        self._ended: deque[Ended] = deque()
        self._asked = 0
        self._missed = False
        self._leaving = 0
        self._pace: float | None = None
        self._beginning = threading.Lock()
        """Between an attempt that begins and the thread of the heartbeats, which hands back those that have not."""

    # Taking

    def ask(self, most: int) -> int:
        """How many to claim now. They count as taken until `answered`, so that two lanes do not ask for the same room.

        What is on its way to be settled leaves its room to others.
        """
        places = self.concurrency - self.strays.count
        if not self.is_open or places <= 0:
            return 0
        room = places + self._allowed_ahead() - len(self.held) + self._leaving - self._asked
        room = max(0, min(room, most))
        if not room and self._asked:
            self._missed = True
        self._asked += room
        return room

    def answered(self, asked: int) -> None:
        self._asked -= asked

    def missed(self) -> bool:
        """Whether somebody wanted to claim while another lane had all the room. That one has to look again."""
        missed, self._missed = self._missed, False
        return missed

    def take(self, leases: Sequence[Lease]) -> None:
        """These are held from now on; as many as there is room for are started."""
        now, soonest = self._monotonic(), float("inf")
        for lease in leases:
            held = Held(lease, now)
            soonest = min(soonest, held.ping_seconds)
            self.held[held.key] = held
            # What a limit counts must not wait for its turn behind what nothing counts.
            (self._waiting.append if lease.plain else self._waiting.appendleft)(held)
        self.expect_beat(soonest)
        self._start_more()

    def nudge(self) -> None:
        """There may be room again: let a lane look."""
        self._bell.ring()

    def resize(self, concurrency: int) -> None:
        """As an operator wants it. What executes beyond a smaller number goes on to its end."""
        if concurrency != self.concurrency:
            self.concurrency = concurrency
            self._start_more()
            self._bell.ring()

    def _one_stray_less(self) -> None:
        self._start_more()
        self._bell.ring()

    def _allowed_ahead(self) -> int:
        if self._pace is None or self._pace > _SHORT:
            return 0
        return min(self._ahead, int(self.concurrency * _AHEAD_SECONDS / max(self._pace, 1e-6)))

    def _start_more(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        if not self._waiting:
            return
        loop = loop or asyncio.get_running_loop()
        while self._waiting and self.running + self.strays.count < self.concurrency:
            held = self._waiting.popleft()
            self.running += 1
            held.runner = loop.create_task(self._run(held))

    async def _run(self, held: Held) -> None:
        began = self._monotonic()
        settlement: Settlement | None = None
        try:
            if self._begins(held):
                settlement = await self._carry(held)
        except Exception:
            # A defect of ours: the lease runs out, and the sweep decides.
            logger.exception("run %d could not be carried out", held.lease.run_id)
        finally:
            self.running -= 1
            if held.is_under_way:  # one that was handed back says nothing about how long attempts take
                self._note_pace(self._monotonic() - began)
            self._end(held, settlement)
            # Who knows the loop need not ask for it: that asks the system for the process, each time.
            self._start_more(None if held.runner is None else held.runner.get_loop())

    def _begins(self, held: Held) -> bool:
        """False: it was handed back meanwhile, by `abandon_idle`."""
        with self._beginning:
            held.is_under_way = held.word is not Word.LOST
        return held.is_under_way

    def _note_pace(self, seconds: float) -> None:
        self._pace = seconds if self._pace is None else self._pace + 0.1 * (seconds - self._pace)

    # Ending

    def _end(self, held: Held, settlement: Settlement | None) -> None:
        if settlement is None:
            self.held.pop(held.key, None)
        else:
            self._ended.append((held, settlement))
        self._bell.ring()

    def ended(self, most: int) -> list[Ended]:
        """Up to so many outcomes, to be settled: then `let_go` of them, or `put_back` if that failed."""
        count = min(most, len(self._ended))
        self._leaving += count
        ended = [self._ended.popleft() for _ in range(count)]
        for held, _ in ended:
            held.is_leaving = True
        return ended

    def put_back(self, ended: Sequence[Ended]) -> None:
        """The store is away: they stay held. Nothing is claimed meanwhile, so they are never more than were taken."""
        self._leaving -= len(ended)
        for held, _ in ended:
            held.is_leaving = False
        self._ended.extendleft(reversed(ended))

    def let_go(self, ended: Sequence[Ended]) -> None:
        self._leaving -= len(ended)
        for held, _ in ended:
            self.held.pop(held.key, None)

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def has_more_soon(self, most: int) -> bool:
        """Whether runs that are claimed ahead are ending so fast that waiting for a moment fills a batch."""
        return bool(self._waiting) and len(self._ended) < most and self._allowed_ahead() > 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # Interrupting

    def interrupt(self, held: Held, word: Word) -> None:
        """Stop it, for that reason. An outcome that is there already is settled all the same: the store decides."""
        if held.word is not None:
            return
        held.word = word
        if held.runner is not None:
            # In a turn of its own: a task that is canceled before its first step never takes one, nor gives its place back.
            held.runner.get_loop().call_soon(held.runner.cancel)
        elif held in self._waiting:
            self._waiting.remove(held)
            is_ours = word is Word.STOPPED
            self._end(held, released(subject_of(held.lease), begun=False) if is_ours else None)

    def hand_back_waiting(self, older_than: float = 0.0) -> int:
        """Hand back what is not started; with `older_than`, only if the oldest of it has waited for so many seconds."""
        if not self._waiting or self._monotonic() - min(held.since for held in self._waiting) < older_than:
            return 0
        count = len(self._waiting)
        self._pace = None  # attempts are longer than it seemed
        for held in list(self._waiting):
            self.interrupt(held, Word.STOPPED)
        return count

    def abandon_idle(self) -> list[Held]:
        """From any thread: what has not begun, and from now on never will. The caller hands it back, then `forget`s it."""
        with self._beginning:
            idle = [one for one in list(self.held.values()) if not one.is_under_way and one.word is None]
            for held in idle:
                held.word = Word.LOST
        return idle

    def forget(self, idle: Sequence[Held]) -> None:
        """Those that were abandoned, and wait for their turn still, are let go of."""
        for held in idle:
            if held.runner is None and held in self._waiting:
                self._waiting.remove(held)
                self._end(held, None)

    def interrupt_all(self, word: Word) -> None:
        for held in list(self.held.values()):
            if held.runner is not None and not held.runner.done():
                self.interrupt(held, word)

    async def quiet(self, seconds: float) -> bool:
        """Wait until nothing executes. False if something still does after so many seconds."""
        runners = [held.runner for held in self.held.values() if held.runner is not None and not held.runner.done()]
        if not runners:
            return True
        _, left = await asyncio.wait(runners, timeout=max(0.0, seconds))
        return not left

    def ping_seconds(self, default: float) -> float:
        """How often the leases in hand have to be renewed."""
        return min((held.ping_seconds for held in list(self.held.values())), default=default)
