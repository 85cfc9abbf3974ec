"""Procrastinate: workers that all defer periodic tasks, and the retry of stalled jobs that its documentation shows."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate  # type: ignore[import-not-found, unused-ignore]

from bench.peers.cron.task import CONNECTIONS, LEASE, Settings, deliver_async, is_setup, ready


async def main() -> None:
    settings = Settings.read()
    connector = procrastinate.PsycopgConnector(conninfo=settings.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="fire", pass_context=True)  # type: ignore[untyped-decorator, unused-ignore]
    async def fire(context: Any, timestamp: int, schedule: str) -> None:
        await deliver_async(schedule, timestamp, context.job.id)

    @app.periodic(cron=f"* * * * * */{LEASE}")  # type: ignore[untyped-decorator, unused-ignore]
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)  # type: ignore[untyped-decorator, unused-ignore]
    async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE):
            await app.job_manager.retry_job(job)

    cron = "* * * * * *" if settings.every_second else "* * * * *"
    for name in settings.names:
        app.periodic(cron=cron, periodic_id=name, task_kwargs={"schedule": name})(fire)

    async with app.open_async():
        if is_setup():
            await app.schema_manager.apply_schema_async()
            return
        ready()
        # The interval of heartbeats is under half of what counts as stalled.
        await app.run_worker_async(concurrency=20, update_heartbeat_interval=2, stalled_worker_timeout=LEASE)


if __name__ == "__main__":
    asyncio.run(main())
