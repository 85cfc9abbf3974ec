"""What roll-ups cost: a drain in which every other settle leaves its delta out, so that both halves meet the same machine.

python -m bench.rollups mariadb --url … --runs 60000      processor time of a cycle, with the delta and without it
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import databases, ours
from bench.rounds import Failed, progress, run
from bench.tables import NONE, Spread, markdown
from noonbell.model.request import ClaimRequest, Publication
from noonbell.model.run import Lease, RunStatus, Settlement, SettleResult, Transition
from noonbell.model.task import TaskSpec
from noonbell.model.worker import WorkerInfo
from noonbell.ports import Store
from noonbell.stores import postgres_fast
from noonbell.stores.sql import rollups
from noonbell.stores.sql.statement import Work

AT_MOST: Final = 5.0
"""Per cent of a drain's processor time."""
WARM_UP: Final = 8
"""Cycles that nobody counts: statements are prepared and caches filled in them."""


@dataclass(frozen=True)
class Size:
    runs: dict[str, int]


FULL = Size({"postgres": 120_000, "sqlite": 120_000, "mariadb": 60_000})
QUICK = Size(dict.fromkeys(databases.STORES, 20_000))


def table(size: Size, rounds: int) -> str:
    rows: list[list[str]] = []
    for store in databases.STORES:
        title = databases.TITLES[store]
        try:
            databases.server_version(store)
        except Exception as problem:
            progress(f"SKIPPED: {title} does not answer: {problem}")
            continue
        found: list[dict[str, Any]] = []
        for number in range(1, rounds + 1):
            progress(f"{title}, round {number} of {rounds}")
            try:
                with databases.fresh(store) as place:
                    command = [sys.executable, "-m", "bench.rollups", store, "--url", place]
                    found.append(run([*command, "--runs", str(size.runs[store])]))
            except Failed as failure:
                progress(f"FAILED: {failure}")
        rows.append(row_of(title, found))
    head = ["store", "µs of CPU a run, without deltas", "their rows", "adding them up", "of the drain", "at most", ""]
    note = (
        "One connection, 500 no-op runs settled and 500 claimed in a call; every other call writes no delta. "
        "CPU is that of the client and of the server's threads that serve it. The sweep adds the rows up afterwards."
    )
    return markdown(head, rows, right=(1, 2, 3, 4, 5)) + f"\n\n{note}"


def row_of(title: str, found: list[dict[str, Any]]) -> list[str]:
    share = Spread.of(100 * (one["delta"] + one["fold"]) / one["without"] for one in found)
    verdict = NONE if share is None else "met" if share.median <= AT_MOST else "**missed**"
    figures = [_text(Spread.of(one[name] for one in found), "{:.1f}") for name in ("without", "delta", "fold")]
    return [title, *figures, _text(share, "{:.1f} %"), f"{AT_MOST:g} %", verdict]


def _text(spread: Spread | None, form: str) -> str:
    if spread is None:
        return NONE
    middle = form.format(spread.median)
    return middle if spread.low == spread.high else f"{middle} ({form.format(spread.low)}–{form.format(spread.high)})"


# One process that drains


async def measure(kind: str, url: str, runs: int) -> dict[str, float]:
    store = ours.build(kind, url)
    await store.open()
    task = await store.create_task(TaskSpec(name="noop", job_type="noop"))
    for _ in range(runs // 1_000):
        await store.publish([Publication(task_id=task.id, payload=ours.PAYLOAD)] * 1_000)
    await ours.tidy(kind, url)
    spent: dict[bool, list[float]] = {True: [], False: []}
    size = 500
    drained = Drain(store, size)
    await drained.begin()
    for _ in range(WARM_UP):
        await drained.cycle()
    threads = await serving_threads(kind, url)
    pair: list[bool] = []
    deltas = WARM_UP
    draw = random.Random(runs)
    while drained.leases:
        # In pairs, so that what drifts during a drain is in both halves; drawn, so that nothing periodic is in one of them.
        if not pair:
            pair = draw.sample((True, False), 2)
            # The store may open another connection at any time, for its ids for example.
            threads |= await serving_threads(kind, url)
        writes = pair.pop()
        with Deltas(written=writes):
            before = cpu(threads)
            ended = await drained.cycle()
            deltas += writes
            if ended == size:
                spent[writes].append((cpu(threads) - before) / size)
    if not threads <= await serving_threads(kind, url):
        raise SystemExit("bench: a connection was lost; the measurement is void")
    before, folded = cpu(threads), 0
    while found := await store.fold_rollups(500):
        folded += found
    if folded != deltas:
        raise SystemExit(f"bench: {folded} deltas were written, not {deltas}; the measurement is void")
    fold = (cpu(await serving_threads(kind, url)) - before) / (size * deltas)
    await store.close()
    without, with_ = _middle(spent[False]), _middle(spent[True])
    return {"without": without, "delta": with_ - without, "fold": fold * 1e6}


def _middle(values: list[float]) -> float:
    """Microseconds: the mean of the middle half, which a busy machine disturbs least."""
    quarter = len(values) // 4
    kept = sorted(values)[quarter : len(values) - quarter]
    return sum(kept) / len(kept) * 1e6


class Drain:
    """One worker whose handlers do nothing; a cycle settles what it holds and claims as much."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._request = ClaimRequest(worker_id="bench", queues=("default",), max=size)
        self.leases: list[Lease] = []

    async def begin(self) -> None:
        await self._store.register_worker(WorkerInfo(id="bench", incarnation="bench", concurrency=self._request.max))
        self.leases = list((await self._store.claim(self._request)).leases)

    async def cycle(self) -> int:
        """How many runs it settled."""
        ended = await asyncio.gather(*(asyncio.create_task(self._handle(lease)) for lease in self.leases))
        answers, claimed = await self._store.settle_and_claim(ended, self._request)
        if answers.count(SettleResult.DONE) != len(ended):
            raise SystemExit("bench: a lease was lost; the measurement is void")
        self.leases = list(claimed.leases)
        return len(ended)

    async def _handle(self, lease: Lease) -> Settlement:
        return Settlement(
            run_id=lease.run_id,
            token=lease.token,
            transition=Transition.FINISH,
            status=RunStatus.SUCCESS,
            worker_id=lease.worker_id,
            task_version=lease.task_version,
            plain=lease.plain,
            in_flow=lease.in_flow,
            lease=lease,
        )


class Deltas:
    """Within the block, settles write their row of `rollup_deltas` or, to measure what it costs, do not."""

    def __init__(self, *, written: bool) -> None:
        self._given = _WRITTEN if written else _LEFT_OUT

    def __enter__(self) -> None:
        self._set(self._given)

    def __exit__(self, *_: object) -> None:
        self._set(_WRITTEN)

    @staticmethod
    def _set(given: Mapping[str, Any]) -> None:
        postgres_fast.SETTLE_AND_CLAIM = given["sql"]
        rollups.note_settled = given["note"]


def _note_nothing(*_: Any) -> Work[None]:
    yield from ()


def _without_deltas() -> str:
    """PostgreSQL settles, notes and claims by one statement."""
    text, removed = re.subn(r"counted_up as \(.*?\n\),\n", "", postgres_fast.SETTLE_AND_CLAIM, flags=re.DOTALL)
    text, shortened = re.subn(r"returning e\.task_id, r\.queue.*? as waited\b", "returning 1", text, flags=re.DOTALL)
    if (removed, shortened) != (1, 1):
        raise SystemExit("bench: the statement that settles reads otherwise than this bench expects")
    return text


_WRITTEN: Final[Mapping[str, Any]] = {
    "sql": postgres_fast.SETTLE_AND_CLAIM,
    "note": rollups.note_settled,
}
_LEFT_OUT: Final[Mapping[str, Any]] = {
    "sql": _without_deltas(),
    "note": _note_nothing,
}


_THREADS = {
    "postgres": "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    "mariadb": "select tid from information_schema.processlist where db = database() and id <> connection_id()",
}


async def serving_threads(kind: str, url: str) -> set[int]:
    """The server's processes or threads that serve this database."""
    return {row[0] for row in await ours.execute(kind, url, [_THREADS[kind]])} if kind in _THREADS else set()


def cpu(threads: Iterable[int]) -> float:
    """Seconds of processor that this process and these threads have had; a thread of another machine has none here."""
    total = time.process_time()
    for thread in threads:
        try:
            total += int(Path(f"/proc/{thread}/schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rollups")
    parser.add_argument("store", choices=databases.STORES)
    parser.add_argument("--url", required=True, help="a fresh database: an address or a file name")
    parser.add_argument("--runs", type=int, default=20_000)
    args = parser.parse_args()
    print(json.dumps(ours.run(measure(args.store, args.url, args.runs))), flush=True)


if __name__ == "__main__":
    main()
