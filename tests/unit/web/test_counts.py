"""The numbers beside the rooms: right, and not asked for with every page."""

from __future__ import annotations

from noonbell.clock import SECOND, Instant, ManualClock
from noonbell.service import Rules, Services
from noonbell.stores.sqlite import MemoryStore
from noonbell.stores.wakeups import LocalWakeup
from noonbell.web.context import Counts

T0 = Instant(1_800_000_000 * SECOND)


async def test_rooms_are_counted_once_in_a_few_seconds():
    store = MemoryStore(ManualClock(T0))
    await store.open()
    services, counts = Services(store, LocalWakeup(), Rules()), Counts()
    assert await counts.at(T0, services) == {"tasks": 0, "queues": 0, "workers": 0}
    await services.tasks.create({"name": "a", "target_url": "http://127.0.0.1:9/", "status": "DISABLED"})
    assert (await counts.at(Instant(T0 + 4 * SECOND), services))["tasks"] == 0
    assert (await counts.at(Instant(T0 + 5 * SECOND), services))["tasks"] == 1
    assert (await counts.at(Instant(T0 + 10 * SECOND), services))["queues"] == 1, (
        "the queue of the task, empty as it is"
    )
    await store.close()
