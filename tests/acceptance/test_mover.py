"""The mover's page, played word by word: a database made from document 002, its configuration file, both services at work, the
cut-over and the way back. The old service is a process of its own; nothing but itself writes to its tables.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from acceptance.harness import Nodes, Target, until
from integration.test_importers import CRONJOB, TASK_RUNS, made
from noonbell.cli.importers.sources import rows_of
from services import forked
from services.ports import reserved_port

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).parents[2] / "docs/how-to/move-from-a-cronjob-service.md"
CONFIG = """\
server:
  port: 8080
  graceful_timeout: 10s
mysql:
  dsn: "user:pass@tcp(127.0.0.1:3306)/cronjob?charset=utf8mb4&parseTime=True&loc=Local"
  max_open_conns: 50
  max_idle_conns: 10
  conn_max_lifetime: 300s
scheduler:
  poll_interval: 1s        # 秒级支持：缩短扫描周期（可调）
  ahead_seconds: 30         # 窗口不宜过长，减少秒级误差
  batch_limit: 200
  enable_seconds_field: true
executor:
  worker_pool_size: 16
  request_timeout: 15s
  default_retry:
    max_retries: 0
callback:
  base_url: "http://cronjob.internal/api/v1/callbacks"
  token_ttl: 3600s
metrics:
  enabled: true
logging:
  level: info
"""
"""Word by word as the document prints it."""


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return ["\n".join(line.strip() for line in each.splitlines()) if language != "yaml" else each for each in found]


class Reader:
    """Types what the page says, in its order, with names of the databases and ports that the test was given."""

    def __init__(self, folder: Path, old: str, new: str, port: int) -> None:
        self.folder, self.old, self.new, self.port = folder, old, new, port
        self.lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}

    def own(self, text: str) -> str:
        old, new = urlsplit(self.old), urlsplit(self.new)
        login = f"{old.username}:{old.password or ''}"
        for said, meant in (
            ("mysql://user:pass@127.0.0.1:3306/cronjob", self.old),
            (
                "user:pass@tcp(127.0.0.1:3306)/noonbell",
                f"{new.username}:{new.password or ''}@tcp({new.hostname}:{new.port}){new.path}",
            ),
            ("user:pass@tcp(127.0.0.1:3306)/cronjob", f"{login}@tcp({old.hostname}:{old.port}){old.path}"),
            ("8081", str(self.port)),
        ):
            text = text.replace(said, meant)
        return text

    def types(self, begin: str, code: int = 0) -> str:
        """The next line of the page, which begins so; what it said."""
        line = self.lines.pop(0)
        assert line.startswith(begin), line
        words = shlex.split(self.own(line))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.env[name] = value
            return ""
        done = forked.run(*words[1:], cwd=self.folder, env=self.env, seconds=60)
        assert done.returncode == code, (line, done.stdout, done.stderr)
        return done.stdout + done.stderr


class OldService:
    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self):
        script = Path(__file__).with_name("old_service.py")
        self._process = subprocess.Popen([sys.executable, str(script), self._url])
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(60)


def checksums(url: str) -> dict[str, object]:
    tables = [next(iter(row.values())) for row in rows_of(url, {"tables": "show tables"})["tables"]]
    asked = {table: f"checksum table {table} extended" for table in tables}
    return {table: rows[0]["Checksum"] for table, rows in rows_of(url, asked).items()}


def callers(target: Target, since: int = 0) -> list[str]:
    return ["old" if one.headers.get("User-Agent") == "cronjob" else "new" for one in target.arrivals[since:]]


@pytest.fixture
def target():
    target = Target()
    yield target
    target.close()


@pytest.fixture
def port():
    with reserved_port() as port:
        yield port


@pytest.fixture
def nodes(tmp_path):
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.end()


@pytest.fixture
def old(fresh_mysql, target) -> str:
    """Its database, from the document: a task of each second, one of a day, one that is disabled; and runs of a month ago."""
    url = made(fresh_mysql(), [*CRONJOB[:1], *TASK_RUNS])
    columns = (
        "name, description, cron_expr, exec_type, http_method, target_url, timeout_seconds, max_concurrency,"
        " concurrency_policy, misfire_policy, catchup_limit, callback_method, callback_timeout_sec, status, version, deleted,"
        " created_at"
    )
    rest = "'', '{}', 'SYNC', 'GET', '{}', 10, 5, 'PARALLEL', 'SKIP', 0, 'POST', 300, '{}', 1, 0, now()"
    rows = [
        ("each_second", "* * * * * *", target.url("/each"), "ENABLED"),
        ("nightly", "0 0 2 * * *", target.url("/nightly"), "ENABLED"),
        ("off", "* * * * * *", target.url("/off"), "DISABLED"),
    ]
    values = ", ".join(f"('{name}', {rest.format(*more)})" for name, *more in rows)
    return made(url, [f"insert into tasks ({columns}) values {values}"])


@pytest.mark.bare_database
def test_the_move_and_the_way_back(nodes, target, old, mysql_url, tmp_path, port):
    reader = Reader(tmp_path, old, mysql_url, port)
    assert blocks("sql") == ["CREATE DATABASE IF NOT EXISTS noonbell DEFAULT CHARACTER SET utf8mb4;"]
    config, (changes,) = yaml.safe_load(reader.own(CONFIG)), blocks("yaml")
    for section, values in yaml.safe_load(reader.own(changes)).items():
        config[section] |= values
    (tmp_path / "noonbell.yaml").write_text(yaml.safe_dump(config))
    tasks_then = checksums(old)["tasks"]

    with OldService(old):
        reader.types("noonbell config check")
        reader.types("noonbell migrate")
        serve = shlex.split(reader.lines.pop(0))
        node = nodes.launch(*serve[2:]).wait_ready()
        reader.types("export NOONBELL_URL")
        told = reader.types("noonbell import cronjob")
        assert "3 translated, 3 of them with a change of meaning, 0 refused, 0 left out" in told
        assert node.ask("GET", "/tasks")["total"] == 0

        told = reader.types("noonbell import cronjob")
        assert "3 created" in told
        assert "imported, 0 known already" in told
        assert "each_second" in reader.types("noonbell task list")
        reader.types("noonbell doctor")
        assert {task["status"] for task in node.ask("GET", "/tasks")["items"]} == {"DISABLED"}
        began = len(target.arrivals)
        until(lambda: len(target.arrivals) >= began + 3, "the old service to go on")
        assert set(callers(target)) == {"old"}, "none of the imported tasks fires"

    stopped = checksums(old)
    assert stopped["tasks"] == tasks_then
    before = len(target.arrivals)
    told = reader.types("noonbell import cronjob")
    assert "2 changed" in told  # the third is disabled there, too
    assert " known already" in told
    until(lambda: len(target.arrivals) >= before + 3, "Noonbell to fire")
    assert set(callers(target, before)) == {"new"}
    assert {task["name"] for task in node.ask("GET", "/tasks?status=ENABLED")["items"]} == {"each_second", "nightly"}
    history = node.ask("GET", "/tasks/name:each_second/runs?origin=import&page_size=500")["items"]
    ended = {run["scheduled_time"] for run in history if run["status"] == "SUCCESS"}
    assert len(ended) == len({run["key"] for run in history if run["status"] == "SUCCESS"}) >= 1
    assert "created" in reader.types("noonbell api POST /tasks/name:nightly/backfill")
    # Scripts go on by the ids that they know.
    legacy = node.call("GET", "/legacy/api/v1/tasks", base="").json
    ids = {row["name"]: row["id"] for row in rows_of(old, {"tasks": "select id, name from tasks"})["tasks"]}
    assert {task["Name"]: task["ID"] for task in legacy} == {name: ids[name] for name in ("each_second", "nightly")}
    assert checksums(old) == stopped

    reader.types("noonbell import cronjob")
    assert reader.lines == []
    until(lambda: not node.ask("GET", "/runs?status=RUNNING,SCHEDULED")["items"], "what runs to finish")
    assert checksums(old) == stopped
    back = len(target.arrivals)
    with OldService(old):
        until(lambda: len(target.arrivals) >= back + 3, "the old service to fire again")
    assert set(callers(target, back)) == {"old"}
    assert checksums(old)["tasks"] == tasks_then
    assert forked.run("audit", "--config", "noonbell.yaml", cwd=tmp_path, env=reader.env).returncode == 0


@pytest.mark.bare_database
def test_the_old_database_can_hold_both_under_a_prefix(nodes, target, old, tmp_path, port):
    before = checksums(old)
    reader = Reader(tmp_path, old, old, port)
    config = yaml.safe_load(reader.own(CONFIG))
    config["server"]["port"] = reader.port
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(config))
    refused = forked.run("migrate", "--config", "plain.yaml", cwd=tmp_path, env=reader.env)
    assert refused.returncode != 0
    assert "that Noonbell did not create, and nothing was written" in refused.stderr
    assert checksums(old) == before
    (tmp_path / "noonbell.yaml").write_text(yaml.safe_dump({**config, "store": {"table_prefix": "nb_"}}))
    node = nodes.launch("-config=noonbell.yaml").wait_ready()
    env = {**reader.env, "NOONBELL_URL": f"http://127.0.0.1:{reader.port}"}
    done = forked.run("import", "cronjob", old, "--history", "--apply", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    until(lambda: target.arrivals, "Noonbell to fire")
    node.stop()
    after = checksums(old)
    assert {table: after[table] for table in before} == before
    assert {table.startswith("nb_") for table in after.keys() - before.keys()} == {True}
