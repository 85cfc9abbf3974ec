"""Rows of `flow_steps`: the state of each step of a run of a flow, as it is read and written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from noonbell.model.flow import StepState, StepStatus
from noonbell.stores.sql.rows import Record
from noonbell.stores.sql.statement import InsertMany, Row, UpdateMany

STATE = Record(StepState)
_CHANGING = tuple(name for name in STATE.columns if name not in ("id", "run_id", "step_id", "position", "copied_from"))
_changing_row = attrgetter("id", *_CHANGING)
_state_row = attrgetter(*STATE.columns)
_STATUSES = {str(status): status for status in StepStatus}
_MANY = 100
"""Steps from which on it pays to write those apart that have ended and those that have started."""


def state_of(row: Row) -> StepState:
    """The same as `STATE.read`, for the many that a settlement of many flows reads."""
    id_, run_id, step_id, position, status, reason, message, needs_open, needs_failed, needs_skipped, *counts = row
    total, succeeded, failed, next_item, step_run_id, copied_from, started_at, ended_at = counts
    return StepState(
        id=id_,
        run_id=run_id,
        step_id=step_id,
        position=position,
        status=_STATUSES[status],
        reason=reason,
        message=message,
        needs_open=needs_open,
        needs_failed=needs_failed,
        needs_skipped=needs_skipped,
        total=total,
        succeeded=succeeded,
        failed=failed,
        next_item=next_item,
        step_run_id=step_run_id,
        copied_from=copied_from,
        started_at=started_at,
        ended_at=ended_at,
    )


def insert_states(states: Sequence[StepState]) -> InsertMany:
    return InsertMany("flow_steps", STATE.columns, list(map(_state_row, states)))


def changes(states: Sequence[StepState]) -> list[UpdateMany]:
    """Of many, those that are alike together: a column that has one value in all rows is sent once."""
    by_status: dict[StepStatus | None, list[StepState]] = defaultdict(list)
    for state in states:
        by_status[state.status if len(states) >= _MANY else None].append(state)
    return [UpdateMany("flow_steps", "id", _CHANGING, sorted(map(_changing_row, each))) for each in by_status.values()]
