"""APScheduler 3 on PostgreSQL: one process, because a job store may not be shared; every missed time is made up for.

The schedules are added once: adding them at each start with `replace_existing` would set their next times anew and so drop
what was missed. A job is not told its time, so the pool of threads hands it on.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor  # type: ignore[import-not-found, unused-ignore]
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-not-found, unused-ignore]
from apscheduler.schedulers.blocking import BlockingScheduler  # type: ignore[import-not-found, unused-ignore]
from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-not-found, unused-ignore]

from bench.peers.cron.task import Settings, deliver, is_setup, ready


class TellingPool(ThreadPoolExecutor):  # type: ignore[misc, unused-ignore]
    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        """The pool calls the function once for each time, in their order."""
        left = deque(run_times)
        told = SimpleNamespace(id=job.id, args=(), kwargs={}, misfire_grace_time=job.misfire_grace_time)
        told.func = lambda: job.func(*job.args, left.popleft().timestamp())
        told._jobstore_alias = job._jobstore_alias
        super()._do_submit_job(told, run_times)


def main() -> None:
    settings = Settings.read()
    url = settings.url.replace("postgresql://", "postgresql+psycopg://")
    scheduler = BlockingScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=url)},
        executors={"default": TellingPool(20)},
        job_defaults={"coalesce": False, "misfire_grace_time": None, "max_instances": 1000},
        timezone=UTC,
    )
    if is_setup():
        second = "*" if settings.every_second else "0"
        for name in settings.names:
            scheduler.add_job(deliver, CronTrigger(second=second, timezone=UTC), args=[name], id=name)
        # Jobs are written to the store when the scheduler starts; the last one ends it.
        scheduler.add_listener(lambda _: scheduler.shutdown(wait=False), 1)
        scheduler.start(paused=True)
        return
    scheduler.add_listener(lambda _: ready(), 1)
    scheduler.start()


if __name__ == "__main__":
    main()
