"""Live through seeds, or through one again.

python -m noonbell.testing.simulation --seeds 0-999 --jobs 2   many; the figures at the end
python -m noonbell.testing.simulation --seed 7                 one: its trace, and if a law is broken, its shortest history
make simulation                                                ten thousand; cut off, it goes on where it was
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import noonbell
from noonbell.testing.simulation.history import history_of
from noonbell.testing.simulation.play import SeedFigures, lived, play, shrink

_TOLD = 15.0
"""Seconds between two lines of progress."""


def summary(found: Sequence[SeedFigures]) -> str:
    """Distributions, one line each, and the laws that were broken."""
    if not found:
        return "no seed"
    lines = [f"{len(found)} seeds, {sum(bool(one.broken) for one in found)} with a broken law"]
    for name in ("nodes", "transitions", "faults", "runs", "deliveries", "cpu_seconds"):
        values = sorted(getattr(one, name) for one in found)
        points = [values[min(len(values) - 1, int(len(values) * part))] for part in (0.0, 0.5, 0.9, 1.0)]
        total = sum(values)
        lines.append(
            f"{name:12} least {points[0]:g}, median {points[1]:g}, p90 {points[2]:g}, most {points[3]:g}, in all {total:,.10g}"
        )
    laws = Counter(one.broken.partition(": ")[0] for one in found if one.broken)
    lines += [f"BROKEN {law}: {count} seeds" for law, count in laws.most_common()]
    return "\n".join(lines)


def _replay(seed: int, *, trace: bool) -> int:
    played = play(history_of(seed))
    if trace:
        print(*played.trace, sep="\n")
    print(f"seed {seed}: {played.transitions} transitions, {played.faults} faults, digest {played.digest}")
    if played.violation is None:
        print("every law held")
        return 0
    print(f"broken: {played.violation}")
    shortest = shrink(played, tell=lambda said: print(f"  shrinking: {said}", file=sys.stderr))
    print("\nthe shortest history that was found:")
    for task in shortest.history.tasks:
        print("  task", json.dumps(task))
    for step in shortest.history.steps:
        print(f"  {step}")
    print("\nand what happened in it:")
    print(*shortest.trace, sep="\n")
    return 1


def _read_seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m noonbell.testing.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="live through this one, and print what happened")
    parser.add_argument("--no-trace", action="store_true", help="with --seed: without each thing that happened")
    parser.add_argument("--seeds", type=_read_seeds, default=range(100), metavar="0-99", help="live through these")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--first", action="store_true", help="stop at the first seed that breaks a law")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="the figures of each seed; those in it are not done again"
    )
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return _replay(asked.seed, trace=not asked.no_trace)
    return _live_through(asked.seeds, asked.jobs, asked.keep, stop_at_first=asked.first)


def _live_through(seeds: range, jobs: int, keep: Path | None, *, stop_at_first: bool) -> int:
    kept = Kept(keep)
    found = [kept.known[seed] for seed in seeds if seed in kept.known]
    if keep is not None:
        print(f"{len(found):,} of {len(seeds):,} seeds are known from {keep}", file=sys.stderr)
    progress = _Progress(len(seeds), len(found))
    for one in lived((seed for seed in seeds if seed not in kept.known), jobs):
        found.append(one)
        kept.add(one)
        if one.broken:
            print(f"seed {one.seed}: {one.broken}", flush=True)
            if stop_at_first:
                break
        progress.tell(found)
    print(summary(found))
    return 1 if any(one.broken for one in found) else 0


class Kept:
    """The figures of seeds in a file. They are good for the source that they were made with: with another one, it begins anew."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._source = path, "" if path is None else _source()
        self.known: dict[int, SeedFigures] = {}
        if path is None:
            return
        text = path.read_text() if path.exists() else ""
        if text and json.loads(text.partition("\n")[0]) == {"source": self._source}:
            whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
            self.known = {one.seed: one for one in (SeedFigures(*json.loads(line)) for line in whole[1:])}
            path.write_text("".join(whole))  # without a line that was cut off
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"source": self._source}) + "\n")

    def add(self, one: SeedFigures) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(one) + "\n")


def _source() -> str:
    """Of all that a history depends on."""
    root = Path(noonbell.__file__).parent
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


class _Progress:
    """A line now and then, for a person who waits."""

    def __init__(self, wanted: int, known: int) -> None:
        self._wanted, self._known = wanted, known
        self._began = self._told = time.monotonic()

    def tell(self, found: Sequence[SeedFigures]) -> None:
        now = time.monotonic()
        if now - self._told < _TOLD:
            return
        self._told = now
        left = (self._wanted - len(found)) * (now - self._began) / (len(found) - self._known)
        broken = sum(bool(one.broken) for one in found)
        print(
            f"{len(found):,} of {self._wanted:,} seeds, {broken} with a broken law; {left / 60:.0f} minutes left",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
