"""A database with today's schema and no rows, used by one test after another: emptying one is many times quicker than making one.

`Emptied` is used from the event loop that it was first used in; `Lending` has a loop of its own, and any test or fixture may ask it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import asyncpg

from noonbell.stores import open_store
from services.databases import MysqlDatabases, PostgresDatabases, name_in
from services.probe import connect_mysql

T = TypeVar("T")

KEPT = ("schema_steps", "schema_log")
"""The tables that say how new the schema is and what it made: they outlive the emptying."""

TABLES_OF_POSTGRES = """select c.relname from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"""
"""What lies in a partition, its table has."""

SHAPE_OF_POSTGRES = (
    """select md5(string_agg(concat_ws(' ', n.nspname, c.relname, c.relkind, a.attname, a.atttypid, a.attnotnull), ','
           order by n.nspname, c.relname, a.attnum))
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
       left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
       where n.nspname <> 'information_schema' and n.nspname not like 'pg\\_%'""",
    "select md5(string_agg(indexdef, ',' order by indexdef)) from pg_indexes where schemaname not like 'pg\\_%'",
    "select array_agg(tgname order by tgname) from pg_trigger",
    "select array_agg(n.oid order by n.oid) from pg_namespace n where nspname not like 'pg\\_t%'",
    """select array_agg(setconfig) from pg_db_role_setting
       where setdatabase = (select oid from pg_database where datname = current_database())""",
)
SHAPE_OF_MARIADB = (
    """select table_name, column_name, column_type, is_nullable, column_default
       from information_schema.columns where table_schema = database()""",
    """select table_name, index_name, non_unique, column_name, seq_in_index
       from information_schema.statistics where table_schema = database()""",
    "select trigger_name from information_schema.triggers where trigger_schema = database()",
)
"""What tests may change besides rows: tables, columns, indexes, triggers, schemas, settings."""


class Emptied(Protocol):
    url: str

    async def url_of_empty(self) -> str:
        """The address, with no rows but those of the migrations. What left connections behind is still there."""
        ...

    async def is_as_made(self) -> bool:
        """Whether the last test left the tables, columns and indexes alone. Ends its connections first."""
        ...

    async def sizes(self) -> dict[str, int]: ...

    async def close(self) -> None: ...


class EmptiedPostgres:
    def __init__(self, url: str, schema: str | None = None, prefix: str = "") -> None:
        self.url, self._schema, self._prefix = url, schema, prefix
        self._connection: Any = None
        self._filled: Any = None
        """The statement that names the tables with rows."""
        self._seeds: list[str] = []
        self._shape: Any = None

    async def url_of_empty(self) -> str:
        if self._connection is None:
            await migrate(self.url, schema=self._schema, table_prefix=self._prefix)
            self._connection = await asyncpg.connect(self.url)
            await self._connection.execute(f"set search_path = {self._schema or 'public'}")
            # What is tested here is what a store says and does, not what a power cut leaves behind.
            await self._connection.execute("set synchronous_commit = off")
            await self._connection.execute(f"alter database {name_in(self.url)} set synchronous_commit = off")
            found = await self._connection.fetch(TABLES_OF_POSTGRES)
            tables = [row[0] for row in found if not row[0].endswith(KEPT)]
            looks = " union all ".join(f"(select '{table}' from \"{table}\" limit 1)" for table in tables)
            self._seeds = await self._seeding(tables)
            self._shape = await self._look()
            self._filled = await self._connection.prepare(looks)
        deletes = [f'delete from "{table}"' for (table,) in await self._filled.fetch()]
        await self._connection.execute(";".join([*deletes, *self._seeds]))
        return self.url

    async def is_as_made(self) -> bool:
        others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        while await self._connection.fetch(f"select pg_terminate_backend(pid) {others}"):  # noqa: ASYNC110 - no signal tells
            await asyncio.sleep(0.005)
        return bool(await self._look() == self._shape)

    async def _look(self) -> Any:
        steps = [f'select array_agg(t::text order by t::text) from "{self._prefix}{name}" t' for name in KEPT]
        return [await self._connection.fetchval(query) for query in (*SHAPE_OF_POSTGRES, *steps)]

    async def sizes(self) -> dict[str, int]:
        found = await self._connection.fetch(TABLES_OF_POSTGRES)
        return {name: await self._connection.fetchval(f'select count(*) from "{name}"') for (name,) in found}

    async def _seeding(self, tables: list[str]) -> list[str]:
        """What puts back what the migrations had written."""
        statements: list[str] = []
        for table in tables:
            if await self._connection.fetchval(f'select count(*) from "{table}"'):
                await self._connection.execute(f'create temporary table "seed_{table}" as select * from "{table}"')
                statements.append(f'insert into "{table}" select * from "seed_{table}"')
        return statements

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class EmptiedMariadb:
    def __init__(self, url: str, prefix: str = "") -> None:
        self.url, self._prefix = url, prefix
        self._connection: Any = None
        self._tables: list[str] = []
        self._seeds: list[str] = []
        self._shape: Any = None

    async def url_of_empty(self) -> str:
        if self._connection is None:
            await migrate(self.url, table_prefix=self._prefix)
            self._connection = await connect_mysql(self.url)
            found = await self._run("show full tables where table_type = 'BASE TABLE'")
            self._tables = [row[0] for row in found if not row[0].endswith(KEPT)]
            self._seeds = await self._seeding()
            self._shape = await self._look()
        looks = " union all ".join(f"(select '{table}' from `{table}` limit 1)" for table in self._tables)
        filled = await self._run("set foreign_key_checks = 0", "begin", looks)
        await self._run(*(f"delete from `{table}`" for (table,) in filled), *self._seeds, "commit")
        return self.url

    async def is_as_made(self) -> bool:
        others = "select id from information_schema.processlist where db = database() and id <> connection_id()"
        while left := await self._run(others):
            for (thread,) in left:
                with contextlib.suppress(Exception):  # It may have gone by itself.
                    await self._run(f"kill {thread}")
            await asyncio.sleep(0.005)
        return bool(await self._look() == self._shape)

    async def _look(self) -> Any:
        steps = [f"select * from `{self._prefix}{name}`" for name in KEPT]
        return [sorted(map(repr, await self._run(query))) for query in (*SHAPE_OF_MARIADB, *steps)]

    async def sizes(self) -> dict[str, int]:
        found = await self._run("show full tables where table_type = 'BASE TABLE'")
        return {name: (await self._run(f"select count(*) from `{name}`"))[0][0] for name, *_ in found}

    async def _seeding(self) -> list[str]:
        statements: list[str] = []
        for table in self._tables:
            if (await self._run(f"select count(*) from `{table}`"))[0][0]:
                await self._run(f"create temporary table `seed_{table}` as select * from `{table}`")
                statements.append(f"insert into `{table}` select * from `seed_{table}`")
        return statements

    async def _run(self, *statements: str) -> list[tuple[Any, ...]]:
        async with self._connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
            return list(await cursor.fetchall()) if cursor.description else []

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def migrate(url: str, **names: Any) -> None:
    store = open_store(url, **names)
    await store.open()
    await store.close()


class Lending:
    """Emptied databases on one server. Emptied when lent, not when given back: by then the last test has ended altogether."""

    def __init__(
        self, databases: PostgresDatabases | MysqlDatabases, kind: Callable[[str], EmptiedPostgres | EmptiedMariadb]
    ) -> None:
        self._databases, self._kind = databases, kind
        self._idle: list[Emptied] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lending", daemon=True)
        self._thread.start()

    def lend(self) -> Emptied:
        while self._idle:
            database = self._idle.pop()
            try:
                if self._do(database.is_as_made()):
                    self._do(database.url_of_empty())
                    return database
            except Exception:  # noqa: S110 - the test before may have left it in any state: it goes, another comes
                pass
            self._drop(database)
        database = self._kind(self._databases.create())
        self._do(database.url_of_empty())
        return database

    def give_back(self, database: Emptied) -> None:
        self._idle.append(database)

    def close(self) -> None:
        for database in self._idle:
            self._drop(database)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _drop(self, database: Emptied) -> None:
        with contextlib.suppress(Exception):
            self._do(database.close())
        self._databases.drop(database.url)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
