"""A deterministic simulation: the real engine, policies and transitions on one loop that owns time, order, signals and crashes.

    event_loop   processes that take turns as the seed says, and time that jumps
    world        one database in memory, requests and answers that travel or get lost, signals
    cluster      nodes with the real planner, sweeper, worker and heartbeat, which can be killed and frozen
    targets      what attempts call: it keeps a log of its own
    history      from a seed to tasks and steps: callers, faults
    laws         what must hold after each commit, at random moments, and at the end
    play         one history from its beginning to its account; a failing one, as short as it can be made; many at a time

Nothing in it reads the machine's clock, starts a thread or opens a socket, so a seed gives the same history in every process:
`python -m noonbell.testing.simulation --seed 7` replays it.
"""

from __future__ import annotations

from noonbell.testing.simulation.history import History, HistoryStep, history_of
from noonbell.testing.simulation.laws import Violation
from noonbell.testing.simulation.play import Played, play, play_seed, shrink

__all__ = ["History", "HistoryStep", "Played", "Violation", "history_of", "play", "play_seed", "shrink"]
