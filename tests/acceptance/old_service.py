"""A stand-in for the cronjob service of document 002, as far as its tables go: each second it calls what is due, and writes a row.

`python old_service.py mysql://…` runs until it is ended. Its cron knows `*`, numbers, lists and `*/N`, as the document says.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlsplit

import asyncmy


def is_due(expr: str, at: datetime) -> bool:
    values = (at.second, at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
    return all(_matches(field, value) for field, value in zip(expr.split(), values, strict=True))


def _matches(field: str, value: int) -> bool:
    if field.startswith("*/"):
        return value % int(field[2:]) == 0
    return field == "*" or value in map(int, field.split(","))


async def serve(url: str) -> None:
    parts = urlsplit(url)
    link = await asyncmy.connect(
        host=parts.hostname, port=parts.port or 3306, user=unquote(parts.username or ""),
        password=unquote(parts.password or ""), db=parts.path[1:], autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    slot = datetime.now(UTC).replace(microsecond=0)
    async with link.cursor() as cursor:
        while True:
            slot += timedelta(seconds=1)
            await asyncio.sleep(max(0.0, (slot - datetime.now(UTC)).total_seconds()))
            await cursor.execute("select id, cron_expr, target_url from tasks where status = 'ENABLED' and deleted = 0")
            for task_id, expr, target in await cursor.fetchall():
                if is_due(expr, slot):
                    await fire(cursor, task_id, target, slot.replace(tzinfo=None))


async def fire(cursor, task_id: int, target: str, slot: datetime) -> None:
    await cursor.execute(
        "insert into task_runs (task_id, scheduled_time, start_time, status, attempt, created_at, updated_at)"
        " values (%s, %s, %s, 'RUNNING', 1, %s, %s)",
        (task_id, slot, slot, slot, slot),
    )
    run_id = cursor.lastrowid
    request = urllib.request.Request(target, headers={"User-Agent": "cronjob"})  # noqa: S310 - the test's own target
    code = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).status)  # noqa: S310
    await cursor.execute(
        "update task_runs set status = 'SUCCESS', end_time = %s, updated_at = %s, response_code = %s where id = %s",
        (slot, slot, code, run_id),
    )


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
