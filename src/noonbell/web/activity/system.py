"""What the system itself tells of: workers that come and go, queues, tasks, alerts. Runs have a page of their own.

The stream is read backwards in stretches. Between two events of interest there may be very many of runs; so a page looks
through so much of the stream and says how far it came, and the next page goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

from starlette.responses import Response

from noonbell.ports import EventStore
from noonbell.service.events import event_json
from noonbell.web.visit import Visit, merged

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "worker": ("started", "stopped", "changed", "draining", "stopping", "lost", "returned"),
    "queue": ("paused", "resumed", "limited"),
    "task": (
        *("created", "changed", "deleted", "enabled", "disabled", "completed", "error"),
        *("skip_next", "misfired", "no_worker", "has_worker"),
    ),
    "alert": ("raised", "repeated", "recovered"),
}
"""All types but those of runs."""
_SIZE: Final = 50
_STRETCH: Final = 500
_MOST_STRETCHES: Final = 8


async def show(visit: Visit) -> Response:
    store = cast("EventStore", visit.site.services.store)  # every store has the stream
    kind = visit.query.get("kind", "")
    wanted = {f"{each}.{what}" for each in (KINDS if kind not in KINDS else (kind,)) for what in KINDS[each]}
    text = visit.query.get("before", "")
    upto = int(text) if text.isdecimal() and len(text) < 18 else await store.last_event() + 1
    found, reached = await backwards(store, upto, wanted)
    return visit.page(
        "activity_system.html",
        events=found,
        kinds=list(KINDS),
        kind=kind,
        older=merged(visit.query, before=reached) if reached > 1 else None,
        newest=merged(visit.query, before=None) if text else None,
        looked=upto - reached,
        hours=visit.site.settings.events.retention / 3_600,
    )


async def backwards(store: EventStore, upto: int, types: Collection[str]) -> tuple[list[dict[str, Any]], int]:
    """Events before that number, newest first; and how far down the stream was read."""
    found: list[dict[str, Any]] = []
    for _ in range(_MOST_STRETCHES):
        if upto <= 1 or len(found) >= _SIZE:
            break
        after = max(0, upto - _STRETCH - 1)
        page = await store.event_page(after, upto - 1 - after, types)
        found += [event_json(event) for event in reversed(page.events) if event.seq < upto]
        if page.has_gap:
            return found, 1  # what came before has been removed
        upto = after + 1
    return found, upto
