"""A database server that does not let us in, or is not there: one line and exit code 8, from every command that opens the store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acceptance.harness import PATIENCE
from services import forked

pytestmark = pytest.mark.acceptance

APP = str(Path(__file__).with_name("jobs_app.py"))
COMMANDS = (
    ("serve", "--port", "0"),
    ("worker", "--app", APP),
    ("dev", "--no-reload", "--port", "0"),
    ("demo", "--no-serve"),
    ("demo", "--clean"),
    ("migrate",),
    ("migrate", "--status"),
    ("audit",),
    ("token", "list"),
    ("token", "create", "--role", "admin", "--name", "ann"),
)


@pytest.fixture(params=["mysql_url", "postgres_url"])
def server(request: pytest.FixtureRequest) -> str:
    parts = urlsplit(str(request.getfixturevalue(request.param)))
    return f"{parts.scheme}://{{user}}{parts.hostname}:{parts.port}/{{name}}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(word for word in command if "/" not in word))
def test_a_store_that_cannot_be_opened_is_one_line(server: str, command: tuple[str, ...], tmp_path: Path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    kind = "MySQL" if server.startswith("mysql") else "PostgreSQL"
    away = server.format(user="root:wrong@", name="test").replace(
        server.rsplit(":", maxsplit=1)[-1].partition("/")[0], "1"
    )
    for url, why in (
        (server.format(user="root@", name="there_is_none"), "there_is_none"),
        (server.format(user="stranger:wrong@", name="test"), "stranger"),
        (away, ":1: "),
    ):
        done = forked.run(*command, "--store", url, cwd=tmp_path, env=clean, seconds=PATIENCE)
        assert done.returncode == 8, done.stdout + done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {kind}: ")
        assert why in line
        assert "wrong" not in line, "a password"
        assert not line.startswith(f"error: {kind}: ("), "a tuple is not a sentence"
    assert line.endswith("; is the server running, and is the address right?")
    assert list(tmp_path.iterdir()) == []
