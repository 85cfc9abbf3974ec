"""`noonbell config`: what is in force, where it comes from, and the page of reference that is made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from noonbell.cli.config import reference_table
from noonbell.settings import KEYS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "bell.yaml"
    path.write_text("server: {port: 9000}\nstore: {url: 'postgresql://me:hunter2@db/bell'}")
    return str(path)


def test_every_value_in_force_as_yaml_that_is_a_settings_file(noonbell, file, tmp_path):
    code, out, _ = noonbell("config", "show", "--config", file)
    assert code == 0
    shown = yaml.safe_load(out)
    others = {
        "public_url": None,
        "allowed_hosts": [],
        "allowed_callers": [],
        "trusted_proxies": [],
        "environment": None,
        "legacy_api": False,
        "graceful_timeout": "10s",
        "body_timeout": "20s",
        "least_rate": 16_384,
        "max_connections_per_peer": None,
        "max_bodies_bytes": 134_217_728,
    }
    assert shown["server"] == {"host": "127.0.0.1", "port": 9000, **others}
    assert shown["store"]["url"] == "postgresql://me:***@db/bell"
    again = tmp_path / "again.yaml"
    again.write_text(out)
    assert noonbell("config", "check", "--config", str(again))[0] == 0


def test_where_each_value_comes_from(noonbell, file, monkeypatch):
    monkeypatch.setenv("NOONBELL_LOGGING__LEVEL", "debug")
    _, out, _ = noonbell("config", "show", "--origin", "--config", file, "--store", "sqlite:///x.db")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(lines) == {*KEYS, "tasks"}
    assert lines["server.port"].split()[1:] == ["9000", "file", file]
    assert lines["store.url"].split()[1:] == ["sqlite:///x.db", "--store"]
    assert lines["logging.level"].split()[1:] == ["debug", "NOONBELL_LOGGING__LEVEL"]
    assert lines["server.host"].split()[1:] == ["127.0.0.1", "default"]
    assert "hunter2" not in out


def test_origins_for_programs(noonbell, file):
    _, out, _ = noonbell("config", "show", "--origin", "-o", "json", "--config", file)
    assert json.loads(out)["server.port"] == {"value": 9000, "origin": f"file {file}"}


def test_a_flag_as_go_programs_have_it(noonbell, file):
    _, out, _ = noonbell("config", "show", "-o", "json", f"-config={file}")
    assert json.loads(out)["server"]["port"] == 9000


def test_sound_settings_are_said_to_be_sound(noonbell, file):
    assert noonbell("config", "check", "--config", file) == (
        0,
        "",
        "the settings are valid: 2 set, the rest at their defaults\n",
    )


def test_every_problem_has_a_line(noonbell, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("server: {port: eighty, prot: 1}\nlogging: {level: loud}")
    code, out, err = noonbell("config", "check", "--config", str(bad))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 3
    assert all(line.startswith("error: ") for line in err.splitlines())


def test_the_reference_is_made_from_the_source():
    made = PAGE.read_text().split("<!-- settings: made by `noonbell config reference` -->\n")[1]
    message = (
        "docs/reference/settings.md is out of date: put the output of `noonbell config reference` between its markers"
    )
    assert made.split("<!-- settings: end -->")[0] == reference_table(), message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("alerts: {chanels: {}}", "alerts.chanels"),
        ("alerts: {rules: {x: {kind: nope}}}", "alerts.rules.x.kind"),
        ("jobs: {jobs: [{job_name: x, cron: '61 * * * *'}]}", "jobs.jobs[x].cron_expression"),
        ("jobs: {jobs: [{job_name: x, cron: '@daily', max_concurrent: -1}]}", "jobs.jobs[x].max_concurrent"),
        ("tasks: [{name: x, cron_expr: '61 * * * *', target_url: 'http://a.test/'}]", "tasks[x].cron_expr"),
    ],
)
def test_what_a_server_would_refuse_of_tasks_jobs_and_alerts_is_found(noonbell, tmp_path, text, named):
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    code, out, err = noonbell("config", "check", "--config", str(bad))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {named}")
    assert len(err.splitlines()) == 1
