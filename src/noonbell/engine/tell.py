"""Telling listeners that there is something to read: after a transition that wrote events, here and on other nodes.

A signal says only that there is news; what it is, readers find in the store. Signals are spaced, so that a drain costs the
run path twenty of them a second and not one for each batch. A signal that gets lost costs a poll.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from noonbell.ports import Store, Wakeup

EVENTS = "events"
"""Topic: the stream of events has grown."""
APART = 0.05
"""Seconds between two signals, at least."""


class Nudge:
    """Signals at once where it has been quiet, else as soon as the time is up: the last one is never left out."""

    def __init__(self, wakeup: Wakeup, apart: float = APART) -> None:
        self._wakeup, self._apart = wakeup, apart
        self._next_at = 0.0
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._later is not None:
            return
        loop = asyncio.get_running_loop()
        left = self._next_at - loop.time()
        if left <= 0:
            self._signal(loop)
        else:
            self._later = loop.call_later(left, self._signal, loop)

    def close(self) -> None:
        """Before the wake-up is closed: a signal that was put off is sent now."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
            self._wakeup.signal(EVENTS)

    def _signal(self, loop: asyncio.AbstractEventLoop) -> None:
        self._later = None
        self._next_at = loop.time() + self._apart
        self._wakeup.signal(EVENTS)


def telling(store: Store, nudge: Callable[[], None]) -> Store:
    """The same store; whoever listens is told after each call that may have written an event."""
    return cast("Store", _Telling(store, nudge))


def _always(_: Any) -> bool:
    return True


_NEWS: Mapping[str, Callable[[Any], bool]] = {
    "claim": lambda claimed: bool(claimed.leases),
    "plan": lambda planned: planned.tasks > 0,
    "settle_and_claim": lambda answer: bool(answer[0] or answer[1].leases),
    "alert": bool,
    "notice_workers": bool,
    "promote_run": bool,
    **dict.fromkeys(("settle", "publish", "cancel", "callback", "unserved", "set_status"), bool),
    **dict.fromkeys(("create_task", "change_task", "delete_task", "skip_next"), _always),
    **dict.fromkeys(("register_worker", "set_worker", "remove_worker", "set_queue"), _always),
}
"""By call: whether its answer means that there is an event."""


class _Telling:
    def __init__(self, store: Store, nudge: Callable[[], None]) -> None:
        self._store, self._nudge = store, nudge

    def __getattr__(self, name: str) -> Any:
        """Asked once for each name: what is found stays as an attribute."""
        method = getattr(self._store, name)
        is_news = _NEWS.get(name)
        if is_news is not None and inspect.iscoroutinefunction(method):
            method = self._wrapped(method, is_news)
        setattr(self, name, method)
        return method

    def _wrapped(
        self, method: Callable[..., Awaitable[Any]], is_news: Callable[[Any], bool]
    ) -> Callable[..., Awaitable[Any]]:
        nudge = self._nudge

        async def call(*given: Any, **named: Any) -> Any:
            answer = await method(*given, **named)
            if is_news(answer):
                nudge()
            return answer

        return call
