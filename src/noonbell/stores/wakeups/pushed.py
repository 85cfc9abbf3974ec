"""Wake-ups over a connection that hears and tells: what all kinds of them have in common.

Signals are gathered while a message is on its way, and go out together with the next one: a hundred publishes a
millisecond are one message a millisecond. While the connection is away, whoever waits for work or events looks again
after a quarter of a second, as on a store that cannot push.

`close` sends what is still to be sent first, so that a publisher that ends right after its commit has signalled. A server
that does not take it in time costs its waiters a poll, and a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence

from noonbell.settings.masking import mask_addresses
from noonbell.stores.wakeups.local import LocalWakeup
from noonbell.stores.wakeups.polled import PolledWakeup

logger = logging.getLogger("noonbell.wakeup")


class PushedWakeup(PolledWakeup, ABC):
    by: str
    """What carries the signals, for people."""
    patience: float
    """Seconds that `open` waits for the first connection."""
    last_words: float = 2.0
    """Seconds that `close` waits for signals that are still to be sent."""

    def __init__(self, url: str, retry_seconds: float = 1.0) -> None:
        super().__init__()
        self._url, self._retry_seconds = url, retry_seconds
        self._name = secrets.token_hex(6)
        self._outbox: set[str] = set()
        self._under_way: set[str] = set()
        """Taken from the outbox, and not yet known to be sent."""
        self._all_told = asyncio.Event()
        self._all_told.set()
        self._news = asyncio.Event()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _session(self) -> None:
        """Connect, say `_listens`, then hear and tell until the connection breaks."""

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        """Returns when it listens, or after a moment if the other side is away: it goes on trying."""
        self._task = asyncio.create_task(self._run(), name=f"noonbell wake-up by {self.by}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), self.patience)

    async def close(self) -> None:
        """Sends what is still to be sent, for `last_words` seconds at most."""
        if self._task is not None:
            if not self._task.done():
                await self._tell_the_rest()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _tell_the_rest(self) -> None:
        try:
            await asyncio.wait_for(self._all_told.wait(), self.last_words)
        except TimeoutError:
            logger.warning(
                "%d wake-up signals by %s could not be sent before the close: who waits for them finds the work by polling",
                *(len(self._outbox | self._under_way), self.by),
            )

    def signal(self, topic: str) -> None:
        self._wake(topic)
        self._outbox.add(topic)
        self._all_told.clear()
        self._news.set()

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        if self.is_connected:
            return await LocalWakeup.wait(self, topics, timeout)
        return await super().wait(topics, timeout)

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Exception as error:  # whatever it is: without a connection there is only the poll, so try again
                said = mask_addresses(str(error)) or type(error).__name__
                logger.warning("wake-ups by %s are interrupted: %s", self.by, said)
            self._send_again()
            if self.is_connected:
                self._connected.clear()
                self._wake_all()  # whoever waits begins to look for itself
            await asyncio.sleep(self._retry_seconds)

    def _listens(self) -> None:
        self._connected.set()
        self._wake_all()  # whatever was signalled while nobody listened

    async def _to_tell(self) -> list[str]:
        """The topics since the last time, as soon as there are any or the connection is known to be broken.

        To ask again is to say that the last ones were sent.
        """
        self._under_way = set()
        if not self._outbox:
            self._all_told.set()
        await self._news.wait()
        self._news.clear()
        self._under_way, self._outbox = self._outbox, set()
        return sorted(self._under_way)

    def _send_again(self) -> None:
        """The connection is gone, and with it perhaps what was under way: the next one carries it."""
        self._outbox |= self._under_way
        self._under_way = set()
        if self._outbox:
            self._news.set()

    def _heard(self, message: str) -> None:
        sender, *topics = message.split("\n")
        if sender != self._name:
            for topic in topics:
                self._wake(topic)
