"""Two installations in one database: neither sees the other's tasks, work, wake-ups or migrations."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from integration.conftest import FRESH, Open
from integration.support import job, publish_many
from integration.test_migrations import tables, works
from noonbell.errors import SchemaMismatch, SettingsError
from noonbell.model.request import ClaimRequest, Publication
from noonbell.stores import make_wakeup, open_store
from noonbell.stores.sql.dialect import TableNames

pytestmark = pytest.mark.bare_database

PAIRS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sqlite, plain and prefix": ("sqlite", {}, {"table_prefix": "nb_"}),
    "sqlite, two prefixes": ("sqlite", {"table_prefix": "a_"}, {"table_prefix": "b_"}),
    "mariadb, plain and prefix": ("mariadb", {}, {"table_prefix": "nb_"}),
    "mariadb, two prefixes": ("mariadb", {"table_prefix": "a_"}, {"table_prefix": "b_"}),
    "postgres, plain and schema": ("postgres", {}, {"schema": "bell"}),
    "postgres, prefix and schema with the same": (
        "postgres",
        {"table_prefix": "nb_"},
        {"schema": "bell", "table_prefix": "nb_"},
    ),
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], dict[str, Any]]:
    kind, one, other = PAIRS[request.param]
    return str(request.getfixturevalue(FRESH[kind])), one, other


async def test_two_installations_do_not_see_each_other(pair: tuple[str, dict[str, Any], dict[str, Any]], opened: Open):
    url, one, other = pair
    first = await opened(url, **one)
    second = await opened(url, new=True, **other)
    await works(first)
    await works(second)  # its task is number 1 too
    task = await first.create_task(job("only here"))
    await publish_many(first, task, 3)
    asked = ClaimRequest(worker_id="w", queues=("default",), max=10)
    assert (await second.claim(asked)).leases == []
    assert await second.task_named("only here") is None
    assert len((await first.claim(asked)).leases) == 3
    await second.migrate(to=0)
    assert await first.task_named("only here") == task
    assert {name for (name,) in await second.fetch("select name from schema_log")} == set()
    await second.migrate()
    await works(second)


async def test_a_second_installation_beside_a_plain_one_has_to_be_asked_for(sql_url: str, opened: Open):
    plain = await opened(sql_url)
    before = await tables(plain)
    names = {"schema": "bell"} if sql_url.startswith("postgres") else {"table_prefix": "nb_"}
    refused = open_store(sql_url, **names)
    with pytest.raises(SchemaMismatch, match="--new"):
        await refused.open()
    await refused.close()
    assert await tables(plain) == before
    await opened(sql_url, new=True, **names)
    await works(await opened(sql_url, **names))


async def test_a_schema_that_is_there_needs_no_right_to_make_one(postgres_url: str):
    """Its owner may make tables in it, and need not have CREATE on the database."""
    role = f"owner_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute(f"create role {role} login password '{role}'")
        await admin.execute(f"create schema bell authorization {role}")
        parts = urlsplit(postgres_url)
        address = f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"
        store = open_store(parts._replace(netloc=address).geturl(), schema="bell")
        try:
            await store.open()
            await works(store)
        finally:
            await store.close()
    finally:
        await admin.execute(f"drop owned by {role}; drop role {role}")
        await admin.close()


async def test_a_wake_up_reaches_its_own_installation_and_no_other(postgres_url: str, opened: Open):
    await opened(postgres_url, schema="bell")
    store = await opened(postgres_url, schema="other", new=True)
    sender, hears, deaf = (make_wakeup(postgres_url, names=TableNames(schema)) for schema in ("other", "other", "bell"))
    for wakeup in (sender, hears, deaf):
        await wakeup.open()
    try:
        waits = asyncio.create_task(deaf.wait(["queue:default"], 60))
        heard = asyncio.create_task(hears.wait(["queue:default"], 60))
        await asyncio.sleep(0)
        sender.signal("queue:default")
        assert await heard
        task = await store.create_task(job("inside"))
        heard = asyncio.create_task(hears.wait(["queue:default"], 60))
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await store.publish_within(connection, [Publication(task_id=task.id)], ["queue:default"])
        await connection.close()
        assert await heard
        assert not waits.done()
        waits.cancel()
    finally:
        for wakeup in (sender, hears, deaf):
            await wakeup.close()


@pytest.mark.parametrize("prefix", ["1a_", "nb-", "NB_", "x" * 31, "a;b", 'a"b'])
def test_a_prefix_that_is_no_name_is_refused(prefix: str):
    with pytest.raises(SettingsError, match="table_prefix"):
        open_store("sqlite:///x.db", table_prefix=prefix)


def test_a_schema_is_for_postgres():
    with pytest.raises(SettingsError, match=r"store\.table_prefix"):
        open_store("sqlite:///x.db", schema="bell")
