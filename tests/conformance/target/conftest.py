"""Time that moves in the event loop, as in the unit tests."""

from __future__ import annotations

from unit.conftest import skip_time

__all__ = ["skip_time"]
