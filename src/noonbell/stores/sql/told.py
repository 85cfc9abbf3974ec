"""Runs that need no worker: told to whoever listens and done, in the transaction that makes them due.

Born, started and over in one commit: nobody claims them, nobody sees them in between, so nothing of them can be lost or
done twice. The event itself comes with the run's end (`results`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.clock import Instant
from noonbell.model import plan
from noonbell.model.run import RunStatus
from noonbell.stores.sql.births import Newborn
from noonbell.stores.sql.dialect import Dialect
from noonbell.stores.sql.endings import Ending, finish, report_of
from noonbell.stores.sql.live import load
from noonbell.stores.sql.rows import TaskView
from noonbell.stores.sql.statement import Work

_DONE: Final = report_of(None, {"published": True}, None, None)


def after_birth(q: Dialect, cache: TaskView, now: Instant, newborns: Sequence[Newborn]) -> Work[None]:
    """Of these runs, just written, those that are due and need no worker are over."""
    due = [n.id for n in newborns if n.skip_reason is None and n.run_at <= now and plan.is_told(n.task.spec)]
    yield from finish_told(q, cache, now, due)


def finish_told(q: Dialect, cache: TaskView, now: Instant, run_ids: Sequence[int]) -> Work[None]:
    """These runs are due, and they are of the kind that is done by being told."""
    rows = yield from load(q, run_ids)
    endings = [
        Ending(live=row._replace(attempt=row.attempt + 1), status=RunStatus.SUCCESS, start_time=now, report=_DONE)
        for row in rows.values()
    ]
    yield from finish(q, cache, now, endings)
