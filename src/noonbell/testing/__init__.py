"""For tests of code that uses Noonbell: a clock that stands still, a store in memory, and time that passes at once.

trial      an App, or tasks alone, lived through by the real planner and worker
simulate   what becomes of every slot of a year, decided as the planner decides it
simulation whole histories of three nodes with crashes and lost messages, for Noonbell itself
"""

from __future__ import annotations

from noonbell.clock import ManualClock
from noonbell.stores.sqlite import MemoryStore
from noonbell.testing.simulate import Fired, simulate
from noonbell.testing.trial import Trial, trial

__all__ = ["Fired", "ManualClock", "MemoryStore", "Trial", "simulate", "trial"]
