"""The schemas of bodies and answers, as OpenAPI 3.1 wants them: those of tasks and runs made from the model itself."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noonbell.api.field_notes import RUN_NOTES, TASK_NOTES
from noonbell.model.request import IfFinished, Outcome
from noonbell.model.run import Attempt, Run, RunBodies, RunStatus
from noonbell.model.task import TaskSpec, TaskStatus
from noonbell.service.http_fields import CallbackMethod, Method
from noonbell.when.cron_fields import Dialect

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_MOMENTS: Final = frozenset(
    {
        *("start_at", "end_at", "scheduled_time", "run_at", "start_time", "end_time", "next_retry_time"),
        *("lease_expires_at", "callback_deadline", "created_at", "updated_at"),
    }
)


def ref(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


def _object(properties: Schema, required: tuple[str, ...] | None = None, *, closed: bool = False) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else list(required),
    }
    return {**schema, "additionalProperties": False} if closed else schema


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
WHOLE: Final = {"type": "integer"}
FLAG: Final = {"type": "boolean"}
DIALECT: Final = {"type": "string", "enum": [str(dialect) for dialect in Dialect]}
ID: Final = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
MOMENT: Final = {"type": "string", "format": "date-time"}
ANY: Final[Schema] = {}
STATUS: Final = {"type": "string", "enum": [str(status) for status in RunStatus]}
FINAL_STATUS: Final = _or_null({"type": "string", "enum": ["SUCCESS", "FAILED", "CANCELED", "SKIPPED"]})


def all_schemas() -> Schema:
    """By name, for `components.schemas`."""
    _, made = msgspec.json.schema_components((TaskSpec, Run, Attempt, RunBodies), ref_template=_REF)
    spec, run = made.pop("TaskSpec"), made.pop("Run")
    attempt, bodies = made.pop("Attempt"), made.pop("RunBodies")
    for schema in made.values():
        schema.pop("title", None)
    run_fields = _run_fields(run["properties"])
    body_fields = _plain(bodies["properties"])
    return {
        **made,
        **_task_schemas(_plain(spec["properties"])),
        "RunInList": _object(run_fields),
        "Run": _object({**run_fields, **body_fields, "payload": ANY}),
        "Attempt": _object(_attempt_fields(attempt["properties"], body_fields)),
        **_task_answers(),
        **_run_answers(),
        **_callback_answers(),
        **_system_answers(),
        **_bodies(),
        "Error": _object(
            {"code": TEXT, "message": TEXT, "request_id": TEXT, "details": {"type": "object"}, "error": TEXT}
        ),
    }


def _plain(properties: Schema) -> Schema:
    """Fields as JSON shows them: moments as text, no defaults that are only placeholders of the model."""
    fields: Schema = {}
    for name, given in properties.items():
        schema = {key: value for key, value in given.items() if key != "default"}
        if name in _MOMENTS:
            schema = _or_null(MOMENT) if given.get("default", 0) is None else dict(MOMENT)
        fields[name] = schema
    return fields


def _run_fields(properties: Schema) -> Schema:
    fields = {**_plain(properties), "duration_ms": _or_null(WHOLE), "final_status": FINAL_STATUS}
    return {name: {**schema, **_note(RUN_NOTES, name)} for name, schema in fields.items()}


def _attempt_fields(properties: Schema, body_fields: Schema) -> Schema:
    own = {name: schema for name, schema in _plain(properties).items() if name != "bodies"}
    resent = {**FLAG, "description": "The request was sent a second time, because its first connection was lost."}
    return {**own, "resent": resent, "duration_ms": _or_null(WHOLE), **body_fields}


def _task_schemas(properties: Schema) -> Schema:
    fields = {
        **properties,
        "schedule": _or_null(ref("Schedule")),
        "http_method": {"type": "string", "enum": [str(method) for method in Method]},
        "callback_method": {"type": "string", "enum": [str(method) for method in CallbackMethod]},
        "name": {"type": "string", "minLength": 1, "maxLength": 255},
        "retry_policy": _or_null(ref("RetryPolicy")),
        "cron_expr": _or_null(TEXT),
        "cron_dialect": _or_null(DIALECT),
        "skip_next": {"type": "integer", "minimum": -1},
    }
    fields = {name: {**schema, **_note(TASK_NOTES, name)} for name, schema in fields.items()}
    state = {
        "version": WHOLE,
        "created_by": _or_null(TEXT),
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "next_fire_at": _or_null(MOMENT),
        "last_run_id": _or_null(ID),
        "last_run_at": _or_null(MOMENT),
        "last_run_status": _or_null(STATUS),
        "active_runs": WHOLE,
        "queued_runs": WHOLE,
    }
    read_only = {name: {**schema, "readOnly": True, **_note(TASK_NOTES, name)} for name, schema in state.items()}
    status = {"type": "string", "enum": [str(each) for each in TaskStatus]}
    wanted = {"type": "string", "enum": ["ENABLED", "DISABLED"]}
    expected = {"version": {**WHOLE, "description": "The version that was read: another one is VERSION_CONFLICT."}}
    return {
        "Schedule": _schedule(),
        "Task": _object({"id": ID, "status": status, **fields, **read_only}),
        "TaskWrite": _object({**fields, "status": wanted, **expected}, ("name",), closed=True),
        "TaskPatch": _object({**fields, "status": wanted, **expected}, (), closed=True),
    }


def _note(notes: dict[str, str], name: str) -> Schema:
    return {"description": notes[name]} if name in notes else {}


def _schedule() -> Schema:
    repeat = {"anyOf": [WHOLE, {"type": "null"}], "description": "How many slots in all; null or -1 for ever."}
    kinds: dict[str, tuple[Schema, tuple[str, ...]]] = {
        "cron": (
            {
                "expr": {
                    **TEXT,
                    "description": "Five fields, or six with seconds first; @daily and friends. Quartz: a seventh, `*`.",
                },
                "dialect": {**DIALECT, "description": "Default `scheduler.cron_dialect` of the settings."},
                "source": TEXT,
                "dst": ANY,
                "repeat": repeat,
            },
            ("type", "expr"),
        ),
        "once": ({"at": _or_null(MOMENT), "run_if_late": FLAG}, ("type",)),
        "interval": (
            {
                "every": {"type": "integer", "minimum": 1},
                "unit": {"enum": ["second", "minute", "hour", "day"]},
                "anchor": _or_null(MOMENT),
                "mode": {"enum": ["fixed_rate", "fixed_delay"]},
                "repeat": repeat,
            },
            ("type", "every", "unit"),
        ),
        "weekly": (
            {"weekday": {"type": "integer", "minimum": 0, "maximum": 6}, "time": TEXT, "repeat": repeat},
            ("type", "weekday", "time"),
        ),
        "monthly": (
            {"day": {"type": "integer", "minimum": -31, "maximum": 31}, "time": TEXT, "repeat": repeat},
            ("type", "day", "time"),
        ),
    }
    return {
        "oneOf": [
            _object({"type": {"const": kind}, **fields}, required, closed=True)
            for kind, (fields, required) in kinds.items()
        ],
        "examples": [{"type": "cron", "expr": "*/5 * * * *"}, {"type": "interval", "every": 30, "unit": "second"}],
    }


def _page(of: str) -> Schema:
    page = {
        "items": _list(ref(of)),
        "total": {**_or_null(WHOLE), "description": "Null where the page was asked for by cursor."},
        "page": WHOLE,
        "page_size": WHOLE,
        "next_cursor": _or_null(TEXT),
    }
    least = {
        "type": "boolean",
        "description": "True where there are more than `total`: a long list is not counted out.",
    }
    return _object({**page, "total_is_least": least}, tuple(page))


def _task_answers() -> Schema:
    fires = _list(_object({"utc": MOMENT, "local": MOMENT}))
    notes = _list(_object({"code": TEXT, "message": TEXT}))
    saved = {"next_fires": fires, "notes": notes}
    return {
        "TaskPage": _page("Task"),
        "TaskCreated": _object({"id": ID, "name": TEXT, **saved}),
        "TaskUpdated": _object({"updated": FLAG, "version": WHOLE, **saved}),
        "Deleted": _object({"deleted": FLAG}),
        "StatusOfTask": _object({"status": {"type": "string", "enum": [str(each) for each in TaskStatus]}}),
        "Skip": _object({"skip_next": WHOLE}),
        "Preview": _object({**saved, "description": TEXT}),
        "TasksChanged": _object({"status": TEXT, "changed": WHOLE}),
    }


def _run_answers() -> Schema:
    outcome = {"type": "string", "enum": [str(each) for each in Outcome]}
    published = _object({"run_id": _or_null(ID), "outcome": outcome, "reason": TEXT}, ("run_id", "outcome"))
    line = _object({"seq": WHOLE, "at": MOMENT, "level": TEXT, "message": TEXT})
    return {
        "RunPage": _page("RunInList"),
        "Triggered": _object({"run_id": ID, "outcome": outcome}, ("run_id",)),
        "BatchAnswer": _object({"runs": _list(published)}),
        "Canceled": _object({"run_id": ID, "status": STATUS, "canceled": FLAG}),
        "Retried": _object({"run_id": ID, "retry_of_run_id": ID}),
        "Promoted": _object({"run_id": ID, "status": STATUS, "run_at": MOMENT}),
        "RunsCanceled": _object({"matched": WHOLE, "canceled": WHOLE, "more": FLAG}),
        "RunsRetried": _object({"matched": WHOLE, "retried": WHOLE, "more": FLAG}),
        "Attempts": _object({"items": _list(ref("Attempt"))}),
        "Log": _object({"items": _list(line), "next_after": WHOLE}),
    }


def _callback_answers() -> Schema:
    record = {
        "id": WHOLE,
        "run_id": _or_null(ID),
        "task_id": _or_null(ID),
        "received_at": MOMENT,
        "status": {"type": "string", "enum": ["RECEIVED", "IGNORED"]},
        "reason": _or_null(TEXT),
        "headers": {"type": "object", "additionalProperties": TEXT},
        "body": TEXT,
    }
    return {
        "CallbackAnswer": _object({"run_id": ID, "final_status": FINAL_STATUS}),
        "CallbackRecords": _object({"items": _list(ref("CallbackRecord"))}),
        "CallbackRecord": _object(record),
    }


def _system_answers() -> Schema:
    counts = {"type": "object", "additionalProperties": WHOLE}
    of_task = {
        "task_id": ID,
        "task_name": TEXT,
        "runs": WHOLE,
        "success_rate": _or_null(NUMBER),
        "average_duration_ms": _or_null(WHOLE),
        "average_lag_ms": _or_null(WHOLE),
    }
    stats = {
        "from": MOMENT,
        "to": MOMENT,
        "total": WHOLE,
        "by_status": counts,
        "by_final_status": counts,
        "success_rate": _or_null(NUMBER),
        "tasks": _list(_object(of_task)),
        "sample": WHOLE,
    }
    return {"Stats": _object(stats), "Health": _object({"ok": FLAG}, ("ok",))}


def _bodies() -> Schema:
    publish = {
        "override_body": {**TEXT, "description": "HTTP: the body, in place of the task's template."},
        "force_async": {**FLAG, "description": "HTTP: expect a callback, whatever the task says."},
        "payload": {"description": "In place of the task's payload."},
        "key": {"type": "string", "minLength": 1, "maxLength": 255, "description": "Ask for it only once."},
        "if_finished": {"type": "string", "enum": [str(each) for each in IfFinished]},
        "update_waiting": FLAG,
        "delay_seconds": {"type": "number", "minimum": 0},
        "run_at": MOMENT,
        "priority": WHOLE,
        "specific_worker_ids": _list(TEXT),
    }
    said = {
        "status": {"type": "string", "enum": ["SUCCESS", "FAILED", "RUNNING"]},
        "data": ANY,
        "error_message": TEXT,
        "progress": ANY,
    }
    bulk = {"filter": {"type": "object"}, "all": FLAG}
    preview = {
        "schedule": ref("Schedule"),
        "cron_expr": TEXT,
        "cron_dialect": DIALECT,
        "timezone": TEXT,
        "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 5},
        "from": MOMENT,
        "lang": {"enum": ["en", "zh"]},
    }
    return {
        "SkipWrite": _object({"count": {"type": "integer", "minimum": -1, "default": 1}}, (), closed=True),
        "TriggerWrite": _object(publish, (), closed=True),
        "BatchWrite": _object(
            {"runs": {**_list(_object({"task": {"type": ["integer", "string"]}, **publish}, ("task",), closed=True))}},
            closed=True,
        ),
        "CancelWrite": _object({"reason": TEXT}, (), closed=True),
        "BulkTasks": _object(bulk, (), closed=True),
        "BulkRuns": _object({**bulk, "dry_run": FLAG}, (), closed=True),
        "CallbackWrite": _object(said, ("status",)),
        "CallbackByIdsWrite": _object({"task_id": ID, "run_id": ID, **said}, ("task_id", "run_id", "status")),
        "PreviewWrite": _object(preview, (), closed=True),
    }
