"""Progress of a change of the schema: each step is said, and each statement that takes long, for as long as it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

logger = logging.getLogger("noonbell.store")

_EVERY = 5.0
"""Seconds between two words about a statement that is under way."""


class SchemaBusy(Exception):
    """Another node is changing the schema."""


class SchemaProgress:
    """Hears of steps and statements from the thread that takes them, and tells of them by `say`."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda text: logger.info("schema: %s", text))
        self._current = ""
        self._since = time.monotonic()
        self.is_quiet = False
        """The store is new: its steps take no time, and are no news."""

    def step(self, text: str) -> None:
        if not self.is_quiet:
            self._say(text)

    def statement(self, text: str) -> None:
        self._current, self._since = text, time.monotonic()
        logger.debug("schema: %s", text)

    def wait_for_another(self) -> None:
        """Another node has the schema: it is waited for without a limit, and that is said."""
        text = "another node is changing it; waiting"
        if text != self._current:
            self.statement(text)
            self._say(text)

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Meanwhile, whatever takes long is told of every few seconds."""
        telling = asyncio.create_task(self._tell(), name="noonbell schema progress")
        try:
            yield
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            seconds = time.monotonic() - self._since
            if self._current and seconds >= _EVERY:
                self._say(f"{self._current}: for {seconds:.0f} s so far")
