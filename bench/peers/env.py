"""The peers' own environment, `bench/.venv`: their versions are pinned here and never meet Noonbell's dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".venv"
PYTHON = FOLDER / "bin" / "python"
PINS = (
    "pgqueuer==1.6.0",
    "procrastinate==3.10.0",
    "huey==3.5.4",
    "asyncpg==0.32.0",
    "psycopg[binary]==3.3.8",
    "uvloop==0.23.0",
)


def ensure() -> Path:
    """The interpreter of the peers. Creates the environment, or installs anew when the pins have changed."""
    stamp = FOLDER / "pins.txt"
    wanted = "\n".join((sys.version, *PINS))
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return PYTHON
    uv = _uv()
    # uv gives up its output only when it fails: progress bars would drown the bench's own lines.
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER)], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(PYTHON), *PINS], check=True)
    stamp.write_text(wanted)
    return PYTHON


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise SystemExit("bench: uv is needed to install the peers; run `make setup` or install uv")
    return found
