"""What a process sets up for itself: its event loop, its garbage collector, its stop signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's where it is installed; None is Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


_YOUNG = 50_000
"""New objects between two looks at the young ones: more than the runs that are under way hold at any time."""


def settle_down() -> None:
    """Call once, when everything is built: what is there now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)


log = logging.getLogger("noonbell")

EXIT_AT_ONCE = 130
EXIT_LEFT_RUNS = 1


_ONE_WISH = 0.5
"""Seconds in which signals are one wish: `timeout` and `make` send theirs to the process and to its group."""


class Stop:
    """The wish to end, from outside: the first signal asks, the second does not."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._first_at: float | None = None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self._first_at is not None and now - self._first_at < _ONE_WISH:
            return
        if self.wanted.is_set():
            log.warning("%s again: stopping at once; running work is taken over when its lease expires", number.name)
            logging.shutdown()
            os._exit(EXIT_AT_ONCE)
        log.info("%s", number.name)
        self._first_at = now
        self.wanted.set()


def end_process_if(left: int) -> None:
    """When all is closed: end the process where runs are left whose handlers ignore their cancellation.

    Their leases are not renewed any more. A process that waited for them would still work when others begin.
    """
    if left:
        log.warning(
            "%d runs do not stop: the process exits; other workers take them over when their leases expire", left
        )
        logging.shutdown()
        os._exit(EXIT_LEFT_RUNS)
