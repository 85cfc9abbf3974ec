"""How long the command line takes to answer, as a shell sees it: whole processes, one after the other.

With bytecode, as an installed package has it: pip compiles what it installs. Where Python was told to write none, the
sources would be compiled in every process, which takes longer than all else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.tables import markdown

TIMES = 10
COMMAND = str(Path(sys.executable).with_name("noonbell"))
BYTECODE = str(Path(__file__).parents[1] / "build" / "pycache")
CASES = (
    (("--help",), 60),
    (("next", "*/5 * * * *", "--tz", "Europe/Berlin"), 200),
    (("task", "list", "--help"), None),
    (("version",), None),
)
"""Arguments, and the goal in milliseconds."""
READY = 1000
"""Milliseconds until `noonbell serve` is ready on a new file of SQLite: the goal."""


def table() -> str:
    rows = []
    for arguments, most in CASES:
        _once(arguments)  # writes the bytecode
        taken = sorted(_once(arguments) for _ in range(TIMES))
        middle = median(taken)
        goal, verdict = ("", "") if most is None else (f"≤ {most} ms", "met" if middle <= most else "**missed**")
        shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        rows.append([f"`noonbell {shown}`", f"{middle:.0f} ms", f"{taken[0]:.0f}–{taken[-1]:.0f}", goal, verdict])
    taken = sorted(_ready() for _ in range(TIMES))
    verdict = "met" if median(taken) <= READY else "**missed**"
    shown = f"{taken[0]:.0f}–{taken[-1]:.0f}"
    rows.append(["`noonbell serve`, until it is ready", f"{median(taken):.0f} ms", shown, f"≤ {READY} ms", verdict])
    return markdown(["command", f"median of {TIMES}", "range", "goal", ""], rows, right=(1, 2, 3))


def _once(arguments: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL, env=_environment())
    return (time.perf_counter() - began) * 1000


def _ready() -> float:
    """On a store that it has to make."""
    with tempfile.TemporaryDirectory() as folder:
        command = [COMMAND, "serve", "--store", f"sqlite:///{folder}/noonbell.db", "--port", "0"]
        began = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment()
        ) as process:
            said = []
            for line in process.stdout or ():
                said.append(line)
                if "is ready" in line:
                    break
            taken = (time.perf_counter() - began) * 1000
            process.terminate()
            process.communicate()
        if "is ready" not in said[-1]:
            raise RuntimeError("".join(said))
        return taken


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE}
