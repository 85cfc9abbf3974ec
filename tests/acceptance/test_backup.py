"""`noonbell backup` of a store in use, of each kind, and `restore` into a store of another kind: one moment, and all of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from acceptance.harness import Nodes, ServerNode, Target
from acceptance.test_move import FRESH, KILLED, rows_of
from services import forked

pytestmark = [pytest.mark.acceptance, pytest.mark.bare_database]

OTHER = {"sqlite": "postgres", "postgres": "mariadb", "mariadb": "sqlite"}
"""Where a backup of each kind is restored to: so each is backed up, and each restored."""


@pytest.fixture
def url_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    return lambda kind: str(request.getfixturevalue(FRESH[kind]))


def fill(node: ServerNode, target: Target) -> int:
    """A task with a slot each second."""
    schedule = {"type": "interval", "every": 1, "unit": "second", "mode": "fixed_rate"}
    for number in range(30):
        node.create(name=f"other {number}", target_url=target.url("/other"), labels={"team": "Grüße, 早上好"})
    return node.create(
        name="each second",
        schedule=schedule,
        target_url=target.url("/slot"),
        misfire_policy="CATCH_UP_LIMITED",
        catchup_limit=1_000,
    )


@pytest.mark.parametrize("origin", sorted(OTHER))
def test_a_store_in_use_is_backed_up_and_restored_elsewhere(
    origin, url_of, nodes: Nodes, target: Target, tmp_path: Path
):
    source, to, file = url_of(origin), url_of(OTHER[origin]), tmp_path / "a backup.db"
    node = nodes.start(source)
    task = fill(node, target)
    target.wait_for("/slot", 2)
    saved = forked.run("backup", str(file), "--store", source, cwd=tmp_path, env={})
    assert saved.returncode == 0, saved.stdout + saved.stderr
    assert "0 holes, 0 doubles" in saved.stdout
    assert sorted(path.name for path in tmp_path.glob("a backup*")) == ["a backup.db"]
    again = forked.run("backup", str(file), "--store", source, cwd=tmp_path, env={})
    assert (again.returncode, "does not overwrite files" in again.stderr) == (5, True)
    assert node.stop() == 0
    before = {arrival.slot: arrival.headers["Idempotency-Key"] for arrival in target.at("/slot")}

    filled = forked.run("restore", str(file), "--store", to, cwd=tmp_path, env={})
    assert filled.returncode == 0, filled.stdout + filled.stderr
    assert "0 holes, 0 doubles" in filled.stdout
    assert "100 %" in filled.stderr
    assert rows_of(f"sqlite:///{file}") == rows_of(to)
    refused = forked.run("restore", str(file), "--store", to, cwd=tmp_path, env={})
    assert (refused.returncode, "is not empty" in refused.stderr) == (5, True)

    heir = nodes.start(to)
    target.wait_for("/slot", len(before) + 3)
    assert heir.ask("GET", f"/tasks/{task}")["name"] == "each second"
    assert heir.stop() == 0
    for arrival in target.at("/slot"):
        assert before.get(arrival.slot, arrival.headers["Idempotency-Key"]) == arrival.headers["Idempotency-Key"]


def test_a_restore_that_is_killed_goes_on_and_a_copy_can_be_an_installation_of_its_own(
    sqlite_url: str, nodes: Nodes, target: Target, tmp_path: Path
):
    node = nodes.start(sqlite_url)
    fill(node, target)
    target.wait_for("/slot", 1)
    file, to = tmp_path / "backup.db", f"sqlite:///{tmp_path / 'restored.db'}"
    killed = forked.run("backup", str(file), "--store", sqlite_url, cwd=tmp_path, env={"NOONBELL_FAILPOINT": "K50:3"})
    assert (killed.returncode, file.exists()) == (KILLED, False)
    saved = forked.run("backup", str(file), "--store", sqlite_url, cwd=tmp_path, env={})
    assert saved.returncode == 0, saved.stderr
    assert node.stop() == 0

    command = ("restore", str(file), "--store", to, "--new-installation")
    killed = forked.run(*command, cwd=tmp_path, env={"NOONBELL_FAILPOINT": "K50:3"})
    assert killed.returncode == KILLED
    early = nodes.launch("--store", to, "--port", "0")
    assert early.wait_ended() == 1
    assert "the store is incomplete" in early.log
    filled = forked.run(*command, cwd=tmp_path, env={})
    assert filled.returncode == 0, filled.stdout + filled.stderr
    (old_id, before), (new_id, after) = rows_of(f"sqlite:///{file}"), rows_of(to)
    assert before == after
    assert old_id == rows_of(sqlite_url)[0] != new_id


def test_a_copy_that_is_to_be_another_installation_is_one_when_it_is_complete(
    sqlite_url: str, nodes: Nodes, target: Target, tmp_path: Path
):
    """Killed right after that, it may be started."""
    node = nodes.start(sqlite_url)
    fill(node, target)
    assert node.stop() == 0
    file, to = tmp_path / "backup.db", f"sqlite:///{tmp_path / 'restored.db'}"
    assert forked.run("backup", str(file), "--store", sqlite_url, cwd=tmp_path, env={}).returncode == 0
    command = ("restore", str(file), "--store", to, "--new-installation")
    killed = forked.run(*command, cwd=tmp_path, env={"NOONBELL_FAILPOINT": "K55"})
    assert killed.returncode == KILLED, killed.stdout + killed.stderr
    nodes.start(to)
    assert rows_of(to)[0] != rows_of(sqlite_url)[0]


def test_where_the_server_has_another_store_than_this_folder_a_backup_asks_for_its_name(
    sqlite_url: str, nodes: Nodes, tmp_path: Path
):
    node = nodes.start(sqlite_url)
    folder = tmp_path / "of another day"
    folder.mkdir()
    env = {"NOONBELL_URL": f"http://127.0.0.1:{node.port}"}
    assert forked.run("migrate", cwd=folder, env={}).returncode == 0
    refused = forked.run("backup", "copy.db", cwd=folder, env=env)
    assert (refused.returncode, (folder / "copy.db").exists()) == (5, False)
    assert f"the server at http://127.0.0.1:{node.port} works on {sqlite_url}" in refused.stderr
    assert "noonbell.db; say which one with --store" in refused.stderr
    for store in ("sqlite:///noonbell.db", sqlite_url):
        saved = forked.run("backup", f"{len(store)}.db", "--store", store, cwd=folder, env=env)
        assert saved.returncode == 0, saved.stderr
    assert f"rows of {sqlite_url} in" in saved.stdout


def test_what_is_no_backup_is_refused(sqlite_url: str, tmp_path: Path):
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("create table tasks (mine text)")
    (tmp_path / "tasks.yaml").write_text("tasks: []")
    for name, code in (("other.db", 1), ("tasks.yaml", 1), ("nothing.db", 3)):
        refused = forked.run("restore", name, "--store", sqlite_url, cwd=tmp_path, env={})
        assert refused.returncode == code, refused.stdout + refused.stderr
        assert name in refused.stderr or name == "other.db"
    missing = forked.run("backup", "new.db", "--store", "sqlite:///nothing.db", cwd=tmp_path, env={})
    assert (missing.returncode, (tmp_path / "new.db").exists()) == (3, False)
