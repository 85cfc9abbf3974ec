"""Queues as a claim sees them: which of them give anything, and how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from noonbell.clock import Instant
from noonbell.model.task import RateLimit
from noonbell.policy import rate
from noonbell.stores.sql import rates
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import from_json
from noonbell.stores.sql.statement import Fetch, Work

_UNLIMITED = 1 << 30


class OpenQueues:
    def __init__(self, names: Sequence[str], limits: dict[str, tuple[int | None, RateLimit | None]]) -> None:
        self.names = list(dict.fromkeys(names))
        self.next_at: Instant | None = None
        self._limits = limits
        self._room: dict[str, int] = {}
        self._states: dict[str, rate.RateState] = {}

    def room(self, name: str) -> int:
        return self._room.get(name, _UNLIMITED)

    def weigh(self, q: Dialect, now: Instant) -> Work[None]:
        """How much each limited queue may give now. Its row is held, so nobody else adds to it meanwhile."""
        for name, (concurrency, limit) in self._limits.items():
            room = _UNLIMITED
            if concurrency is not None:
                rows = yield Fetch(
                    f"select count(*) from live where place in ({int(Place.LEASED)}, {int(Place.PARKED)})"
                    " and queue = :queue and parent_id is null",
                    {"queue": name},
                )
                room = max(0, concurrency - int(rows[0][0]))
            if limit is not None:
                state = yield from rates.load(q, _scope(name))
                granted = rate.grant(limit, state, now, limit.max)
                self._states[name] = state
                room = min(room, granted.count)
            self._room[name] = room

    def write(self, now: Instant, chosen: Sequence[Live]) -> Work[None]:
        taken = Counter(row.queue for row in chosen)
        for name, state in self._states.items():
            limit = self._limits[name][1]
            if limit is None:
                continue
            granted = rate.grant(limit, state, now, taken[name])
            if taken[name]:
                yield from rates.save(_scope(name), granted.state)
            if taken[name] >= self.room(name):  # it may hold more: say when to ask again
                again = rate.grant(limit, granted.state, now, 1).next_at
                if again is not None:
                    self.next_at = min(self.next_at or again, again)


def open_queues(q: Dialect, names: Sequence[str]) -> Work[OpenQueues]:
    """Without the paused ones; those with a limit are held until the end of the transaction."""
    rows = yield Fetch(
        f"select name, paused, concurrency, rate_limit from queues where {q.names('name', 'names')}",
        {"names": q.pack(list(names))},
    )
    if any(row[2] is not None or row[3] is not None for row in rows):
        rows = yield Fetch(
            f"select name, paused, concurrency, rate_limit from queues where {q.names('name', 'names')}"
            f" order by name{q.lock}",
            {"names": q.pack(list(names))},
        )
    paused = {row[0] for row in rows if row[1]}
    limits = {
        name: (concurrency, None if limit is None else msgspec.convert(from_json(limit), RateLimit))
        for name, _, concurrency, limit in rows
        if name not in paused and (concurrency is not None or limit is not None)
    }
    return OpenQueues([name for name in dict.fromkeys(names) if name not in paused], limits)


def _scope(name: str) -> str:
    return f"queue:{name}"
