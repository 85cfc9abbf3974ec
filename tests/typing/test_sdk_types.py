"""The SDK is typed all the way: mypy and pyright pass correct uses and catch each slip, mypy by its code too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right_uses.py", HERE / "wrong_uses.py"
COMPLAINT = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")
EXPECTED = {
    number: line.rpartition("# error: ")[2]
    for number, line in enumerate(WRONG.read_text().splitlines(), 1)
    if "# error: " in line
}

Found = dict[str, dict[int, set[str]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What mypy says of both files: by file, the codes of each line. One call serves all the tests here."""
    config = tmp_path_factory.mktemp("mypy") / "mypy.ini"
    # Only what these files say is of interest; the package itself is checked by `make check`, with a cache of its own.
    config.write_text("[mypy]\nstrict = true\n[mypy-noonbell.*]\nfollow_imports = silent\n")
    options = ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache" / "typing"), "--no-error-summary"]
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(RIGHT), str(WRONG)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert answer.returncode in (0, 1), answer.stderr + answer.stdout
    found: Found = defaultdict(lambda: defaultdict(set))
    for line in answer.stdout.splitlines():
        if match := COMPLAINT.match(line):
            found[Path(match["file"]).name][int(match["line"])].add(match["code"])
    return found


def test_correct_uses_pass(found: Found):
    assert found[RIGHT.name] == {}


def test_there_are_ten_slips_or_more():
    assert len(EXPECTED) >= 10


@pytest.mark.parametrize("line", EXPECTED)
def test_a_slip_is_caught(found: Found, line: int):
    assert EXPECTED[line] in found[WRONG.name][line]


def test_nothing_else_is_complained_about(found: Found):
    assert sorted(found[WRONG.name]) == sorted(EXPECTED)


@pytest.fixture(scope="module")
def seen_by_pyright() -> dict[str, set[int]]:
    """By file, the lines that pyright complains about."""
    if shutil.which("node") is None:
        (pytest.fail if os.environ.get("CI", "").lower() in {"1", "true"} else pytest.skip)("pyright needs node")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(RIGHT), str(WRONG)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    assert answer.returncode in (0, 1), answer.stderr + answer.stdout
    seen: dict[str, set[int]] = {RIGHT.name: set(), WRONG.name: set()}
    for one in json.loads(answer.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            seen[Path(one["file"]).name].add(one["range"]["start"]["line"] + 1)
    return seen


def test_pyright_passes_correct_uses(seen_by_pyright: dict[str, set[int]]):
    assert seen_by_pyright[RIGHT.name] == set()


def test_pyright_catches_the_same_slips_and_complains_about_nothing_else(seen_by_pyright: dict[str, set[int]]):
    assert sorted(seen_by_pyright[WRONG.name]) == sorted(EXPECTED)
