"""Work: a worker claims runs, carries them out and settles them. The built-in executor is one like any other.

Its loops are each in a file of its own: lanes (`claim`) bring work in and outcomes out, the heart (`beat`, in the thread of
`pulse`) renews leases and brings orders, an ear (`wake`) for each hears of signals. `hold` is what they share.

    K15  died during a graceful stop   what was handed back is handed back; the rest is swept when its lease runs out
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.engine import failpoint
from noonbell.engine.beat import Heart
from noonbell.engine.carry import CallbackUrl, Carrier
from noonbell.engine.claim import Lane, Observe
from noonbell.engine.hold import Hands, Word
from noonbell.engine.keep import Keeper
from noonbell.engine.know import Tasks
from noonbell.engine.progress import Watch
from noonbell.engine.pulse import Pulse, relayed
from noonbell.engine.stray import Strays
from noonbell.engine.wake import ANY_QUEUE, ORDERS, Bell, Ear, queue_topic
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model import worker as model
from noonbell.model.request import ClaimRequest
from noonbell.model.task import ExecType
from noonbell.model.worker import WorkerState
from noonbell.ports import Store, Target, Wakeup

logger = logging.getLogger("noonbell.engine")

ENFORCES_TIMEOUT = "enforces_timeout"
"""In a worker's `meta`: it ends attempts that take too long by itself, so one that goes on means that it is gone."""

_UNWINDING = 2.0
"""Seconds that an interrupted handler gets to let go of what it has in hand."""
_LAST_WORDS = 5.0
"""Seconds that a stopping worker tries to reach a store that does not answer."""


def new_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Worker:
    def __init__(
        self,
        store: Store,
        wakeup: Wakeup,
        targets: Mapping[ExecType, Target],
        *,
        worker_id: str | None = None,
        queues: Sequence[str] = ("default",),
        concurrency: int = 10,
        job_types: Sequence[str] | None = None,
        version: int = 0,
        batch: int = 300,
        ahead: int = 600,
        lanes: int = 2,
        poll: float = 1.0,
        callback_url: CallbackUrl | None = None,
        observe: Observe | None = None,
        tasks: Tasks | None = None,
        strays: Strays | None = None,
        pulse: Pulse | None = None,
        part_of: str | None = None,
    ) -> None:
        """`batch`: the most that one trip settles or claims. `ahead`: the most that is claimed beyond `concurrency`.

        `strays` is shared with the target that has them: they count in `concurrency`. `pulse`: the thread that renews the
        leases; None: the loop of the worker does. `part_of`: the command that it cannot be stopped without.
        """
        self.id = worker_id or new_worker_id()
        self.incarnation = secrets.token_hex(8)
        self.state = WorkerState.RUNNING
        self.has_stopped = False
        self.stop_wanted = asyncio.Event()
        """Set when an operator wants this worker to stop; whoever started it calls `stop`."""
        self.queues = tuple(queues)
        self._store, self._job_types, self._version = store, job_types, version
        self._meta: dict[str, Any] = {ENFORCES_TIMEOUT: True} | ({} if part_of is None else {model.PART_OF: part_of})
        known = tasks or Tasks(store)
        bell = Bell()
        carrier = Carrier(store, known, targets, callback_url, self._expect_beat)
        self.hands = Hands(concurrency, carrier.carry, bell, ahead, strays=strays)
        self.hands.expect_beat = self._expect_beat
        self._pulse, self._watch, self._has_left = pulse, Watch(), False
        self._heart = Heart(
            store,
            self.hands,
            known,
            self.id,
            self.incarnation,
            register=self.register,
            obey=self._obey,
            pulse=pulse,
            died=self._beat_here,
        )
        self.is_well = True
        """False: the thread of its heartbeats has died, and it claims nothing more."""
        request = ClaimRequest(
            worker_id=self.id,
            queues=self.queues,
            max=batch,
            job_types=None if job_types is None else tuple(job_types),
            version=version,
        )
        self._lanes = [
            Lane(
                store,
                wakeup,
                known,
                self.hands,
                bell,
                request,
                poll=poll if number == 0 else float("inf"),
                observe=observe,
            )
            for number in range(lanes)
        ]
        topics = [*map(queue_topic, self.queues), ANY_QUEUE]
        self._ears = [Ear(wakeup, topics, bell.ring), Ear(wakeup, (ORDERS,), self._heart.ring)]
        self._heart_keeper: Keeper | None = None
        self._lane_keepers: list[Keeper] = []
        self._keepers: list[Keeper] = []

    # Life

    async def start(self, watch: Watch | None = None) -> None:
        """Register and begin. AlreadyExists if another process works under this id."""
        await self.register()
        watch = self._watch = watch or self._watch
        self._lane_keepers = [
            Keeper(f"lane {number} of {self.id}", lane, watch, 0.1, 5.0, kind="claim")
            for number, lane in enumerate(self._lanes)
        ]
        self._keepers = [Keeper(f"ear {number} of {self.id}", ear, watch) for number, ear in enumerate(self._ears)]
        pulse = self._pulse
        self._heart_keeper = self._kept_heart(watch if pulse is None else relayed(watch, pulse))
        if pulse is None:
            self._heart_keeper.start()
        else:
            pulse.join(self._heart)
            pulse.call(self._heart_keeper.start)
        for keeper in (*self._keepers, *self._lane_keepers):
            keeper.start()

    async def register(self, store: Store | None = None) -> None:
        """By way of this store, where the caller has one of its own."""
        if self._has_left:
            return
        await (store or self._store).register_worker(
            model.Worker(
                id=self.id,
                incarnation=self.incarnation,
                version=self._version,
                queues=self.queues,
                job_types=None if self._job_types is None else tuple(self._job_types),
                concurrency=self.hands.concurrency,
                meta=self._meta,
            )
        )

    async def stop(self, graceful_timeout: float = 10.0) -> None:
        """Take no more; let what executes end in `graceful_timeout` seconds; hand the rest back; say goodbye."""
        self.state = WorkerState.STOPPING
        self.hands.is_open = False
        self.hands.hand_back_waiting()
        await self.hands.quiet(graceful_timeout)
        failpoint.hit("K15")
        self.hands.interrupt_all(Word.STOPPED)
        if not await self.hands.quiet(_UNWINDING):
            logger.warning("worker %s leaves %d runs behind that do not stop", self.id, self.hands.running)
        await asyncio.gather(*(keeper.stop() for keeper in self._lane_keepers))
        await self._say_goodbye()
        await asyncio.gather(self._stop_heart(), *(keeper.stop() for keeper in self._keepers))
        self.has_stopped = True

    async def _stop_heart(self) -> None:
        if self._heart_keeper is None:
            return
        if self._pulse is None:
            await self._heart_keeper.stop()
        elif self._pulse.is_alive:
            self._pulse.leave(self._heart)
            await self._pulse.do(self._heart_keeper.stop())

    def _beat_here(self) -> None:
        """The thread of the heartbeats has died. What is in hand is renewed from here; nothing more is taken."""
        self._pulse, self.is_well, self.hands.is_open = None, False, False
        logger.error("worker %s claims nothing more: the thread of its heartbeats died. Restart the process", self.id)
        self._heart_keeper = self._kept_heart(self._watch)
        self._heart_keeper.start()

    def _kept_heart(self, watch: Watch) -> Keeper:
        return Keeper(f"heart of {self.id}", self._heart, watch, 0.1, 1.0, kind="heartbeat")

    async def _say_goodbye(self) -> None:
        deadline = time.monotonic() + _LAST_WORDS
        while time.monotonic() < deadline:
            try:
                while self.hands.has_ended:
                    await self._lanes[0].tick()
                self._has_left = True
                await self._store.remove_worker(self.id, self.incarnation)
                return
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            except NoonbellError:
                break
        logger.warning("worker %s could not say goodbye; its leases run out by themselves", self.id)

    # One step, for tests and simulations

    async def tick(self) -> float:
        """One trip of the first lane."""
        return await self._lanes[0].tick()

    async def beat(self) -> float:
        """One heartbeat."""
        return await self._heart.tick()

    async def run_until_idle(self) -> None:
        """Claim, carry out and settle until nothing more is to be had and nothing is in hand."""
        while True:
            await self.tick()
            if not self.hands.held:
                return
            await self.hands.quiet(60.0)

    # Orders

    def _obey(self, state: WorkerState) -> None:
        if self.state is WorkerState.STOPPING:
            return
        self.hands.is_open = state is WorkerState.RUNNING and self.is_well
        if state is WorkerState.RUNNING and self.state is not WorkerState.RUNNING:
            self.hands.nudge()
        self.state = state if state is not WorkerState.STOPPING else self.state
        if state is WorkerState.STOPPING:
            self.stop_wanted.set()

    def _expect_beat(self, seconds: float) -> None:
        self._heart.expect(seconds)

    def health(self) -> dict[str, object]:
        return {
            "id": self.id,
            "state": str(self.state),
            "concurrency": self.hands.concurrency,
            "running": self.hands.running,
            "strays": self.hands.strays.count,
            "held": len(self.hands.held),
            "ok": self.is_well,
        }
