"""A database of its own for each test, on whichever servers `Services` has.

Everything here is synchronous and works from a thread of its own, so that any test or fixture may ask for a
database, inside an event loop or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import secrets
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

import asyncpg
from redis import Redis

from services.probe import apart, connect_mysql

Prepare = Callable[[str], Awaitable[object] | object]
"""Fills the database at an address: migrations, rows. Leaves no connection open. Plain or async."""

CLAIM = "noonbell-test-claim"
CLAIM_SECONDS = 600


class PostgresDatabases:
    """Databases on one server. A template is prepared once and then copied, which costs what an empty one does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._templates: dict[str, str] = {}

    def create(self, template: str | None = None, prepare: Prepare | None = None) -> str:
        """The address of a new database: empty, or a copy of what `prepare` made of the one named `template`."""
        source = self._template(template, prepare) if template and prepare else "template0"
        return self._create(source)

    def drop(self, url: str) -> None:
        """Also if a test left connections open."""
        self._execute(f"DROP DATABASE IF EXISTS {name_in(url)} WITH (FORCE)")

    def close(self) -> None:
        for url in self._templates.values():
            self.drop(url)

    def _template(self, template: str, prepare: Prepare) -> str:
        if template not in self._templates:
            url = self._create("template0")
            self._templates[template] = url
            try:
                do_prepare(prepare, url)
            except BaseException:
                self.drop(self._templates.pop(template))
                raise
        return name_in(self._templates[template])

    def _create(self, source: str) -> str:
        name = new_name()
        self._execute(f"CREATE DATABASE {name} TEMPLATE {source}")
        return sibling(self.url, name)

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        apart(lambda: asyncio.run(execute()))


class MysqlDatabases:
    """Databases on one server. There are no templates here, but a new table costs 2 ms: each is prepared afresh."""

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, template: str | None = None, prepare: Prepare | None = None) -> str:
        """As on PostgreSQL; `template` is accepted so that callers need not care."""
        name = new_name()
        self._execute([f"CREATE DATABASE {name} CHARACTER SET utf8mb4"])
        url = sibling(self.url, name)
        if prepare:
            try:
                do_prepare(prepare, url)
            except BaseException:
                self.drop(url)
                raise
        return url

    def drop(self, url: str) -> None:
        """Also if a test left connections open: they would hold locks that the drop waits for."""
        name = name_in(url)
        left = self._execute([f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"])
        for (thread,) in left:
            with contextlib.suppress(Exception):  # It may have gone by itself.
                self._execute([f"KILL {thread}"])
        self._execute(["SET lock_wait_timeout = 10", f"DROP DATABASE IF EXISTS {name}"])

    def _execute(self, statements: list[str]) -> list[tuple]:
        async def execute() -> list[tuple]:
            connection = await connect_mysql(self.url)
            try:
                async with connection.cursor() as cursor:
                    for statement in statements:
                        await cursor.execute(statement)
                    return list(await cursor.fetchall()) if cursor.description else []
            finally:
                connection.close()

        return apart(lambda: asyncio.run(execute()))


@contextlib.contextmanager
def redis_database(url: str) -> Iterator[str]:
    """The address of a numbered database that was empty, ours for ten minutes, and is emptied afterwards.

    A key of ours stays in it meanwhile, to keep other test runs away: databases with anything in them are somebody
    else's. Channels of PUBLISH are shared by all numbers; a test that listens must choose names of its own.
    """
    with Redis.from_url(url) as server:
        count = int(server.config_get("databases")["databases"])
    for number in reversed(range(count)):
        mine = sibling(url, str(number))
        with Redis.from_url(mine) as client:
            if client.dbsize() == 0 and client.set(CLAIM, "1", nx=True, ex=CLAIM_SECONDS):
                try:
                    yield mine
                finally:
                    client.flushdb()
                return
    raise LookupError(f"none of the {count} databases of the Redis at {url} is empty; FLUSHDB one of them")


def do_prepare(prepare: Prepare, url: str) -> None:
    def work() -> None:
        result = prepare(url)
        if inspect.isawaitable(result):
            asyncio.run(finish(result))

    async def finish(awaitable: Awaitable[object]) -> None:
        await awaitable

    apart(work)


def new_name() -> str:
    return f"nb_test_{secrets.token_hex(6)}"


def sibling(url: str, name: str) -> str:
    """The same server, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def name_in(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
