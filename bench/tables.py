"""Numbers into text: medians with their range, ratios of paired rounds, markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

NONE = "–"


@dataclass(frozen=True)
class Spread:
    """What several rounds gave for one thing."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None if no round has a value."""
        known = [value for value in values if value is not None]
        return cls(median(known), min(known), max(known)) if known else None


def ratio(ours: Sequence[float | None], other: Sequence[float | None]) -> Spread | None:
    """Ours divided by the other, round by round: rounds are neighbours in time, so the machine's drift cancels out."""
    return Spread.of(a / b if a is not None and b else None for a, b in zip(ours, other, strict=False))


def rates(spread: Spread | None) -> str:
    """`13,180 (12,233–15,089)`; a single round has no range."""
    return _text(spread, "{:,.0f}")


def ratios(spread: Spread | None) -> str:
    return _text(spread, "{:.2f}", "×")


def millis(spread: Spread | None) -> str:
    return _text(spread, "{:.3f}")


def _text(spread: Spread | None, form: str, unit: str = "") -> str:
    if spread is None:
        return NONE
    middle = form.format(spread.median) + unit
    if spread.low == spread.high:
        return middle
    return f"{middle} ({form.format(spread.low)}–{form.format(spread.high)})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; `right` names the columns that are aligned to the right."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join(line(cells) for cells in (head, rule, *rows))


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
