"""tools/tests: a few tests that fail are run once more, alone; what fails again fails, and what passes then is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE = {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import pathlib
import pytest

def runs(name):
    log = pathlib.Path("log")
    seen = log.read_text().split() if log.exists() else []
    log.write_text(" ".join([*seen, name]))
    return seen.count(name) + 1

def test_sound():
    assert runs("sound") == 1

def test_comes_and_goes():
    assert runs("comes_and_goes") > 1

@pytest.mark.parametrize("number", range(3))
def test_broken(number):
    assert runs(f"broken{number}") < 1, 'a "quoted" reason'
"""


def run_of(folder: Path, *chosen: str, again: int = 10) -> tuple[int, str, list[str]]:
    (folder / "test_some.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [str(ROOT / "tools/tests"), sys.executable, "-m", "pytest", "-q", "-p", "services.processes", *chosen]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, **ALONE, "TESTS_AGAIN": str(again)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, (folder / "log").read_text().split()


def test_what_passes_alone_is_named_and_does_not_fail_the_run(tmp_path):
    status, said, ran = run_of(tmp_path, "-k", "sound or comes")
    assert (status, ran) == (0, ["sound", "comes_and_goes", "comes_and_goes"])
    assert "tests: these came and went" in said
    assert said.rstrip().endswith("test_some.py::test_comes_and_goes")


def test_what_fails_again_fails_the_run(tmp_path):
    status, said, ran = run_of(tmp_path)
    broken = ["broken0", "broken1", "broken2"]
    assert (status, ran) == (1, ["sound", "comes_and_goes", *broken, "comes_and_goes", *broken])
    assert "came and went" not in said


@pytest.mark.parametrize("again", [0, 2])
def test_more_than_a_few_are_not_run_again(tmp_path, again):
    status, _, ran = run_of(tmp_path, "-k", "broken", again=again)
    assert (status, ran) == (1, ["broken0", "broken1", "broken2"])


def test_what_failed_in_an_earlier_run_is_not_run_again(tmp_path):
    run_of(tmp_path, "-k", "broken", again=0)
    assert run_of(tmp_path, "-k", "comes")[0] == 0


def test_a_run_that_does_not_start_fails_as_pytest_says(tmp_path):
    (tmp_path / "log").touch()
    assert run_of(tmp_path, "--no-such-option")[0] == 4
