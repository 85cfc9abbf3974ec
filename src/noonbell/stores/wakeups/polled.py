"""Wake-ups where nothing pushes: whoever waits looks again soon."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.stores.wakeups.local import LocalWakeup


class PolledWakeup(LocalWakeup):
    """For a store that cannot push: whoever waits on a queue or for events is woken after `poll` seconds at the latest."""

    def __init__(self, poll: float = 0.25) -> None:
        super().__init__()
        self._poll = poll

    async def wait(self, topics: Sequence[str], timeout: float) -> bool:  # noqa: ASYNC109 - the port's word
        for_news = any(topic.startswith("queue:") or topic == "events" for topic in topics)
        if not for_news or timeout <= self._poll:
            return await super().wait(topics, timeout)
        await super().wait(topics, self._poll)
        return True
