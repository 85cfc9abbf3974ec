"""Every stage of `python -m bench speed` works, with next to nothing to measure: contenders run and rows are printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.growth.history import judged
from bench.growth.pages import ALONG, LOOKING
from bench.growth.sizes import Sizes
from bench.speed import STAGES

import conftest

ROOT = Path(__file__).parents[2]
USUAL = ("create",)
"""In `make test`: a stage that needs no peer to be installed."""


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "stage", [name if name in USUAL else pytest.param(name, marks=pytest.mark.full) for name in STAGES]
)
def test_a_stage_of_speed_measures_all_of_its_rows(stage, postgres_url, mysql_url, redis_url):
    servers = {
        "NOONBELL_BENCH_POSTGRES": postgres_url,
        "NOONBELL_BENCH_MYSQL": mysql_url,
        "NOONBELL_BENCH_REDIS": redis_url,
    }
    command = [sys.executable, "-m", "bench", "speed", "--smoke", "--only", stage]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | servers, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        if "SKIPPED" in line or "Missing(" in line:
            (pytest.fail if conftest.in_ci() else pytest.skip)(line)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith(f"| {stage} | ")]
    assert rows
    assert all(row[2][:1].isdigit() for row in rows), done.stdout


@pytest.mark.acceptance
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb"])
def test_roll_ups_are_measured_with_every_other_delta_left_out(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
):
    """The process that measures counts the deltas that it finds, and says nothing where they are too many or too few."""
    server = {"postgres": "postgres_url", "mariadb": "mysql_url"}.get(store)
    url = tmp_path / "bench.db" if server is None else request.getfixturevalue(server)
    command = [sys.executable, "-m", "bench.rollups", store, "--runs=10000", f"--url={url}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"without", "delta", "fold"}
    assert found["without"] > 0


@pytest.mark.parametrize(
    ("page", "many", "verdict"),
    [
        (ALONG[0], 110, "met"),
        (ALONG[0], 111, "**missed**"),
        ("/api/v1/tasks/{rare}/runs", 200, "met"),
        ("/api/v1/tasks/{rare}/runs", 201, "**missed**"),
        (LOOKING[0], 50_000, "met"),
        (LOOKING[0], 50_001, "**missed**"),
    ],
)
def test_a_page_that_reads_more_in_a_long_history_is_missed(page: str, many: int, verdict: str):
    assert judged(page, 100, many, Sizes()).endswith(f": {verdict}")


@pytest.mark.acceptance
@pytest.mark.full
def test_growth_loses_and_doubles_nothing_at_a_small_size(postgres_url):
    sizes = {"tasks": 5_000, "hourly": 36_000, "burst": 200, "seconds": 10, "history": 40_000, "convert": 15_000}
    command = [sys.executable, "-m", "bench.growth", *(f"--{name}={size}" for name, size in sizes.items())]
    servers = {"NOONBELL_BENCH_POSTGRES": postgres_url}
    prepared = subprocess.run(
        [*command, "--prepare", "--only=history"],
        cwd=ROOT,
        env=os.environ | servers,
        capture_output=True,
        text=True,
        check=False,
    )
    assert prepared.returncode == 0, prepared.stderr
    assert prepared.stdout == ""
    done = subprocess.run(command, cwd=ROOT, env=os.environ | servers, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {line.split(" | ")[1]: line.split(" | ")[3] for line in done.stdout.splitlines()[2:]}
    (slots,) = [found for name, found in rows.items() if name.startswith("slots meanwhile")]
    assert slots == "0 lost, 0 doubled"
    assert rows["hourly tasks spread evenly: how late a run starts"].endswith("; 0 not made")
    assert len(rows) == 10 + len(ALONG) + len(LOOKING) + 1
    assert not re.search(r"(38|40),000 runs, from", done.stderr)  # of history: made before
