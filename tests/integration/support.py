"""What the tests of this folder share: processes that can be killed, waiting with a deadline, tasks by the thousand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from noonbell import when
from noonbell.clock import slot_of
from noonbell.model.request import NewTask, Publication, PublishOutcome
from noonbell.model.run import RunId
from noonbell.model.task import Task, TaskSpec
from noonbell.ports import Store
from noonbell.stores.sql.statement import Execute, Work
from noonbell.stores.sql.store import SqlStore

TESTS = Path(__file__).parent.parent
QUEUE = "default"


def job(name: str, **fields: Any) -> TaskSpec:
    """A job on queue `default` without any limit."""
    return TaskSpec(name=name, **({"job_type": "work"} | fields))


def every_second(anchor: int, **more: Any) -> dict[str, Any] | None:
    """A slot each second after the instant `anchor`."""
    fields = {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}
    return when.normalise(fields | more, "UTC", slot_of(anchor))


async def create_many(store: SqlStore, specs: Sequence[TaskSpec]) -> list[Task]:
    return await store.create_tasks([NewTask(spec=spec) for spec in specs])


async def execute(store: SqlStore, sql: str) -> None:
    """One statement that is not the port's."""

    def work(_: Any) -> Work[None]:
        yield Execute(sql)

    await store._write(work)


async def publish_many(store: Store, task: Task, count: int, at_once: int = 2_000, **fields: Any) -> list[RunId]:
    ids: list[RunId] = []
    for start in range(0, count, at_once):
        wanted = min(at_once, count - start)
        answers = await store.publish([Publication(task_id=task.id, **fields) for _ in range(wanted)])
        assert {answer.outcome for answer in answers} == {PublishOutcome.CREATED}
        ids += [answer.run_id for answer in answers if answer.run_id is not None]
    return ids


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float, what: str) -> None:
    """Wait for a condition; fail in words when its time is up. The longer it takes, the more rarely it is looked at."""
    begun = time.monotonic()
    while True:
        answer = condition()
        if answer if isinstance(answer, bool) else await answer:
            return
        waited = time.monotonic() - begun
        assert waited < seconds, f"still waiting after {seconds} s: {what}"
        await asyncio.sleep(min(max(0.01, waited / 10), 0.05))


async def facts_of(store: Store, *types: str) -> dict[str, Counter[int]]:
    """For each type of event: how often each run was told of."""
    found: dict[str, Counter[int]] = {type_: Counter() for type_ in types}
    after = 0
    while events := await store.events(after, 200):
        after = events[-1].seq
        for event in events:
            if event.type in found and event.run_id is not None:
                found[event.type][event.run_id] += 1
    return found


def most_at_once(stretches: Iterable[tuple[int, int]]) -> int:
    """How many of the stretches, each without its end, lie over one another at most."""
    turns = sorted(turn for start, end in stretches for turn in ((start, 1), (end, -1)))
    most = now = 0
    for _, change in turns:
        now += change
        most = max(most, now)
    return most


class Member:
    """One process. It says `ready` when its store is open, and begins when told to."""

    def __init__(self, role: str, orders: dict[str, Any], folder: Path, name: str) -> None:
        self.name = name
        self.witness = folder / f"{name}.witness"
        self.witness.touch()
        self._errors: IO[bytes] = (folder / f"{name}.errors").open("wb+")
        orders = orders | {"name": name, "witness": str(self.witness)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration.crew", role, json.dumps(orders)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"ready\n", f"{self.name} did not start: {self.story()}"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill -9, and wait until the kernel has taken it away."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def check(self) -> None:
        """Ended by itself, and well."""
        assert self._process.wait(1) == 0, f"{self.name} failed: {self.story()}"

    def story(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def lines(self) -> list[list[str]]:
        """What it has written down so far; a line cut short by a kill is left out."""
        text = self.witness.read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def end(self) -> None:
        if not self.is_over:
            self._process.kill()
            self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


class Crew:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.members: list[Member] = []

    def start(self, role: str, count: int = 1, **orders: Any) -> list[Member]:
        """So many processes, which begin at the same moment."""
        fresh = [Member(role, orders, self._folder, f"{role}-{len(self.members) + n}") for n in range(count)]
        self.members += fresh
        for member in fresh:
            member.wait_ready()
        for member in fresh:
            member.go()
        return fresh

    def lines(self) -> list[list[str]]:
        return [line for member in self.members for line in member.lines()]

    def written(self) -> int:
        """How much all of them have written down, in bytes."""
        return sum(member.witness.stat().st_size for member in self.members)

    async def finish(self, members: Sequence[Member], seconds: float) -> None:
        """Wait until each has ended by itself, and well."""
        await until(
            lambda: all(member.is_over for member in members) or any(failed(member) for member in members),
            seconds,
            f"{[member.name for member in members if not member.is_over]} to end",
        )
        for member in members:
            if failed(member):
                member.check()
        for member in members:
            member.check()

    def end(self) -> None:
        for member in self.members:
            member.end()


def failed(member: Member) -> bool:
    return member._process.poll() not in (None, 0)
