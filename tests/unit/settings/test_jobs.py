"""The section `jobs`: its defaults, its layers, what it refuses, and jobs that a file declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from noonbell.errors import SettingsError
from noonbell.settings import JobSettings, load

DEFAULT = """
[jobs]
enabled = false
worker_concurrency = 4
poll_interval = 5
job_timeout = 300
max_retries = 3
retry_delay = 60
history_retention_days = 30
"""
DEVELOPMENT = """
[jobs]
enabled = true
worker_concurrency = 2
poll_interval = 10
history_retention_days = 7
"""
DECLARED = """
[[jobs.jobs]]
job_name = "daily_backup"
cron = "0 2 * * *"
allow_concurrent = false

[[jobs.jobs]]
job_name = "api_sync"
cron = "*/10 * * * *"
allow_concurrent = true
max_concurrent = 3
"""


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_key_may_be_left_out(tmp_path: Path):
    # The document polls every 5 s. Here the poll is a net under the wake-ups, and of 1 s (contract 33).
    assert load([file(tmp_path, "default.toml", DEFAULT)], {}, {}).settings.jobs == JobSettings(poll_interval=5)
    assert JobSettings().poll_interval == 1


def test_the_file_of_an_environment_overrides_the_default_and_variables_override_both(tmp_path: Path):
    files = [file(tmp_path, "default.toml", DEFAULT), file(tmp_path, "development.toml", DEVELOPMENT)]
    jobs = load(files, {}, {}).settings.jobs
    assert (jobs.enabled, jobs.worker_concurrency, jobs.poll_interval, jobs.history_retention_days) == (True, 2, 10, 7)
    assert (jobs.job_timeout, jobs.max_retries, jobs.retry_delay) == (300, 3, 60)
    loaded = load(files, {"NOONBELL_JOBS__WORKER_CONCURRENCY": "9"}, {})
    assert (loaded.settings.jobs.worker_concurrency, loaded.settings.jobs.poll_interval) == (9, 10)
    assert loaded.origins["jobs.worker_concurrency"] == "NOONBELL_JOBS__WORKER_CONCURRENCY"


def test_jobs_without_a_worker_for_them_are_refused_by_the_name_of_the_key(tmp_path: Path):
    with pytest.raises(SettingsError) as refused:
        load([file(tmp_path, "a.toml", "[jobs]\nenabled = true\nworker_concurrency = 0\n")], {}, {})
    assert list(refused.value.details) == ["jobs.worker_concurrency"]
    with pytest.raises(SettingsError, match=r"jobs\.worker_concurrency"):
        JobSettings(enabled=True, worker_concurrency=0)
    assert JobSettings(enabled=False, worker_concurrency=0).worker_concurrency == 0


def test_declared_jobs_know_the_file_they_stand_in(tmp_path: Path):
    files = [file(tmp_path, "default.toml", DEFAULT), file(tmp_path, "jobs.toml", DECLARED)]
    settings = load(files, {}, {}).settings
    assert [job["job_name"] for job in settings.jobs.jobs] == ["daily_backup", "api_sync"]
    assert settings.jobs_from == "jobs.toml"
    variables = {"NOONBELL_JOBS__JOBS": '[{"job_name": "x"}]'}
    assert load(files, variables, {}).settings.jobs_from == "settings"
