"""What a stage gives: rows of the one table, and what must be said of how they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.rounds import Samples, how, values
from bench.tables import NONE, Spread, rates, ratio, ratios


@dataclass(frozen=True)
class Row:
    work: str
    ours: str
    beside: str
    """What others made of the same work in the same run, the best first."""
    ratio: str
    wanted: str
    met: bool | None
    """None: there is no goal, or no measurement."""

    @property
    def cells(self) -> list[str]:
        return [self.work, self.ours, self.beside, self.ratio, self.wanted, self.verdict]

    @property
    def verdict(self) -> str:
        return NONE if self.met is None else "met" if self.met else "**not met**"


@dataclass(frozen=True)
class Found:
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    rounds: int | None = None
    """How many there were, where a stage has fewer than it was asked for."""


def rate_row(work: str, samples: Samples, of: str, figure: str, least: float, against: Sequence[str]) -> Row:
    """A row of rates: `of` wants at least `least` times the best of `against`, each compared round by round."""
    ours = values(samples, of, figure)
    shares = {name: ratio(ours, values(samples, name, figure)) for name in against}
    known = {name: share for name, share in shares.items() if share is not None}
    # The smallest share is that of the fastest peer.
    hardest = min(known, key=lambda name: known[name].median) if known else None
    others = {name: Spread.of(values(samples, name, figure)) for name in samples if not name.startswith("Noonbell")}
    ranked = sorted(((name, rate) for name, rate in others.items() if rate), key=lambda each: -each[1].median)
    wanted = f"≥ {least:g} × {against[0] if len(against) == 1 else 'the best'}"
    return Row(
        work,
        rates(Spread.of(ours)),
        "; ".join(f"{name} {rates(rate)}" for name, rate in ranked) or NONE,
        NONE if hardest is None else f"{ratios(known[hardest])} {hardest}",
        wanted,
        None if hardest is None else known[hardest].median >= least,
    )


def versions(samples: Samples) -> str:
    """The note of a stage that settings do not change."""
    known = [(name, next((each for each in found if each), None)) for name, found in samples.items()]
    return ", ".join(f"{name} {first.version}" if first else f"{name} gave no result" for name, first in known) + "."


def settings(samples: Samples) -> list[str]:
    """A note for each contender."""
    return [f"{name} {how(each)}" for name, each in samples.items()]
