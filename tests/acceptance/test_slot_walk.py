"""One slot under a profiler: the files that it passes are those that docs/explanation/layers.md lists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.full]
MOST = 50


def listed(row: str) -> set[str]:
    """The files of a row of the table. One without a folder is in that of the file before it."""
    found, folder = set(), ""
    for name in re.findall(r"`([^`]+)`", row.split("|")[2]):
        folder = name.rpartition("/")[0] if "/" in name or name == "clock" else folder
        found.add(f"{folder}/{name.rpartition('/')[2]}.py".lstrip("/"))
    return found


def test_a_slot_passes_the_files_that_the_page_lists():
    page = (ROOT / "docs/explanation/layers.md").read_text()
    rows = page.split("| --- | --- |\n", 1)[1].split("\n\n", 1)[0].splitlines()
    way, beside = set().union(*map(listed, rows[:-1])), listed(rows[-1])
    command = [sys.executable, ROOT / "tools/slot_walk.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    slots = dict(re.findall(r"^(\S+\.py) +\d+ functions, (\d+) slots$", printed, re.MULTILINE))
    in_every_slot = {name for name, count in slots.items() if count == max(slots.values(), key=int)}
    assert in_every_slot - beside == way
    assert len(way) <= MOST
    assert f"{len(way)} in every slot" in page
