"""Commands that open a store by themselves, in a folder with a noonbell.db of another day: they name it, or ask which one is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.harness import Nodes
from services import forked

CHANGES = [
    ("migrate",),
    ("secrets", "rotate"),
    ("stats", "rebuild"),
    ("token", "create", "--role", "viewer", "--name", "ada"),
    ("token", "revoke", "eve"),
]
LOOKS = [("migrate", "--status"), ("audit",), ("token", "list")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """It has a noonbell.db with a key for secrets and a token."""
    found = tmp_path / "of another day"
    found.mkdir()
    key = forked.run("secrets", "key", "first", cwd=found, env={})
    (found / "keys").write_text(key.stdout)
    (found / "keys").chmod(0o600)
    store = ("--store", "sqlite:///noonbell.db")
    forked.run("migrate", *store, cwd=found, env={}).check_returncode()
    forked.run("token", "create", "--role", "viewer", "--name", "eve", *store, cwd=found, env={}).check_returncode()
    return found


def env(port: int) -> dict[str, str]:
    return {"NOONBELL_URL": f"http://127.0.0.1:{port}", "NOONBELL_SECRETS__KEY_FILE": "keys"}


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_what_would_change_a_store_that_nobody_named_is_refused_where_the_server_has_another(
    sqlite_url: str, nodes: Nodes, folder: Path, words: tuple[str, ...]
):
    node = nodes.start(sqlite_url)
    before = (folder / "noonbell.db").read_bytes()
    refused = forked.run(*words, cwd=folder, env=env(node.port))
    assert (refused.returncode, refused.stdout) == (5, "")
    assert f"the server at http://127.0.0.1:{node.port} works on {sqlite_url}" in refused.stderr
    assert "noonbell.db; say which one with --store" in refused.stderr
    assert (folder / "noonbell.db").read_bytes() == before
    named = forked.run(*words, "--store", "sqlite:///noonbell.db", cwd=folder, env=env(node.port))
    assert (named.returncode, "no store was named" in named.stderr) == (0, False), named.stderr


@pytest.mark.parametrize("words", [*CHANGES[:3], CHANGES[4], *LOOKS], ids=" ".join)
def test_a_store_that_nobody_named_is_said(folder: Path, words: tuple[str, ...]):
    key = (
        env(9) if words[0] == "secrets" else {"NOONBELL_URL": "http://127.0.0.1:9"}
    )  # its first use would sign the log
    done = forked.run(*words, cwd=folder, env=key)
    assert done.returncode == 0, done.stderr
    assert f"no store was named: this is sqlite:///{folder}/noonbell.db" in done.stderr.replace("%20", " ")


def test_a_restore_says_which_store_it_fills_where_none_was_named(folder: Path, tmp_path: Path):
    saved = forked.run("backup", str(tmp_path / "copy.db"), "--store", "sqlite:///noonbell.db", cwd=folder, env=env(9))
    assert saved.returncode == 0, saved.stderr
    there = tmp_path / "empty"
    there.mkdir()
    done = forked.run("restore", str(tmp_path / "copy.db"), cwd=there, env=env(9))
    assert (done.returncode, "no store was named: this is " in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize("words", [("secrets", "rotate"), ("stats", "rebuild")], ids=" ".join)
def test_where_there_is_no_store_none_is_made(folder: Path, tmp_path: Path, words: tuple[str, ...]):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "keys").write_bytes((folder / "keys").read_bytes())
    (empty / "keys").chmod(0o600)
    refused = forked.run(*words, cwd=empty, env=env(9))
    assert (refused.returncode, "there is no file" in refused.stderr) == (3, True)
    assert not (empty / "noonbell.db").exists()
