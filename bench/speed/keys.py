"""Limits per key: how long runs of other keys wait beside a key with a long line, and what a claim costs with many keys."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from bench import databases, ours
from bench.app import app, slow_for
from bench.http import serving
from bench.lag import percentile
from bench.rounds import Failed, progress
from bench.speed.processes import until_registered
from bench.speed.rows import Found, Row
from bench.speed.scale import Scale
from bench.tables import NONE
from bench.workers import QUIET, address, working
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus, Settlement, Transition
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
WARM_UP = 2
"""Seconds of the same load before what counts: the first runs find workers that have just connected."""
PATIENCE = 60.0
TIMES, MORE = 2.0, 20.0
"""The p99 of the others beside the heavy key: at most so many times that without it, and so many milliseconds more."""
FLAT = 1.5
CLAIMS = 40
CLAIM = 10


@dataclass(frozen=True)
class Lines:
    """What became of the runs of all keys."""

    waits: list[float]
    """Milliseconds, of each run of the other keys."""
    runs: int
    at_once: int
    """Runs that began before the one before them in their key had ended."""
    overtook: int
    """Runs that began before one of their key that was published earlier."""


def fair(scale: Scale, rounds: int) -> Found:
    seconds, waiting = scale.of(20, 5), scale.of(50_000, 500)
    found: dict[bool, list[Lines]] = {False: [], True: []}
    rounds = min(rounds, 2)
    for number in range(1, rounds + 1):
        for is_heavy in (False, True):
            progress(f"{KEYS:,} keys, {'one with' if is_heavy else 'none with'} a long line, round {number}")
            found[is_heavy].append(beside(seconds, waiting if is_heavy else 0))
    alone, with_it = [median(percentile(each.waits, 99) for each in found[is_it]) for is_it in (False, True)]
    middles = [median(percentile(each.waits, 50) for each in found[is_it]) for is_it in (False, True)]
    every = found[False] + found[True]
    runs, at_once, overtook = (sum(getattr(each, name) for each in every) for name in ("runs", "at_once", "overtook"))
    rows = [
        Row(
            f"wait of the runs of {KEYS - 1:,} keys beside one with {waiting:,} waiting, PostgreSQL: p50 / p99, ms",
            f"{middles[True]:.1f} / {with_it:.1f}",
            f"without that key {middles[False]:.1f} / {alone:.1f}",
            f"{with_it / alone:.2f} (p99)",
            f"p99 ≤ {TIMES:g} × + {MORE:g} ms",
            with_it <= TIMES * alone + MORE,
        ),
        Row(
            "runs that began while another of their key was under way",
            f"{at_once}",
            f"of {runs:,}",
            NONE,
            "0",
            not at_once,
        ),
        Row(
            "runs that began before an earlier one of their key", f"{overtook}", f"of {runs:,}", NONE, "0", not overtook
        ),
    ]
    rate = LOAD * WORKERS * PLACES / TAKES
    how = (
        f"max_per_key 1, {WORKERS} workers of {PLACES} places, handlers of {TAKES * 1000:g} ms, {rate:g} runs a second of"
        f" the others for {seconds} s, after {WARM_UP} s that do not count."
    )
    claimed = (
        f"Claims of {CLAIM} with their settlement, {CLAIMS} of them, on the store, every run with a key of its own."
        " Beside a long line, the first run of that line is under way."
    )
    return Found(rows + claims(scale), [how, claimed], rounds)


def beside(seconds: int, waiting: int) -> Lines:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(databases.fresh("postgres"))
        stack.enter_context(serving("postgres", database, "--no-worker"))
        return ours.run(_beside(stack, database, seconds, waiting))


async def _beside(stack: contextlib.ExitStack, database: str, seconds: int, waiting: int) -> Lines:
    draw = random.Random(7)
    async with app.connected(address("postgres", database), declare=True):
        for start in range(0, waiting, 5_000):
            size = min(5_000, waiting - start)
            await app.publish_many([slow_for.request(tenant=HEAVY, seconds=TAKES) for _ in range(size)])
        await ours.tidy("postgres", database)
        for _ in range(WORKERS):
            stack.enter_context(working("postgres", database, "--concurrency", str(PLACES), *QUIET))
        await until_registered(database, WORKERS)
        size = round(LOAD * WORKERS * PLACES / TAKES / BATCHES)
        published, counts_from = 0, 0
        began = time.monotonic()
        for number in range((WARM_UP + seconds) * BATCHES):
            await asyncio.sleep(max(0.0, began + number / BATCHES - time.monotonic()))
            tenants = [f"t{draw.randrange(KEYS - 1)}" for _ in range(size)]
            made = await app.publish_many([slow_for.request(tenant=tenant, seconds=TAKES) for tenant in tenants])
            published += size
            if number == WARM_UP * BATCHES:
                counts_from = min(each.run_id for each in made)
        deadline = time.monotonic() + PATIENCE
        while (
            await ours.scalar("postgres", database, f"select count(*) {OTHERS} and r.end_time is not null") < published
        ):
            if time.monotonic() > deadline:
                raise Failed(f"the {published} runs of the other keys did not end in {PATIENCE:g} s more")
            await asyncio.sleep(0.5)
    rows = await ours.execute("postgres", database, [STARTED])
    at_once, overtook = troubles(rows)
    others = [row for row in rows if row[0] != HEAVY and row[1] >= counts_from]
    return Lines([(start - run_at) / 1_000 for _, _, run_at, start, _ in others], len(rows), at_once, overtook)


def troubles(rows: Sequence[Any]) -> tuple[int, int]:
    """Runs that began before the last of their key had ended; and those that began before an earlier one of it.

    By the clock of the handlers: the store stamps a claim with the time at which it began to look, which may be before the settlement
    that it then found.
    """
    lines: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for key, run_id, _, _, handled in rows:
        began, ended = msgspec.json.decode(handled, type=tuple[int, int])
        lines[key].append((began, ended, run_id))
    at_once = overtook = 0
    for line in lines.values():
        for (_, ended, before), (started, _, run_id) in itertools.pairwise(sorted(line)):
            at_once += started < ended
            overtook += run_id < before
    return at_once, overtook


def claims(scale: Scale) -> list[Row]:
    many, line = scale.of(100_000, 5_000), scale.of(50_000, 500)
    rows = []
    for store in databases.STORES:
        title = databases.TITLES[store]
        progress(f"claims with many keys, {title}")
        few, plain = (claim_cost(store, KEYS, 0, is_keyed) for is_keyed in (True, False))
        for said, cost, than, with_it in (
            (f"{CLAIM} of {many:,} keys", claim_cost(store, many, 0), few, f"{KEYS:,} keys"),
            (
                f"{CLAIM} of {KEYS:,} keys, {line:,} waiting behind one more",
                claim_cost(store, KEYS, line),
                few,
                f"{KEYS:,} keys",
            ),
            (
                f"{CLAIM} runs without a key, {line:,} waiting behind a key of the queue",
                claim_cost(store, KEYS, line, is_keyed=False),
                plain,
                "no key in the store",
            ),
        ):
            rows.append(
                Row(
                    f"claim and settle {said}, {title}: p50, ms",
                    f"{cost:.2f}",
                    f"{with_it} {than:.2f}",
                    f"{cost / than:.2f}",
                    f"≤ {FLAT:g} ×",
                    cost <= FLAT * than,
                )
            )
    return rows


def claim_cost(kind: str, keys: int, behind: int, is_keyed: bool = True) -> float:
    """Milliseconds of a claim and the settlement of what it gave. `is_keyed`: whether what is claimed has a key."""
    with databases.fresh(kind) as database:
        return ours.run(_claim_cost(kind, database, keys, behind, is_keyed))


async def _claim_cost(kind: str, url: str, keys: int, behind: int, is_keyed: bool) -> float:
    store = ours.build(kind, url)
    await store.open()
    try:
        keyed = TaskSpec(name="keyed", job_type="keyed", concurrency_key="payload.tenant", max_concurrency=None)
        task = await store.create_task(keyed)
        plain = await store.create_task(TaskSpec(name="plain", job_type="keyed", max_concurrency=None))
        runs = [Publication(task_id=task.id, payload={"tenant": HEAVY}) for _ in range(behind)]
        for start in range(0, behind, 5_000):
            await store.publish(runs[start : start + 5_000])
        if behind:  # the run of the heavy key that is let in is under way all the time
            await store.claim(ClaimRequest(worker_id="w", queues=("default",), max=1))
        claimed = (task if is_keyed else plain).id
        runs = [Publication(task_id=claimed, payload={"tenant": f"t{number}"}) for number in range(keys)]
        for start in range(0, keys, 5_000):
            await store.publish(runs[start : start + 5_000])
        await ours.tidy(kind, url)
        request = ClaimRequest(worker_id="w", queues=("default",), max=CLAIM)
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
        keyed=lease.keyed,
    )


_TENANT = "i.payload::json ->> 'tenant'"
OTHERS = f"from runs r join inputs i on i.run_id = r.id where {_TENANT} <> '{HEAVY}'"
STARTED = (
    f"select {_TENANT}, r.id, r.run_at, r.start_time, r.result from runs r join inputs i on i.run_id = r.id"
    " where r.end_time is not null and r.status = 'SUCCESS'"
)
