"""A node whose store stands still: not ready within seconds, with the reason, and ready again when it is over."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acceptance.harness import Answer, Nodes, ServerNode, Target, until
from integration.private_servers import PrivateServer, missing, private_servers
from integration.test_galera import say
from integration.test_lock_waits import HOLD, damage, held_on_mariadb, held_on_postgres
from noonbell.clock import SystemClock, rfc3339
from services import forked
from services.launch import Unavailable
from services.probe import connect_mysql

pytestmark = pytest.mark.slow

LONG = 60.0
"""Seconds: stalls are found after five, on a machine that is free."""


@contextmanager
def meanwhile(held: Any) -> Iterator[int]:
    """An asynchronous context, entered in a thread of its own and left at the end; what it gives."""
    given: list[int] = []
    ready, over = threading.Event(), threading.Event()

    async def hold() -> None:
        async with held as number:
            given.append(number)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
    thread.start()
    assert ready.wait(LONG)
    try:
        yield given[0]
    finally:
        over.set()
        thread.join(LONG)


def locked(url: str) -> Any:
    tables = ["tasks", "runs", "cursors", "live_ready", "live_rest", "counters"]
    if url.startswith("postgresql"):
        return held_on_postgres(url, f"lock table {', '.join(tables)} in access exclusive mode")
    return held_on_mariadb(url, "lock tables tasks write, runs write, cursors write, live write, counters write")


def unready(node: ServerNode, what: str = "") -> Answer:
    """The first answer of readyz that is 503 and has these words."""

    def asked() -> Answer | None:
        answer = node.call("GET", "/readyz")
        return answer if answer.status == 503 and what in answer.text else None

    return until(asked, f"readyz to be 503 with {what!r}", LONG)


def ready(node: ServerNode) -> None:
    until(lambda: node.call("GET", "/readyz").status == 200, "readyz to be 200", LONG)


def lines(node: ServerNode, what: str) -> list[str]:
    return [line for line in node.log.splitlines() if what in line]


def each_second(node: ServerNode, target: Target) -> int:
    task = node.create(
        name="tick", cron_expr="* * * * * *", target_url=target.url("/ok"), misfire_grace_seconds=1, http_method="POST"
    )
    target.wait_for("/ok", 2)
    return task


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_locked_table_makes_a_node_unready_and_is_explained_afterwards(
    nodes: Nodes, target: Target, kind: str, request: pytest.FixtureRequest
):
    url = str(request.getfixturevalue({"postgres": "postgres_url", "mariadb": "mysql_url"}[kind]))
    node = nodes.start(url)
    task = each_second(node, target)
    with meanwhile(locked(url)) as number:
        told = unready(node, f"session {number} (").json
        assert (told["code"], told["ok"]) == ("UNAVAILABLE", False)
        unready(node, '"kind":"planner"')
        stalled = {loop["kind"]: loop for loop in unready(node, '"kind":"claim"').json["stalled"]}
        assert set(stalled) <= {"planner", "sweeper", "claim", "heartbeat"}
        assert all(loop["since"] for loop in stalled.values())
        middle = rfc3339(SystemClock().now() // 1_000_000 * 1_000_000 - 1_000_000)
        assert node.call("GET", "/livez").status == 200
        refused = node.call("GET", f"/tasks/{task}")
        assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
        assert f"session {number} (" in refused.json["message"]
        assert 'noonbell_loop_stalled{loop="planner"} 1.0' in node.call("GET", "/metrics", base="").text
        if kind == "postgres":
            found = doctor(node, url)
            assert (found["server"]["mark"], found["store"]["mark"]) == ("ill", "ill")
            assert "not ready: " in found["server"]["says"]
            assert f"session {number} (" in found["store"]["says"]
    ready(node)
    until(lambda: bool(lines(node, "ready again after")), "the node to say that it is ready again")
    (line,) = lines(node, "not ready: ")
    assert f"session {number} (" in line, "the one line says who was in the way"
    assert len(lines(node, "ready again after ")) == 1, node.log
    assert "Traceback" not in node.log, node.log
    assert 'noonbell_loop_stalled{loop="planner"} 0.0' in node.call("GET", "/metrics", base="").text

    def explained() -> bool:
        said = node.ask("GET", f"/tasks/{task}/explain?at={middle}")["message"]
        return "could not be reached" in said and f"session {number} (" in said

    until(explained, "the outage to be explained")


def doctor(node: ServerNode, url: str) -> dict[str, Any]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("NOONBELL_")}
    env = clean | {"NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    shown = forked.run("doctor", "--store", url, "-o", "json", env=env, seconds=LONG)
    assert shown.returncode == 1, shown.stderr
    return {found["check"]: found for found in json.loads(shown.stdout)}


def test_a_file_that_is_taken_away_makes_a_node_unready_until_it_is_back(
    nodes: Nodes, target: Target, sqlite_url: str, tmp_path: Path
):
    node = nodes.start(sqlite_url)
    task = each_second(node, target)
    file = tmp_path / "noonbell.db"
    file.rename(tmp_path / "aside")
    unready(node, "noonbell.db was deleted while it was open")
    refused = node.call("PATCH", f"/tasks/{task}", {"description": "lost"})
    assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
    assert not file.exists(), "an empty store in the place of the one that is gone"
    (tmp_path / "aside").rename(file)
    ready(node)
    assert "Traceback" not in node.log, node.log


def test_a_process_that_locks_the_file_makes_a_node_unready(
    nodes: Nodes, target: Target, sqlite_url: str, tmp_path: Path
):
    node = nodes.start(sqlite_url)
    each_second(node, target)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "noonbell.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        unready(node, f"process {holder.pid} (" if os.access("/proc/locks", os.R_OK) else "another process")
        assert node.call("GET", "/livez").status == 200
        assert node.call("GET", "/tasks").status == 200, "readers of SQLite do not wait for a writer"
        refused = node.call("POST", "/tasks", {"name": "other", "target_url": target.url("/ok"), "http_method": "POST"})
        assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
    finally:
        holder.kill()
        holder.communicate()
    ready(node)
    assert len(lines(node, "not ready: ")) == 1, node.log
    assert "Traceback" not in node.log, node.log


def test_a_damaged_file_makes_a_node_unready(nodes: Nodes, target: Target, sqlite_url: str, tmp_path: Path):
    node = nodes.start(sqlite_url)
    each_second(node, target)
    damage(tmp_path / "noonbell.db")
    told = unready(node).json
    assert "malformed" in told["message"] or "not a database" in told["message"]
    assert node.call("GET", "/livez").status == 200
    assert len(lines(node, "not ready: ")) == 1, node.log
    assert node.log.count("Traceback") <= 4, node.log


def rename(url: str, before: str, after: str) -> None:
    async def on_postgres() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(f"alter table {before} rename to {after}")
        await connection.close()

    async def on_mariadb() -> None:
        connection = await connect_mysql(url)
        await connection.cursor().execute(f"rename table {before} to {after}")
        connection.close()

    work: Callable[[], Awaitable[None]] = on_postgres if url.startswith("postgresql") else on_mariadb
    asyncio.run(work())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_an_error_that_no_code_expects_makes_a_node_unready(
    nodes: Nodes, target: Target, kind: str, request: pytest.FixtureRequest
):
    url = str(request.getfixturevalue({"postgres": "postgres_url", "mariadb": "mysql_url"}[kind]))
    node = nodes.start(url)
    each_second(node, target)
    rename(url, "cursors", "cursors_of_before")
    told = unready(node, "cursors").json
    assert told["code"] == "UNAVAILABLE"
    refused = node.call("POST", "/tasks", {"name": "other", "cron_expr": "* * * * *", "target_url": target.url("/ok")})
    assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
    rename(url, "cursors_of_before", "cursors")
    ready(node)
    assert len(lines(node, "not ready: ")) == 1, node.log
    assert "Traceback" not in node.log, node.log


async def alone_from_now_on(server: PrivateServer) -> None:
    """It takes itself for the cluster. Not by `say`: even a commit is refused for a moment."""
    connection = await connect_mysql(server.command.url)
    await connection.cursor().execute("set global wsrep_provider_options = 'pc.bootstrap=1'")
    connection.close()


@pytest.mark.full
def test_a_galera_server_without_a_quorum_makes_a_node_unready(nodes: Nodes, target: Target):
    """It answers, and lets nobody read or write: what asks whether it is there does not see that. Errors 1047 and 1180."""
    with private_servers() as servers:
        try:
            first, other = servers.galera(2)
        except (FileNotFoundError, Unavailable, TimeoutError) as error:
            missing(error)
        asyncio.run(say(first, "create database stalled character set utf8mb4"))
        node = nodes.start(first.command.url.removesuffix("/mysql") + "/stalled")
        task = each_second(node, target)
        other.kill()
        told = unready(node, "WSREP").json
        assert told["code"] == "UNAVAILABLE"
        assert node.call("GET", "/livez").status == 200
        refused = node.call("GET", f"/tasks/{task}")
        assert (refused.status, refused.json["code"]) == (503, "UNAVAILABLE")
        middle = SystemClock().now() // 1_000_000 * 1_000_000 + 1_000_000
        until(lambda: SystemClock().now() > middle + 1_000_000, "a slot in the middle of it to pass")
        asyncio.run(alone_from_now_on(first))
        ready(node)
        target.wait_for("/ok", len(target.at("/ok")) + 2)
        assert len(lines(node, "not ready: ")) == 1, node.log
        assert "Traceback" not in node.log, node.log
        said = ""

        def explained() -> bool:
            nonlocal said
            said = node.ask("GET", f"/tasks/{task}/explain?at={rfc3339(middle)}")["message"]
            return "could not be reached" in said and ("WSREP" in said or "Primary Component" in said)

        until(explained, "the outage to be explained", 20)
        assert node.stop() == 0
