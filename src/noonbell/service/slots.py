"""The slots of a task over a stretch of time, each with its outcome: a page of them."""

from __future__ import annotations

from typing import Any, Final

from noonbell.clock import SECOND, Instant, instant_of, rfc3339, slot_of
from noonbell.model.task import Task
from noonbell.policy.past import State
from noonbell.ports import Store
from noonbell.service.account import Entry, entries, life_of
from noonbell.when import zones

LARGEST_PAGE: Final = 1_000
DAY: Final = 86_400 * SECOND


class Slots:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, task: Task, since: Instant | None = None, until: Instant | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """Oldest first. Slots that share a fate are one item with a count; `next_from` is where the next page begins.

        Left out, `until` is now, and `since` a day before it.
        """
        life = await life_of(self._store, task)
        until = life.now if until is None else until
        since = Instant(until - DAY) if since is None else since
        first, last = -(-since // SECOND), int(slot_of(until))
        found: list[Entry] = []
        more = False
        async for entry in entries(self._store, life, first, last):
            if len(found) == limit:
                more = True
                break
            found.append(entry)
        return {
            "items": [shown(entry) for entry in found],
            "from": rfc3339(since),
            "to": rfc3339(until),
            "next_from": rfc3339(instant_of(found[-1].last + 1)) if more else None,
        }


def shown(entry: Entry) -> dict[str, Any]:
    run, dropped, stretch = entry.run, entry.dropped, entry.stretch
    zone = zones.find(stretch.spec.timezone)
    reason = None if run is None else run.skip_reason
    is_off = stretch.state is not State.ON
    return {
        "slot": rfc3339(instant_of(entry.first)),
        "local": zone.local(entry.first).isoformat(),
        "last": rfc3339(instant_of(entry.last)),
        "count": entry.count,
        "outcome": str(entry.fate),
        "reason": reason if dropped is None else dropped.reason,
        "run_id": None if run is None else run.run_id,
        "status": None if run is None else run.status,
        "actor": stretch.by if is_off else None,
        "since": rfc3339(stretch.since) if is_off else None,
        "task_version": stretch.version,
    }
