"""How long the command line takes to answer, as a shell sees it: whole processes, one after the other.

With bytecode, as an installed package has it: pip compiles what it installs. Where Python was told to write none, the
sources would be compiled in every process, which takes longer than all else.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


def table() -> str:
    rows = []
    for arguments, most in CASES:
        _once(arguments)  # writes the bytecode
        taken = sorted(_once(arguments) for _ in range(TIMES))
        middle = median(taken)
        goal, verdict = ("", "") if most is None else (f"≤ {most} ms", "met" if middle <= most else "**missed**")
        shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        rows.append([f"`noonbell {shown}`", f"{middle:.0f} ms", f"{taken[0]:.0f}–{taken[-1]:.0f}", goal, verdict])
    return markdown(["command", f"median of {TIMES}", "range", "goal", ""], rows, right=(1, 2, 3))


def _once(arguments: tuple[str, ...]) -> float:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE}
    began = time.perf_counter()
    subprocess.run([COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.perf_counter() - began) * 1000
