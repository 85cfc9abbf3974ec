"""A long history: the buffers that pages read, beside those with a twentieth of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from bench.growth import pages
from bench.growth.kept import KIND, fill, once
from bench.growth.sizes import Sizes
from bench.lag import verdict
from bench.ours import HOUR, execute, scalar
from noonbell.clock import SECOND, Instant
from noonbell.model.request import NewTask
from noonbell.model.task import TaskSpec
from noonbell.service.filters import LOOKED_AT
from noonbell.stores import postgres_partitions as partitions
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.statement import Work

DAY: Final = 24 * HOUR
KEPT: Final = 30 * 86_400.0
EVENTS_KEPT: Final = 90_000.0
SHARE: Final = 20
"""A long history is compared with one this many times shorter."""


async def make_history(url: str, task: int, count: int, begin: int, end: int, first: int = 0) -> None:
    """Runs spread evenly over this time, those from `first` on: one in a hundred failed, one in 21 the first task's, a body for one in fifty."""
    names = {"task": task, "begin": begin, "step": (end - begin) // count, "first": "{first}", "last": "{last}"}
    await fill(
        url, f"{count:,} runs, from {first:,} on", first, count, [each.format(**names) for each in (_RUNS, _BODIES)]
    )


_ID = "(((({begin} + n::bigint * {step}) / 1000 - 1735689600000) << 12) + n % 4096)"
_RUNS = (
    """insert into runs (id, task_id, task_version, origin, status, slot, scheduled_time, run_at, created_at, updated_at, queue, priority,
    attempt, retry_count, lost_count, trouble, start_time, end_time, worker_id, response_code, result)
    select """
    + _ID
    + """, {task} + case when n % 21 = 0 then 0 else n % 1000 end, 1, 'schedule', case when n % 100 = 0 then 'FAILED' else 'SUCCESS' end, {begin} + n::bigint * {step}, at, at, at,
    at + 1000, 'default', 0, 1, 0, 0, case when n % 100 = 0 then 'FAILED' end, at, at + 1000, 'w', 200, '"' || repeat('x', 40) || '"'
    from (select n, {begin} + n::bigint * {step} as at from generate_series({first}, {last}) n) made
    on conflict do nothing"""
)
_BODIES = (
    "insert into bodies (run_id, attempt, response_body, truncated) select "
    + _ID
    + ", 1, repeat('y', 200), 0 from generate_series({first}, {last}) n where n % 50 = 0 on conflict do nothing"
)


def prepare(url: str, sizes: Sizes) -> None:
    asyncio.run(_few(url, sizes))


def measure(url: str, sizes: Sizes) -> list[list[str]]:
    return asyncio.run(_measure(url, sizes))


async def _few(url: str, sizes: Sizes) -> dict[str, int]:
    """What the pages read with the newest part alone: what they show is the same with all of it. Then the rest is made."""
    store = PostgresStore(url)
    await store.open()

    async def first() -> tuple[int, int]:
        made = await store.create_tasks([NewTask(spec=TaskSpec(name=f"t{n}", job_type="work")) for n in range(1000)])
        now = await store.now()
        await _stretches(store, now - 28 * DAY, now)
        return made[0].id, now

    task, now = await once(url, "the tasks", first)
    begin, older = now - 28 * DAY, sizes.history - sizes.history // SHARE
    step = (now - begin) // sizes.history

    async def few() -> dict[str, int]:
        await _tidy(url)
        return await _pages(url, task)

    await make_history(url, task, sizes.history, begin, begin + step * sizes.history, older)
    found: dict[str, int] = await once(url, "pages of the newest part", few)
    await make_history(url, task, older, begin, begin + step * older)
    await once(url, "tidy", lambda: _tidy(url))
    await store.close()
    return found


async def _tidy(url: str) -> None:
    await execute(KIND, url, ["vacuum analyze"])


async def _measure(url: str, sizes: Sizes) -> list[list[str]]:
    few = await _few(url, sizes)
    many = await _pages(url, await scalar(KIND, url, "select min(id) from tasks where job_type = 'work'"))
    size = await scalar(KIND, url, "select pg_size_pretty(pg_database_size(current_database()))")
    parts = await scalar(KIND, url, "select count(*) from pg_inherits where inhparent = 'runs'::regclass")
    runs = f"{sizes.history:,} runs"
    found = [
        [
            f"buffers of `{name}`",
            runs,
            f"{many[name]:,}; with {sizes.history // SHARE:,}: {few[name]:,}",
            judged(name, few[name], many[name], sizes),
        ]
        for name in few
    ]
    return [*found, ["the store", runs, f"{size}, {parts} partitions", "–"]]


def judged(name: str, few: int, many: int, sizes: Sizes) -> str:
    """What is wanted, and whether it is so; smaller histories than that of a full size do not reach the bounds of a page."""
    most, wanted = (few * 11 // 10, "as with a twentieth, within a tenth")
    if name in pages.COUNTED:
        most, wanted = few + pages.COUNTED_PAGES, f"as with a twentieth, and {pages.COUNTED_PAGES} pages of an index"
    if name in pages.LOOKING:
        most, wanted = max(most, LOOKED_AT), f"as with a twentieth, or one for each of {LOOKED_AT:,} runs"
    return f"{wanted}: {verdict(many <= most)}" if sizes.history >= Sizes().history else wanted


async def _stretches(store: PostgresStore, begin: int, now: int) -> None:
    """As if the store had been there all the time."""

    kept = round(KEPT) * SECOND

    async def change(work: Callable[..., Work[Any]], *given: Any) -> None:
        await store._change_schema(lambda _: work(store.dialect, *given))

    await change(partitions.merge_all)
    await change(partitions.attach, partitions.HISTORY, Instant(begin - DAY), kept)
    await change(partitions.attach, partitions.EVENTS, Instant(now), kept)
    for at in range(begin, now + 8 * DAY, 2 * DAY):
        await change(partitions.extend, partitions.HISTORY, Instant(at), kept)


async def _pages(url: str, task: int) -> dict[str, int]:
    newest = await scalar(KIND, url, "select max(id) from runs")
    return await pages.buffers(url, {"often": task, "rare": task + 7, "run": newest})
