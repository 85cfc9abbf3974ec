"""Plays a history: makes its tasks, takes its steps, heals the world, and checks the laws on the way and at the end.

A history that fails is made short (`shrink`), and many seeds are played in several processes (`lived`).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from noonbell.engine.heartbeat import INTERVAL
from noonbell.errors import NoonbellError
from noonbell.model.request import TaskQuery
from noonbell.model.run import RunId
from noonbell.model.worker import Queue
from noonbell.service import Rules, Services
from noonbell.service.tasks import Removal
from noonbell.stores.sql.statement import Conflict
from noonbell.testing.simulation.cluster import Cluster, SimulatedNode
from noonbell.testing.simulation.history import EXTRA, FAULTS, NODES, History, HistoryStep, history_of
from noonbell.testing.simulation.laws import LawBroken, Laws, Violation
from noonbell.testing.simulation.world import LastingFault, World

HEALING: Final = 60.0
"""Seconds after the last fault by which everything must be at rest."""
LEAST_FAULTS: Final = 5
LEAST_TRANSITIONS: Final = 200
"""Of each history."""
_LATEST: Final = 8.0
"""Seconds after which no message of before is on its way any more."""
_MOST_WAITING: Final = 12
_LOOK: Final = 0.5
_ALL: Final = TaskQuery(page_size=200)


@dataclass(frozen=True, slots=True)
class Played:
    """How a history went."""

    history: History
    violation: Violation | None
    digest: str
    """Of all that happened: equal for equal seeds, in any process."""
    trace: tuple[str, ...]
    nodes: int
    """Processes that planned and executed, all told."""
    transitions: int
    """Transactions that changed something."""
    faults: int
    runs: int
    deliveries: int
    seconds: float
    """Of the simulated time."""
    steps: int
    """Of the event loop."""


def play(history: History) -> Played:
    """Live through a history."""
    is_collecting = gc.isenabled()
    gc.collect(1)  # what the history before this one left behind
    gc.disable()
    world = World(history.seed)
    try:
        with world.owned():
            return _Player(world, history).play()
    finally:
        world.close()
        if is_collecting:
            gc.enable()


def play_seed(seed: int) -> Played:
    return play(history_of(seed))


class _Player:
    def __init__(self, world: World, history: History) -> None:
        self._world, self._history = world, history
        self._cluster = Cluster(world, NODES)
        self._cluster.log.characters = history.characters
        self._laws = Laws(world, self._cluster, history)
        self._draw = random.Random(f"checks {history.seed}")

    def play(self) -> Played:
        world, violation = self._world, None
        world.loop.spawn(world.database, _nothing(), "database")
        try:
            world.loop.run(world.outside, self._live())
        except LawBroken as broken:
            violation = broken.violation
        except (NoonbellError, Conflict) as error:  # of what the history does itself, where no fault reaches
            violation = Violation("what is asked outside of any fault succeeds", f"{type(error).__name__}: {error}")
        if violation is not None:
            world.note("law", f"BROKEN {violation}")
        return Played(
            history=self._history,
            violation=violation,
            digest=world.digest,
            trace=tuple(world.trace),
            nodes=len(self._cluster.all_nodes),
            transitions=world.commits,
            faults=world.faults,
            runs=world._db.execute("select count(*) from runs").fetchone()[0],
            deliveries=len(self._cluster.log.deliveries),
            seconds=world.seconds,
            steps=world.loop.steps,
        )

    async def _live(self) -> None:
        world, history = self._world, self._history
        self._cluster.start()
        await self._until(lambda: all(node.is_up for node in self._cluster.nodes), 5.0)
        await self._make_tasks()
        looks = sorted(self._draw.uniform(1, history.seconds) for _ in range(2))
        moments = [(step.at, number, step) for number, step in enumerate(history.steps)]
        moments += [(at, -1, None) for at in looks]  # type: ignore[misc]
        for at, _, step in sorted(moments, key=lambda moment: moment[:2]):
            await asyncio.sleep(max(0.0, at - world.seconds))
            if step is None:
                self._laws.check()
            else:
                self._take(step)
        await asyncio.sleep(max(0.0, history.seconds - world.seconds))
        if history.is_filled_up:
            await self._more_faults()
        await self._heal()
        self._laws.check_end()

    async def _make_tasks(self) -> None:
        services = Services(self._world.direct, self._cluster.nodes[0].wakeup, Rules())
        await self._world.direct.set_queue("narrow", lambda queue: _limited(queue, self._history.queue_limit))
        for given in self._history.tasks:
            await services.tasks.create(given)

    async def _more_faults(self) -> None:
        """Some faults wait for a call that never came: kill nodes until the history has as many as it should."""
        places = itertools.cycle(range(NODES))
        while self._world.faults < LEAST_FAULTS:
            node = self._cluster.nodes[next(places)]
            if node.is_alive:
                node.crash()
            else:
                self._cluster.restart(node.place)
            await asyncio.sleep(0.7)

    async def _more_transitions(self) -> None:
        """A history that was paused for long has had few."""
        world, places = self._world, itertools.cycle(range(NODES))
        while world.commits < LEAST_TRANSITIONS:
            if world._db.execute("select count(*) from live").fetchone()[0] < _MOST_WAITING:
                self._take(HistoryStep(world.seconds, "publish", next(places), EXTRA, 1))
            await asyncio.sleep(0.1)

    async def _heal(self) -> None:
        world, cluster = self._world, self._cluster
        world.note("outside", "heals")
        world.clock.offset = max(0, world.clock.offset)  # or all would wait until it is as late as it was once
        cluster.heal()
        cluster.log.is_healed = True
        if any("fanout" in task for task in self._history.tasks):
            cluster.join()  # parts go to workers that have neither lost them nor have others of the same run
            cluster.join()
        await self._until(lambda: all(node.is_up for node in cluster.nodes), 20.0)
        services = Services(world.direct, cluster.nodes[0].wakeup, Rules())
        await services.pauses.resume()
        await world.direct.set_queue("narrow", lambda queue: _paused(queue, paused=False))
        await asyncio.sleep(2.0)
        if self._history.is_filled_up:
            await self._more_transitions()
        await self._end_schedules(services)
        await self._until(lambda: not self._laws.unfinished(), _LATEST)
        if self._laws.unfinished():  # a pause or an enabling that was asked for before may have come after it
            await services.pauses.resume()
            await world.direct.set_queue("narrow", lambda queue: _paused(queue, paused=False))
            await self._end_schedules(services)
            await self._until(lambda: not self._laws.unfinished(), HEALING)
        await self._until(
            lambda: not self._laws.usurped(), 2 * INTERVAL
        )  # an idle worker hears of it with its next heartbeat

    async def _end_schedules(self, services: Services) -> None:
        for task in (await self._world.direct.tasks(_ALL)).items:
            if task.spec.schedule is not None:
                await services.tasks.disable(task.id)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        end = self._world.loop.time() + seconds
        while not is_so() and self._world.loop.time() < end:  # noqa: ASYNC110 - what it looks at is outside of the loop
            await asyncio.sleep(_LOOK)

    # Steps

    def _take(self, step: HistoryStep) -> None:
        self._world.note("outside", f"step {step.kind} {step.place} {step.what} {step.number:g}")
        if step.kind in FAULTS or step.kind in ("restart", "restart_same", "stop"):
            self._befall(step)
            return
        node = self._cluster.nodes[step.place]
        if not (node.is_alive and node.is_up):
            node = self._cluster.any_node() or node
        if node.is_alive and node.is_up:
            node.do(_asked(self._action(node, step)), step.kind)

    def _befall(self, step: HistoryStep) -> None:
        world, cluster = self._world, self._cluster
        node = cluster.nodes[step.place]
        match step.kind:
            case "crash":
                if node.is_alive:
                    node.crash()
            case "restart" | "restart_same":
                is_frozen = node.process.frozen_until > world.loop.time()
                if not node.is_alive or is_frozen:
                    cluster.restart(step.place, same_id=step.kind == "restart_same")
            case "stop":
                node.stop()
            case "freeze":
                if node.is_alive:
                    node.freeze(step.number)
            case "stall":
                if node.is_alive:
                    node.stall(step.number)
            case "outage":
                world.fault("database", f"does not answer for {step.number:g} s")
                world.outage_until = world.loop.time() + step.number
            case "lost_signals":
                world.fault("network", f"loses signals for {step.number:g} s")
                world.signals_lost_until = world.loop.time() + step.number
            case "clock":
                world.fault("database", f"its clock is set by {step.number:g} s")
                world.clock.offset += int(step.number * 1_000_000)
            case _:
                cluster.befall(step.place, LastingFault(step.kind, step.what, step.number))

    def _action(self, node: SimulatedNode, step: HistoryStep) -> Coroutine[Any, Any, Any]:
        services = Services(node.store, node.wakeup, Rules(), node.tasks)
        number = int(step.number)
        match step.kind:
            case "publish":
                return services.publishing.trigger(step.what, _publication(step.what, number))
            case "cancel":
                return self._cancel(services, step.what, number)
            case "retry":
                return self._retry(services, step.what, number)
            case "edit":
                return self._edit(services, step.what, number)
            case "disable":
                return services.tasks.disable(step.what)
            case "enable":
                return services.tasks.enable(step.what)
            case "skip":
                return services.tasks.skip(step.what, 1 + number % 2)
            case "delete":
                return services.tasks.delete(step.what, Removal(cancel_running=number % 2 == 0, force=True))
            case "pause_task":
                return services.tasks.disable(step.what, {"for_seconds": 1 + number % 3, "reason": "a step"})
            case "bulk_cancel" | "bulk_retry" | "bulk_trigger":
                return services.bulk.start(_bulk(step))
            case "call":
                return services.calls.call(_call(number))
            case "batch":
                one = {"task": step.what, **_publication(step.what, number)}
                return services.publishing.publish_batch([one, {**one, "key": f"b{number % 3}"}, one])
            case "dedupe":
                return services.publishing.trigger(step.what, {"dedupe": _DEDUPES[number % len(_DEDUPES)]})
            case "pause":
                return services.pauses.pause({"reason": "a step"})
            case "resume":
                return services.pauses.resume()
            case "pause_queue":
                return node.store.set_queue("narrow", lambda queue: _paused(queue, paused=True))
            case "resume_queue":
                return node.store.set_queue("narrow", lambda queue: _paused(queue, paused=False))
        raise ValueError(step.kind)

    async def _cancel(self, services: Services, name: str, number: int) -> None:
        """One of the runs of the task that are not final, or any."""
        rows = self._world._db.execute(
            "select l.run_id from live l join tasks t on t.id = l.task_id where t.name = ? order by l.run_id", (name,)
        ).fetchall()
        if rows:
            await services.runs.cancel(RunId(rows[number % len(rows)][0]))

    async def _retry(self, services: Services, name: str, number: int) -> None:
        rows = self._world._db.execute(
            "select r.id from runs r join tasks t on t.id = r.task_id where t.name = ? and r.status in ('FAILED', 'CANCELED')"
            " and r.step_id is null and r.parent_id is null order by r.id",
            (name,),
        ).fetchall()
        if rows:
            await services.runs.retry(RunId(rows[number % len(rows)][0]))

    async def _edit(self, services: Services, name: str, number: int) -> None:
        given = next((task for task in self._history.tasks if task["name"] == name), {})
        change: dict[str, Any] = {"priority": number % 3}
        if "schedule" in given and number % 2:
            change["schedule"] = {**given["schedule"], "every": 1 + number % 4}
        await services.tasks.change(name, change, partial=True)


def _publication(name: str, number: int) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if name == "keyed":
        given["payload"] = {"customer": f"c{number % 2}"}
    elif number % 3 == 0:
        given["key"] = f"k{number % 4}"
    if number % 5 == 0:
        given["delay_seconds"] = 1
    return given


_DEDUPES: Final = (
    {"mode": "key", "key": "d"},
    {"mode": "throttle", "key": "d", "seconds": 1},
    {"mode": "debounce", "key": "d", "seconds": 1, "max_wait_seconds": 3},
)


def _bulk(step: HistoryStep) -> dict[str, Any]:
    match step.kind:
        case "bulk_cancel":
            return {"kind": "cancel_runs", "filter": {"task": step.what}}
        case "bulk_retry":
            return {"kind": "retry_runs", "filter": {"status": ["FAILED"], "task": step.what}}
        case _:
            return {"kind": "trigger_tasks", "filter": {"name": step.what}}


def _call(number: int) -> dict[str, Any]:
    given: dict[str, Any] = {"url": "http://target/"}
    if number % 2:
        given["concurrency_key"] = f"c{number % 4}"
    if number % 5 == 0:
        given["delay_seconds"] = 1
    return given


async def _asked(action: Coroutine[Any, Any, Any]) -> None:
    """A caller asks once: an error is its answer."""
    try:
        await action
    except NoonbellError:
        return


def _limited(queue: Queue, limit: int | None) -> Queue:
    return msgspec.structs.replace(queue, concurrency=limit)


def _paused(queue: Queue, *, paused: bool) -> Queue:
    return msgspec.structs.replace(queue, paused=paused)


async def _nothing() -> None:
    """The database's process is known from here on."""


_CHUNK = 10


class SeedFigures(NamedTuple):
    """Of one seed, as they are kept."""

    seed: int
    digest: str
    nodes: int
    transitions: int
    faults: int
    runs: int
    deliveries: int
    cpu_seconds: float
    broken: str
    """The law and what broke it; empty: none."""


def figures_of(seed: int) -> SeedFigures:
    began = time.process_time()
    played = play_seed(seed)
    return SeedFigures(
        seed,
        played.digest,
        played.nodes,
        played.transitions,
        played.faults,
        played.runs,
        played.deliveries,
        round(time.process_time() - began, 3),
        "" if played.violation is None else str(played.violation),
    )


def lived(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedFigures]:
    """The figures of each seed, in any order."""
    if jobs <= 1:
        yield from map(figures_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(figures_of, seeds, chunksize=_CHUNK)


T = TypeVar("T")


def shrink(played: Played, most: int = 400, tell: Callable[[str], None] | None = None) -> Played:
    """The shortest history that was found, after at most that many trials, in which the law of `played` is broken."""
    if played.violation is None:
        raise ValueError("no law was broken")
    law, best, left = played.violation.law, played, most

    def fails(history: History) -> bool:
        nonlocal best, left
        if left <= 0 or (history.is_filled_up and EXTRA not in {task["name"] for task in history.tasks}):
            return False
        left -= 1
        tried = play(history)
        if tried.violation is None or tried.violation.law != law:
            return False
        best = tried
        if tell is not None:
            tell(f"{len(history.steps)} steps, {len(history.tasks)} tasks")
        return True

    def fails_without(tasks: Sequence[dict[str, Any]]) -> bool:
        return fails(replace(best.history, tasks=_closed(tasks)))

    fails(replace(best.history, is_filled_up=False))
    while True:
        before = (len(best.history.steps), len(best.history.tasks))
        _without(best.history.steps, lambda steps: fails(replace(best.history, steps=tuple(steps))))
        _without(best.history.tasks, fails_without)
        if left <= 0 or (len(best.history.steps), len(best.history.tasks)) == before:
            return best


def _without(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> None:
    """Leave out runs of items, half of them first, then smaller ones."""
    kept, size = list(items), max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if len(fewer) < len(kept) and fails(fewer):
                kept = fewer
            else:
                at += size
        if size == 1:
            return
        size = max(1, size // 2)


def _closed(tasks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Without those that follow, or spawn, a task that is left out."""
    names = {task["name"] for task in tasks}
    kept = [
        task
        for task in tasks
        if not ("after" in task and not {"free-a", "free-b"} <= names)
        and not (task.get("job_type") == "parent" and "child" not in names)
    ]
    return tuple(kept)
