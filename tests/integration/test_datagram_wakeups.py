"""Wake-ups by datagrams: sockets beside a SQLite file, addresses in a table of MariaDB; and what happens when they break."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
import pytest

from integration.support import TESTS, until
from noonbell.stores import make_wakeup
from noonbell.stores.datagram_wakeups import DatagramWakeup, ListenerTable, SocketFolder, opened, sealed
from noonbell.stores.mysql import connect
from noonbell.stores.sql.dialect import TableNames
from noonbell.stores.wakeups import PushedWakeup
from services import forked

LONG = 60.0
"""Seconds that no test waits for. Nothing polls for the topics `plan` and `orders`: who is woken for them was signalled."""
KINDS = {"sqlite": "sqlite_url", "mariadb": "mysql_url", "postgres": "postgres_url"}


@pytest.fixture
def file(sqlite_url: str) -> Path:
    """A file without a store: wake-ups read nothing of it."""
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.touch()
    return path


@asynccontextmanager
async def publishing(wakeup: PushedWakeup) -> AsyncIterator[PushedWakeup]:
    await wakeup.open()
    yield wakeup
    await wakeup.close()


@asynccontextmanager
async def listening(wakeup: PushedWakeup) -> AsyncIterator[PushedWakeup]:
    async with publishing(wakeup):
        await listens(wakeup)
        yield wakeup


async def listens(wakeup: PushedWakeup) -> None:
    await wakeup.wait(["plan", "orders"], 0)
    await until(lambda: wakeup.is_connected, LONG, "it to listen")
    await wakeup.wait(["plan", "orders"], 0)  # one that begins to listen looks once


def of_file(path: Path) -> DatagramWakeup:
    return DatagramWakeup(SocketFolder(str(path)), retry_seconds=0.05)


def of_table(url: str, advertise: str | None = None) -> DatagramWakeup:
    return DatagramWakeup(ListenerTable(url, TableNames(), advertise), retry_seconds=0.05)


def folder_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wakeup")


async def rows(url: str, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
    connection = await connect(url)
    try:
        cursor = connection.cursor()
        await cursor.execute(sql, values)
        found: Sequence[Sequence[Any]] = await cursor.fetchall()
        return found
    finally:
        connection.close()


# SQLite


async def test_only_the_owner_of_the_file_reaches_its_sockets_and_nothing_is_left_behind(file: Path):
    async with listening(of_file(file)), listening(of_file(file)):
        folder = folder_of(file)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [stat.S_ISSOCK(one.stat().st_mode) for one in folder.iterdir()] == [True, True]
    assert not folder.exists()


async def test_a_publisher_has_no_socket(file: Path):
    async with publishing(of_file(file)) as wakeup:
        wakeup.signal("plan")
        await until(wakeup._all_told.is_set, LONG, "the signal to be sent")
        assert not folder_of(file).exists()


async def test_the_socket_of_a_listener_that_died_is_removed_by_the_next_publisher(file: Path):
    async with listening(of_file(file)) as there, publishing(of_file(file)) as here:
        dead = folder_of(file) / "dead"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.bind(str(dead))
        foreign = folder_of(file) / "notes.txt"
        foreign.write_text("not a socket")
        here.signal("plan")
        assert await there.wait(["plan"], LONG)
        await until(lambda: not dead.exists(), LONG, "the dead socket to be removed")
        assert foreign.exists()


async def test_a_path_that_is_too_long_for_a_socket_has_its_folder_elsewhere(tmp_path: Path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    (deep / "noonbell.db").touch()
    async with listening(of_file(deep / "noonbell.db")) as there, publishing(of_file(deep / "noonbell.db")) as here:
        aside = SocketFolder(str(deep / "noonbell.db")).folders()[1]
        assert stat.S_IMODE(aside.stat().st_mode) == 0o700
        here.signal("plan")
        assert await there.wait(["plan"], LONG)
    assert not aside.exists()


async def test_a_folder_that_others_can_enter_is_neither_used_nor_believed(file: Path):
    folder_of(file).mkdir(mode=0o755)
    folder_of(file).chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trap:
        trap.setblocking(False)
        trap.bind(str(folder_of(file) / "trap"))
        async with listening(of_file(file)) as there, publishing(of_file(file)) as here:
            here.signal("plan")
            assert await there.wait(["plan"], LONG)
        with pytest.raises(BlockingIOError):
            trap.recv(100)


async def test_without_sockets_there_is_one_warning_and_work_is_found_by_polling(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    folder_of(file).write_text("in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    async with publishing(of_file(file)) as wakeup:
        for _ in range(5):
            assert await wakeup.wait(["queue:a"], LONG), "by the poll"
        await until(lambda: "found by polling" in caplog.text, LONG, "the warning")
        wakeup.signal("plan")
        assert await wakeup.wait(["plan"], 0)
        assert not wakeup.is_connected
    assert caplog.text.count("found by polling") == 1


async def test_a_listener_whose_socket_was_removed_binds_another_and_looks(file: Path):
    async with listening(of_file(file)) as there, publishing(of_file(file)) as here:
        (lost,) = folder_of(file).iterdir()
        lost.unlink()
        here.signal("plan")  # to no one
        assert await there.wait(["plan"], LONG), "it listens again, and may have missed a signal"
        here.signal("orders")
        assert await there.wait(["orders"], LONG)


async def test_a_listener_with_a_full_buffer_gets_every_topic_in_the_end(file: Path):
    folder_of(file).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as slow:
        slow.setblocking(False)
        slow.bind(str(folder_of(file) / "slow"))
        sent = {f"queue:{number}" for number in range(2_000)}
        async with publishing(of_file(file)) as here:
            for topic in sorted(sent):
                here.signal(topic)
                await asyncio.sleep(0)
            heard: set[str] = set()

            def has_heard_all() -> bool:
                try:
                    message = opened(b"noonbell:", slow.recv(20_000))
                except BlockingIOError:
                    return False
                heard.update((message or "").split("\n")[1:])
                return heard == sent

            await until(lambda: any(has_heard_all() for _ in range(50)), LONG, "all topics")


async def test_two_stores_of_one_file_do_not_wake_each_other(file: Path):
    ours, theirs = (DatagramWakeup(SocketFolder(str(file), mark)) for mark in ("ours", "theirs"))
    async with listening(ours), listening(theirs), publishing(DatagramWakeup(SocketFolder(str(file), "ours"))) as here:
        here.signal("plan")
        assert await ours.wait(["plan"], LONG)
        other = DatagramWakeup(SocketFolder(str(file), "theirs"))
        async with publishing(other):
            other.signal("orders")
            assert await theirs.wait(["orders"], LONG)
        assert not await theirs.wait(["plan"], 0)


def test_a_database_in_memory_has_no_sockets():
    assert not isinstance(make_wakeup("sqlite:///:memory:"), PushedWakeup)


# MariaDB


async def test_a_forged_datagram_does_nothing(mysql_url: str):
    async with listening(of_table(mysql_url)) as there, publishing(of_table(mysql_url)) as here:
        ((address, port, key),) = await rows(mysql_url, "select address, port, secret from wakeup_listeners")
        assert address == "127.0.0.1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            for forged in (
                *(b"", b"plan", b"\0" * 16 + b"me\nplan", secrets.token_bytes(16_000)),
                *(
                    sealed(secrets.token_bytes(16), "me\nplan"),
                    sealed(key.encode(), "me\nplan"),
                    sealed(b"", "me\nplan"),
                ),
            ):
                forger.sendto(forged, (address, port))
        here.signal("orders")
        assert await there.wait(["orders"], LONG), "they lie before it in the buffer"
        assert not await there.wait(["plan"], 0)


async def test_a_publisher_that_was_there_first_reaches_a_listener_that_comes_later(mysql_url: str):
    async with publishing(of_table(mysql_url)) as here:
        here.signal("plan")
        await until(here._all_told.is_set, LONG, "the first signal to be sent")
        async with listening(of_table(mysql_url)) as there:
            here.signal("plan")
            assert await there.wait(["plan"], LONG)


async def test_a_listener_that_leaves_takes_its_row_along(mysql_url: str):
    async with listening(of_table(mysql_url)):
        assert len(await rows(mysql_url, "select 1 from wakeup_listeners")) == 1
    assert not await rows(mysql_url, "select 1 from wakeup_listeners")


async def test_a_listener_whose_row_is_gone_enters_again_and_looks(mysql_url: str):
    async with listening(of_table(mysql_url)) as there:
        await rows(mysql_url, "delete from wakeup_listeners")
        assert await there.wait(["plan"], LONG), "it listens again, and may have missed a signal"
        assert len(await rows(mysql_url, "select 1 from wakeup_listeners")) == 1


async def test_rows_of_the_dead_and_of_other_hosts_get_nothing(mysql_url: str):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trap:
        trap.bind(("127.0.0.1", 0))
        trap.setblocking(False)
        now = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
        for name, host, seen_at in (("dead", None, "0"), ("far", "another host", now)):
            await rows(
                mysql_url,
                "insert into wakeup_listeners (id, host, address, port, secret, seen_at)"
                f" values (%s, %s, '127.0.0.1', %s, '00', {seen_at})",
                *(name, host, trap.getsockname()[1]),
            )
        async with listening(of_table(mysql_url)) as there, publishing(of_table(mysql_url)) as here:
            here.signal("plan")
            assert await there.wait(["plan"], LONG)
            assert await rows(mysql_url, "select 1 from wakeup_listeners where id = 'far'")
            assert not await rows(mysql_url, "select 1 from wakeup_listeners where id = 'dead'"), (
                "whoever enters cleans"
            )
        with pytest.raises(BlockingIOError):
            trap.recv(100)


async def test_an_address_that_is_advertised_is_for_every_host(mysql_url: str):
    async with listening(of_table(mysql_url, "127.0.0.2")) as there, publishing(of_table(mysql_url)) as here:
        assert await rows(mysql_url, "select host, address from wakeup_listeners") == ((None, "127.0.0.2"),)
        here.signal("plan")
        assert await there.wait(["plan"], LONG)


@pytest.mark.parametrize(
    ("url", "advertise", "hears_everybody"),
    [
        ("mysql://root@127.0.0.1/x", None, True),
        ("mysql://root@localhost/x", None, True),
        ("mysql://root@db.example/x", None, False),
        ("mysql://root@db.example/x", "10.0.0.7", True),
    ],
)
def test_a_listener_that_other_hosts_cannot_reach_goes_on_to_poll(
    url: str, advertise: str | None, hears_everybody: bool
):
    assert of_table(url, advertise).hears_everybody is hears_everybody


async def test_a_server_that_is_away_costs_no_error_and_waiters_poll():
    async with publishing(of_table("mysql://nobody@127.0.0.1:1/none")) as wakeup:
        wakeup.last_words = 0.1
        wakeup.signal("plan")
        assert await wakeup.wait(["plan"], 0)
        assert await wakeup.wait(["queue:a"], LONG), "by the poll"


async def test_a_close_ends_although_the_server_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.setblocking(False)
        wakeup = of_table(f"mysql://nobody@127.0.0.1:{mute.getsockname()[1]}/none")
        await wakeup.open()
        met, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(mute), LONG)
        with met:
            await asyncio.wait_for(wakeup.close(), LONG)


# Processes

LISTENER = """
import asyncio, sys
from noonbell.stores import make_wakeup

async def main() -> None:
    wakeup = make_wakeup(sys.argv[1])
    await wakeup.open()
    await wakeup.wait(["plan", "orders"], 0)
    while not wakeup.is_connected:
        await asyncio.sleep(0.01)
    await wakeup.wait(["plan", "orders"], 0)
    print("listens", flush=True)
    for topic in ("plan", "orders"):
        assert await wakeup.wait([topic], 600)
        print(topic, flush=True)
    await wakeup.close()

asyncio.run(main())
"""

SIGNALLER = """
import asyncio, sys
from noonbell.stores import make_wakeup

async def main() -> None:
    wakeup = make_wakeup(sys.argv[1])
    await wakeup.open()
    wakeup.signal(sys.argv[2])
    await wakeup.close()

asyncio.run(main())
"""


async def start(script: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_two_publishers_wake_five_listeners(kind: str, request: pytest.FixtureRequest):
    url = request.getfixturevalue(KINDS[kind])
    if kind == "sqlite":
        request.getfixturevalue("file")
    listeners = [await start(LISTENER, url) for _ in range(5)]
    try:
        async with asyncio.timeout(2 * LONG):
            for one in listeners:
                assert one.stdout is not None
                assert await one.stdout.readline() == b"listens\n", (await one.communicate())[1].decode()
            for publisher in [await start(SIGNALLER, url, topic) for topic in ("plan", "orders")]:
                assert await publisher.wait() == 0
            for one in listeners:
                assert (await one.communicate())[0] == b"plan\norders\n"
    finally:
        for one in listeners:
            if one.returncode is None:
                one.kill()
                await one.wait()


APP = """
from pathlib import Path
from noonbell import App

app = App("one shot")

@app.job
async def work(file: str) -> None:
    Path(file).touch()
"""

PUBLISHER = """
import asyncio, sqlite3, sys
from one_shot import app, work

url, how, file = sys.argv[1:]

async def within() -> None:
    async with app.connected(url):
        await work.publish(file=file)

match how:
    case "async":
        asyncio.run(within())
    case "sync":
        with app.connected(url):
            work.publish_sync(file=file)
    case "without leaving":
        app.connected(url).__enter__()
        work.publish_sync(file=file)
    case "transaction":
        with app.connected(url):
            connection = sqlite3.connect(url.removeprefix("sqlite:///"))
            with connection:
                work.publish_sync(file=file, transaction=connection)
            connection.close()
"""


class OneWorker:
    """A `noonbell worker` that polls once an hour, and one-shot scripts that publish to it."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.kind, self.url, self.folder = kind, url, folder
        (folder / "one_shot.py").write_text(APP)
        env = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
        env |= {"NOONBELL_JOBS__POLL_INTERVAL": "1h", "NOONBELL_SCHEDULER__POLL_INTERVAL": "1h"}
        command = ["worker", "--app", f"{folder / 'one_shot.py'}:app", "--store", url]
        with (folder / "log").open("ab") as log:
            self._process = forked.start(*command, cwd=folder, env=env, stdout=log, stderr=log)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def listens(self) -> bool:
        assert self._process.poll() is None, self.log()
        if "is ready" not in self.log():
            return False
        if self.kind == "sqlite":
            return bool(sockets(self.url))
        return self.kind == "postgres" or bool(await rows(self.url, "select 1 from wakeup_listeners"))

    async def break_listener(self) -> None:
        match self.kind:
            case "sqlite":
                for one in sockets(self.url):
                    one.unlink()
            case "postgres":
                admin = await asyncpg.connect(self.url)
                await admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name = 'noonbell wake-up' and datname = current_database()"
                )
                await admin.close()
            case _:
                for (id_,) in await rows(
                    self.url,
                    "select id from information_schema.processlist where db = database() and id <> connection_id()",
                ):
                    with_kill = f"kill connection {int(id_)}"
                    try:
                        await rows(self.url, with_kill)
                    except asyncmy.errors.MySQLError:
                        continue  # it has just ended

    async def publish(self, how: str) -> Path:
        """Returns when the script has ended: the file that its job makes."""
        file = self.folder / f"done {secrets.token_hex(4)}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PUBLISHER, self.url, how, str(file)),
            env=os.environ | {"PYTHONPATH": f"{TESTS}:{self.folder}"},
            stderr=subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), LONG)
        assert process.returncode == 0, errors.decode()[-2000:]
        return file

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(LONG)


def sockets(url: str) -> list[Path]:
    folder = folder_of(Path(url.removeprefix("sqlite:///")))
    return list(folder.iterdir()) if folder.exists() else []


@pytest.fixture
async def worker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OneWorker]:
    one = OneWorker(request.param, request.getfixturevalue(KINDS[request.param]), tmp_path)
    try:
        await until(one.listens, LONG, "the worker to listen")
        yield one
    finally:
        one.kill()


def exists(file: Path) -> Callable[[], bool]:
    return file.exists


SOON = 45.0
"""Seconds: whatever its setting, a worker looks once a minute."""


@pytest.mark.parametrize("worker", KINDS, indirect=True)
async def test_the_job_of_a_script_that_publishes_and_ends_does_not_wait_for_the_poll(worker: OneWorker):
    hows = ["async", "sync", "without leaving", *(["transaction"] if worker.kind == "sqlite" else [])]
    for how in hows:
        await until(exists(await worker.publish(how)), SOON, f"the job that was published {how}")


@pytest.mark.parametrize("worker", KINDS, indirect=True)
async def test_a_broken_listener_costs_no_more_than_the_net(worker: OneWorker):
    await worker.break_listener()
    await until(exists(await worker.publish("async")), SOON, "the job that was published while no listener was there")
