"""Wake-ups by the SQLite file: its `data_version`, looked at while somebody waits."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence

from noonbell.stores.wakeups.local import LocalWakeup

_CALM = 0.1
"""Seconds between two wake-ups by the file: commits of this process change it too, and those were told directly."""


class SqliteWakeup(LocalWakeup):
    """Any commit by another connection to the file wakes everybody who waits, of whichever process it was."""

    def __init__(self, path: str, poll: float = 0.025) -> None:
        super().__init__()
        self._path, self._poll = path, poll
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self._watcher is None or self._watcher.done():
            self._changed()  # what happened before anybody waited is what the waiter has just looked at
            self._watcher = asyncio.create_task(self._watch(), name="noonbell sqlite wake-up")
        return await super().wait(topics, timeout)

    async def _watch(self) -> None:
        """Ends by itself soon after the last waiter has gone."""
        idle = 0
        while idle < 3:
            await asyncio.sleep(self._poll)
            idle = 0 if self._somebody_waits else idle + 1
            if self._changed():
                self._wake_all()
                await asyncio.sleep(_CALM)

    def _changed(self) -> bool:
        """A few microseconds: the answer is in the shared memory of the write-ahead log."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
            version: int = self._connection.execute("pragma data_version").fetchone()[0]
        except sqlite3.Error:
            return False
        changed = self._version is not None and version != self._version
        self._version = version
        return changed
