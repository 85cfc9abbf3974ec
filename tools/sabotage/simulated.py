"""Remove each protection of interleavings.py once, in a copy of the source, and count the seeds until the simulation breaks a law.

    .venv/bin/python tools/sabotage/simulated.py                  what is not known yet; cut off, it goes on where it was
    .venv/bin/python tools/sabotage/simulated.py --only token     those whose words have this
    .venv/bin/python tools/sabotage/simulated.py --write          and write the table into docs/reference/simulation.md

Results are kept in build/sabotage-simulated.json; one is good until the removal or the simulation changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from interleavings import interleavings
from removals import Removal, found_times

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "sabotage-simulated.json"
PAGE = ROOT / "docs" / "reference" / "simulation.md"
BEGIN, END = "<!-- sabotage: begin -->", "<!-- sabotage: end -->"


class Found(NamedTuple):
    seeds: int
    """That were lived through, the last one being the one in which a law was broken."""
    law: str
    """Empty: none was broken."""


def _key(removal: Removal) -> str:
    parts = sorted((ROOT / "src/noonbell/testing/simulation").glob("*.py"))
    source = b"".join(part.read_bytes() for part in parts)
    return hashlib.sha256(repr((removal, hashlib.sha256(source).hexdigest())).encode()).hexdigest()


def tried(removal: Removal, first: int, most: int) -> Found:
    """From the seed `first` on: those before it broke no law."""
    with tempfile.TemporaryDirectory(prefix="noonbell-simulated-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in removal.edits:
            path = Path(folder) / edit.file
            path.write_text(path.read_text().replace(edit.text, edit.instead))
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "noonbell.testing.simulation",
                "--first",
                "--seeds",
                f"{first}-{most - 1}",
            ],
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    said = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    if done.returncode not in (0, 1):
        raise SystemExit(f"sabotage: {removal.what}: the simulation itself failed\n{done.stderr[-2000:]}")
    if not said:
        return Found(most, "")
    number, _, law = said[0].removeprefix("seed ").partition(": ")
    return Found(int(number) + 1, law)


def table(rows: list[tuple[Removal, Found | None]]) -> str:
    lines = ["| rule | protection removed | law that was broken first | seeds |", "| --- | --- | --- | --- |"]
    for removal, found in rows:
        law, seeds = ("not measured", "–") if found is None else (found.law or "**none**", f"{found.seeds}")
        law = ": ".join(law.split(": ")[: 2 if law.startswith("audit") else 1])
        lines.append(f"| {removal.rule or '–'} | {removal.what} | {law} | {seeds} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulated", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="removals whose words have this")
    parser.add_argument("--most", type=int, default=300, help="seeds for each [300]")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reference/simulation.md")
    asked = parser.parse_args()
    known = {key: Found(*found) for key, found in json.loads(KEPT.read_text()).items()} if KEPT.exists() else {}
    removals = interleavings()
    wrong = [f"{one.what}: {edit.text!r}" for one in removals for edit in one.edits if found_times(ROOT, edit) != 1]
    if wrong:
        print("simulated: these texts are not in their files exactly once", *wrong, sep="\n", file=sys.stderr)
        return 2
    for removal in removals:
        found = known.get(_key(removal))
        if asked.only in removal.what and (found is None or (not found.law and found.seeds < asked.most)):
            found = known[_key(removal)] = tried(removal, 0 if found is None else found.seeds, asked.most)
            print(
                f"{found.seeds:5} {removal.what}: {found.law[:150] or 'NO LAW WAS BROKEN'}", file=sys.stderr, flush=True
            )
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(known, indent=1))
    rows = [(removal, known.get(_key(removal))) for removal in removals]
    print(table(rows))
    if asked.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}")
    return 0 if all(found is not None and found.law for _, found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
