"""Tables of other systems: a database that holds one of our names is refused by one line, and stays as it was.

What Noonbell did not make is neither altered nor dropped, and a store from before the migration log is taken over only if
its tables have the columns of its recorded steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from integration.conftest import FRESH, Open
from integration.support import execute
from integration.test_migrations import tables, works
from noonbell.cli import main
from noonbell.cli.store import as_it_is
from noonbell.errors import SchemaMismatch
from noonbell.settings import load
from noonbell.stores import migrations, open_store
from noonbell.stores.migrations import STEPS
from noonbell.stores.migrations.ownership import Found, shape_of
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Work
from services.probe import apart, connect_mysql
from services.size import size

pytestmark = pytest.mark.bare_database

BEFORE_THE_LOG = 5
"""The newest step of the versions that kept no log."""

Run = Callable[..., tuple[int, str, str]]


class Database:
    """The database at an address, as its owner sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = url.partition(":")[0]
        self.path = Path(url.removeprefix("sqlite:///"))

    @property
    def names(self) -> list[str]:
        """The tables that a store of this kind has."""
        return sorted(migrations.names("postgres" if self.kind == "postgresql" else self.kind)[0])

    def run(self, *statements: str) -> list[Any]:
        """The rows of each."""
        if self.kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as file:
                return [file.execute(statement).fetchall() for statement in statements]
        return apart(lambda: asyncio.run(self._run(statements)))

    async def _run(self, statements: Sequence[str]) -> list[Any]:
        if self.kind == "postgresql":
            connection = await asyncpg.connect(self.url)
            try:
                return [[tuple(row) for row in await connection.fetch(statement)] for statement in statements]
            finally:
                await connection.close()
        connection = await connect_mysql(self.url)
        try:
            answers = []
            async with connection.cursor() as cursor:
                for statement in statements:
                    await cursor.execute(statement)
                    answers.append(list(await cursor.fetchall()) if cursor.description else [])
            await connection.commit()
            return answers
        finally:
            connection.close()

    def dump(self) -> Any:
        """All that it holds: of a file its bytes, of a server every relation with its columns and rows."""
        if self.kind == "sqlite":
            return self.path.read_bytes()
        if self.kind == "postgresql":
            return self.run(
                "select n.nspname::text, c.relname::text, c.oid::bigint, c.relkind::text from pg_class c"
                " join pg_namespace n on n.oid = c.relnamespace"
                " where n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema' order by c.oid",
                "select table_name::text, column_name::text, data_type::text from information_schema.columns"
                " where table_schema = 'public' order by 1, 2",
                "select table_to_xml(c.oid, true, false, '')::text from pg_class c"
                " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' order by c.oid",
            )
        names = [row[0] for row in self.run("show tables")[0]]
        made = [f"show create table `{name}`" for name in names]
        return names, self.run("select 1", *made, *(f"select * from `{name}`" for name in names))


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    return Database(str(request.getfixturevalue(FRESH[request.param])))


@pytest.fixture
def noonbell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run


def is_refused(answer: tuple[int, str, str], name: str) -> None:
    code, out, err = answer
    assert code == 1, err
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert f" {name} " in err
    assert "store.table_prefix" in err
    assert "store.schema" in err
    assert "Traceback" not in err


@pytest.mark.longer
def test_each_of_our_names_is_refused_by_one_line_and_stays_as_it_was(database: Database, noonbell: Run):
    for name in database.names[:: size(6, 1)]:
        database.run(
            f"create table {name} (id integer primary key, owner varchar(20))", f"insert into {name} values (1, 'old')"
        )
        before = database.dump()
        for command in (("serve", "--port", "0"), ("migrate", "--to", "0", "--yes")):
            is_refused(noonbell(*command, "--store", database.url), name)
            assert database.dump() == before, (name, command)
        database.run(f"drop table {name}")
    code, out, _ = noonbell("migrate", "--store", database.url)
    assert (code, out.count("forward")) == (0, len(STEPS)), "without them, it is an empty database"


def test_a_view_and_an_index_by_one_of_our_names_are_refused_too(database: Database, noonbell: Run):
    database.run("create table theirs (id integer primary key, owner varchar(20))")
    foreign = {"tasks": ("create view tasks as select * from theirs", "drop view tasks")}
    if database.kind != "mysql":  # there, an index is known by its table
        foreign["tasks_status"] = ("create index tasks_status on theirs (owner)", "drop index tasks_status")
    for name, (make, drop) in foreign.items():
        database.run(make)
        before = database.dump()
        is_refused(noonbell("migrate", "--store", database.url), name)
        assert database.dump() == before
        database.run(drop)


async def test_indexes_of_a_foreign_table_do_not_stand_for_ours(mysql_url: str, opened: Open):
    """On MariaDB and MySQL, the name of an index belongs to its table."""
    ours = shape_of(tuple(sql for step in STEPS for sql in step.up("mysql"))).indexes
    keys = ", ".join(f"key {name} (id)" for name in ours)
    Database(mysql_url).run(f"create table theirs (id integer, {keys})")
    store = await opened(mysql_url)
    rows = await store.fetch(
        "select distinct index_name, table_name from information_schema.statistics"
        " where table_schema = database() and table_name <> 'theirs' and index_name <> 'PRIMARY'"
    )
    assert set(ours.items()) <= set(rows)


def test_the_doctor_and_the_audit_say_it_and_write_nothing(database: Database, noonbell: Run):
    database.run("create table tasks (id integer primary key, owner varchar(20))")
    before = database.dump()
    code, out, _ = noonbell("doctor", "--store", database.url)
    assert code == 1
    assert "holds a table tasks that Noonbell did not create" in out
    is_refused(noonbell("audit", "-q", "--store", database.url), "tasks")
    code, _, err = noonbell("migrate", "--status", "--store", database.url)
    assert (code, "tasks" in err) == (1, True)
    assert database.dump() == before


def test_what_an_older_version_did_to_a_foreign_table_goes_no_further(database: Database, noonbell: Run):
    """Older versions passed over a table that was there, and recorded their steps as taken."""
    noonbell("migrate", "--store", database.url)
    noonbell("migrate", "--store", database.url, "--to", str(BEFORE_THE_LOG), "--yes")
    database.run("drop table schema_log", "drop table tasks", "create table tasks (id integer, owner varchar(20))")
    before = database.dump()
    for command in (("serve", "--port", "0"), ("migrate", "--to", "0", "--yes")):
        is_refused(noonbell(*command, "--store", database.url), "tasks")
        assert database.dump() == before


async def test_a_store_from_before_the_log_is_taken_over(sql_url: str, opened: Open):
    store = await opened(sql_url)
    whole = await tables(store)
    await store.migrate(to=BEFORE_THE_LOG)
    await execute(store, "drop table schema_log")
    store = await opened(sql_url)
    assert await tables(store) == whole
    await works(store)
    named = {name for (name,) in await store.fetch("select name from schema_log where state = 'made'")}
    # Partitions of history come and go: they are ours as their table is.
    history = {
        name for name in whole if re.fullmatch(r"(runs|attempts|bodies|events)_(before|beyond|\d{8}(_\d\d)?)", name)
    }
    assert named == whole - {"schema_steps", "schema_log"} - history
    await store.migrate(to=0)
    assert await tables(store) == {"schema_steps", "schema_log"}


async def test_a_step_that_the_log_does_not_know_is_taken_over_by_itself(sql_url: str, opened: Open):
    """A version from before the log may have taken it after another had begun the log."""
    store = await opened(sql_url)
    logged = "select name, state from schema_log where step = 4 order by name"
    before = await store.fetch(logged)
    assert before
    await execute(store, "delete from schema_log where step = 4")
    store = await opened(sql_url)
    assert await store.fetch(logged) == before


async def test_a_look_during_the_upgrade_of_another_process_takes_no_table_for_foreign(
    sql_url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    """Between two statements of the look, a store from before the log is brought up to date."""
    store = await opened(sql_url)
    await store.migrate(to=BEFORE_THE_LOG)
    await execute(store, "drop table schema_log")
    await store.close()
    look, looks = migrations.look, 0

    async def upgrade() -> None:
        other = open_store(sql_url)
        await other.open()
        await other.close()

    def interrupted(q: Dialect, variant: str) -> Work[Found]:
        nonlocal looks
        looks += 1
        steps = look(q, variant)
        if looks > 1:
            return (yield from steps)
        answer = None
        for _ in range(3):
            answer = yield steps.send(answer)
        last = steps.send(answer)  # the columns of its tables; which steps were taken is known
        apart(lambda: asyncio.run(upgrade()))
        answer = yield last
        with pytest.raises(StopIteration) as done:
            steps.send(answer)
        return done.value.value

    monkeypatch.setattr(migrations, "look", interrupted)
    async with as_it_is(load((), {}, {"store.url": sql_url}).settings) as found:
        assert (await found.look_at_schema()).step == migrations.LATEST


async def test_a_table_that_the_log_does_not_name_is_foreign(sql_url: str, opened: Open):
    """Also with the very columns that it would have."""
    store = await opened(sql_url)
    await execute(store, "delete from schema_log where name = 'rates'")
    other = open_store(sql_url)
    try:
        with pytest.raises(SchemaMismatch, match="rates"):
            await other.open()
        with pytest.raises(SchemaMismatch, match="rates"):
            await store.migrate(to=0)
    finally:
        await other.close()
    assert "rates" in await tables(store)
