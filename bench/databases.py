"""A fresh database for each measured process, dropped when it ends: nothing one contender leaves behind meets the next.

NOONBELL_BENCH_POSTGRES, NOONBELL_BENCH_MYSQL and NOONBELL_BENCH_REDIS name the servers; SQLite files live in `bench/.tmp`, on the same disk
as the project, because a temporary folder in memory would make every flush free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

POSTGRES = os.environ.get("NOONBELL_BENCH_POSTGRES", "postgresql://root@127.0.0.1:5432/postgres")
MYSQL = os.environ.get("NOONBELL_BENCH_MYSQL", "mysql://root@127.0.0.1:3306/")
REDIS = os.environ.get("NOONBELL_BENCH_REDIS", "redis://127.0.0.1:6379/0")
FOLDER = Path(__file__).resolve().parent / ".tmp"

TITLES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "mariadb": "MariaDB", "redis": "Redis"}
STORES = ("postgres", "sqlite", "mariadb")
"""Those that Noonbell keeps its runs in. Redis is for peers."""


@contextlib.contextmanager
def fresh(store: str) -> Iterator[str]:
    """The address of an empty database, or the name of a file that does not exist yet.

    Of Redis: the server's address, with the prefix of all keys as its fragment. The databases of a Redis are few, and
    others may use them.
    """
    name = f"nb_bench_{os.getpid()}_{secrets.token_hex(4)}"
    if store == "sqlite":
        folder = FOLDER / name
        folder.mkdir(parents=True)
        try:
            yield str(folder / "bench.db")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    if store == "redis":
        try:
            yield f"{REDIS}#{name}"
        finally:
            _forget(name)
        return
    server = POSTGRES if store == "postgres" else MYSQL
    statement = _postgres if store == "postgres" else _mysql
    asyncio.run(statement(f"create database {name}"))
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        force = " with (force)" if store == "postgres" else ""
        asyncio.run(statement(f"drop database if exists {name}{force}"))


def server_version(store: str) -> str:
    """Raises whatever the driver raises when the server cannot be reached."""
    if store == "sqlite":
        return sqlite3.sqlite_version
    if store == "postgres":
        return asyncio.run(_postgres("show server_version")).split()[0]
    if store == "redis":
        with redis_link() as link:
            return str(link.info("server")["redis_version"])
    return asyncio.run(_mysql("select version()")).split("-")[0]


def server_versions() -> str:
    """`, PostgreSQL 15.4, …`: of those that answer."""
    found = []
    for store, title in TITLES.items():
        with contextlib.suppress(Exception):  # each driver has its own error for a server that is away
            found.append(f", {title} {server_version(store)}")
    return "".join(found)


def server_settings(store: str) -> str:
    """What of the server's own settings decides a rate; empty for SQLite, where each contender sets its own."""
    if store == "sqlite":
        return ""
    if store == "postgres":
        return asyncio.run(
            _postgres(
                "select string_agg(name || ' ' || current_setting(name), ', ' order by name) from pg_settings where name "
                "in ('fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum', 'shared_buffers')"
            )
        )
    return asyncio.run(
        _mysql(
            "select concat('innodb_flush_log_at_trx_commit ', @@innodb_flush_log_at_trx_commit, ', binary log ', "
            "if(@@log_bin, 'on', 'off'), ', buffer pool ', round(@@innodb_buffer_pool_size / 1048576), ' MB')"
        )
    )


def redis_link() -> Any:
    import redis

    return redis.Redis.from_url(REDIS, socket_connect_timeout=5)


def _forget(name: str) -> None:
    """Deletes the keys that have the name in theirs."""
    with redis_link() as link:
        for key in link.scan_iter(f"*{name}*", count=10_000):
            link.unlink(key)


async def _postgres(statement: str) -> str:
    import asyncpg

    link = await asyncpg.connect(POSTGRES, timeout=5)
    try:
        # Statements that return nothing give None; only the version's answer is read.
        return str(await link.fetchval(statement))
    finally:
        await link.close()


async def _mysql(statement: str) -> str:
    import asyncmy

    parts = urlsplit(MYSQL)
    link = await asyncmy.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=parts.username or "root",
        password=parts.password or "",
        connect_timeout=5,
        autocommit=True,
    )
    try:
        async with link.cursor() as cursor:
            await cursor.execute(statement)
            row = await cursor.fetchone()
            return str(row[0]) if row else ""
    finally:
        await link.ensure_closed()
