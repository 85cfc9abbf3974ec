"""How much of everything a run does."""

from __future__ import annotations

from enum import Enum


class Scale(Enum):
    """The value: what the full counts are divided by."""

    FULL = 1
    QUICK = 10
    """A look, not a measurement."""
    SMOKE = 100
    """Whether it works at all."""

    def of(self, full: int, least: int = 1) -> int:
        return max(least, full // self.value)

    @property
    def said(self) -> str:
        return "" if self is Scale.FULL else f", {self.name.lower()}: no measurement"
