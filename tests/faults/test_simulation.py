"""Ten thousand histories of the simulation, in pieces: a run that was cut off goes on with the piece that it was at."""

from __future__ import annotations

import os

import pytest

from faults.report import Report
from noonbell.testing.simulation.__main__ import summary
from noonbell.testing.simulation.play import LEAST_FAULTS, LEAST_TRANSITIONS, figures_of

SEEDS = int(os.environ.get("FAULTS_SEEDS") or 10_000)
PIECE = 250


@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_no_seed_of_the_simulation_breaks_a_law(first: int, faults_report: Report):
    found = [figures_of(seed) for seed in range(first, min(first + PIECE, SEEDS))]
    faults_report.chapters.append(
        f"### Simulation, seeds {first} to {found[-1].seed}\n\n```text\n{summary(found)}\n```\n"
    )
    broken = [f"python -m noonbell.testing.simulation --seed {one.seed}  # {one.broken}" for one in found if one.broken]
    assert not broken, "\n".join(broken)
    assert all(one.nodes >= 3 for one in found)
    assert all(one.transitions >= LEAST_TRANSITIONS for one in found)
    assert all(one.faults >= LEAST_FAULTS for one in found)
