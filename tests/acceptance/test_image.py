"""The steps by which the Dockerfile makes the environment, really taken: in a folder of this machine, without a container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.image import build_stage

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]

Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a line of the Dockerfile, with `/opt` in the test's folder and this Python as the image's."""
    source, programs = tmp_path / "src", tmp_path / "bin"
    source.mkdir()
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment = {**known, "PATH": f"{programs}:{known['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def execute(line: str) -> subprocess.CompletedProcess[str]:
        here = re.sub(r"/opt/(?=build|noonbell)", f"{tmp_path}/opt/", line)
        return subprocess.run(
            ["/bin/sh", "-ec", here], cwd=source, env=environment, capture_output=True, text=True, check=False
        )

    return execute


def take_steps(run: Run, source: Path, until: str = "") -> list[subprocess.CompletedProcess[str]]:
    """Every COPY and RUN of the build stage, up to the first that fails or that holds the text."""
    taken = []
    for word, text in build_stage():
        if word == "COPY":
            *names, _ = text.split()
            for name in names:
                copy(ROOT / name, source / Path(name).name)
        elif word == "RUN":
            taken.append(run(text))
            if taken[-1].returncode or (until and until in text):
                break
    return taken


def copy(origin: Path, to: Path) -> None:
    if origin.is_dir():
        shutil.copytree(origin, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(origin, to)


@pytest.mark.full
def test_the_steps_of_the_image_make_an_environment_that_works(run: Run, tmp_path: Path):
    taken = take_steps(run, tmp_path / "src")
    assert [(step.returncode, step.stdout[-2_000:] + step.stderr[-2_000:]) for step in taken if step.returncode] == []
    noonbell = tmp_path / "opt" / "noonbell" / "bin" / "noonbell"
    told = subprocess.run([noonbell, "version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip()
    imported = "import asyncmy, asyncpg, redis, apprise, cryptography, opentelemetry, uvloop, noonbell.api.app"
    subprocess.run([noonbell.with_name("python"), "-c", imported], check=True)
    assert not (noonbell.parent / "hatchling").exists(), "what only the build needs is not in the image"


def test_a_package_with_another_hash_is_refused(run: Run, tmp_path: Path):
    source = tmp_path / "src"
    lock = (ROOT / "deploy" / "build.lock").read_text()
    line = next(text for word, text in build_stage() if word == "RUN" and "build.lock" in text)
    assert run("python -m venv /opt/build").returncode == 0
    (source / "build.lock").write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", lock))
    refused = run(line)
    assert refused.returncode != 0
    assert "hash" in (refused.stdout + refused.stderr).lower()
