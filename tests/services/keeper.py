"""Keeps one private server: runs it as a child, and stops it, and nothing else, when its time has come.

Its time has come when the keeper gets SIGTERM (the end of a test run) or when the owner, pytest's controller, no
longer exists (kill -9): then the folder of the run goes as well. Run as a script, with its orders as JSON; so this
file imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_SECONDS = 20


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    url: str
    log: Path
    user: str | None
    """The account to run as, where we are root and the server would refuse to be."""
    stop_signal: int = signal.SIGTERM


def start(command: Command, folder: Path, owner_pid: int) -> int:
    """Start a keeper with its server. Returns the keeper's process id."""
    orders = {
        "arguments": command.arguments,
        "log": str(command.log),
        "user": command.user,
        "stop_signal": int(command.stop_signal),
        "folder": str(folder),
        "owner_pid": owner_pid,
    }
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(orders)],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Not ours to wait for: the pytest worker that starts a keeper may end long before the test run does.
    process.returncode = 0
    return process.pid


def keep(orders: dict[str, Any]) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    with Path(orders["log"]).open("ab") as log:
        server = subprocess.Popen(
            orders["arguments"], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **as_user(orders["user"])
        )
    while not told and alive(orders["owner_pid"]) and server.poll() is None:
        time.sleep(0.1)
    server.send_signal(orders["stop_signal"])
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not alive(orders["owner_pid"]):
        shutil.rmtree(orders["folder"], ignore_errors=True)


def as_user(user: str | None) -> dict[str, Any]:
    """Arguments of Popen that give the process to `user`, without the caller's database settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "MYSQL"))}
    if user is None:
        return {"env": environment}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "env": environment | {"HOME": "/"}}


def alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A process that nobody has waited for yet still has its number, and is over all the same.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


if __name__ == "__main__":
    keep(json.loads(sys.argv[1]))
