"""What only the history knows of a run whose lease is gone: the narrow row forgets an attempt when it is over."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from noonbell.clock import Instant
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.live import Live
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.statement import Fetch, Work


class Earlier(NamedTuple):
    start_time: Instant | None
    """When its last attempt started: the wide row has it, or that attempt's record."""
    response_code: int | None
    """How its target accepted a run that awaits its callback. It stays the run's answer, however the run ends."""


def earlier(q: Dialect, rows: Collection[Live]) -> Work[dict[int, Earlier]]:
    """Of each of these runs. One that is leased, or was never claimed, costs no query."""
    known = {row.run_id: Earlier(None if row.claimed_at is None else Instant(row.claimed_at), None) for row in rows}
    parted = {row.run_id: row for row in rows if row.was_claimed and row.claimed_at is None}
    if not parted:
        return known
    found = yield Fetch(
        "select r.id, coalesce(r.start_time, max(a.start_time)), r.response_code"
        " from runs r left join attempts a on a.run_id = r.id"
        f" where {q.ids('r.id', 'ids')} group by r.id, r.start_time, r.response_code",
        {"ids": q.pack(sorted(parted))},
    )
    for run_id, start, code in found:
        known[run_id] = Earlier(start, code if parted[run_id].place == Place.PARKED else None)
    return known
