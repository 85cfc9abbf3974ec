"""Who takes part, and the rounds: each contender once per round, in its own process, so that drift hits all alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import databases
from bench.peers.sample import Sample

Samples = Mapping[str, Sequence[Sample | None]]
"""By contender, one per round; None where that run failed, so that rounds stay in step."""
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Contender:
    """A command that prints one `Sample` when it is given `--url`, `--one` and `--drain`."""

    name: str
    store: str
    command: tuple[str, ...]
    one: int
    drain: int


class Failed(Exception):
    """A contender ended without a sample; the message says why."""


def interleaved(contenders: Sequence[Contender], rounds: int) -> Samples:
    """Each contender once per round. One that fails is not asked again: its failure would only repeat."""
    samples: dict[str, list[Sample | None]] = {contender.name: [] for contender in contenders}
    broken: set[str] = set()
    for number in range(1, rounds + 1):
        for contender in contenders:
            sample = None
            if contender.name not in broken:
                progress(f"{databases.TITLES[contender.store]}, round {number} of {rounds}: {contender.name}")
                try:
                    sample = measure(contender)
                except Failed as failure:
                    broken.add(contender.name)
                    progress(f"FAILED: {contender.name}: {failure}")
            samples[contender.name].append(sample)
    return samples


def values(samples: Samples, name: str, figure: str) -> list[float | None]:
    """One figure of a contender, round by round."""
    return [getattr(sample, figure) if sample else None for sample in samples.get(name, ())]


def how(samples: Sequence[Sample | None]) -> str:
    """Its version and settings, and how many it drained."""
    first = next((sample for sample in samples if sample), None)
    if first is None:
        return "gave no result; the progress lines say why."
    return f"{first.version}: {first.settings}{f'; {first.n:,} drained' if first.drain else ''}."


def measure(contender: Contender) -> Sample:
    os.sync()  # what the one before left to be written must not be paid for by the next
    with databases.fresh(contender.store) as url:
        counts = ["--one", str(contender.one), "--drain", str(contender.drain)]
        return Sample(**run([*contender.command, "--url", url, *counts]))


def run(command: Sequence[str], timeout: float = 300) -> dict[str, Any]:
    """The last line that a process prints, read as JSON."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"no result after {late.timeout:.0f} s") from late
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise Failed(done.stderr.strip()[-2000:] or f"exit code {done.returncode}")
    result = json.loads(lines[-1])
    if not isinstance(result, dict):
        raise Failed(f"printed {lines[-1]!r}; expected one JSON object")
    return result


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
