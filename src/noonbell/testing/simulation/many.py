"""Many seeds, in several processes: the figures of each, in a module that a process can name which did not start from it."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from noonbell.testing.simulation.play import play_seed

_CHUNK = 10


class SeedFigures(NamedTuple):
    """Of one seed, as they are kept."""

    seed: int
    digest: str
    nodes: int
    transitions: int
    faults: int
    runs: int
    deliveries: int
    cpu_seconds: float
    broken: str
    """The law and what broke it; empty: none."""


def figures_of(seed: int) -> SeedFigures:
    began = time.process_time()
    played = play_seed(seed)
    return SeedFigures(
        seed,
        played.digest,
        played.nodes,
        played.transitions,
        played.faults,
        played.runs,
        played.deliveries,
        round(time.process_time() - began, 3),
        "" if played.violation is None else str(played.violation),
    )


def lived(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedFigures]:
    """The figures of each seed, in any order."""
    if jobs <= 1:
        yield from map(figures_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(figures_of, seeds, chunksize=_CHUNK)
