"""How fast queues and workers go: from one look at the newest runs of all, so nothing is counted. Pure, but for the look.

The look ends after so many runs. Where they reach back less far than the usual stretch, the pace is that of the shorter
one; what was born before them and ended within it is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.clock import SECOND
from noonbell.model.run import Run, RunStatus
from noonbell.service import Services
from noonbell.web.charts import Bar
from noonbell.web.lately import newest_runs

SAMPLE: Final = 1_000
STRETCH: Final = 600 * SECOND
STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class Pace:
    came: tuple[int, ...] = (0,) * STEPS
    """Runs that were born, by steps of the stretch, the oldest first."""
    went: tuple[int, ...] = (0,) * STEPS
    """Runs that ended."""
    minutes: float = STRETCH / (60 * SECOND)
    """How long the stretch is."""

    @property
    def per_minute_in(self) -> str:
        return shown(sum(self.came) / self.minutes)

    @property
    def per_minute_out(self) -> str:
        return shown(sum(self.went) / self.minutes)


async def newest(services: Services) -> list[Run]:
    return await newest_runs(services, None, SAMPLE)


def paces(runs: Sequence[Run], now: int, name_of: Callable[[Run], str | None]) -> dict[str, Pace]:
    """By what `name_of` says a run belongs to; None: to nobody. What was skipped went nowhere."""
    begin = now - STRETCH
    if len(runs) >= SAMPLE:
        begin = max(begin, min(run.created_at for run in runs))
    length = max(now - begin, SECOND)
    came: dict[str, list[int]] = {}
    went: dict[str, list[int]] = {}
    for run in runs:
        name = name_of(run)
        if name is None or run.status is RunStatus.SKIPPED:
            continue
        for at, counts in ((run.created_at, came), (run.end_time, went)):
            if at is not None and begin <= at:
                step = min(STEPS - 1, (at - begin) * STEPS // length)
                counts.setdefault(name, [0] * STEPS)[step] += 1
    nothing = [0] * STEPS
    return {
        name: Pace(tuple(came.get(name, nothing)), tuple(went.get(name, nothing)), length / (60 * SECOND))
        for name in came.keys() | went.keys()
    }


def shown(rate: float) -> str:
    """Two digits that count: 0.4, 7.5, 120."""
    return f"{rate:.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def spark(counts: Sequence[int], width: float = 60, height: float = 18) -> list[Bar]:
    """Columns on one line; a step without anything is a dot of it."""
    most, room = max([*counts, 1]), width / max(1, len(counts))
    found = []
    for place, count in enumerate(counts):
        tall = max(1.0, height * count / most)
        found.append(Bar(place * room, height - tall, max(1.0, room - 1.5), tall, "active" if count else "idle"))
    return found
