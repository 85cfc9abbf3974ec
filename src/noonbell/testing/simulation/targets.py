"""What the attempts of a simulation call: it logs each delivery, and answers as the seed says.

The log is not the store's: what the store says is compared with it. How an attempt ends depends on the seed, the run's key and
the number of the attempt alone, so taking a step out of a history leaves the other answers as they were.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.callback import CallbackMessage, CallbackStatus, receive
from noonbell.engine.settle import failure
from noonbell.errors import NoonbellError
from noonbell.model.request import IncomingCallback
from noonbell.model.run import FINAL, Assignment, ChildRequest, Outcome, OutcomeKind, RunId, idempotency_key_of
from noonbell.testing.simulation.world import World

if TYPE_CHECKING:
    from noonbell.testing.simulation.cluster import Cluster, SimulatedNode

PARENT_TYPE, CHILD_TYPE = "parent", "child"
CHILDREN = 3
"""That a parent spawns and waits for."""


@dataclass(slots=True)
class ReceivedCall:
    """One request that reached the target."""

    run_id: int
    attempt: int
    token: int
    key: str
    task: str
    at_most_once: bool
    node: str
    at: float
    """Seconds since the history began."""
    answer: str = "-"
    """What it answered, when it did."""
    is_handed_back: bool = False
    """Its node interrupted it because its worker stops or may not go on, and hands the run back."""
    number: int = 0


class Character(msgspec.Struct, frozen=True):
    """How the target treats a task."""

    shortest: float = 0.01
    longest: float = 0.6
    """Seconds."""
    fails: float = 0.1
    hangs: float = 0.02
    loses_answer: float = 0.05
    """Parts of 1."""


HEALED: Final = Character(fails=0.0, hangs=0.0, loses_answer=0.0)


class TargetLog:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster
        self.deliveries: list[ReceivedCall] = []
        self.characters: dict[str, Character] = {}
        """By the name of the task."""
        self.holders: dict[tuple[int, int], str] = {}
        """The node that carries out each attempt, by run and token."""
        self.parked: dict[int, tuple[int, int]] = {}
        """Of each parent that waits for its children: its retries and losses by then."""
        self.is_healed = False
        """No target is slow any more, and none fails."""
        self.resumed_early: list[int] = []
        """Parents that were attempted again while a child was not final."""

    def draw(self, assignment: Assignment) -> random.Random:
        lease = assignment.lease
        return random.Random(
            f"{self._world.seed} {assignment.task.spec.name} {lease.scheduled_time} {lease.attempt} {lease.item_index}"
        )

    def receive(self, assignment: Assignment, node: str) -> ReceivedCall:
        lease, spec = assignment.lease, assignment.task.spec
        made = ReceivedCall(
            run_id=lease.run_id,
            attempt=lease.attempt,
            token=lease.token,
            key=idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key),
            task=spec.name or f"step of {lease.task_id}",
            at_most_once=spec.delivery == "at_most_once",
            node=node,
            at=self._world.seconds,
            number=len(self.deliveries),
        )
        self.deliveries.append(made)
        self.holders[lease.run_id, lease.token] = node
        self._world.note(node, f"delivers run {lease.run_id} attempt {lease.attempt} of {made.task}")
        return made

    def call_back(self, assignment: Assignment, draw: random.Random) -> None:
        """The target does its work, and says so: once, twice, late or never, through any node that lives then."""
        token, kind = assignment.lease.callback_token, draw.random()
        if token is None or kind < 0.1:
            return
        delay = draw.uniform(0.01, 1.5)
        times = 2 if kind < 0.3 else 1
        status = CallbackStatus.FAILED if draw.random() < 0.2 else CallbackStatus.SUCCESS
        for number in range(times):
            when = self._world.loop.time() + delay + number * draw.uniform(0.0, 1.0)
            self._world.loop.at(self._world.outside, when, self._say, token, status, assignment.lease.run_id)

    def _say(self, token: str, status: CallbackStatus, run_id: RunId) -> None:
        node = self._cluster.any_node()
        if node is not None:
            node.do(_called_back(node, token, status), f"callback of run {run_id}")


async def _called_back(node: SimulatedNode, token: str, status: CallbackStatus) -> None:
    for _ in range(5):
        try:
            await receive(
                node.store, node.wakeup, node.tasks, IncomingCallback(token=token), CallbackMessage(status=status)
            )
        except NoonbellError:
            await asyncio.sleep(0.3)
        else:
            return


class SimulatedTarget:
    """Of one node."""

    def __init__(self, log: TargetLog, node: SimulatedNode, tasks: TaskCache) -> None:
        self._log, self._node, self._tasks = log, node, tasks

    async def execute(self, assignment: Assignment) -> Outcome:
        delivery = self._log.receive(assignment, self._node.name)
        try:
            return await self._answer(assignment, delivery)
        except asyncio.CancelledError:
            delivery.is_handed_back = self._node.hands_back(delivery)
            raise

    async def _answer(self, assignment: Assignment, delivery: ReceivedCall) -> Outcome:
        log, spec, lease = self._log, assignment.task.spec, assignment.lease
        character, draw = log.characters.get(spec.name, Character()), log.draw(assignment)
        seconds = draw.uniform(character.shortest, character.longest)
        if log.is_healed:
            character, seconds = HEALED, seconds / 10
        if draw.random() < character.hangs:
            seconds += spec.timeout_seconds + 1
        await asyncio.sleep(seconds)
        result = {"attempt": lease.attempt, "delivery": delivery.number}
        if spec.job_type == PARENT_TYPE:
            outcome = await self._as_parent(assignment, result)
        elif draw.random() < character.loses_answer:
            delivery.answer = "lost"
            outcome = failure("connection_lost", "the answer was lost")
        elif draw.random() < character.fails:
            outcome = failure("http_5xx", "the target returned 500")
        elif spec.awaits_callback:
            log.call_back(assignment, draw)
            outcome = Outcome(kind=OutcomeKind.ACCEPTED, response_code=202)
        else:
            outcome = Outcome(kind=OutcomeKind.SUCCESS, response_code=200, result=result)
        if delivery.answer == "-":
            delivery.answer = str(outcome.kind)
        return outcome

    async def _as_parent(self, assignment: Assignment, result: dict[str, Any]) -> Outcome:
        """As a job that spawns three children and gathers them."""
        lease, store = assignment.lease, self._node.store
        try:
            await store.spawn(
                lease.run_id,
                lease.token,
                [ChildRequest(position=number, task=CHILD_TYPE, payload={"n": number}) for number in range(CHILDREN)],
            )
            states = await store.children(lease.run_id, list(range(CHILDREN)))
        except NoonbellError as error:
            return failure("error", type(error).__name__)
        counts = (lease.retry_count, lease.lost_count)
        if any(state.status not in FINAL for state in states):
            if self._log.parked.get(lease.run_id) == counts:
                self._log.resumed_early.append(lease.run_id)
            self._log.parked[lease.run_id] = counts
            return Outcome(kind=OutcomeKind.GATHERING)
        return Outcome(kind=OutcomeKind.SUCCESS, result={**result, "children": [str(each.status) for each in states]})
