"""Connections to PostgreSQL that go from one call to the next: which are kept, and which the pool gets back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from integration.support import until
from noonbell.stores import postgres_pool
from noonbell.stores.postgres_pool import Connection, ConnectionPool, as_it_is

SECONDS = 10.0


@pytest.fixture
async def pools(postgres_url: str) -> AsyncIterator[tuple[ConnectionPool, asyncpg.Pool[asyncpg.Record]]]:
    """Of two connections, and asyncpg's pool behind it."""
    inner = await asyncpg.create_pool(postgres_url, min_size=0, max_size=2, reset=as_it_is)
    pool = ConnectionPool(inner)
    yield pool, inner
    await pool.close()


async def pid_of(pool: ConnectionPool) -> int:
    async with pool.acquire(SECONDS) as connection:
        return int(await connection.fetchval("select pg_backend_pid()"))


async def test_a_connection_that_a_call_leaves_in_order_is_that_of_the_next_call(pools):
    pool, inner = pools
    first = await pid_of(pool)
    assert inner.get_idle_size() == 0, "the pool has it back"
    assert pool.get_idle_size() == 1
    assert await pid_of(pool) == first
    assert pool.get_size() == 1


async def test_one_that_a_call_leaves_with_an_error_goes_back_to_the_pool(pools):
    pool, inner = pools
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with pool.acquire(SECONDS) as connection:
            await connection.execute("select 1 / 0")
    assert inner.get_idle_size() == 1
    assert await pid_of(pool) > 0


async def test_a_call_that_is_canceled_leaves_no_statement_to_the_next(pools, postgres_url: str):
    pool, _ = pools
    pids: list[int] = []

    async def call() -> None:
        async with pool.acquire(SECONDS) as connection:
            pids.append(connection.get_server_pid())
            await connection.execute("select pg_sleep(600)")

    calling = asyncio.create_task(call())
    other = await asyncpg.connect(postgres_url)
    try:
        sleeping = "select count(*) = 1 from pg_stat_activity where pid = any($1::int[]) and wait_event = 'PgSleep'"
        await until(lambda: other.fetchval(sleeping, pids), SECONDS, "the statement is under way")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert await pid_of(pool) > 0
        await until(lambda: _is_false(other.fetchval(sleeping, pids)), SECONDS, "the statement has ended")
    finally:
        await other.close()


async def _is_false(asked) -> bool:
    return (await asked) is False


async def test_one_that_broke_while_nobody_used_it_is_not_handed_out(pools, postgres_url: str):
    pool, _ = pools
    async with pool.acquire(SECONDS) as connection:
        broken: Connection = connection
        pid = connection.get_server_pid()
    other = await asyncpg.connect(postgres_url)
    try:
        await other.execute("select pg_terminate_backend($1)", pid)
    finally:
        await other.close()
    await until(lambda: not postgres_pool._is_usable(broken), SECONDS, "this side has seen that it broke")
    assert pool.get_idle_size() == 0
    assert await pid_of(pool) != pid


async def test_a_call_that_waits_gets_the_one_that_is_given_back(pools):
    pool, _ = pools
    first, second = await pool.take(SECONDS), await pool.take(SECONDS)
    waiting = asyncio.create_task(pool.take(SECONDS))
    await until(lambda: pool._waiting == 1, SECONDS, "the third call waits")
    pid = first.get_server_pid()
    await pool.give_back(first, in_order=True)
    third = await waiting
    assert third.get_server_pid() == pid
    for connection in (second, third):
        await pool.give_back(connection, in_order=True)
    assert pool.get_idle_size() == 2


async def test_no_call_gets_one_from_before_all_were_expired(pools):
    pool, _ = pools
    idle, used = await pool.take(SECONDS), await pool.take(SECONDS)
    before = {idle.get_server_pid(), used.get_server_pid()}
    await pool.give_back(idle, in_order=True)
    await pool.expire_connections()
    await pool.give_back(used, in_order=True)
    after = [await pool.take(SECONDS), await pool.take(SECONDS)]
    assert not before & {connection.get_server_pid() for connection in after}
    for connection in after:
        await pool.give_back(connection, in_order=True)


async def test_one_that_nobody_wants_for_a_while_goes_back_to_the_pool(pools, monkeypatch: pytest.MonkeyPatch):
    pool, inner = pools
    monkeypatch.setattr(postgres_pool, "_UNWANTED", 0.05)
    await pid_of(pool)
    await until(lambda: inner.get_idle_size() == 1, SECONDS, "the pool has it back")
    assert await pid_of(pool) > 0


async def test_one_that_was_used_often_goes_back_to_the_pool(pools, monkeypatch: pytest.MonkeyPatch):
    pool, inner = pools
    monkeypatch.setattr(postgres_pool, "_USES", 3)
    for _ in range(2):
        await pid_of(pool)
        assert inner.get_idle_size() == 0
    await pid_of(pool)
    assert inner.get_idle_size() == 1


async def test_all_are_closed_with_it_once_they_are_given_back(postgres_url: str):
    inner = await asyncpg.create_pool(postgres_url, min_size=0, max_size=2, reset=as_it_is)
    pool = ConnectionPool(inner)
    idle, used = await pool.take(SECONDS), await pool.take(SECONDS)
    await pool.give_back(idle, in_order=True)
    closing = asyncio.create_task(pool.close())
    await until(lambda: not postgres_pool._is_usable(idle), SECONDS, "the idle one goes")
    assert not closing.done()
    await pool.give_back(used, in_order=True)
    await asyncio.wait_for(closing, SECONDS)
    assert not postgres_pool._is_usable(used)
