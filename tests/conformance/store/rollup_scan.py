"""The figures of a store, counted by reading all of its history: what its roll-ups must say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from noonbell.clock import Instant
from noonbell.model.rollup import DAY, RollUp, Scope, Stretch
from noonbell.model.run import FINAL
from noonbell.ports import Store
from noonbell.stores.sql.store import SqlStore

EVER = Stretch(Instant(0), Instant(DAY.length * 365 * 100))

Told = dict[tuple[Scope, str], tuple[dict[str, int], tuple[int, ...]]]
"""By kind and name: the counts, and of each sketch how many values it has, their sum and the largest."""


async def scanned(store: Store, since: int = EVER.since, until: int = EVER.until) -> Told:
    assert isinstance(store, SqlStore)
    rows = await store.fetch(
        "select task_id, queue, worker_id, status, origin, parent_id, attempt, run_at, created_at, start_time, end_time"
        " from runs where end_time >= :since and end_time < :until",
        since=since,
        until=until,
    )
    counts: dict[tuple[Scope, str], Counter[str]] = defaultdict(Counter)
    values: dict[tuple[Scope, str], list[list[int]]] = defaultdict(lambda: [[], [], []])
    for task_id, queue, worker, status, origin, parent, attempt, run_at, created_at, start, end in rows:
        assert status in FINAL
        scopes = [(Scope.QUEUE, queue)]
        if worker is not None:
            scopes.append((Scope.WORKER, worker))
        if parent is None:
            scopes += [(Scope.TASK, str(task_id)), (Scope.ALL, "")]
        for scope in scopes:
            counts[scope][status] += 1
            if start is not None:
                values[scope][0].append(max(0, end - start))
            if start is not None and attempt == 1:
                due = run_at if origin == "schedule" else max(run_at, created_at)
                values[scope][1].append(max(0, start - due))
                values[scope][2].append(max(0, start - max(run_at, created_at)))
    for task_id, count in await store.fetch(
        "select task_id, count from dropped where at >= :since and at < :until", since=since, until=until
    ):
        for scope in ((Scope.TASK, str(task_id)), (Scope.ALL, "")):
            counts[scope]["DROPPED"] += count
    return {scope: (dict(found), _sums(values[scope])) for scope, found in counts.items()}


def _sums(values: list[list[int]]) -> tuple[int, ...]:
    return tuple(figure for each in values for figure in (len(each), sum(each), max(each, default=0)))


async def told(store: Store, stretch: Stretch = EVER, **more: Any) -> Told:
    return {(kind, each.name): shown(each) for kind in Scope for each in await store.rollups(kind, stretch, **more)}


def shown(rollup: RollUp) -> tuple[dict[str, int], tuple[int, ...]]:
    figures = rollup.figures
    sketches = (figures.duration, figures.start_delay, figures.queue_time)
    assert all(sketch.count == sketch.zeros + sum(sketch.buckets.values()) for sketch in sketches)
    sums = tuple(number for sketch in sketches for number in (sketch.count, sketch.total, sketch.largest))
    return figures.counts, sums


async def fold_all(store: Store, limit: int = 100) -> None:
    while await store.fold_rollups(limit):
        pass


async def rebuild_all(store: Store, limit: int = 100) -> None:
    while await store.rebuild_rollups(limit):
        pass


async def uncounted(store: Store) -> dict[str, int]:
    """By status: runs in history that the figures of all runs, or those of their queues, lack. History may have lost runs, never they."""
    assert isinstance(store, SqlStore)
    rows = await store.fetch(
        "select status, count(*), sum(case when parent_id is null then 1 else 0 end) from runs"
        " where end_time is not null group by status"
    )
    lacking: dict[str, int] = {}
    for kind in (Scope.ALL, Scope.QUEUE):
        known: Counter[str] = Counter()
        for each in await store.rollups(kind, EVER):
            known.update(each.figures.counts)
        for status, every, whole in rows:
            missing = int(whole if kind is Scope.ALL else every) - known[status]
            if missing > 0:
                lacking[f"{kind} {status}"] = missing
    return lacking
