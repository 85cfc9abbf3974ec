"""The no-op jobs of a drain as the steps of flows, carried out by `noonbell worker`; and the plain drain beside edges.

python -m bench.flows STORE --url … --one 0 --drain … --shape foreach --size 10000    one Sample: flows of so many items or steps
python -m bench.flows STORE --url … --one 0 --drain … --edges 1000                    a drain without flows, and its statements
python -m bench.flows STORE --url … --one 0 --drain … --cost --shape chain --size 1000   what a step costs: statements, round trips,
                                                                                      commits; and what a commit costs there
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from bench import databases, ours
from bench.app import app, relay
from bench.jobs import DATA
from bench.peers.sample import BATCH, Sample, parser
from bench.rounds import Failed
from bench.workers import QUIET, address, working
from noonbell.model.request import NewTask, Publication
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Step, TaskSpec
from noonbell.model.task_schedule import After, Upstream
from noonbell.version import __version__


def flow(shape: str, size: int) -> TaskSpec:
    """Its steps are `size` runs of the job `noop`: side by side (`foreach`), or one after the other (`chain`)."""
    steps: tuple[Step, ...]
    if shape == "foreach":
        steps = (Step(id="each", job_type="noop", foreach="{{ payload.items }}", payload={"data": "{{ item }}"}),)
    else:
        needs: list[tuple[str, ...]] = [(), *((f"s{number}",) for number in range(size - 1))]
        steps = tuple(
            Step(id=f"s{number}", needs=need, job_type="noop", payload={"data": DATA})
            for number, need in enumerate(needs)
        )
    return TaskSpec(name="flow", exec_type=ExecType.FLOW, queue="default", steps=steps, max_concurrency=None)


async def publish(args: argparse.Namespace) -> int:
    """How many flows wait then. A relay is none: plain jobs, each of which publishes the next."""
    async with app.connected(address(args.store, args.url)):  # declares the jobs
        if args.shape == "relay":
            await relay.publish(left=args.size, data=DATA)
            await ours.tidy(args.store, args.url)
            return 0
    store = ours.build(args.store, args.url)
    await store.open()
    task = await store.create_task(flow(args.shape, args.size))
    flows = max(1, args.drain // args.size)
    payload = {"items": [DATA] * args.size} if args.shape == "foreach" else {}
    for _ in range(flows):
        await store.publish([Publication(task_id=task.id, payload=payload)])
    await store.close()
    await ours.tidy(args.store, args.url)
    return flows


def throughput(args: argparse.Namespace) -> Sample:
    flows = ours.run(publish(args))
    jobs = max(1, flows) * args.size
    with working(args.store, args.url, *QUIET, expected=jobs) as printed:
        drained = json.loads(printed.readline() or "{}").get("drain")
    kept = ours.run(ours.scalar(args.store, args.url, "select count(*) from runs where status = 'SUCCESS'"))
    if drained is None or kept != jobs + flows:
        raise Failed(f"{kept} of {jobs} steps and {flows} flows succeeded")
    what = f"{flows} flow(s) of {args.size:,}" if flows else f"{args.size:,} jobs, each published by the one before"
    said = f"`noonbell worker {' '.join(QUIET)}`, default concurrency, {what}"
    return Sample("Noonbell", __version__, None, None, drained, jobs, said)


class Sent:
    """What a store sends to PostgreSQL, as asyncpg logs it: each is a round trip."""

    def __init__(self) -> None:
        self.round_trips = self.commits = self.around = 0
        asyncpg.create_pool = functools.partial(self._create_pool, asyncpg.create_pool)  # type: ignore[assignment]

    def _create_pool(self, create: Callable[..., Any], *args: Any, init: Any = None, **options: Any) -> Any:
        async def watched(connection: Any) -> None:
            await self._watch(connection)
            if init is not None:
                await init(connection)

        return create(*args, init=watched, **options)

    async def _watch(self, connection: Any) -> None:
        connection.add_query_logger(lambda record: self._count(record.query.strip().rstrip(";").lower()))

    def _count(self, query: str) -> None:
        self.round_trips += 1
        self.commits += query == "commit"
        self.around += query.startswith(("begin", "commit", "rollback"))

    def forget(self) -> None:
        self.round_trips = self.commits = self.around = 0


COMMITS = 300


async def latencies(url: str) -> tuple[float, float]:
    """Seconds that a commit of one row takes on this database, and a round trip: medians of COMMITS, one after the other."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create table one_row (n integer)")
        await connection.execute("insert into one_row values (0)")
        commit = await _median_seconds(lambda: connection.execute("update one_row set n = n + 1"))
        round_trip = await _median_seconds(lambda: connection.fetchval("select 1"))
        await connection.execute("drop table one_row")
        return commit, round_trip
    finally:
        await connection.close()


async def _median_seconds(do: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(COMMITS):
        start = time.perf_counter()
        await do()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


async def cost(args: argparse.Namespace) -> dict[str, float]:
    """Flows carried out by the store alone, in one process: what each step sends. `commit` and `round_trip` are in seconds."""
    commit, round_trip = await latencies(args.url)
    sent = Sent()
    store = ours.build(args.store, args.url)
    await store.open()
    flows = max(1, args.drain // args.size)
    task = await store.create_task(flow(args.shape, args.size))
    payload = {"items": [DATA] * args.size} if args.shape == "foreach" else {}
    await store.publish([Publication(task_id=task.id, payload=payload)] * flows)
    await ours.tidy(args.store, args.url)
    sent.forget()
    drained = await ours.drain(store, flows * args.size, ours.CLAIM[args.store])
    steps = flows * args.size
    found = {
        "drain": drained,
        "statements": (sent.round_trips - sent.around) / steps,
        "round_trips": sent.round_trips / steps,
        "commits": sent.commits / steps,
        "commit": commit,
        "round_trip": round_trip,
    }
    await store.close()
    return found


async def beside_edges(args: argparse.Namespace) -> dict[str, Any]:
    """The store's own drain of a task that nothing follows, and the statements that it sends, commits included."""
    sent = Sent()
    store = ours.build(args.store, args.url)
    await store.open()
    elsewhere = await store.create_task(TaskSpec(name="elsewhere", job_type="elsewhere", queue="elsewhere"))
    follows = After(tasks=(Upstream(task=elsewhere.id),))
    await store.create_tasks(
        [
            NewTask(spec=TaskSpec(name=f"after-{number}", job_type="elsewhere", queue="elsewhere", after=follows))
            for number in range(args.edges)
        ]
    )
    noop = (await store.create_task(TaskSpec(name="noop", job_type="noop"))).id
    for done in range(0, args.drain, BATCH):
        size = min(BATCH, args.drain - done)
        await store.publish([Publication(task_id=noop, payload=ours.PAYLOAD)] * size)
    await ours.tidy(args.store, args.url)
    sent.forget()
    drained = await ours.drain(store, args.drain, ours.CLAIM[args.store])
    statements = sent.round_trips
    await store.close()
    return {"drain": drained, "statements": statements}


def main() -> None:
    arguments = parser()
    arguments.prog = "python -m bench.flows"
    arguments.add_argument("store", choices=databases.STORES)
    arguments.add_argument("--shape", choices=["foreach", "chain", "relay"], default="foreach")
    arguments.add_argument("--size", type=int, default=1_000, help="items of a foreach, or steps of a chain")
    arguments.add_argument("--edges", type=int, help="drain without flows, while other tasks have so many edges")
    arguments.add_argument("--cost", action="store_true", help="what a step costs, carried out by the store alone")
    args = arguments.parse_args()
    if args.cost:
        print(json.dumps(ours.run(cost(args))), flush=True)
    elif args.edges is not None:
        print(json.dumps(ours.run(beside_edges(args))), flush=True)
    else:
        throughput(args).print()


if __name__ == "__main__":
    main()
