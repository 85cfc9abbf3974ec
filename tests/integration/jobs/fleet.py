"""Worker processes on a real store, and the node that plans and sweeps for them, in the test's own process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from noonbell.engine.attempt_runner import TaskCache
from noonbell.engine.node import Node
from noonbell.engine.planner import Planner
from noonbell.engine.publish import publish
from noonbell.engine.sweeper import Sweeper
from noonbell.model.request import Publication
from noonbell.model.run import Run, RunId
from noonbell.model.task import TaskId, TaskSpec
from noonbell.model.worker import WorkerInfo, WorkerState
from noonbell.ports import ORDERS, Store, Wakeup
from noonbell.stores import make_wakeup, open_store
from services import forked

APP = Path(__file__).with_name("fleet_app.py")
COMMAND = str(Path(sys.executable).with_name("noonbell"))
PATIENCE = 60.0
"""Seconds. Nothing waits for that long, unless a process was frozen inside a transaction: the store ends that in 15 s."""
FRESH = {"sqlite": "sqlite_url", "postgres": "postgres_url", "mariadb": "mysql_url"}
"""The fixture that has an address of each kind of store."""
LEASE = {"worker_timeout_ms": 2_000, "ping_interval_ms": 200}
"""Milliseconds: short, so that losing one does not take long."""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Process:
    """One `noonbell worker`."""

    def __init__(
        self, folder: Path, worker_id: str, url: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.id, self._log = worker_id, folder / f"{worker_id}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")} | dict(
            env or {}
        )
        command = ["worker", "--app", f"{APP}:app", "--store", url, "--worker-id", worker_id, *arguments]
        with self._log.open("ab") as log:
            self.process = forked.start(*command, cwd=folder, env=clean, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), PATIENCE)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


class Fleet:
    def __init__(self, folder: Path, url: str, store: Store, wakeup: Wakeup) -> None:
        self.folder, self.url, self.store, self.wakeup = folder, url, store, wakeup
        self.processes: list[Process] = []
        self._known = TaskCache(store)

    async def start(
        self, *arguments: str, worker_id: str | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        """A worker that is ready."""
        process = self.launch(worker_id or f"w{len(self.processes)}", *arguments, env=env)
        await self.eventually(lambda: self._is_ready(process))
        return process

    def launch(self, worker_id: str, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """A process that may or may not come up."""
        folder = self.folder / f"process-{len(self.processes)}"
        folder.mkdir()
        process = Process(folder, worker_id, self.url, *arguments, env=env)
        self.processes.append(process)
        return process

    @staticmethod
    def _is_ready(process: Process) -> bool:
        assert process.process.poll() is None, process.log
        return "is ready" in process.log

    async def eventually(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.02)

    async def task(self, job_type: str, **spec: Any) -> TaskId:
        fields = {**LEASE, "job_type": job_type, "name": f"{job_type} of the test", **spec}
        return (await self.store.create_task(TaskSpec(**fields))).id

    async def publish(self, task_id: TaskId, payload: Any = None, count: int = 1) -> list[RunId]:
        given = [Publication(task_id=task_id, payload=payload)] * count
        return [one.run_id for one in await publish(self.store, self.wakeup, given, self._known)]

    async def run(self, job_type: str, payload: Any = None, **spec: Any) -> RunId:
        (run_id,) = await self.publish(await self.task(job_type, **spec), payload)
        return run_id

    async def until(self, run_id: RunId, holds: Callable[[Run], bool]) -> Run:
        async with asyncio.timeout(PATIENCE):
            while True:
                run = await self.store.run(run_id)
                assert run is not None
                if holds(run):
                    return run
                await asyncio.sleep(0.05)

    async def end_of(self, run_id: RunId) -> Run:
        return await self.until(run_id, lambda run: run.final_status is not None)

    async def notes(self, file: Path, word: str, count: int = 1) -> list[list[str]]:
        """The lines that begin with the word, once there are so many of them."""

        def lines() -> list[list[str]]:
            text = file.read_text() if file.exists() else ""
            return [line.split() for line in text.splitlines() if line.startswith(f"{word} ")]

        await self.eventually(lambda: len(lines()) >= count)
        return lines()

    async def worker(self, worker_id: str) -> WorkerInfo | None:
        return next((worker for worker in await self.store.workers() if worker.id == worker_id), None)

    async def beats(self, worker_id: str, count: int) -> None:
        """Until it has been heard of so many times more: what it was told before, it knows."""
        seen: set[int] = set()
        async with asyncio.timeout(PATIENCE):
            while True:
                worker = await self.worker(worker_id)
                assert worker is not None
                seen.add(worker.heartbeat_at)
                if len(seen) > count:
                    return
                await asyncio.sleep(0.05)

    async def order(self, worker_id: str, state: WorkerState | None = None, concurrency: int | None = None) -> None:
        await self.store.set_worker(worker_id, state=state, concurrency=concurrency)
        self.wakeup.signal(ORDERS)


@asynccontextmanager
async def fleet_on(url: str, folder: Path) -> AsyncIterator[Fleet]:
    """No worker yet; none is left at the end."""
    store, wakeup = open_store(url), make_wakeup(url)
    await store.open()
    await wakeup.open()
    node = Node(planner=Planner(store, wakeup), sweeper=Sweeper(store, wakeup))
    await node.start()
    fleet = Fleet(folder, url, store, wakeup)
    try:
        yield fleet
    finally:
        for process in fleet.processes:
            process.kill()
        await node.stop(0)
        await wakeup.close()
        await store.close()
