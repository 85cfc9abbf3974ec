"""Noonbell as it is installed: the wheel of a commit, or of the tree as it is, in an environment of its own."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tools import release_check

ROOT = release_check.ROOT
_STEPS = "src/noonbell/stores/migrations"


def previous_commit() -> str:
    """FAULTS_PREVIOUS; else the newest release before this commit; else the last commit before the newest step of the schema."""
    if chosen := os.environ.get("FAULTS_PREVIOUS"):
        return _git("rev-parse", "--verify", f"{chosen}^{{commit}}")
    if released := _git("describe", "--tags", "--abbrev=0", "HEAD^"):
        return _git("rev-parse", f"{released}^{{commit}}")
    newest = _git("log", "-1", "--diff-filter=A", "--format=%H", "--", f"{_STEPS}/m*.py")
    before = newest and _git("rev-parse", "--verify", f"{newest}^")
    if not before:
        pytest.skip("the history of this clone has no version to come from: name a commit in FAULTS_PREVIOUS")
    return before


def newest_step(commit: str) -> int:
    """Of the schema that it knows."""
    names = _git("ls-tree", "-r", "--name-only", commit, f"{_STEPS}/").splitlines()
    return max(int(found[1]) for name in names if (found := re.search(r"/m(\d{4})_\w+\.py$", name)))


def installed(commit: str | None, folder: Path) -> Path:
    """The `noonbell` of a commit; without one, of what git tracks as it is here. With the packages that its lock names."""
    source = folder / "source"
    source.mkdir(parents=True)
    if commit is None:
        release_check.copy_of_tracked(source)
    else:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
    release_check.build(source, folder / "dist", "wheel")
    (wheel,) = (folder / "dist").glob("*.whl")
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    uv = [str(ROOT / ".venv/bin/uv"), "pip"]
    quietly = ["--quiet", "--python", str(python)]
    settings = os.environ | {"UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never"}
    for words in (
        ["sync", *quietly, "--require-hashes", str(source / "requirements.lock")],
        ["install", *quietly, "--no-deps", str(wheel)],
    ):
        subprocess.run([*uv, *words], check=True, env=settings)
    return python.with_name("noonbell")


def _git(*words: str) -> str:
    """What it says; nothing where it cannot."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
