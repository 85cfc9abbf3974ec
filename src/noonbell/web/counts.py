"""How many tasks, queues and workers there are: beside the rooms' names, on every page.

Asked for at most once in a few seconds, however many pages are open: nobody reads them to the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noonbell.clock import SECOND, Instant
from noonbell.model.request import TaskQuery
from noonbell.service import Services

_FRESH: Final = 5 * SECOND


class Counts:
    def __init__(self) -> None:
        self._counted_at = 0
        self._known: Mapping[str, int] = {}

    async def at(self, now: Instant, services: Services) -> Mapping[str, int]:
        """By the room."""
        if not 0 <= now - self._counted_at < _FRESH:
            self._counted_at = now  # before asking: whoever comes meanwhile takes what is known
            tasks = await services.tasks.page(TaskQuery(page_size=1))
            queues, workers = await services.store.queues(), await services.store.workers()
            self._known = {"tasks": tasks.total or 0, "queues": len(queues), "workers": len(workers)}
        return self._known
