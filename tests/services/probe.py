"""Is there a server at this address, and may we create databases on it?"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import aiomqtt
import aiormq
import asyncmy
import asyncpg
import nats
import redis.asyncio

Kind = Literal["postgres", "mysql", "redis", "rabbitmq", "nats", "mosquitto"]
T = TypeVar("T")
BROKERS: dict[str, str] = {
    "redis": "redis://127.0.0.1:6379/0",
    "rabbitmq": "amqp://guest:guest@127.0.0.1:5672/",
    "nats": "nats://127.0.0.1:4222",
    "mosquitto": "mqtt://127.0.0.1:1883",
}
"""Where each listens by default."""


def apart(work: Callable[[], T]) -> T:
    """Do `work` in a thread of its own: the caller may be inside a running event loop, `work` may start another."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def default_urls(kind: Kind) -> list[str]:
    if kind in BROKERS:
        return [BROKERS[kind]]
    if kind == "mysql":
        return ["mysql://root@127.0.0.1:3306/mysql"]
    users = dict.fromkeys(["root", "postgres", pwd.getpwuid(os.getuid()).pw_name])
    return [f"postgresql://{user}@127.0.0.1:5432/{name}" for user in users for name in ("postgres", "test")]


def refusal(kind: Kind, url: str) -> str | None:
    """Why the server at `url` cannot serve the tests; None if it can."""
    try:
        apart(lambda: asyncio.run(asyncio.wait_for(CALLS[kind](url), 60)))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


async def call_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval("SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"):
            raise PermissionError("this user may not create databases")
    finally:
        await connection.close()


async def call_mysql(url: str) -> None:
    connection = await connect_mysql(url)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute("SHOW GRANTS")
            grants = [row[0] for row in await cursor.fetchall()]
        if not any(" ON *.* " in grant and ("ALL PRIVILEGES" in grant or "CREATE" in grant) for grant in grants):
            raise PermissionError("this user may not create databases")
    finally:
        connection.close()


async def call_redis(url: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.ping()


async def call_rabbitmq(url: str) -> None:
    connection = await aiormq.connect(url)
    await connection.close()


async def call_nats(url: str) -> None:
    """With JetStream, which some tests need."""
    client = await nats.connect(url, allow_reconnect=False, connect_timeout=5)
    try:
        await client.jetstream().account_info()
    finally:
        await client.close()


async def call_mosquitto(url: str) -> None:
    parts = urlsplit(url)
    async with aiomqtt.Client(parts.hostname or "127.0.0.1", parts.port or 1883):
        pass


CALLS = {
    "postgres": call_postgres,
    "mysql": call_mysql,
    "redis": call_redis,
    "rabbitmq": call_rabbitmq,
    "nats": call_nats,
    "mosquitto": call_mosquitto,
}


async def connect_mysql(url: str) -> Any:
    """An asyncmy connection, committing each statement, from `mysql://user:password@host:port/name`."""
    parts = urlsplit(url)
    return await asyncmy.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        db=parts.path.lstrip("/") or None,
        autocommit=True,
    )
