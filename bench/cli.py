"""How long the command line takes to answer, as a shell sees it: whole processes, one after the other."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.tables import markdown

TIMES = 10
COMMAND = str(Path(sys.executable).with_name("noonbell"))
CASES = (
    (("--help",), 150),
    (("next", "*/5 * * * *", "--tz", "Europe/Berlin"), 200),
    (("task", "list", "--help"), None),
    (("version",), None),
)
"""Arguments, and the goal in milliseconds."""


def table() -> str:
    rows = []
    for arguments, most in CASES:
        taken = sorted(_once(arguments) for _ in range(TIMES))
        middle = median(taken)
        goal, verdict = ("", "") if most is None else (f"≤ {most} ms", "met" if middle <= most else "**missed**")
        shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        rows.append([f"`noonbell {shown}`", f"{middle:.0f} ms", f"{taken[0]:.0f}–{taken[-1]:.0f}", goal, verdict])
    return markdown(["command", f"median of {TIMES}", "range", "goal", ""], rows, right=(1, 2, 3))


def _once(arguments: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000
