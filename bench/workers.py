"""`noonbell worker` as it comes, in a process of its own: its log in a file, what its handlers print in a pipe."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bench import databases
from bench.http import end, until_ready
from bench.rounds import ROOT

QUIET = ("--log-level", "warning")
"""No line for each run. The peers of a drain write none either."""
APP = str(Path(__file__).resolve().parent / "app.py") + ":app"


def address(store: str, database: str) -> str:
    return f"sqlite:///{database}" if store == "sqlite" else database


@contextmanager
def working(store: str, database: str, *flags: str, expected: int = 0) -> Iterator[IO[str]]:
    """What the handlers of a worker that is ready print. Stopped at the end as by an operator: what was done is settled.

    With QUIET among the flags it does not log that it is ready, and is not waited for.
    """
    databases.FOLDER.mkdir(parents=True, exist_ok=True)
    log = databases.FOLDER / f"worker-{secrets.token_hex(4)}.log"
    command = [str(Path(sys.executable).parent / "noonbell"), "worker", "--app", APP]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOONBELL_")}
    environment |= {"BENCH_EXPECTED": str(expected), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--store", address(store, database), *flags],
            cwd=databases.FOLDER,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        if not set(QUIET) <= set(flags):
            until_ready(process, log)
        assert process.stdout is not None
        yield process.stdout
    finally:
        end(process)
        log.unlink()
