"""Follow: events for code that listens inside this process. What a listener misses it reads again, so it misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from noonbell.engine.listen import Hub
from noonbell.errors import NotFound, StoreUnavailable
from noonbell.model.event import Event
from noonbell.model.run import FINAL, Run, RunId
from noonbell.model.stream import Filter, Position
from noonbell.model.task import TaskId
from noonbell.ports import Store

_LOOK_AGAIN = 5.0
"""Seconds after which a run is looked at although no event told of it."""


class Events:
    def __init__(self, store: Store, hub: Hub) -> None:
        self._store, self._hub = store, hub

    async def listen(
        self,
        types: Sequence[str] = (),
        *,
        task: str | TaskId | None = None,
        run_id: RunId | None = None,
        queue: str | None = None,
        after: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Events as they happen, until the hub is closed. `after`: the id of the last one that was seen.

        Close it (`contextlib.aclosing`) where the loop is left early.
        """
        wanted = Filter(
            types=tuple(types),
            task=task if isinstance(task, str) else None,
            task_id=None if isinstance(task, str) else task,
            run_id=run_id,
            queue=queue,
        )
        position = None if after is None else Position.read(after, "after")
        while not self._hub.is_closed:
            async with self._hub.listen(wanted, position) as listener:
                while not listener.is_cut:
                    batch = await listener.next()
                    for event in () if batch is None else batch.chosen(wanted):
                        yield event
                position = listener.after

    async def wait_for(self, run_id: RunId, seconds: float | None = None) -> Run:
        """The run, when it is final. TimeoutError after so many seconds; NotFound if there is no such run."""
        wanted = Filter(run_id=run_id)
        async with asyncio.timeout(seconds):
            while True:
                async with self._hub.listen(wanted) as listener:
                    if (run := await self._final(run_id)) is not None:
                        return run
                    while not listener.is_cut:
                        batch = await listener.next(_LOOK_AGAIN)
                        if (batch is None or batch.chosen(wanted)) and (run := await self._final(run_id)) is not None:
                            return run
                if self._hub.is_closed:
                    raise StoreUnavailable("this process stops; ask for the run again elsewhere")

    async def _final(self, run_id: RunId) -> Run | None:
        run = await self._store.run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return run if run.status in FINAL else None
