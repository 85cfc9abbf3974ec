"""The nodes of a simulation: the real planner, sweeper, claim loops, heartbeats and attempt runners, in processes that
can be killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.event_hub import signal_events
from noonbell.engine.in_flight import StopReason
from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.errors import NoonbellError
from noonbell.model.call import CALL_TYPE
from noonbell.model.run import RunId
from noonbell.model.target_kind import ExecType
from noonbell.ports import Target
from noonbell.service import Rules, Services
from noonbell.service.bulk_operations import BatchReader, BulkLoop
from noonbell.testing.simulation.event_loop import Process
from noonbell.testing.simulation.targets import CHILD_TYPE, PARENT_TYPE, ReceivedCall, SimulatedTarget, TargetLog
from noonbell.testing.simulation.world import LastingFault, RemoteStore, SimulatedWakeup, World

QUEUES: Final = ("default", "http", "narrow")
CONCURRENCY: Final = 4
"""Attempts that one node carries out at once."""
_TYPES: Final = ("work", PARENT_TYPE, CHILD_TYPE, CALL_TYPE)
"""Of nodes that name what they carry out; the others carry out everything but calls."""
_POLL: Final = 2.0
"""Seconds between two looks for what no signal told of."""
_SWEEP: Final = 1.5


class SimulatedNode:
    """One process, from its start to its end. Another one takes its place afterwards."""

    def __init__(self, cluster: Cluster, place: int, life: int, worker_id: str) -> None:
        world = cluster.world
        self.name = f"n{place}.{life}"
        self.place, self.worker_id = place, worker_id
        self.process = Process(self.name)
        self.store = RemoteStore(world, self.process, self._die)
        self.wakeup = SimulatedWakeup(world, self.process)
        self.tasks = TaskCache(self.store)
        self._cluster, self._world = cluster, world
        self.worker: Worker | None = None
        self._node: Node | None = None
        self.is_up = False
        """It has started, and is not asked to stop."""
        world.wakeups.append(self.wakeup)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    def start(self) -> None:
        self._world.note(self.name, f"starts as {self.worker_id}")
        self._world.loop.spawn(self.process, self._run(), self.name)

    async def _run(self) -> None:
        world = self._world
        while True:
            try:
                await self.store.open()
                signal_events(self.store, self.wakeup)
                await self._begin()
            except NoonbellError:
                await asyncio.sleep(1.0)  # as a supervisor would
            else:
                break
        world.note(self.name, "is up")
        self.is_up = True

    async def _begin(self) -> None:
        target = SimulatedTarget(self._cluster.log, self, self.tasks)
        targets: dict[ExecType, Target] = dict.fromkeys((ExecType.SYNC, ExecType.ASYNC, ExecType.JOB), target)
        self.worker = Worker(
            self.store,
            self.wakeup,
            targets,
            worker_id=self.worker_id,
            queues=QUEUES,
            concurrency=CONCURRENCY,
            job_types=None if self.place % 2 else _TYPES,
            ahead=4,
            claim_loops=1 + self.place % 2,
            poll=_POLL,
            tasks=self.tasks,
            callback_url=lambda token: f"http://node/{token}",
        )
        services = Services(self.store, self.wakeup, Rules(), self.tasks)
        reader = BatchReader(self.store, services.runs, services.tasks)
        bulk = BulkLoop(self.store, self.wakeup, self.tasks, reader, holder=self.name, held=2.0)
        node = Node(
            others={"bulk operations": bulk},
            planner=Planner(self.store, self.wakeup, node=self.name, poll=_POLL),
            sweeper=Sweeper(self.store, self.wakeup, tasks=self.tasks, poll=_SWEEP, upkeep=1e9),
            workers=[self.worker],
            clock=self._world.clock,
            note_outage=lambda seconds, reason: self.store.note_outage(seconds, self.name, reason),
        )
        await node.start(graceful_timeout=2.0)
        self._node = node

    def hands_back(self, call: ReceivedCall) -> bool:
        """Whether its worker interrupts this attempt to hand its run back: not because it is canceled, lost or too late."""
        state = None if self.worker is None else self.worker.in_flight.leases.get((RunId(call.run_id), call.token))
        return state is not None and state.stop_reason is StopReason.STOPPED

    def do(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """What a caller of this node asks for. It is lost if the node dies."""
        self._world.loop.spawn(self.process, work, name)

    def crash(self) -> None:
        self._world.fault(self.name, "is killed")
        self._die("killed")

    def _die(self, how: str) -> None:
        if not self.process.is_alive:
            return
        self._world.note(self.name, f"dies: {how}")
        self._world.loop.kill(self.process)
        if self.wakeup in self._world.wakeups:
            self._world.wakeups.remove(self.wakeup)

    def freeze(self, seconds: float) -> None:
        self._world.fault(self.name, f"is frozen for {seconds:g} s")
        self.process.frozen_until = self._world.loop.time() + seconds

    def stall(self, seconds: float) -> None:
        self._world.fault(self.name, f"hears nothing of the database for {seconds:g} s")
        self.store.stalled_until = self._world.loop.time() + seconds

    def stop(self) -> None:
        """Gracefully, as in a rolling restart."""
        if self.is_up and self._node is not None:
            self._world.note(self.name, "is asked to stop")
            self.is_up = False
            self.do(self._stop(self._node), f"stop of {self.name}")

    async def _stop(self, node: Node) -> None:
        await node.stop(2.0)
        self._die("stopped")


class Cluster:
    def __init__(self, world: World, size: int) -> None:
        self.world, self.size = world, size
        self.log = TargetLog(world, self)
        self.nodes: list[SimulatedNode] = []
        """The latest of each place."""
        self.all_nodes: list[SimulatedNode] = []
        self._lives = [0] * size

    def start(self) -> None:
        for place in range(self.size):
            self.restart(place)

    def restart(self, place: int, *, same_id: bool = False) -> SimulatedNode:
        """A new process in that place; with `same_id` it works under the id of the one before."""
        self._lives[place] += 1
        life = self._lives[place]
        before = self.nodes[place].worker_id if same_id and place < len(self.nodes) else None
        node = SimulatedNode(self, place, life, before or f"w{place}.{life}")
        if place < len(self.nodes):
            self.nodes[place] = node
        else:
            self.nodes.append(node)
        self.all_nodes.append(node)
        node.start()
        return node

    def any_node(self) -> SimulatedNode | None:
        """One that callers can reach now."""
        able = [
            node
            for node in self.nodes
            if node.is_alive and node.is_up and node.process.frozen_until <= self.world.loop.time()
        ]
        return able[int(self.world.network.random() * len(able))] if able else None

    def heal(self) -> None:
        """No more faults: who is frozen goes on, who is dead is started again."""
        world = self.world
        world.outage_until = world.signals_lost_until = 0.0
        for node in self.all_nodes:
            node.process.frozen_until = 0.0
            node.store.faults.clear()
            node.store.stalled_until = 0.0
            node.store.reconnect()
        for node in self.nodes:
            if not node.is_alive or not node.is_up:
                self.restart(node.place)

    def join(self) -> None:
        """One more node, under an id that no part of a fan-out was lost with."""
        self._lives.append(0)
        self.restart(len(self._lives) - 1)

    def befall(self, place: int, fault: LastingFault) -> None:
        self.nodes[place].store.faults.append(fault)
