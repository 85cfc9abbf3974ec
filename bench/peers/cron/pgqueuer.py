"""PgQueuer: workers that share its table of schedules. Its loop waits a second longer than the next time, so minutes suit it.

A handler is told neither the time that it stands for nor anything that a repeat would have too.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found, unused-ignore]

from bench.peers.cron.task import CONNECTIONS, Settings, deliver_async, is_setup, ready


async def main() -> None:
    settings = Settings.read()
    if is_setup():
        await Queries(AsyncpgDriver(await asyncpg.connect(settings.url))).install()
        return
    async with asyncpg.create_pool(settings.url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        app = PgQueuer.from_asyncpg_pool(pool)
        for name in settings.names:

            @app.schedule(name, "* * * * *")  # type: ignore[untyped-decorator, unused-ignore]
            async def fire(schedule: Any) -> None:
                await deliver_async(schedule.entrypoint)

        ready()
        await app.run()


if __name__ == "__main__":
    uvloop.run(main())
