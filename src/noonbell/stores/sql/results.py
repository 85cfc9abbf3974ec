"""Results that are told to whoever listens: those of plans, in the transaction that ends the run.

So a result is told once, whatever dies: either the run is over and its event is there, or neither is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.clock import Instant
from noonbell.model import plan
from noonbell.model.plan import Address
from noonbell.model.run import RunStatus
from noonbell.model.task import TaskSpec
from noonbell.stores.sql.events import tell_all
from noonbell.stores.sql.rows import from_json
from noonbell.stores.sql.statement import Fetch, Work

MOST: Final = 16_384
"""Characters of a result that an event carries. Of a longer one the event says where it is: in its run."""

Ended = tuple[int, int, str | None, RunStatus, Sequence[Any] | None]
"""Run, task, worker, how it ended, and the values of `endings.REPORTED` where there are any."""


def tell_results(now: Instant, ended: Sequence[tuple[Ended, TaskSpec]]) -> Work[None]:
    """One event for each run of a task whose results are told; the others are passed over."""
    facts: dict[str, list[tuple[Any, ...]]] = {"run.result": [], "run.published": []}
    for run, spec in ended:
        address = plan.address_of(spec)
        if address is None:
            continue
        run_id, task_id, _, status, _ = run
        if plan.is_told(spec) and status is RunStatus.SUCCESS:
            messages = yield from _messages(run_id)
            facts["run.published"].append((task_id, run_id, {**_filed(address), "messages": messages}))
        else:
            data = yield from _result(run, spec, address)
            facts["run.result"].append((task_id, run_id, data))
    yield from tell_all(now, facts)


def _result(run: Ended, spec: TaskSpec, address: Address) -> Work[dict[str, Any]]:
    run_id, _, worker_id, status, report = run
    _, result, message, _ = report or (None, None, None, None)
    data = {**_filed(address), "status": status, "worker_id": worker_id, **_cut(result)}
    if message is not None:
        data["error_message"] = message[:MOST]
    if spec.fanout is not None:
        data["participants"] = yield from _participants(run_id)
    return data


def _participants(run_id: int) -> Work[list[dict[str, Any]]]:
    """Who took part in a fan-out, and what each of them said."""
    rows = yield Fetch(
        "select worker_id, status, result from runs where parent_id = :id order by shard_index", {"id": run_id}
    )
    return [{"worker_id": worker, "status": status, **_cut(result)} for worker, status, result in rows]


def _messages(run_id: int) -> Work[Any]:
    """What the run carries, whole: its own payload or its task's, and of that the messages."""
    rows = yield Fetch(
        "select coalesce(i.payload, t.payload) from runs r join tasks t on t.id = r.task_id"
        " left join inputs i on i.run_id = r.id where r.id = :id",
        {"id": run_id},
    )
    payload = from_json(rows[0][0])
    return payload.get("messages", payload) if isinstance(payload, dict) else payload


def _filed(address: Address) -> dict[str, Any]:
    return {"topic": address.topic, "subject": address.subject}


def _cut(text: str | None) -> dict[str, Any]:
    if text is not None and len(text) > MOST:
        return {"result": None, "truncated": True}
    return {"result": from_json(text)}
