"""`--processes`: every test runs once, what is made for a file is made once, and a process that dies fails the test that it ran."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ALONE = {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
HEAD = """
import os, random, signal, sys
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made", "a") as file:
        print(__name__, file=file)
    yield os.getpid()

def note(name):
    with open("ran", "a") as file:
        print(f"{__name__}::{name}", file=file)
"""
SHARING = """
@pytest.mark.parametrize("number", range(9))
def test_shares(number, made, tmp_path):
    note(number)
    assert made == os.getpid()
"""
PLAIN = """
@pytest.mark.parametrize("number", range(150))
def test_plain(number):
    note(number)
    if number == 70:
        print("said by seventy")
        assert False
"""
DYING = """
@pytest.mark.parametrize("number", range(9))
def test_dies(number):
    note(number)
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def run_of(folder: Path, *options: str) -> tuple[int, str]:
    for name, body in {"a": SHARING, "b": SHARING, "c": PLAIN, "d": DYING}.items():
        (folder / f"test_{name}.py").write_text(HEAD + body)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "services.processes", "--processes", "3", *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env={**kept, **ALONE}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_each_test_runs_once_and_tells_how_it_ended(tmp_path):
    status, said = run_of(tmp_path)
    ran = (tmp_path / "ran").read_text().splitlines()
    assert status == 1
    assert sorted(ran) == sorted(
        [
            f"test_{name}::{number}"
            for name, count in {"a": 9, "b": 9, "c": 150, "d": 9}.items()
            for number in range(count)
        ]
    )
    assert "2 failed, 175 passed" in said
    assert sorted(re.findall(r"^FAILED (\S+)", said, re.MULTILINE)) == [
        "test_c.py::test_plain[70]",
        "test_d.py::test_dies[4]",
    ]
    assert said.count("said by seventy") == 2  # the line of the source, and what it printed
    assert f"the process of this test ended with -{int(signal.SIGKILL)}" in said
    assert sorted((tmp_path / "made").read_text().split()) == ["test_a", "test_b"]


def test_the_first_failure_may_end_a_run(tmp_path):
    status, said = run_of(tmp_path, "--exitfirst", "-k", "plain")
    assert status == 1
    assert "stopping after 1 failures" in said
    assert len((tmp_path / "ran").read_text().splitlines()) < 150


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_is_chosen_is_run_by_as_many_processes_as_are_asked_for(tmp_path, processes):
    status, said = run_of(tmp_path, "--processes", processes, "-k", "shares")
    assert (status, "18 passed" in said) == (0, True)
