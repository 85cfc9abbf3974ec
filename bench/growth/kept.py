"""Databases that stay until they have been measured: to fill one takes longer than to measure it, and may be cut off.

What is done is written down in the database itself, so that the same command goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench import databases
from bench.ours import execute
from bench.rounds import progress

KIND: Final = "postgres"
CHUNK: Final = 250_000
"""Rows that one statement makes."""


def kept(name: str) -> str:
    """The address of a database of this name, which is made if it is not there."""
    asyncio.run(_make(name))
    return urlunsplit(urlsplit(databases.POSTGRES)._replace(path=f"/{name}"))


def drop(name: str) -> None:
    asyncio.run(execute(KIND, databases.POSTGRES, [f"drop database if exists {name} with (force)"]))


async def _make(name: str) -> None:
    if not await execute(KIND, databases.POSTGRES, [f"select 1 from pg_database where datname = '{name}'"]):
        await execute(KIND, databases.POSTGRES, [f"create database {name}"])


async def once(url: str, step: str, make: Callable[[], Awaitable[Any]]) -> Any:
    """What the step gave: now, or when it was taken before. Something that JSON has words for."""
    connection = await asyncpg.connect(url)
    try:
        if await connection.fetchval("select to_regclass('bench_done')") is None:
            await connection.execute("create table bench_done (step text primary key, said text not null)")
        said = await connection.fetchval("select said from bench_done where step = $1", step)
        if said is None:
            said = json.dumps(await make())
            await connection.execute("insert into bench_done values ($1, $2)", step, said)
        return json.loads(said)
    finally:
        await connection.close()


async def fill(url: str, step: str, first: int, last: int, statements: Sequence[str]) -> None:
    """Takes the statements for `{first}` to `{last}`, in chunks; of one that was cut off, what is there stays."""
    for start in range(first, last, CHUNK):
        end = min(start + CHUNK, last)
        texts = ["set synchronous_commit = off", *(each.format(first=start, last=end - 1) for each in statements)]

        async def chunk(texts: Sequence[str] = texts, end: int = end) -> None:
            await execute(KIND, url, texts)
            progress(f"growth: {step}: {end - first:,} of {last - first:,}")

        await once(url, f"{step} {start}", chunk)


async def columns(url: str, table: str) -> list[str]:
    sql = f"select column_name from information_schema.columns where table_schema = 'public' and table_name = '{table}'"
    return [row[0] for row in await execute(KIND, url, [sql])]


async def copies(url: str, task: int, changed: dict[str, str], *, versions: bool) -> list[str]:
    """Statements that make tasks out of this one, the n-th with the id `{task} + n`: for `fill`.

    `changed`: what is another in each of them, by column. `{key}` is the id of the copy.
    """
    found = []
    for table in ("tasks", "cursors", "task_versions")[: 3 if versions else 2]:
        key = "id" if table == "tasks" else "task_id"
        copied = f"{task} + n"
        values = {"name": "'copy-' || n", "live_name": "'copy-' || n", **changed, key: copied}
        listed = await columns(url, table)
        names = ", ".join(f'"{name}"' for name in listed)
        taken = ", ".join(values.get(name, f't."{name}"') for name in listed)
        found.append(
            f"insert into {table} ({names}) select {taken} from {table} t, generate_series({{first}}, {{last}}) n"
            f" where t.{key} = {task} on conflict do nothing"
        )
    return found
