"""Drain and publish: one worker process, no-op jobs of 100 bytes, all contenders in turn, round by round."""

from __future__ import annotations

import sys

from bench.peers import env
from bench.rounds import Contender, interleaved, progress
from bench.speed.rows import Found, rate_row, settings, versions
from bench.speed.scale import Scale

OURS = "Noonbell"
OURS_WIDE = "Noonbell, 300 at a time"
GRAPHILE = "graphile-worker"
RAW = "the raw cycle"
STORE_ALONE = "the store's own drain without a worker"


def drain_postgresql(scale: Scale, rounds: int) -> Found:
    count = scale.of(100_000)
    field = [
        ours("postgres", 0, count),
        ours("postgres", 0, count, name=OURS_WIDE, concurrency=300),
        *node_peers(0, count, redis=count // 2),
        Contender("PgQueuer", "postgres", python_peer("pgqueuer"), 0, count // 2),
    ]
    samples = interleaved(field, rounds)
    rows = [
        rate_row(f"drain of no-op jobs, PostgreSQL, a second: {said}", samples, name, "drain", 1.1, [GRAPHILE])
        for name, said in ((OURS, "default concurrency"), (OURS_WIDE, "300 at a time"))
    ]
    return Found(rows, settings(samples))


def drain_sqlite(scale: Scale, rounds: int) -> Found:
    count, slow = scale.of(100_000), scale.of(8_000)
    field = [
        ours("sqlite", 0, count),
        ours("sqlite", 0, count, name=OURS_WIDE, concurrency=300),
        Contender(STORE_ALONE, "sqlite", (sys.executable, "-m", "bench.ours", "sqlite", "--plan", "0"), 0, count),
        Contender("Huey", "sqlite", python_peer("huey"), 0, slow),
    ]
    samples = interleaved(field, rounds)
    rows = [
        rate_row(f"drain, SQLite: {said}", samples, name, "drain", 0.85, [STORE_ALONE])
        for name, said in ((OURS, "default concurrency"), (OURS_WIDE, "300 at a time"))
    ]
    return Found(rows, settings(samples))


def drain_mariadb(scale: Scale, rounds: int) -> Found:
    count = scale.of(40_000)
    field = [
        ours("mariadb", 0, count),
        ours("mariadb", 0, count, name=OURS_WIDE, concurrency=300),
        Contender(RAW, "mariadb", (sys.executable, "-m", "bench.raw", "mariadb", "--plan", "0"), 0, count),
    ]
    samples = interleaved(field, rounds)
    rows = [
        rate_row(f"drain, MariaDB: {said}", samples, name, "drain", 0.8, [RAW])
        for name, said in ((OURS, "default concurrency"), (OURS_WIDE, "300 at a time"))
    ]
    return Found(rows, settings(samples))


def publish_postgresql(scale: Scale, rounds: int) -> Found:
    one, many = scale.of(2_000), scale.of(60_000)
    field = [
        ours("postgres", one, many, publishes_only=True),
        *node_peers(one, many, redis=many, publishes_only=True),
        Contender("PgQueuer", "postgres", python_peer("pgqueuer", "--publish-only"), one, many),
    ]
    samples = interleaved(field, rounds)
    stores = [each.name for each in field if each.store == "postgres" and each.name != OURS]
    batches = "publish in batches of 1,000, PostgreSQL, a second"
    rows = [
        rate_row(batches, samples, OURS, "publish_batch", 1.5, stores),
        rate_row("publish one by one, PostgreSQL", samples, OURS, "publish_one", 1.0, ["PgQueuer"]),
    ]
    return Found(rows, [versions(samples)])


def publish_sqlite(scale: Scale, rounds: int) -> Found:
    one = scale.of(8_000)
    field = [ours("sqlite", one, 0), Contender("Huey", "sqlite", python_peer("huey"), one, 0)]
    samples = interleaved(field, rounds)
    row = rate_row("publish one by one, SQLite, every commit flushed", samples, OURS, "publish_one", 1.0, ["Huey"])
    return Found([row], [versions(samples)])


def ours(
    store: str, one: int, drain: int, name: str = OURS, concurrency: int | None = None, publishes_only: bool = False
) -> Contender:
    flags: tuple[str, ...] = () if concurrency is None else ("--concurrency", str(concurrency))
    flags += ("--publish-only",) if publishes_only else ()
    return Contender(name, store, (sys.executable, "-m", "bench.jobs", store, *flags), one, drain)


def python_peer(module: str, *flags: str) -> tuple[str, ...]:
    env.ensure_python()
    return (*env.python_peer(module), *flags)


def node_peers(one: int, drain: int, redis: int, publishes_only: bool = False) -> list[Contender]:
    """graphile-worker, pg-boss and BullMQ; none, loudly, where they cannot be installed."""
    flags = ("--publish-only",) if publishes_only else ()
    try:
        env.ensure_node()
        return [
            Contender(GRAPHILE, "postgres", (*env.node_peer("graphile_worker"), *flags), one, drain),
            Contender("pg-boss", "postgres", (*env.node_peer("pg_boss"), *flags), one, drain),
            Contender("BullMQ", "redis", (*env.node_peer("bullmq"), *flags), one, redis),
        ]
    except env.Missing as problem:
        progress(f"SKIPPED: graphile-worker, pg-boss and BullMQ: {problem}")
        return []
