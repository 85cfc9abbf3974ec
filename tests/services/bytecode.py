"""Hundreds of processes must not each compile the same sources: on two cores that would be most of the time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"


def keep() -> None:
    """Where Python was told to write no bytecode, the processes that tests start write it to the build folder."""
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(BUILD / "pycache")
