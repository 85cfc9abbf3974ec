"""For tests of code that uses Noonbell: a clock that stands still, a store in memory, and time that passes at once.

    simulate   what becomes of every slot of a year, decided as the planner decides it
"""

from __future__ import annotations

from noonbell.clock import ManualClock
from noonbell.stores.memory import MemoryStore
from noonbell.testing.simulate import Fired, simulate

__all__ = ["Fired", "ManualClock", "MemoryStore", "simulate"]
