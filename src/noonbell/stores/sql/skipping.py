"""Why a slot was skipped, written with the skip: the run that stood in the way, or who asked for it.

In the details of the skipped run, as `blocking_run_id` and `by`. A policy that looks at a round knows it; one that counts
does not, so the oldest of those that were counted is looked up here. Only skips pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from noonbell.model.run import SkipReason
from noonbell.stores.sql.births import Newborn
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.place import Place
from noonbell.stores.sql.rows import to_json
from noonbell.stores.sql.statement import Fetch, UpdateMany, Work

_BY_COUNT = (SkipReason.OVERLAP, SkipReason.CONCURRENCY, SkipReason.QUEUE_FULL)


def say_why(q: Dialect, newborns: Sequence[Newborn]) -> Work[None]:
    skipped = [newborn for newborn in newborns if newborn.skip_reason is not None]
    if not skipped:
        return
    asked = yield from _asked_by(q, {n.task.id for n in skipped if n.skip_reason is SkipReason.OPERATOR})
    counted = {n.task.id for n in skipped if n.skip_reason in _BY_COUNT and n.blocking_run_id is None}
    oldest = yield from _oldest(q, counted)
    rows: list[tuple[object, ...]] = []
    for newborn in skipped:
        details: dict[str, object] = {}
        if newborn.skip_reason is SkipReason.OPERATOR:
            details = {"by": asked.get(newborn.task.id)}
        else:
            blocking = newborn.blocking_run_id or oldest.get(newborn.task.id)
            details = {"blocking_run_id": blocking} if blocking else {}
        if details:
            rows.append((newborn.id, to_json(details)))
    if rows:
        yield UpdateMany("runs", "id", ("error_details",), rows)


def _asked_by(q: Dialect, task_ids: AbstractSet[int]) -> Work[dict[int, str | None]]:
    if not task_ids:
        return {}
    rows = yield Fetch(
        f"select task_id, asked_by from skip_orders where {q.ids('task_id', 'ids')}", {"ids": q.pack(sorted(task_ids))}
    )
    return {row[0]: row[1] for row in rows}


def _oldest(q: Dialect, task_ids: AbstractSet[int]) -> Work[dict[int, int]]:
    """The oldest run of each task that is under way or due; those born in this pass count too."""
    if not task_ids:
        return {}
    rows = yield Fetch(
        f"select task_id, min(run_id) from live where {q.ids('task_id', 'ids')} and parent_id is null"
        f" and place <> {int(Place.LATER)} group by task_id",
        {"ids": q.pack(sorted(task_ids))},
    )
    return {row[0]: row[1] for row in rows}
