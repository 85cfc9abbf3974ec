"""Hundreds of processes must not each compile the same sources: on two cores that would be most of the time."""

from __future__ import annotations

import sys
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"

KEPT: dict[str, str] = (
    {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BUILD / "pycache")} if sys.dont_write_bytecode else {}
)
"""For the environment of a node: where Python was told to write no bytecode, it writes it to the build folder."""
