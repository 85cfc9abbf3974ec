"""How much of everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.speed.scale import Scale


@dataclass(frozen=True)
class Sizes:
    tasks: int = 2_000_000
    hourly: int = 1_000_000
    burst: int = 10_000
    seconds: int = 60
    """For how long slots are fired."""
    history: int = 20_000_000
    convert: int = 5_000_000


BY_SCALE: Final = {
    Scale.FULL: Sizes(),
    Scale.QUICK: Sizes(tasks=100_000, hourly=36_000, burst=500, seconds=10, history=200_000, convert=100_000),
    Scale.SMOKE: Sizes(tasks=5_000, hourly=36_000, burst=200, seconds=10, history=40_000, convert=15_000),
}
