"""Who takes part: the processes of each, its settings, and where its store says what became of a slot."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urldefrag

from bench import databases, ours
from bench.faults.account import Slot
from bench.peers import env
from bench.peers.cron.task import LEASE, SETTINGS, Settings
from bench.rounds import ROOT, Failed
from noonbell import __version__, when
from noonbell.model.target_kind import HTTP_QUEUE, ExecType
from noonbell.model.task import TaskSpec

Told = tuple[Slot, str]
"""A slot that the store has a record of, and its state there."""
READY = re.compile("is ready")


@dataclass(frozen=True)
class Contender:
    name: str
    store: str
    every_second: bool
    """Its cron has seconds. Otherwise its schedules fire every minute."""
    prepare: Callable[[], None]
    """Raises env.Missing where it cannot be had."""
    version: Callable[[], str]
    setup: Callable[[Settings], None]
    commands: Callable[[Settings], Mapping[str, Sequence[str]]]
    settings: str
    records: Callable[[Settings], Iterable[Told]] | None = None
    """None: its store has nothing about a single slot."""
    is_ready: re.Pattern[str] = READY

    def environment(self, settings: Settings) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        return {**clean, SETTINGS: json.dumps(asdict(settings)), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}


def contenders() -> list[Contender]:
    return [
        *(noonbell(every_second) for every_second in (True, False)),
        python(
            "APScheduler 3",
            env.APSCHEDULER_3,
            "apscheduler",
            "apscheduler3",
            processes=1,
            settings="SQLAlchemyJobStore, `coalesce=False`, `misfire_grace_time=None`, `max_instances=1000`, 20 threads; "
            "one process, as a job store may not be shared",
        ),
        python(
            "APScheduler 4",
            env.APSCHEDULER_4,
            "apscheduler",
            "apscheduler4",
            settings=f"SQLAlchemyDataStore on asyncpg, PsycopgEventBroker, `lease_duration` {LEASE} s, `cleanup_interval=None`, "
            "`CoalescePolicy.all`, `misfire_grace_time=None`, `max_running_jobs=None`",
            sql="select schedule_id, extract(epoch from scheduled_fire_time)::bigint, "
            "case when acquired_by is null then 'waiting' else 'acquired' end from jobs",
        ),
        python(
            "Procrastinate",
            env.QUEUES,
            "procrastinate",
            "procrastinate",
            settings=f"concurrency 20, LISTEN/NOTIFY, `update_heartbeat_interval` 2 s, `stalled_worker_timeout` {LEASE} s, and its "
            f"documented task that retries stalled jobs, every {LEASE} s",
            sql="select args->>'schedule', (args->>'timestamp')::bigint, status::text from procrastinate_jobs "
            "where task_name = 'fire'",
        ),
        node(
            "BullMQ",
            "bullmq",
            "cron_bullmq",
            every_second=True,
            store="redis",
            settings=f"job schedulers, concurrency 20, `lockDuration` and `stalledInterval` {LEASE} s",
            records=bullmq_jobs,
        ),
        celery(),
        python(
            "PgQueuer",
            env.QUEUES,
            "pgqueuer",
            "pgqueuer",
            every_second=False,
            settings="`schedule` on a pool of connections, uvloop; a schedule is taken up again 30 s after its last heartbeat, which is fixed",
        ),
        node(
            "graphile-worker",
            "graphile-worker",
            "cron_graphile_worker",
            settings="crontab with `fill=1h`, concurrency 20; jobs of a dead process stay locked for 4 h, which is fixed, so a "
            "process that comes back calls `forceUnlockWorkers` for its last life",
            sql="select payload->>'schedule', extract(epoch from (payload->'_cron'->>'ts')::timestamptz)::bigint, "
            "case when locked_at is null then 'waiting' else 'locked' end from graphile_worker._private_jobs",
        ),
        node(
            "pg-boss",
            "pg-boss",
            "cron_pg_boss",
            settings=f"`missed: 'once'`, `cronMonitorIntervalSeconds` {LEASE}, `cronWorkerIntervalSeconds` 1, supervised every {LEASE} s, "
            "`heartbeatSeconds` 10 (its least), `retryLimit` 10, LISTEN/NOTIFY, 20 local workers",
            sql=PG_BOSS_JOBS,
        ),
    ]


def noonbell(every_second: bool) -> Contender:
    program = str(Path(sys.executable).with_name("noonbell"))
    return Contender(
        name=f"Noonbell, each {'second' if every_second else 'minute'}",
        store="postgres",
        every_second=every_second,
        prepare=lambda: None,
        version=lambda: f"{__version__} ({commit()})",
        setup=lambda settings: ours.run(create_tasks(settings)),
        commands=lambda settings: dict.fromkeys(
            ("a", "b", "c"), (program, "serve", "--store", settings.url, "--port", "0")
        ),
        settings=f"`misfire_policy` FIRE_NOW and `delivery` at_least_once (the defaults), leases of {LEASE} s, no limit of concurrent runs",
        records=lambda settings: rows(settings, NOONBELL_RUNS),
    )


NOONBELL_RUNS = (
    "select tasks.name, runs.slot / 1000000, runs.status from runs join tasks on tasks.id = runs.task_id where runs.slot is not null "
    "union all select tasks.name, generate_series(dropped.first, dropped.last, 1000000) / 1000000, 'dropped: ' || dropped.reason "
    "from dropped join tasks on tasks.id = dropped.task_id"
)


# A schedule makes a job of its own queue first, which is then forwarded to the queue of the schedule.
PG_BOSS_JOBS = (
    "select data->>'schedule', (floor(extract(epoch from created_on) / 60) * 60)::bigint, state::text "
    "from pgboss.job where name = 'fire' "
    "union all select data->'data'->>'schedule', extract(epoch from (data->>'slot')::timestamp)::bigint, "
    "'not forwarded: ' || state::text from pgboss.job where name = '__pgboss__send-it' and state <> 'completed'"
)


async def create_tasks(settings: Settings) -> None:
    store = ours.build("postgres", settings.url)
    await store.open()
    cron = "* * * * * *" if settings.every_second else "* * * * *"
    for name in settings.names:
        spec = TaskSpec(
            name=name,
            exec_type=ExecType.SYNC,
            queue=HTTP_QUEUE,
            target_url=f"{settings.target}/{name}",
            schedule=when.normalise({"type": "cron", "expr": cron}),
            max_concurrency=None,
            worker_timeout_ms=LEASE * 1000,
            ping_interval_ms=1000,
        )
        await store.create_task(spec)
    await store.close()


def commit() -> str:
    """The last one that changed what runs."""
    words = ["git", "log", "-1", "--format=%h", "--", "src"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def python(
    name: str,
    environment: env.Environment,
    package: str,
    module: str,
    *,
    settings: str,
    processes: int = 3,
    every_second: bool = True,
    sql: str | None = None,
) -> Contender:
    command = (environment.program("python"), "-m", f"bench.peers.cron.{module}")
    return Contender(
        name=name,
        store="postgres",
        every_second=every_second,
        prepare=lambda: env.ensure_python(environment),
        version=lambda: env.python_version(environment, package),
        setup=lambda asked: set_up(command, asked),
        commands=lambda _: {letter: (*command, letter) for letter in "abc"[:processes]},
        settings=settings,
        records=None if sql is None else lambda asked: rows(asked, sql),
    )


def celery() -> Contender:
    base = (env.CELERY.program("celery"), "-A", "bench.peers.cron.celery_beat")
    worker = (*base, "worker", "--concurrency=4", "--without-gossip", "--without-mingle", "--loglevel=INFO")
    return Contender(
        name="Celery beat",
        store="redis",
        every_second=False,
        prepare=lambda: env.ensure_python(env.CELERY),
        version=lambda: env.python_version(env.CELERY, "celery"),
        setup=lambda _: None,
        commands=lambda settings: {
            "beat": (*base, "beat", "--pidfile=", f"--schedule={settings.folder}/beat", "--loglevel=INFO"),
            "w1": (*worker, "--hostname=w1@bench"),
            "w2": (*worker, "--hostname=w2@bench"),
        },
        settings="one beat, as its documentation asks, with `beat_sync_every` 1, and two workers of 4 processes; `task_acks_late`, "
        "`task_reject_on_worker_lost`, `worker_prefetch_multiplier` 1, `visibility_timeout` 10 s",
        records=celery_messages,
        is_ready=re.compile(r"@bench ready\.|beat: Starting"),
    )


def node(
    name: str,
    package: str,
    script: str,
    *,
    settings: str,
    every_second: bool = False,
    store: str = "postgres",
    sql: str = "",
    records: Callable[[Settings], Iterable[Told]] | None = None,
) -> Contender:
    return Contender(
        name=name,
        store=store,
        every_second=every_second,
        prepare=env.ensure_node,
        version=lambda: env.node_version(package),
        setup=lambda asked: set_up(env.node_peer(script), asked),
        commands=lambda _: {letter: (*env.node_peer(script), letter) for letter in "abc"},
        settings=settings,
        records=records or (lambda asked: rows(asked, sql)),
    )


def set_up(command: Sequence[str], settings: Settings) -> None:
    environment = {**os.environ, SETTINGS: json.dumps(asdict(settings))}
    done = subprocess.run(
        [*command, "setup"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise Failed(f"its setup ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")


def rows(settings: Settings, sql: str) -> list[Told]:
    found = asyncio.run(ours.execute("postgres", settings.url, [sql]))
    return [(Slot(name, int(at)), state) for name, at, state in found if name is not None and at is not None]


def bullmq_jobs(settings: Settings) -> list[Told]:
    """A job has the key PREFIX:fire:repeat:SCHEDULE:MILLISECONDS; it is finished if it says so."""
    _, prefix = urldefrag(settings.url)
    found = []
    with databases.redis_link() as link:
        for key in link.scan_iter(f"{prefix}:fire:repeat:*", count=10_000):
            parts = key.decode().split(":")
            if len(parts) == 5 and link.type(key) == b"hash":
                state = (
                    "failed"
                    if link.hexists(key, "failedReason")
                    else "finished"
                    if link.hexists(key, "finishedOn")
                    else "waiting"
                )
                found.append((Slot(parts[3], int(parts[4]) // 1000), state))
    return found


def celery_messages(settings: Settings) -> list[Told]:
    """Those that wait in the queue, and those that a worker took and did not acknowledge. Others leave nothing."""
    _, prefix = urldefrag(settings.url)
    with databases.redis_link() as link:
        found = [("waiting", json.loads(each)) for each in link.lrange(f"{prefix}:{prefix}", 0, -1)]
        found += [("unacknowledged", json.loads(each)[0]) for each in link.hvals(f"{prefix}:unacked")]
    return [(Slot(_first_argument(each["body"]), int(each["headers"]["slot"])), state) for state, each in found]


def _first_argument(body: str) -> str:
    return str(json.loads(base64.b64decode(body))[0][0])
