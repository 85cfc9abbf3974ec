"""A worker: claims runs, carries them out and settles them. The built-in executor is a worker as any other.

    ClaimLoop (a few) ──leases──▶ InFlight ──in tasks─────▶ AttemptRunner ─▶ target
         ▲                           │ outcomes                 Heartbeat: renews what InFlight holds, obeys orders
         └───────────────────────────┘

Each part has a file and knows only the parts before it: attempt runner, in flight, heartbeat, claim loops. A `LoopRunner` runs
each loop; a `SignalListener` brings signals of other processes to the claim loops, another one to the heartbeat.

    K15  died during a graceful stop   what was handed back is handed back; the rest is swept when its lease runs out
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from functools import partial

from noonbell.clock import read_monotonic
from noonbell.engine import failpoint
from noonbell.engine.attempt_runner import AttemptRunner, CallbackUrl, PauseCheck, TaskCache
from noonbell.engine.claim_loop import ClaimLoop, Observe
from noonbell.engine.heartbeat import Heartbeat, HeartbeatThread
from noonbell.engine.in_flight import AbandonedThreads, InFlight, StopReason
from noonbell.engine.loop_runner import LoopHealth, LoopRunner, SignalListener, TimedLoop
from noonbell.errors import NoonbellError, StoreUnavailable
from noonbell.model import worker as model
from noonbell.model.request import ClaimRequest
from noonbell.model.target_kind import ExecType
from noonbell.model.worker import WorkerState
from noonbell.ports import ANY_QUEUE, ORDERS, PAUSE, Store, Target, Wakeup, queue_topic

logger = logging.getLogger("noonbell.engine")

ENFORCES_TIMEOUT = "enforces_timeout"
"""In a worker's `meta`: it ends attempts that take too long by itself, so one that goes on means that it is gone."""

_UNWINDING = 2.0
"""Seconds that an interrupted handler gets to release what it uses."""
_LOOK_FOR_QUEUES = 1.0
"""Seconds between two looks for queues that calls are made on."""
_GOODBYE = 5.0
"""Seconds that a stopping worker tries to reach a store that does not answer."""


def new_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _claim_request(worker: model.WorkerInfo, batch: int) -> ClaimRequest:
    return ClaimRequest(
        worker_id=worker.id,
        queues=worker.queues,
        max=batch,
        job_types=worker.job_types,
        version=worker.version,
        labels=model.label_pairs(worker.labels),
    )


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
        claim_loops: int = 2,
        poll: float = 1.0,
        callback_url: CallbackUrl | None = None,
        observe: Observe | None = None,
        tasks: TaskCache | None = None,
        abandoned: AbandonedThreads | None = None,
        heartbeat_thread: HeartbeatThread | None = None,
        part_of: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`batch`: the most that one trip settles or claims. `ahead`: the most that is claimed beyond `concurrency`.

        `abandoned` is shared with the job target, so that its threads count in `concurrency`. `heartbeat_thread` renews
        the leases; None: the worker's loop does. `part_of`: the command that the worker cannot be stopped without.
        `labels`: what it says of itself, for tasks with `worker_labels`.
        """
        self.id = worker_id or new_worker_id()
        self.incarnation = secrets.token_hex(8)
        self.queues = tuple(queues)
        self.state = WorkerState.RUNNING
        self.has_stopped = False
        self.stop_wanted = asyncio.Event()
        """Set when an operator wants this worker to stop; its owner then calls `stop`."""
        types = None if job_types is None else tuple(job_types)
        registered = self._registration(version, types, concurrency, part_of, dict(labels or {}))
        tasks = tasks or TaskCache(store)
        pauses = PauseCheck(store)
        runner = AttemptRunner(store, tasks, targets, callback_url, pause_check=pauses)
        self.in_flight = InFlight(concurrency, runner.run, ahead=ahead, abandoned=abandoned)
        self.heartbeat = Heartbeat(
            store, self.in_flight, tasks, registered, on_state=self._obey, thread=heartbeat_thread
        )
        request = _claim_request(registered, batch)
        loop = partial(ClaimLoop, store, wakeup, tasks, self.in_flight, self.heartbeat, request)
        polls = (poll, *[float("inf")] * (claim_loops - 1))
        self.claim_loops = [loop(poll=each, observe=observe, pause_check=pauses) for each in polls]
        topics = [*map(queue_topic, self.queues), ANY_QUEUE, PAUSE]
        self._listeners = [
            SignalListener(wakeup, topics, self.in_flight.changed.notify),
            SignalListener(wakeup, (ORDERS,), self.heartbeat.notify),
        ]
        self._claim_runners: list[LoopRunner] = []
        self._listener_runners: list[LoopRunner] = []

    def _registration(
        self,
        version: int,
        types: tuple[str, ...] | None,
        concurrency: int,
        part_of: str | None,
        labels: dict[str, str],
    ) -> model.WorkerInfo:
        return model.WorkerInfo(
            id=self.id,
            incarnation=self.incarnation,
            version=version,
            queues=self.queues,
            job_types=types,
            concurrency=concurrency,
            meta={ENFORCES_TIMEOUT: True} | ({} if part_of is None else {model.PART_OF: part_of}),
            labels=labels,
        )

    def take_calls_from(self, queues: Sequence[str]) -> None:
        """Claim from these queues besides its own. It is registered for its own alone: `policy.workers` knows about calls."""
        for loop in self.claim_loops:
            loop.claim_from((*self.queues, *queues))
        self.in_flight.changed.notify()

    # Life

    async def start(self, health: LoopHealth | None = None) -> None:
        """Register and begin. AlreadyExists if another process works under this id."""
        await self.heartbeat.register()
        health = health or LoopHealth()
        self._listener_runners = [
            LoopRunner(f"signals {number} of {self.id}", listener, health)
            for number, listener in enumerate(self._listeners)
        ]
        self._claim_runners = [
            LoopRunner(f"claim {number} of {self.id}", loop, health, 0.1, 5.0, kind="claim")
            for number, loop in enumerate(self.claim_loops)
        ]
        self.heartbeat.start(health)
        for runner in (*self._listener_runners, *self._claim_runners):
            runner.start()

    async def stop(self, graceful_timeout: float = 10.0) -> None:
        """Claim nothing more; let attempts end in `graceful_timeout` seconds; hand the rest back; unregister."""
        self.state = WorkerState.STOPPING
        self.in_flight.is_open = False
        self.in_flight.hand_back_waiting()
        await self.in_flight.wait_until_idle(graceful_timeout)
        failpoint.hit("K15")
        self.in_flight.interrupt_all(StopReason.STOPPED)
        if not await self.in_flight.wait_until_idle(_UNWINDING):
            logger.warning("worker %s leaves %d runs behind that do not stop", self.id, self.in_flight.running)
        await asyncio.gather(*(runner.stop() for runner in self._claim_runners))
        await self._say_goodbye()
        await asyncio.gather(self.heartbeat.stop(), *(runner.stop() for runner in self._listener_runners))
        self.has_stopped = True

    async def _say_goodbye(self) -> None:
        """Settle what has ended, then unregister."""
        give_up_at = read_monotonic() + _GOODBYE
        while read_monotonic() < give_up_at:
            try:
                while self.in_flight.has_ended:
                    await self.claim_loops[0].tick()
                await self.heartbeat.unregister()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            except NoonbellError:
                break
        logger.warning("worker %s could not deregister; its leases will expire", self.id)

    def _obey(self, state: WorkerState) -> None:
        """What an operator wants of this worker."""
        if self.state is WorkerState.STOPPING:
            return
        self.in_flight.is_open = state is WorkerState.RUNNING and self.is_well
        if state is WorkerState.RUNNING and self.state is not WorkerState.RUNNING:
            self.in_flight.changed.notify()
        if state is WorkerState.STOPPING:
            self.stop_wanted.set()
        else:
            self.state = state

    @property
    def is_well(self) -> bool:
        """False: the thread of its heartbeats has died, and it claims nothing more."""
        return self.heartbeat.is_well

    def health(self) -> dict[str, object]:
        return {
            "id": self.id,
            "state": str(self.state),
            "concurrency": self.in_flight.concurrency,
            "running": self.in_flight.running,
            "strays": self.in_flight.abandoned.count,
            "held": len(self.in_flight.leases),
            "ok": self.is_well,
        }

    # One step, for tests and simulations

    async def register(self) -> None:
        await self.heartbeat.register()

    async def tick(self) -> float:
        """One trip of the first claim loop."""
        return await self.claim_loops[0].tick()

    async def beat(self) -> float:
        """One heartbeat."""
        return await self.heartbeat.tick()

    async def run_until_idle(self) -> None:
        """Claim, carry out and settle until nothing is left to claim and nothing is held."""
        while True:
            await self.tick()
            if not self.in_flight.leases:
                return
            await self.in_flight.wait_until_idle(60.0)


class CallQueues(TimedLoop):
    """Lets a worker that makes calls claim from every queue that calls were made on: the first call of a queue makes its task."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._store, self._worker = store, worker
        self._known: list[str] = []

    async def tick(self) -> float:
        queues = await self._store.call_queues()
        if queues != self._known:
            self._known = queues
            self._worker.take_calls_from(queues)
        return _LOOK_FOR_QUEUES
