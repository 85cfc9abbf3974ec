"""How a run of a flow ends once all of its steps have ended: its status, and the message that says why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from noonbell.model.failure_text import CAUSE, SAID, failure_text, said_by
from noonbell.model.flow import StepState
from noonbell.model.run import RunStatus
from noonbell.stores.sql.active_runs import Live
from noonbell.stores.sql.rows import from_json, to_json
from noonbell.stores.sql.statement import Fetch, Work

_NAMED = 10
"""Failed steps that the message of a flow names."""
_MOST_CAUSE = 500
"""Characters of a step's error in the message of its flow."""
_MOST_SAID = 2_000
"""Characters of the codes and facts of a step's error in the details of its flow; longer ones are left out."""


class FlowEnd(NamedTuple):
    """Every step of the flow has ended."""

    parent: Live
    status: RunStatus
    message: str | None
    details: dict[str, Any] | None
    result: dict[str, int]


def end_of(parent: Live, failed: Sequence[StepState], counts: dict[str, int]) -> Work[FlowEnd]:
    """The end of a flow. `failed`: the steps because of which it fails; its message names them, and says why the first of them
    failed.
    """
    if not failed:
        return FlowEnd(parent, RunStatus.SUCCESS, None, None, counts)
    first = min(failed, key=lambda state: (state.ended_at or 0, state.position))
    error, cause = yield from _cause(first)
    facts: dict[str, Any] = {"names": ", ".join(state.step_id for state in failed[:_NAMED])}
    code = "step_failed" if len(failed) == 1 else "steps_failed"
    if len(failed) > _NAMED:
        code, facts["more"] = "many_steps_failed", len(failed) - _NAMED
    if error is not None:
        code, facts["error"] = f"{code}_why", error
        if len(failed) > 1:
            facts["step"] = first.step_id
    message = failure_text(code, **facts)
    details = {"kind": "step", "steps": [state.step_id for state in failed[:100]], CAUSE: cause, **said_by(message)}
    return FlowEnd(parent, RunStatus.FAILED, str(message), details, counts)


def _cause(state: StepState) -> Work[tuple[str | None, dict[str, Any]]]:
    """Why a step failed; and the details of that: its run, and what it says of its error in codes."""
    cause: dict[str, Any] = {"step": state.step_id}
    if state.message is not None:
        return _cut(state.message), cause | ({"kind": state.reason} if state.reason else {})
    columns = "select id, error_message, error_details from runs"
    if state.step_run_id is not None:
        rows = yield Fetch(f"{columns} where id = :id", {"id": state.step_run_id})
    else:
        rows = yield Fetch(
            f"{columns} where parent_id = :flow and step_id = :step and error_message is not null"
            " order by end_time, id limit 1",
            {"flow": state.copied_from or state.run_id, "step": state.step_id},
        )
    if not rows or rows[0][1] is None:
        return None, cause
    run_id, message, details = rows[0][0], rows[0][1], from_json(rows[0][2]) or {}
    said = {name: details[name] for name in ("kind", "why", "by", SAID) if name in details}
    if len(to_json(said) or "") > _MOST_SAID:
        said.pop(SAID, None)
    return _cut(message), {**cause, "run_id": run_id, **said}


def _cut(message: str) -> str:
    return message if len(message) <= _MOST_CAUSE else f"{message[: _MOST_CAUSE - 1]}…"
