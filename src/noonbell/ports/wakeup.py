"""How whoever waits hears of news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Wakeup(Protocol):
    """Who waits for work is woken, so that polling is only the net. Losing a signal costs a poll, never a run."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def signal(self, topic: str) -> None:
        """Something may be there for whoever waits on the topic: `plan`, or `queue:NAME`. Returns at once."""

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - its meaning, not a guard
        """True as soon as one of the topics is signalled, also if that was since the last wait; False after timeout."""
