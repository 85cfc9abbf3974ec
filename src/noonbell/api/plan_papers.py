"""What the description says of the endpoints of plans: their schemas, examples and words."""

from __future__ import annotations

from typing import Any, Final

from noonbell.api.endpoint import Param
from noonbell.api.limits import MOST_BYTES
from noonbell.api.paper import PAGING, paper
from noonbell.api.schemas import ANY, FLAG, ID, MOMENT, TEXT, WHOLE, Schema, ref
from noonbell.model.plan import PlanTarget
from noonbell.service.plan_fields import PlanType
from noonbell.service.plan_json import LastState, PlanState

_ID: Final = ("INVALID_ID", "NOT_FOUND")

BODY: Final[dict[str, Any]] = {
    "plan_id": "1f4a",
    "request_id": "order-4711",
    "station": "billing",
    "caller": "shop",
    "description": "Settle open orders",
    "plan_type": "minute",
    "plan_value": 10,
    "plan_repet": -1,
    "no_keep": False,
    "plan_time": "2026-11-15T02:00:00Z",
    "messages": ["settle", {"open": True}],
}
PLAN: Final[dict[str, Any]] = {
    **{name: value for name, value in BODY.items() if name not in ("messages", "plan_time")},
    "target": "api",
    "plan_time": "2026-11-15T02:00:00Z",
    "real_repet": 3,
    "exec_time": "2026-11-15T02:40:00Z",
    "plan_state": "queue",
    "last_state": "ok",
    "skip_set": 0,
    "skip_num": 0,
    "messages": BODY["messages"],
    "delete_on_complete": False,
    "note": None,
    "task_id": 1,
    "task_name": "plan:billing:1f4a",
    "created_at": "2026-11-15T02:00:00.104Z",
    "updated_at": "2026-11-15T02:00:00.104Z",
}
RESULT: Final[dict[str, Any]] = {
    "run_id": 7340033,
    "exec_time": "2026-11-15T02:30:00Z",
    "state": "ok",
    "attempt": 1,
    "participants": [{"worker_id": "billing-1", "state": "ok", "result": {"settled": 12}, "error_message": None}],
    "result": {"settled": 12},
    "error_message": None,
    "start_time": "2026-11-15T02:30:00.008Z",
    "end_time": "2026-11-15T02:30:00.31Z",
}


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    state = {"type": "string", "enum": [str(each) for each in LastState]}
    participant = {"worker_id": TEXT, "state": state, "result": ANY, "error_message": _or_null(TEXT)}
    result = {
        "run_id": ID,
        "exec_time": MOMENT,
        "state": state,
        "attempt": WHOLE,
        "participants": {"type": "array", "items": _object(participant)},
        "result": ANY,
        "error_message": _or_null(TEXT),
        "start_time": _or_null(MOMENT),
        "end_time": _or_null(MOMENT),
    }
    plan = {**_written(), **_read_only(state)}
    page = {
        "items": {"type": "array", "items": ref("Plan")},
        "total": _or_null(WHOLE),
        "page": WHOLE,
        "page_size": WHOLE,
        "next_cursor": _or_null(TEXT),
    }
    writable = {**_written(), "plan_id": {"type": ["string", "integer"]}, "plan_time": {"type": ["string", "integer"]}}
    return {
        "PlanWrite": _object(writable, ("station", "plan_type", "messages"), closed=True),
        "Plan": _object(plan),
        "PlanWhole": _object({**plan, "results": {"type": "array", "items": ref("PlanResult")}}),
        "PlanResult": _object(result),
        "PlanPage": _object(page),
        "PlanSkip": _object({"count": {"type": "integer", "minimum": -1, "default": 1}}, (), closed=True),
        "PlanRemoved": _object({"plan_id": TEXT, "deleted": FLAG}),
    }


def _written() -> Schema:
    return {
        "plan_id": _said(TEXT, "The publisher's own, in hexadecimal digits or as a number; made where it is left out."),
        "request_id": _said(_or_null(TEXT), "The publisher's name for the request."),
        "station": _said(TEXT, "The queue that its workers claim from."),
        "caller": _said(_or_null(TEXT), "Who asked for it."),
        "description": TEXT,
        "plan_type": {"type": "string", "enum": [str(kind) for kind in PlanType]},
        "plan_value": _said(WHOLE, "Intervals: 1 to 32766. Week: 0 (Sunday) to 6. Month: -31 to 31, 0 = the last day."),
        "plan_repet": _said(WHOLE, "How many slots, -1 for ever. None and time pass it over; the others need it."),
        "no_keep": _said(FLAG, "What is late still runs; an interval counts from the end of the run before."),
        "target": {"type": "string", "enum": [str(target) for target in PlanTarget], "default": "api"},
        "plan_time": _said(MOMENT, "Where it counts from, Unix seconds or RFC 3339; 0 for an interval is now."),
        "messages": _said({"type": "array", "minItems": 1, "items": ANY}, "What the station is sent."),
        "delete_on_complete": _said(FLAG, "Remove it as soon as it is finished."),
    }


def _read_only(state: Schema) -> Schema:
    fields = {
        "real_repet": _said(WHOLE, "How often it was carried out."),
        "exec_time": _said(_or_null(MOMENT), "The next slot."),
        "plan_state": {"type": "string", "enum": [str(each) for each in PlanState]},
        "last_state": {**state, "description": "How its newest run stands."},
        "skip_set": _said(WHOLE, "How many of the coming slots are to be skipped; -1 until it is taken back."),
        "skip_num": _said(WHOLE, "Slots that were skipped: by an operator, as late, or while it still ran."),
        "note": _said(_or_null(TEXT), "What no other field says: that it ended without having run, for one."),
        "task_id": ID,
        "task_name": _said(TEXT, "The topic that its results are told on."),
        "created_at": MOMENT,
        "updated_at": MOMENT,
    }
    return {name: {**schema, "readOnly": True} for name, schema in fields.items()}


def _said(schema: Schema, words: str) -> Schema:
    return {**schema, "description": words}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: Schema, required: tuple[str, ...] | None = None, *, closed: bool = False) -> Schema:
    names = list(properties) if required is None else list(required)
    schema: Schema = {"type": "object", "properties": properties, "required": names}
    return {**schema, "additionalProperties": False} if closed else schema


PUBLISH = paper(
    "publish_plan",
    "plans",
    "Publish a plan",
    status=201,
    answer="Plan",
    answer_example={**PLAN, "real_repet": 0, "exec_time": "2026-11-15T02:10:00Z", "last_state": "none"},
    body="PlanWrite",
    most_bytes=MOST_BYTES,
    body_example=BODY,
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT", "ALREADY_EXISTS", "PAYLOAD_TOO_LARGE"),
    notes="Every wrong field is named in `details`, and then nothing is saved. A `plan_id` that is taken is "
    "ALREADY_EXISTS, so a publisher that is not sure may publish again. All times are UTC.",
)
LIST = paper(
    "list_plans",
    "plans",
    "List plans",
    answer="PlanPage",
    answer_example={"items": [PLAN], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(
        Param("station", "Plans for this station.", example="billing"),
        Param(
            "plan_type",
            "Plans of this type; `delay` is all four intervals.",
            {"type": "string", "enum": [*(str(kind) for kind in PlanType), "delay"]},
            "week",
        ),
        Param(
            "state",
            "`history`: finished or closed. `active`: all others. `pause`, `error`: only those.",
            {"type": "string", "enum": ["active", "history", "pause", "error"]},
            "active",
        ),
        Param("sort", "A leading `-` turns it round.", {"type": "string", "enum": ["id", "-id", "next_fire_at"]}, "id"),
        *PAGING,
    ),
    errors=("INVALID_ARGUMENT",),
)
GET = paper(
    "get_plan",
    "plans",
    "Read a plan, with its newest results",
    answer="PlanWhole",
    answer_example={**PLAN, "results": [RESULT]},
    errors=_ID,
    notes="`results` are its twenty newest runs, each with who took part. All of them are the runs of its task: "
    "`GET /tasks/{task_id}/runs`.",
)
REMOVE = paper(
    "remove_plan",
    "plans",
    "Remove a plan",
    answer="PlanRemoved",
    answer_example={"plan_id": "1f4a", "deleted": True},
    errors=_ID,
    notes="Its `plan_id` is free again. A run that waits is canceled, one that executes may end; their history stays.",
)


def _action(name: str, summary: str, state: str, notes: str, **more: Any) -> Any:
    return paper(
        f"{name}_plan",
        "plans",
        summary,
        answer="Plan",
        answer_example={**PLAN, "plan_state": state, **more},
        errors=(*_ID, "INVALID_JSON", "INVALID_STATE"),
        notes=notes,
    )


PAUSE = _action("pause", "Pause a plan", "pause", "No further slot until it is resumed.", exec_time=None)
RESUME = _action("resume", "Resume a plan", "queue", "From now on; what lay in between is not caught up.")
RESET = _action(
    "reset",
    "Reset a plan",
    "queue",
    "Back into the queue with its whole count, from error, pause and close too. A one-shot plan runs again, now.",
    real_repet=0,
)
CLOSE = _action(
    "close",
    "Close a plan",
    "close",
    "No further slot, for good. A run that waits is canceled, one that executes may end.",
    exec_time=None,
)
SKIP = paper(
    "skip_plan",
    "plans",
    "Skip the next slots of a plan",
    answer="Plan",
    answer_example={**PLAN, "plan_state": "skip", "skip_set": 2},
    body="PlanSkip",
    body_example={"count": 2},
    errors=(*_ID, "INVALID_JSON", "INVALID_ARGUMENT"),
    notes="Skipped slots use up the count. 0 takes it back, -1 skips until it is taken back or the plan is reset.",
)
