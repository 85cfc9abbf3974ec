"""Publishing in a transaction of psycopg, SQLAlchemy and Django: the run exists if and only if the caller commits."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from noonbell import App
from noonbell.errors import InvalidArgument, NotFound


def shop() -> App:
    app = App("shop")

    @app.job
    def send(to: str) -> str:
        return to

    return app


def is_there(made: Any) -> bool:
    with contextlib.suppress(TimeoutError):
        made.result_sync(0.001)  # it says what it is, and whether it is committed
    try:
        return made._connection.from_thread(made.run()).status == "SCHEDULED"
    except NotFound:
        return False


async def stands(made: Any) -> bool:
    try:
        return (await made.run()).status == "SCHEDULED"
    except NotFound:
        return False


async def test_psycopg_with_asyncio(postgres_url: str):
    app = shop()
    send = app.jobs["send"]
    async with app.connected(postgres_url), await psycopg.AsyncConnection.connect(postgres_url) as connection:
        await connection.execute("create table orders (id int)")
        await connection.commit()
        await connection.execute("insert into orders values (1)")
        undone = await send.publish(to="a", key="k", transaction=connection)
        await connection.rollback()
        async with connection.transaction():
            made = await send.publish(to="a", key="k", transaction=connection)
            assert not await stands(made)
        await connection.commit()
        assert (await stands(made), await stands(undone)) == (True, False)
        await connection.execute("drop table orders")


def test_psycopg_without_asyncio(postgres_url: str):
    app = shop()
    send = app.jobs["send"]
    with app.connected(postgres_url), psycopg.connect(postgres_url) as connection:
        undone = send.publish_sync(to="a", key="k", transaction=connection)
        connection.rollback()
        many = app.publish_many_sync([send.request(to=str(n)) for n in range(50)], transaction=connection)
        made = send.publish_sync(to="a", key="k", transaction=connection)
        assert not is_there(made)
        connection.commit()
        assert (is_there(made), is_there(undone), all(map(is_there, many))) == (True, False, True)


async def test_a_connection_without_asyncio_in_an_app_with_asyncio(postgres_url: str):
    app = shop()
    async with app.connected(postgres_url):
        with psycopg.connect(postgres_url) as connection:
            made = await app.jobs["send"].publish(to="a", transaction=connection)
            assert not await stands(made)
        assert await stands(made)


def test_a_connection_in_autocommit_has_no_transaction(postgres_url: str):
    app = shop()
    with app.connected(postgres_url), psycopg.connect(postgres_url, autocommit=True) as connection:
        with pytest.raises(InvalidArgument, match="without a transaction"):
            app.jobs["send"].publish_sync(to="a", transaction=connection)
        with connection.transaction():
            made = app.jobs["send"].publish_sync(to="a", transaction=connection)
        assert is_there(made)


def test_a_slip_in_a_transaction_leaves_the_callers_work(postgres_url: str):
    app = shop()
    with app.connected(postgres_url), psycopg.connect(postgres_url) as connection:
        connection.execute("create table orders (id int)")
        with pytest.raises(InvalidArgument):
            app.jobs["send"].publish_sync(to=1, transaction=connection)
        connection.execute("insert into orders values (1)")
        connection.commit()
        assert connection.execute("select count(*) from orders").fetchone() == (1,)
        connection.execute("drop table orders")


@pytest.fixture(params=["postgres", "sqlite"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, sa.Engine]]:
    url = request.getfixturevalue(f"{request.param}_url")
    made = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    yield url, made
    made.dispose()


def test_a_session_of_sqlalchemy(engine: tuple[str, sa.Engine]):
    url, made_engine = engine
    app = shop()
    send = app.jobs["send"]
    with app.connected(url):
        with pytest.raises(ZeroDivisionError), Session(made_engine) as session, session.begin():
            session.execute(sa.text("select 1"))
            undone = send.publish_sync(to="a", key="k", transaction=session)
            raise ZeroDivisionError
        with Session(made_engine) as session, session.begin():
            made = send.publish_sync(to="a", key="k", transaction=session)
            assert not is_there(made)
        assert (is_there(made), is_there(undone)) == (True, False)
        with made_engine.begin() as connection:
            again = send.publish_sync(to="b", transaction=connection)
        assert is_there(again)
        with made_engine.connect() as connection, pytest.raises(InvalidArgument, match="without a transaction"):
            send.publish_sync(to="c", transaction=connection)


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy"])
async def test_a_session_of_sqlalchemy_with_asyncio(request: pytest.FixtureRequest, driver: str):
    app = shop()
    send = app.jobs["send"]
    scheme = driver.partition("+")[0]
    url = request.getfixturevalue("mysql_url" if scheme == "mysql" else "postgres_url")
    engine = create_async_engine(url.replace(f"{scheme}://", f"{driver}://"), isolation_level="READ COMMITTED")
    async with app.connected(url):
        with pytest.raises(ZeroDivisionError):
            async with AsyncSession(engine) as session, session.begin():
                undone = await send.publish(to="a", key="k", transaction=session)
                raise ZeroDivisionError
        async with AsyncSession(engine) as session, session.begin():
            made = await send.publish(to="a", key="k", transaction=session)
            assert not await stands(made)
        assert (await stands(made), await stands(undone)) == (True, False)
        async with engine.begin() as connection:
            again = await send.publish(to="b", transaction=connection)
        assert await stands(again)
        async with AsyncSession(engine) as session:
            with pytest.raises(InvalidArgument, match="await the async form"):
                app.connection._refuse_own_loop = lambda what: None  # as another thread would come here
                app.jobs["send"].publish_sync(to="c", transaction=session)
    await engine.dispose()


@pytest.fixture(params=["postgres", "sqlite"])
def atomic(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """Django's connection to the database of the store."""
    url = request.getfixturevalue(f"{request.param}_url")
    parts = urlsplit(url)
    if not django_settings.configured:
        default = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        django_settings.configure(DATABASES={"default": default}, LOGGING_CONFIG=None)
        django.setup()
    place = {"NAME": parts.path} if request.param == "sqlite" else {
        "NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port or 5432, "USER": parts.username or "",
        "PASSWORD": parts.password or "",
    }  # fmt: skip
    engine = "postgresql" if request.param == "postgres" else "sqlite3"
    name = f"shop_{request.param}"
    connections.databases[name] = connections.configure_settings(
        {"default": {}, name: {"ENGINE": f"django.db.backends.{engine}", **place}}
    )[name]
    yield url, name
    connections[name].close()
    del connections[name]
    del connections.databases[name]


def test_atomic_of_django(atomic: tuple[str, str]):
    url, name = atomic
    app = shop()
    send = app.jobs["send"]
    with app.connected(url):
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=name):
            undone = send.publish_sync(to="a", key="k", transaction=connections[name])
            raise ZeroDivisionError
        with transaction.atomic(using=name):
            with connections[name].cursor() as cursor:
                cursor.execute("select 1")
            made = send.publish_sync(to="a", key="k", transaction=connections[name])
            with pytest.raises(ZeroDivisionError), transaction.atomic(using=name):
                inner = send.publish_sync(to="b", transaction=connections[name])
                raise ZeroDivisionError
            assert not is_there(made)
        assert (is_there(made), is_there(undone), is_there(inner)) == (True, False, False)
        with pytest.raises(InvalidArgument, match="outside transaction"):
            send.publish_sync(to="c", transaction=connections[name])


async def test_a_run_of_a_transaction_on_mysql_is_carried_out_after_its_commit(mysql_url: str):
    app = shop()
    parts = urlsplit(mysql_url)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username, "db": parts.path.lstrip("/")}
    connection = await asyncmy.connect(
        **given,
        password=parts.password or "",
        charset="utf8mb4",
        init_command="set session transaction isolation level read committed",
    )
    async with app.running(mysql_url):
        made = await app.jobs["send"].publish(to="Ann", transaction=connection)  # autocommit is off: this begins one
        assert not await stands(made)
        await connection.commit()
        assert await made.result(20) == "Ann"
    await connection.ensure_closed()


def test_another_database_is_refused(postgres_url: str, sqlite_url: str):
    app = shop()
    file = sqlite3.connect(":memory:")
    with app.connected(postgres_url), pytest.raises(InvalidArgument, match="asyncpg or psycopg"):
        app.jobs["send"].publish_sync(to="a", transaction=file)
    file.close()
