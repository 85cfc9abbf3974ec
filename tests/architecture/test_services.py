"""The tests' own ground: every test has databases to itself, and the closing count is right."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from acceptance.harness import until
from noonbell import version
from noonbell.engine import failpoint
from services import Services, forked, programs
from services.probe import connect_mysql

pytestmark = pytest.mark.bare_database


async def fill_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE bell (id int)")
    await connection.close()


async def bells_in_postgres(url: str) -> str | None:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval("SELECT to_regclass('bell')::text")
    finally:
        await connection.close()


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_an_empty_postgres_database(postgres_url, turn):
    assert await bells_in_postgres(postgres_url) is None
    await fill_postgres(postgres_url)


async def test_a_postgres_template_is_prepared_once_and_copied(fresh_postgres):
    prepared = []

    async def prepare(url):
        prepared.append(url)
        await fill_postgres(url)

    first, second = fresh_postgres("bell", prepare), fresh_postgres("bell", prepare)
    assert await bells_in_postgres(first) == await bells_in_postgres(second) == "bell"
    assert len({first, second, *prepared}) == 3


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_an_empty_mysql_database(mysql_url, turn):
    connection = await connect_mysql(mysql_url)
    async with connection.cursor() as cursor:
        await cursor.execute("SHOW TABLES")
        assert list(await cursor.fetchall()) == []
        await cursor.execute("CREATE TABLE bell (id int)")
        await cursor.execute("SELECT database()")
        assert (await cursor.fetchone())[0] == urlsplit(mysql_url).path[1:]
        await cursor.execute("BEGIN")
        await cursor.execute("INSERT INTO bell VALUES (1)")  # Left open on purpose: the drop must manage.


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_has_a_redis_number_to_itself(redis_url, turn):
    async with Redis.from_url(redis_url) as client:
        assert not await client.exists("bell")
        await client.set("bell", "1")


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
async def test_a_lent_store_has_no_rows_of_the_test_before(kind, request):
    lending = request.getfixturevalue(f"lent_{kind}")
    for _ in range(2):
        lent = lending.lend()
        try:
            assert await said_to(lent.url, "select count(*) from outages") == 0
            await said_to(lent.url, "insert into outages (id, since, until, node) values (1, 1, 2, 'n')")
            assert await said_to(lent.url, "select count(*) from outages") == 1
        finally:
            lending.give_back(lent)


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
@pytest.mark.parametrize("change", ["create table bell (id int)", "alter table outages add column bell int"])
async def test_a_store_whose_tables_were_changed_is_lent_to_nobody_else(kind, change, request):
    lending = request.getfixturevalue(f"lent_{kind}")
    changed = lending.lend()
    await said_to(changed.url, change)
    lending.give_back(changed)
    lent = lending.lend()
    lending.give_back(lent)
    assert lent.url != changed.url


async def said_to(url: str, statement: str) -> object:
    """The first value of the answer."""
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url)
        found = await connection.fetchval(statement)
        await connection.close()
        return found
    connection = await connect_mysql(url)
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        row = await cursor.fetchone() if cursor.description else None
    connection.close()
    return row[0] if row else None


def test_a_forked_process_has_its_folder_its_words_and_its_exit_code(tmp_path):
    (tmp_path / "bell.yaml").write_text("server: {port: none}")
    done = forked.run("config", "check", "--config", "bell.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "server.port" in done.stderr
    assert forked.run("--version").stdout == f"noonbell {version.__version__}\n"


def test_a_forked_process_can_be_killed(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        process = forked.start(
            "serve", "--store", "memory://", "--port", "0", cwd=tmp_path, env={}, stdout=log, stderr=log
        )
    assert process.poll() is None
    process.kill()
    assert process.wait(10) == -9


def test_a_forked_process_has_the_failpoint_that_it_is_given(tmp_path):
    url = f"sqlite:///{tmp_path / 'n.db'}"
    for point, code in (("K13:2", failpoint.STATUS), ("", 0)):
        done = forked.run("migrate", "--store", url, cwd=tmp_path, env={**os.environ, failpoint.VARIABLE: point})
        assert done.returncode == code, done.stderr


TESTS_THAT_ARE_KILLED = """
import os, sys
from pathlib import Path
from services import Services, forked, programs

with open(os.devnull, "wb") as nothing:
    process = forked.start("serve", "--store", "memory://", "--port", "0", cwd=Path.cwd(), env={}, stdout=nothing, stderr=nothing)
print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a process that its parent has ended")
def test_tests_that_are_killed_leave_no_forked_process_behind(tmp_path):
    command = [sys.executable, "-c", TESTS_THAT_ARE_KILLED]
    tests = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(tests)}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        node = Path(f"/proc/{int(killed.stdout.readline())}")
        assert node.exists()
        killed.kill()
    until(lambda: not node.exists() or "zombie" in (node / "status").read_text(), "the node to end", 60)


def test_sqlite_has_a_file_in_the_folder_of_the_test(sqlite_url, tmp_path):
    path = sqlite_url.removeprefix("sqlite:///")
    sqlite3.connect(path).close()
    assert list(tmp_path.iterdir()) == [tmp_path / "noonbell.db"]
    assert path == str(tmp_path / "noonbell.db")


def test_the_closing_count_reads_the_store_from_the_parameters(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(pytestconfig.rootpath / "tests" / "conftest.py"))
    reports = {
        "passed": ["a.py::test_x[memory]", "a.py::test_x[postgres]", "a.py::test_y[postgres-3]", "a.py::test_z"],
        "failed": ["a.py::test_y[late-sqlite]", "a.py::test_y[late-sqlite]"],
        "skipped": ["a.py::test_x[mariadb]"],
    }
    stats = {outcome: [SimpleNamespace(nodeid=nodeid) for nodeid in nodeids] for outcome, nodeids in reports.items()}
    assert conftest.count_per_store(stats) == ("tests per store: memory 1, sqlite 1, postgres 2, mariadb 0 (1 skipped)")


def test_a_program_that_is_missing_and_may_not_be_installed_is_told_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 1000)
    services = Services(tmp_path, os.getpid())
    missing = programs.program(services, "no-such-program", "no-such-package")
    assert missing.url is None
    assert "no-such-program is not installed; install no-such-package" in missing.story
    assert services.known() == [missing], "the summary tells of it"
    assert programs.program(services, "sh", "dash").url
