"""What the README says to type works as it stands there; only the port is another."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from acceptance.harness import COMMAND, PATIENCE

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
SIX_LINES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
ELSEWHERE = ("make ", "noonbell demo", "createdb ", "noonbell serve ")
"""Tested by themselves: what a newcomer starts, and does not end; and the database, which is the fixture's."""


def lines() -> list[str]:
    joined = "".join(BLOCKS).replace("\\\n", " ")
    typed = [re.sub(r" {2,}#.*", "", line) for line in joined.splitlines()]
    return [line for line in typed if not line.startswith(ELSEWHERE)]


def test_every_line_works_in_its_order(nodes, postgres_url):
    node = nodes.start(postgres_url)
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "NOONBELL_URL": f"http://127.0.0.1:{node.port}", "NO_COLOR": "1"}
    said = {}
    for line in lines():
        command = line.replace("8080", str(node.port)).replace("postgresql://localhost/noonbell", postgres_url)
        done = subprocess.run(  # noqa: S602 - the line is meant for a shell
            command, shell=True, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert '"code"' not in done.stdout, f"{line}\n{done.stdout}"
        said[line] = done.stdout
    assert len(said) == 9
    assert "SUCCESS" in next(out for line, out in said.items() if "trigger" in line)


def test_the_six_lines_of_python_are_those_that_dev_is_tested_with():
    (six,) = SIX_LINES
    assert six in (Path(__file__).parent / "test_dev.py").read_text()
    assert len(six.splitlines()) == 6


def test_the_job_and_the_tasks_have_names_of_their_own():
    """A worker for the six lines, beside the server of the other lines, would be refused: the name is taken."""
    (job,) = re.findall(r"^async def (\w+)\(", SIX_LINES[0], re.MULTILINE)
    made = re.findall(r"noonbell task create (\S+)|\"name\": \"(\w+)\", \"cron_expr\"", "".join(BLOCKS))
    assert job not in {name for each in made for name in each}
    assert len(made) == 2
