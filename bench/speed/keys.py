"""Limits per key: how long runs of other keys wait beside a key with a long line, and what a claim costs with many keys."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench import databases, ours
from bench.app import app, slow_for
from bench.http import serving
from bench.lag import percentile
from bench.rounds import Failed, progress
from bench.speed.processes import until_registered
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.workers import QUIET, address, working
from noonbell.model.attempt import Settlement, Transition
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus
from noonbell.model.task import TaskSpec

KEYS = 1_000
HEAVY = "heavy"
WORKERS, PLACES = 4, 4
TAKES = 0.05
"""Seconds of a handler."""
LOAD = 0.5
"""Of the places of all workers, by runs of the other keys."""
BATCHES = 10
"""A second."""
PATIENCE = 60.0
TIMES, MORE = 2.0, 20.0
"""The p99 of the others beside the heavy key: at most so many times that without it, and so many milliseconds more."""
FLAT = 1.5
CLAIMS = 40
CLAIM = 10


def fair(scale: Scale, rounds: int) -> Found:
    seconds, waiting = scale.of(20, 2), scale.of(50_000, 500)
    found: dict[bool, list[float]] = {False: [], True: []}
    middles: dict[bool, list[float]] = {False: [], True: []}
    rounds = min(rounds, 2)
    for number in range(1, rounds + 1):
        for is_heavy in (False, True):
            progress(f"{KEYS:,} keys, {'one with' if is_heavy else 'none with'} a long line, round {number}")
            waits = beside(seconds, waiting if is_heavy else 0)
            found[is_heavy].append(percentile(waits, 99))
            middles[is_heavy].append(percentile(waits, 50))
    alone, with_it = median(found[False]), median(found[True])
    rows = [
        Row(
            f"wait of the runs of {KEYS - 1:,} keys beside one with {waiting:,} waiting, PostgreSQL: p50 / p99, ms",
            f"{median(middles[True]):.1f} / {with_it:.1f}",
            f"without that key {median(middles[False]):.1f} / {alone:.1f}",
            f"{with_it / alone:.2f} (p99)",
            f"p99 ≤ {TIMES:g} × + {MORE:g} ms",
            with_it <= TIMES * alone + MORE,
        )
    ]
    rate = LOAD * WORKERS * PLACES / TAKES
    note = (
        f"max_per_key 1, {WORKERS} workers of {PLACES} places, handlers of {TAKES * 1000:g} ms, {rate:g} runs a second of"
        f" the others for {seconds} s; no two runs of a key overlapped, and each key's runs started in their order."
    )
    return Found(rows + claims(scale), [note, f"Claims of {CLAIM}, {CLAIMS} of them, on the store."], rounds)


def beside(seconds: int, waiting: int) -> list[float]:
    """Milliseconds that each run of the other keys waited."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(databases.fresh("postgres"))
        stack.enter_context(serving("postgres", database, "--no-worker"))
        return ours.run(_beside(stack, database, seconds, waiting))


async def _beside(stack: contextlib.ExitStack, database: str, seconds: int, waiting: int) -> list[float]:
    draw = random.Random(7)
    async with app.connected(address("postgres", database), declare=True):
        for start in range(0, waiting, 5_000):
            size = min(5_000, waiting - start)
            await app.publish_many([slow_for.request(tenant=HEAVY, seconds=TAKES) for _ in range(size)])
        for _ in range(WORKERS):
            stack.enter_context(working("postgres", database, "--concurrency", str(PLACES), *QUIET))
        await until_registered(database, WORKERS)
        size = round(LOAD * WORKERS * PLACES / TAKES / BATCHES)
        published = 0
        began = time.monotonic()
        for number in range(seconds * BATCHES):
            await asyncio.sleep(max(0.0, began + number / BATCHES - time.monotonic()))
            tenants = [f"t{draw.randrange(KEYS - 1)}" for _ in range(size)]
            await app.publish_many([slow_for.request(tenant=tenant, seconds=TAKES) for tenant in tenants])
            published += size
        deadline = time.monotonic() + PATIENCE
        while (
            await ours.scalar("postgres", database, f"select count(*) {OTHERS} and r.end_time is not null") < published
        ):
            if time.monotonic() > deadline:
                raise Failed(f"the {published} runs of the other keys did not end in {PATIENCE:g} s more")
            await asyncio.sleep(0.5)
    rows = await ours.execute("postgres", database, [STARTED])
    check(rows)
    return [(start - run_at) / 1_000 for key, _, run_at, start, _ in rows if key != HEAVY]


def check(rows: Sequence[Any]) -> None:
    """No two runs of a key at once, and each key's runs in their order."""
    lines: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for key, run_id, _, start, end in rows:
        lines[key].append((run_id, start, end))
    for key, line in lines.items():
        for (_, _, ended), (run_id, started, _) in itertools.pairwise(sorted(line)):
            if started < ended:
                raise Failed(f"run {run_id} of key {key} began before the one before it had ended")


def claims(scale: Scale) -> list[Row]:
    many, few, line = scale.of(100_000, 1_000), scale.of(1_000, 100), scale.of(50_000, 500)
    rows = []
    for store in ("postgres", "sqlite"):
        title = databases.TITLES[store]
        progress(f"claims with many keys, {title}")
        cost = {}
        for name, keys, behind in (("few", few, 0), ("many", many, 0), ("line", few, line)):
            with databases.fresh(store) as database:
                cost[name] = ours.run(claim_cost(store, database, keys, behind))
        for name, said in (
            ("many", f"claim and settle {CLAIM} of {many:,} keys, {title}: p50, ms"),
            ("line", f"claim and settle {CLAIM} of {few:,} keys, {line:,} waiting behind one more, {title}: p50, ms"),
        ):
            rows.append(
                Row(
                    said,
                    f"{cost[name]:.2f}",
                    f"{few:,} keys {cost['few']:.2f}",
                    f"{cost[name] / cost['few']:.2f}",
                    f"≤ {FLAT:g} ×",
                    cost[name] <= FLAT * cost["few"],
                )
            )
    return rows


async def claim_cost(kind: str, url: str, keys: int, behind: int) -> float:
    """Milliseconds of a claim and the settlement of what it gave."""
    store = ours.build(kind, url)
    await store.open()
    try:
        task = await store.create_task(TaskSpec(name="keyed", job_type="keyed", concurrency_key="payload.tenant"))
        rounds = -(-2 * CLAIMS * CLAIM // keys)
        tenants = [HEAVY] * behind + [f"t{number}" for number in range(keys)] * rounds
        for start in range(0, len(tenants), 5_000):
            part = tenants[start : start + 5_000]
            await store.publish([Publication(task_id=task.id, payload={"tenant": tenant}) for tenant in part])
        await ours.tidy(kind, url)
        request = ClaimRequest(worker_id="w", queues=("default",), max=CLAIM)
        if behind:  # the run of the heavy key that is let in is under way all the time
            await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=1))
        took = []
        for _ in range(CLAIMS):
            began = time.perf_counter()
            leases = (await store.claim(request)).leases
            await store.settle([ended(lease) for lease in leases])
            took.append((time.perf_counter() - began) * 1_000)
            if len(leases) < CLAIM:
                raise Failed(f"a claim gave {len(leases)} of {CLAIM} runs")
    finally:
        await store.close()
    return median(took)


def ended(lease: Lease) -> Settlement:
    return Settlement(
        run_id=lease.run_id,
        token=lease.token,
        worker_id=lease.worker_id,
        task_version=lease.task_version,
        transition=Transition.FINISH,
        status=RunStatus.SUCCESS,
        plain=lease.plain,
        counted=lease.counted,
    )


_TENANT = "i.payload::json ->> 'tenant'"
OTHERS = f"from runs r join inputs i on i.run_id = r.id where {_TENANT} <> '{HEAVY}'"
STARTED = (
    f"select {_TENANT}, r.id, r.run_at, r.start_time, r.end_time from runs r join inputs i on i.run_id = r.id"
    " where r.end_time is not null and r.status = 'SUCCESS'"
)
