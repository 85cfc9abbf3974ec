"""Strays: handlers that go on although nobody waits for them. A thread cannot be killed; it ends when it returns.

Until then it keeps its place: the worker starts no more than its concurrency, strays included.
"""

from __future__ import annotations

from collections.abc import Callable


class Strays:
    """Shared by a worker and the target that knows them."""

    def __init__(self) -> None:
        self.count = 0
        self.freed: Callable[[], None] = _nobody
        """Called when there is one less."""

    def add(self) -> None:
        self.count += 1

    def remove(self) -> None:
        self.count -= 1
        self.freed()


def _nobody() -> None:
    """No worker listens."""
