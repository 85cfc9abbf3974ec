"""When what is killed: the same for every contender of a form, apart from the draw."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.faults.account import Slot
from bench.faults.processes import Processes
from bench.rounds import Failed

BURST = 0.15
"""Seconds from a slot in which its requests are mostly open."""
DRAIN = 60.0
"""Seconds that are waited for, after the last slot, for what has not arrived."""

STOPPED = threading.Event()
"""Set: every run ends."""


@dataclass(frozen=True)
class Form:
    """Seconds count from the first slot."""

    name: str
    period: int
    schedules: int
    slots: int
    """Of each schedule."""
    kills_until: float
    """Until then a process is killed every `kill_every` seconds."""
    all_killed_at: float
    """All are killed, and started again at once."""
    away: tuple[float, float]
    """All are killed, and started again at the end."""
    kill_every: float = 5.0

    @property
    def last(self) -> int:
        return (self.slots - 1) * self.period

    def first_after(self, moment: float) -> int:
        """A slot that lies at least three seconds ahead."""
        return (int(moment + 3) // self.period + 1) * self.period

    def expected(self, first: int, names: list[str]) -> list[Slot]:
        return [Slot(name, first + number * self.period) for number in range(self.slots) for name in names]

    def in_downtime(self, first: int, slot: Slot) -> bool:
        return self.away[0] < slot.at - first <= self.away[1]


SECONDS = Form("second", 1, 10, 150, kills_until=78, all_killed_at=83.05, away=(105.05, 125.05))
MINUTES = Form("minute", 60, 100, 9, kills_until=290, all_killed_at=300.3, away=(350.0, 430.0))
QUICK_SECONDS = Form("second", 1, 5, 45, kills_until=15, all_killed_at=18.05, away=(25.05, 33.05))
QUICK_MINUTES = Form("minute", 60, 10, 4, kills_until=50, all_killed_at=60.3, away=(115.0, 125.0))


def run(processes: Processes, form: Form, first: int, draw: random.Random, arrived: Callable[[], bool]) -> None:
    """Until everything has arrived, or DRAIN seconds after the last slot."""
    events: list[tuple[float, Callable[[], object]]] = [
        *((at, processes.kill_one) for at in kill_times(form, draw)),
        (form.all_killed_at, processes.kill_all),
        (form.all_killed_at, processes.start_all),
        (form.away[0], processes.kill_all),
        (form.away[1], processes.start_all),
    ]
    events.sort(key=lambda event: event[0])
    while time.time() < first + form.last + DRAIN:
        if STOPPED.is_set():
            raise Failed("stopped")
        now = time.time() - first
        while events and events[0][0] <= now:
            events.pop(0)[1]()
        if not form.away[0] <= now < form.away[1]:
            processes.bring_back()
        if now > form.last + 2 and not events and arrived():
            return
        time.sleep(0.005 if events else 0.1)


def kill_times(form: Form, draw: random.Random) -> list[float]:
    """Half of those in the second of a slot hit the moment at which its requests are open."""
    found, at = [], 0.0
    while at < form.kills_until:
        found.append(at + draw.uniform(0, draw.choice([BURST, 1.0])))
        at += form.kill_every
    return found
