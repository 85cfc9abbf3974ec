"""PgBouncer between Noonbell and PostgreSQL, in transaction mode: a session is another one with each transaction."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import asyncpg
import pytest

from conformance.store.builders import START, claim, finish, job, publish_many, runs_of
from integration.private_servers import missing
from noonbell.clock import ManualClock
from noonbell.errors import SettingsError, StoreUnavailable
from noonbell.model.run import SettleResult, SkipReason
from noonbell.model.task import Delivery
from noonbell.settings import StoreSettings
from noonbell.stores import make_wakeup, open_store
from noonbell.stores.postgres import PostgresStore
from noonbell.stores.sql.statement import Execute, Work
from services import keeper, launch, wait_until


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    """The address of a PgBouncer that leads to the test's database over two connections."""
    try:
        program = launch.binary("pgbouncer", Path("/usr/sbin"))
    except FileNotFoundError as error:
        try:
            launch.install_package("pgbouncer", error)
            program = launch.binary("pgbouncer", Path("/usr/sbin"))
        except (launch.Unavailable, FileNotFoundError) as why:
            missing(why)
    folder = Path(mkdtemp(prefix="nb-bouncer-"))
    user = launch.account("postgres")
    launch.own_folder(folder, user)
    server, port = urlsplit(postgres_url), launch.spare_port()
    (folder / "ini").write_text(
        f"""[databases]
* = host={server.hostname} port={server.port or 5432} user={server.username or "postgres"}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""
    )
    process = subprocess.Popen(
        [program, folder / "ini"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **keeper.as_user(user)
    )
    url = f"postgresql://{server.username or 'postgres'}@127.0.0.1:{port}{server.path}"

    async def ask() -> None:
        await (await asyncpg.connect(url)).close()

    def answers() -> bool:
        try:
            asyncio.run(ask())
        except (OSError, asyncpg.PostgresError):
            return False
        return True

    try:
        wait_until(answers, launch.START_SECONDS)
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.bare_database
async def test_three_nodes_share_two_sessions(pooled_url: str):
    stores = [open_store(pooled_url, pooler="transaction") for _ in range(3)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        task = await stores[0].create_task(job())
        ids = await publish_many(stores[1], task, 60)

        async def work(number: int) -> list[int]:
            store, mine = stores[number], []
            while leases := await claim(store, f"w{number}", 5):
                settled = await store.settle([finish(lease) for lease in leases])
                assert set(settled) == {SettleResult.DONE}
                mine += [lease.run_id for lease in leases]
            return mine

        shares = await asyncio.gather(*(work(number) for number in range(3)))
        assert sorted(run for share in shares for run in share) == sorted(ids)
        for store in stores:
            await store.plan(100, cap=100)
            await store.promote(100)
    finally:
        await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.bare_database
async def test_without_the_setting_the_pooler_is_named(pooled_url: str):
    store = open_store(pooled_url)
    with pytest.raises(StoreUnavailable, match=r"A connection pooler .* set store\.pooler: transaction"):
        await store.open()
    await store.close()


async def test_a_wakeup_that_does_not_hear_itself_polls_and_says_so(
    pooled_url: str, postgres_url: str, caplog: pytest.LogCaptureFixture
):
    deaf, direct = make_wakeup(pooled_url, pooled=True), make_wakeup(pooled_url, postgres_url, pooled=True)
    with caplog.at_level(logging.WARNING, "noonbell"):
        await asyncio.gather(deaf.open(), direct.open())
    try:
        assert not deaf.is_connected  # type: ignore[attr-defined]
        assert direct.is_connected  # type: ignore[attr-defined]
        assert "work is found by polling" in caplog.text
        assert await deaf.wait(["queue:default"], 30)  # a poll
        waiting = asyncio.create_task(direct.wait(["queue:default"], 30))
        await asyncio.sleep(0)
        deaf.signal("queue:default")
        assert await waiting, "what goes out through the pooler is heard by who listens past it"
    finally:
        await asyncio.gather(deaf.close(), direct.close())


def test_a_pooler_is_for_postgresql():
    with pytest.raises(SettingsError, match=r"store\.pooler"):
        StoreSettings(url="mysql://root@127.0.0.1/nb", pooler="transaction")


@pytest.mark.bare_database
async def test_a_server_that_has_taken_the_place_of_another_behind_the_pooler_is_looked_at(pooled_url: str):
    """The connections to the pooler stay open, so that no new one is looked at before it is used."""
    clock = ManualClock(START)
    store = open_store(pooled_url, clock=clock, pooler="transaction")
    assert isinstance(store, PostgresStore)
    await store.open()
    try:
        task = await store.create_task(job(delivery=Delivery.AT_MOST_ONCE))
        await publish_many(store, task, 1)
        await store.pulse("n1")
        clock.advance(1)
        await store.pulse("n1")

        def lose() -> Work[None]:
            yield Execute("update pulses set at = :moment", {"moment": START})

        await store._write(lambda _: lose())
        assert store._server is not None
        store._server = "1767225600.000000"  # it worked on a server that had started then
        assert await claim(store, count=1) == []
        (run,) = await runs_of(store, task)
        assert run.skip_reason is SkipReason.STORE_WENT_BACK
        assert store._server != "1767225600.000000"
        await publish_many(store, task, 1)
        assert len(await claim(store, count=1)) == 1
    finally:
        await store.close()
