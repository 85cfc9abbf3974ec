"""The process that dies: `python -m unit.engine.victim URL WITNESS ROLE [MORE]`, with a failpoint in its environment.

Deliveries are written down by the target itself, so that the store's own account is never trusted.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.callback import CallbackMessage, CallbackStatus, receive
from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.sweeper import Sweeper
from noonbell.engine.worker import Worker
from noonbell.model.request import IncomingCallback
from noonbell.model.run import Assignment, Outcome, OutcomeKind
from noonbell.model.target_kind import ExecType
from noonbell.ports import Store
from noonbell.stores import make_wakeup, open_store

LIVED = 3
"""The exit status of a victim that was not killed in time."""


class Witness:
    """A target that writes each delivery down before it does anything else."""

    def __init__(self, path: str | Path, seconds: float = 0.0) -> None:
        self._path, self._seconds = path, seconds
        self.started = asyncio.Event()

    async def execute(self, assignment: Assignment) -> Outcome:
        lease = assignment.lease
        line = f"{lease.run_id} {lease.attempt} {lease.callback_token or '-'}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)
        self.started.set()
        await asyncio.sleep(self._seconds)
        accepted = assignment.task.spec.exec_type is ExecType.ASYNC
        return Outcome(kind=OutcomeKind.ACCEPTED if accepted else OutcomeKind.SUCCESS)


def node_on(store: Store, url: str, target: Witness, name: str) -> Node:
    wakeup = make_wakeup(url)
    worker = Worker(
        store, wakeup, dict.fromkeys(ExecType, target), worker_id=name, queues=("default", "http"), poll=0.05
    )
    return Node(planner=Planner(store, wakeup, poll=0.05), sweeper=Sweeper(store, wakeup, poll=0.05), workers=[worker])


async def main(url: str, witness: str, role: str, *more: str) -> None:
    store = open_store(url)
    await store.open()
    if role == "callback":
        tasks, said = TaskCache(store), CallbackMessage(status=CallbackStatus.SUCCESS)
        await receive(store, make_wakeup(url), tasks, IncomingCallback(token=more[0]), said)
        return
    target = Witness(witness, 60.0 if role in ("hold", "stop") else 0.0)
    node = node_on(store, url, target, "victim")
    await node.start()
    if role == "stop":
        await target.started.wait()
        await node.stop(0)
    else:
        await asyncio.sleep(20)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    os._exit(LIVED)
