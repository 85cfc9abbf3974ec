"""APScheduler 4 on PostgreSQL: schedulers that share its store and tell each other by LISTEN/NOTIFY.

The identity is the default, new in each life: a scheduler that comes back under its old one ends its jobs as abandoned. So does
the clean-up with jobs whose lease has run out, at each start of a scheduler; without it another scheduler takes them up again.
The broker is that of psycopg: the one of asyncpg fails in its callback with this version of AnyIO.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from apscheduler import (  # type: ignore[import-not-found, unused-ignore]
    AsyncScheduler,
    CoalescePolicy,
    TaskDefaults,
    current_job,
)
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore  # type: ignore[import-not-found, unused-ignore]
from apscheduler.eventbrokers.psycopg import PsycopgEventBroker  # type: ignore[import-not-found, unused-ignore]
from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-not-found, unused-ignore]
from sqlalchemy.ext.asyncio import create_async_engine  # type: ignore[import-not-found, unused-ignore]

from bench.peers.cron.task import CONNECTIONS, LEASE, Settings, deliver_async, is_setup, ready


async def fire(schedule: str) -> None:
    job = current_job.get()
    await deliver_async(schedule, job.scheduled_fire_time.timestamp(), job.id)


async def main() -> None:
    from bench.peers.cron.apscheduler4 import fire as by_name  # found again by other processes, as `__main__` is not

    settings = Settings.read()
    engine = create_async_engine(settings.url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=CONNECTIONS)
    scheduler = AsyncScheduler(
        SQLAlchemyDataStore(engine),
        PsycopgEventBroker(settings.url),
        lease_duration=timedelta(seconds=LEASE),
        cleanup_interval=None,
        # With a limit, the places of jobs whose process died are never given back.
        task_defaults=TaskDefaults(max_running_jobs=None, misfire_grace_time=None),
    )
    async with scheduler:
        if is_setup():
            second = "*" if settings.every_second else "0"
            await scheduler.configure_task("fire", func=by_name, max_running_jobs=None)
            for name in settings.names:
                await scheduler.add_schedule(
                    "fire",
                    CronTrigger(second=second, timezone="UTC"),
                    id=name,
                    args=[name],
                    coalesce=CoalescePolicy.all,
                    misfire_grace_time=None,
                    job_result_expiration_time=timedelta(hours=1),
                )
            return
        ready()
        await scheduler.run_until_stopped()


if __name__ == "__main__":
    asyncio.run(main())
