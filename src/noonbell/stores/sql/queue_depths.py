"""Samples of how many runs wait in each queue: once a minute for the installation, added up by hour and day in the same
transaction.

The row of the minute with an empty name is the fence: the node that inserts it takes the sample, and every other finds
it there.

    died before the commit   no row of the minute is there; any node takes it while the minute lasts, else it is a gap
    died after it            the sample is complete

The sample reads what the list of queues reads, and no history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.clock import SECOND, Instant
from noonbell.model.rollup import MINUTE, SPANS, QueueDepth, Span
from noonbell.stores.sql.active_runs import WAITING
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.statement import Execute, Fetch, Now, Row, Work

_COLUMNS: Final = ("name", "seconds", "at", "samples", "waiting", "most", "longest_wait")
_ADDED: Final = ("samples", "waiting")
_GREATEST: Final = ("most", "longest_wait")
_ROWS_AT_ONCE: Final = 100
_ALL: Final = ""
"""The name of the rows that say when samples were taken."""


def sample(q: Dialect) -> Work[float]:
    """Take the sample of the present minute, if it has none; return how many seconds of the minute are left."""
    now = yield Now()
    left: float = (MINUTE.begin(now) + MINUTE.length - now) / SECOND
    first, last = ("insert ignore", "") if q.name == "mysql" else ("insert", " on conflict do nothing")
    taken = yield Execute(
        f"{first} into queue_depths ({', '.join(_COLUMNS)}) values (:name, :seconds, :at, 1, 0, 0, 0){last}",
        {"name": _ALL, "seconds": MINUTE.length // SECOND, "at": MINUTE.begin(now)},
    )
    if not taken:
        return left
    places = ", ".join(str(int(place)) for place in WAITING)
    counted = yield Fetch(f"select queue, count(*), min(run_at) from live where place in ({places}) group by queue")
    rows = [(_ALL, span.length // SECOND, span.begin(now), 1, 0, 0, 0) for span in SPANS if span is not MINUTE]
    for name, waiting, oldest in counted:
        wait = max(0, now - oldest)
        rows += [(name, span.length // SECOND, span.begin(now), 1, waiting, waiting, wait) for span in SPANS]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield _add(q, rows[start : start + _ROWS_AT_ONCE])
    return left


def _add(q: Dialect, rows: Sequence[Row]) -> Execute:
    """Make these rows, or add them to those that are there."""
    params: dict[str, Any] = {}
    values = []
    for number, row in enumerate(rows):
        params |= {f"{column}{number}": value for column, value in zip(_COLUMNS, row, strict=True)}
        values.append(f"({', '.join(f':{column}{number}' for column in _COLUMNS)})")
    if q.name == "mysql":
        sets = [f"{column} = {column} + values({column})" for column in _ADDED]
        sets += [f"{column} = greatest({column}, values({column}))" for column in _GREATEST]
        last = f" on duplicate key update {', '.join(sets)}"
    else:
        larger = "max" if q.name == "sqlite" else "greatest"
        sets = [f"{column} = queue_depths.{column} + excluded.{column}" for column in _ADDED]
        sets += [f"{column} = {larger}(queue_depths.{column}, excluded.{column})" for column in _GREATEST]
        last = f" on conflict (name, seconds, at) do update set {', '.join(sets)}"
    return Execute(f"insert into queue_depths ({', '.join(_COLUMNS)}) values {', '.join(values)}{last}", params)


def depths(
    q: Dialect, name: str, since: Instant, until: Instant, span: Span, step: int | None = None
) -> Work[list[QueueDepth]]:
    """Of a queue, for each `span` that begins in the stretch, or for each `step` of several; those without a sample are
    left out.
    """
    del q
    rows = yield Fetch(
        "select name, at - at % :step as began, sum(samples), sum(waiting), max(most), max(longest_wait) from queue_depths"
        " where name in (:all, :name) and seconds = :seconds and at >= :since and at < :until group by name, began",
        {
            "step": step or span.length,
            "all": _ALL,
            "name": name,
            "seconds": span.length // SECOND,
            "since": since,
            "until": until,
        },
    )
    waited = {int(began): (int(total), most, wait) for of, began, _, total, most, wait in rows if of == name}
    return [
        QueueDepth(Instant(int(began)), int(samples), *waited.get(int(began), (0, 0, 0)))
        for of, began, samples, *_ in sorted(rows, key=lambda row: row[1])
        if of == _ALL
    ]


def forget(q: Dialect, limit: int) -> Work[int]:
    """Remove about `limit` rows of each length that are older than roll-ups of that length are kept; how many."""
    del q
    now = yield Now()
    removed = 0
    for span in SPANS:
        params = {"seconds": span.length // SECOND, "until": now - span.kept - span.length, "limit": limit}
        rows = yield Fetch(
            "select max(at) from (select at from queue_depths where seconds = :seconds and at < :until order by at limit :limit) few",
            params,
        )
        if rows[0][0] is not None:
            removed += yield Execute(
                "delete from queue_depths where seconds = :seconds and at <= :last",
                {"seconds": span.length // SECOND, "last": rows[0][0]},
            )
    return removed
