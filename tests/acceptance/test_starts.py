"""Starts that cannot be: one line that says what to do, and the exit code that scripts can rely on."""

from __future__ import annotations

import contextlib
import shlex
import socket
import sqlite3

import asyncpg
import pytest

from services import forked
from services.ports import reserved_port

pytestmark = pytest.mark.acceptance


def refusal(node):
    """The exit code, and the one line that there is."""
    code = node.wait_ended()
    (line,) = node.log.splitlines()
    assert line.startswith("error: ")
    return code, line


def test_a_node_comes_up_on_an_empty_file(nodes, sqlite_url):
    node = nodes.start(sqlite_url)
    health = node.call("GET", "/healthz")
    assert (health.status, health.text) == (200, "ok")
    version = node.call("GET", "/version")
    assert (version.status, version.text) == (200, "v0.1.0")
    assert node.call("GET", "/metrics", base="").status == 200


def test_a_taken_port(nodes, sqlite_url):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = refusal(nodes.launch("--store", sqlite_url, "--port", str(port)))
    assert code == 5
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_store_that_does_not_answer(nodes, scheme):
    with reserved_port() as port:
        code, line = refusal(nodes.launch("--store", f"{scheme}://me:hunter2@127.0.0.1:{port}/bell", "--port", "0"))
    assert code == 8
    assert "hunter2" not in line


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_a_database_that_is_not_there(nodes, server, request):
    address = f"{request.getfixturevalue(server).rpartition('/')[0]}/no_such_database"
    code, line = refusal(nodes.launch("--store", address, "--port", "0"))
    assert (code, "no_such_database" in line) == (8, True)
    assert "make it first" in line


def test_a_folder_that_is_not_there(nodes, tmp_path):
    code, line = refusal(nodes.launch("--store", f"sqlite:///{tmp_path}/nowhere/bell.db", "--port", "0"))
    assert code == 8
    assert "nowhere" in line


def test_a_schema_that_is_newer(nodes, sqlite_url, tmp_path):
    nodes.start(sqlite_url).stop()
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as file, file:
        file.execute("insert into schema_steps (number, title) values (999, 'from the future')")
    code, line = refusal(nodes.launch("--store", sqlite_url, "--port", "0"))
    assert code == 1
    assert "999" in line
    assert "upgrade Noonbell" in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("server: {port: eighty}", "server.port: is 'eighty' (file bell.yaml); expected a whole number"),
        ("sever: {port: 80}", "sever"),
        ("jobs: {enabled: true, worker_concurrency: 0}", "jobs.worker_concurrency"),
    ],
)
def test_settings_that_cannot_be(nodes, sqlite_url, tmp_path, text, says):
    (tmp_path / "bell.yaml").write_text(text)
    code, line = refusal(nodes.launch("--store", sqlite_url, "--config", "bell.yaml"))
    assert code == 2
    assert says in line


def test_off_loopback_everybody_is_asked_for_a_token(nodes, sqlite_url):
    made = forked.run("token", "create", "--role", "viewer", "--name", "ada", "--store", sqlite_url)
    made.check_returncode()
    node = nodes.start(sqlite_url, "--host", "0.0.0.0")
    assert node.call("GET", "/tasks").status == 401
    secret = made.stdout.strip()
    assert node.call("GET", "/tasks", headers={"Authorization": f"Bearer {secret}"}).status == 200
    assert node.call("POST", "/tasks", {}, headers={"Authorization": f"Bearer {secret}"}).status == 403
    assert secret not in node.log


def test_without_a_token_the_log_says_how_to_make_one(nodes, sqlite_url):
    node = nodes.start(sqlite_url, env={"NOONBELL_AUTH__ENABLED": "true"})
    assert f"noonbell token create --role admin --name NAME --store {shlex.quote(sqlite_url)}\n" in node.log


def test_others_are_let_in_where_it_is_written_out(nodes, sqlite_url):
    node = nodes.start(sqlite_url, "--host", "0.0.0.0", env={"NOONBELL_AUTH__ENABLED": "false"})
    assert node.call("GET", "/healthz").text == "ok"
    assert node.call("GET", "/tasks").status == 200
    assert "auth.enabled is false and server.host is 0.0.0.0" in node.log


def test_tasks_of_the_settings_file_are_there_and_follow_it(nodes, sqlite_url, tmp_path):
    file = tmp_path / "bell.yaml"
    file.write_text("tasks: [{name: a, cron_expr: '@daily', target_url: 'http://127.0.0.1/x'}]")
    node = nodes.start(sqlite_url, "--config", "bell.yaml")
    task = node.ask("GET", "/tasks/name:a")
    assert (task["managed_by"], task["version"]) == ("file:bell.yaml", 1)
    node.stop()
    node = nodes.start(sqlite_url, "--config", "bell.yaml")
    assert node.ask("GET", "/tasks/name:a")["version"] == 1
    node.stop()
    file.write_text("tasks: [{name: a, cron_expr: '@hourly', target_url: 'http://127.0.0.1/x'}]")
    node = nodes.start(sqlite_url, "--config", "bell.yaml")
    assert node.ask("GET", "/tasks/name:a")["cron_expr"] == "0 0 * * * *"
    node.stop()
    file.write_text("tasks: [{name: a, cron_expr: never, target_url: 'http://127.0.0.1/x'}]")
    code, line = refusal(nodes.launch("--store", sqlite_url, "--port", "0", "--config", "bell.yaml"))
    assert code == 2
    assert "tasks[a].schedule.expr" in line or "tasks[a].cron_expr" in line


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_port_on_which_nothing_listens(nodes, scheme):
    with reserved_port() as port:
        _, line = refusal(nodes.launch("--store", f"{scheme}://127.0.0.1:{port}/bell", "--port", "0"))
    assert (
        f"no connection to 127.0.0.1:{port}: connection refused, nothing listens there; is the server running" in line
    )


def _as(url: str, user: str, database: str | None = None) -> str:
    scheme, _, rest = url.partition("://")
    host, _, there = rest.rpartition("@")[2].rpartition("/")
    return f"{scheme}://{user}@{host}/{database or there}"


def test_a_user_that_postgresql_does_not_know_is_told_of_with_two_ways_out(nodes, postgres_url):
    code, line = refusal(nodes.launch("--store", _as(postgres_url, "nb_nobody"), "--port", "0"))
    assert (code, '"nb_nobody" does not exist' in line) == (8, True)
    assert "it is the user of store.url, postgresql://USER:PASSWORD@HOST/DATABASE, or the user of the system" in line
    assert "createuser NAME, then createdb --owner NAME DATABASE" in line


def test_a_user_that_mysql_does_not_let_in_is_told_of_with_two_ways_out(nodes, mysql_url):
    code, line = refusal(nodes.launch("--store", _as(mysql_url, "nb_nobody:hunter2"), "--port", "0"))
    assert (code, "Access denied for user 'nb_nobody'" in line, "hunter2" in line) == (8, True, False)
    assert "check user and password in store.url, mysql://USER:PASSWORD@HOST/DATABASE" in line
    assert "CREATE USER" in line


@pytest.mark.bare_database
async def test_a_database_that_takes_no_writes(nodes, postgres_url):
    link = await asyncpg.connect(postgres_url)
    await link.execute(f"alter database {postgres_url.rpartition('/')[2]} set default_transaction_read_only = on")
    await link.close()
    code, line = refusal(nodes.launch("--store", postgres_url, "--port", "0"))
    assert code == 8
    assert "the database is read-only" in line
    assert "store.url" in line
