"""Whether the store still allows this code: another node may have brought its schema to where only newer code can work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from noonbell.errors import SchemaMismatch
from noonbell.ports import Store

log = logging.getLogger("noonbell")

EVERY = 30.0
"""Seconds between two looks."""


class SchemaWatch:
    def __init__(self, store: Store, on_mismatch: Callable[[], object], *, every: float | None = None) -> None:
        """`on_mismatch` is called once, when the store has moved past this code."""
        self._store, self._on_mismatch = store, on_mismatch
        self._every = EVERY if every is None else every
        self.mismatch: SchemaMismatch | None = None

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look now and then, until this is left."""
        task = asyncio.create_task(self._look(), name="noonbell schema watch")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        while self.mismatch is None:
            await asyncio.sleep(self._every)
            try:
                await self._store.check_schema()
            except SchemaMismatch as error:
                self.mismatch = error
            except Exception as error:  # a store that does not answer is told of by those who need it
                log.debug("the schema could not be looked at: %s", error)
        log.error("stopping: %s", self.mismatch.message)
        self._on_mismatch()
