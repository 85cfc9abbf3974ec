"""How much work a call does, in numbers that do not depend on the machine: calls of Python functions."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Self


def calls_in(work: Callable[[], object]) -> int:
    """How many functions `work` calls in this thread, those of the interpreter's own C code included."""
    with _Count() as count:
        work()
    return count.made


async def calls_while(work: Callable[[], Awaitable[object]]) -> int:
    """The same for what is awaited. What other tasks of the loop do meanwhile counts too."""
    with _Count() as count:
        await work()
    return count.made


class _Count:
    def __init__(self) -> None:
        self.made = 0

    def __enter__(self) -> Self:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        self.made += event in ("call", "c_call")
