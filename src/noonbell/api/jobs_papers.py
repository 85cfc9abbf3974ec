"""What the description says of the endpoints of jobs: their schemas, examples and words."""

from __future__ import annotations

from typing import Any, Final

from noonbell.api.endpoint import Param
from noonbell.api.limits import MOST_BYTES
from noonbell.api.paper import FLAG, MOMENT, PAGING, paper
from noonbell.api.schemas import ANY, DIALECT, ID, TEXT, WHOLE, Schema
from noonbell.api.schemas import FLAG as YES_OR_NO
from noonbell.model.run import execution_id_of
from noonbell.service.jobs import STATUSES

_ID: Final = ("INVALID_ID", "NOT_FOUND")
_SAVED: Final = ("INVALID_JSON", "INVALID_ARGUMENT", "ALREADY_EXISTS", "PAYLOAD_TOO_LARGE")
_WORDS: Final = list(dict.fromkeys(STATUSES.values()))

BODY: Final[dict[str, Any]] = {
    "job_name": "daily_cleanup",
    "job_type": "data_cleanup",
    "cron_expression": "0 2 * * *",
    "cron_dialect": "standard",
    "enabled": True,
    "allow_concurrent": False,
    "max_concurrent": None,
    "max_retries": 3,
    "retry_delay_seconds": 60,
    "timeout_seconds": 300,
    "payload": {"retention_days": 30},
    "description": "Old executions go",
}
JOB: Final[dict[str, Any]] = {
    "id": 1,
    **BODY,
    "last_run_at": "2026-11-15T02:00:00.004Z",
    "last_run_status": "success",
    "next_run_at": "2026-11-16T02:00:00Z",
    "created_at": "2026-11-14T09:12:31.5Z",
    "updated_at": "2026-11-14T09:12:31.5Z",
    "created_by": None,
}
EXECUTION: Final[dict[str, Any]] = {
    "id": 7340033,
    "job_id": 1,
    "job_name": "daily_cleanup",
    "execution_id": str(execution_id_of(7340033)),
    "worker_id": "host-1-4711-a3f0",
    "started_at": "2026-11-15T02:00:00.004Z",
    "completed_at": "2026-11-15T02:00:00.184Z",
    "duration_ms": 180,
    "status": "success",
    "retry_count": 0,
    "error_message": None,
    "error_details": None,
    "result": {"deleted_count": 42, "retention_days": 30, "retention_runs": None},
}


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    job = {**_writable(), **_read_only()}
    return {
        "JobWrite": _object(_writable(), ("job_name", "job_type"), closed=True),
        "JobChange": _object(job, (), closed=True),
        "Job": _object({"id": ID, **job}),
        "JobSaved": _object({"id": ID, **job, "notes": _list(_object({"code": TEXT, "message": TEXT}))}),
        "JobPage": _page("Job"),
        "Execution": _object(_execution()),
        "ExecutionPage": _page("Execution"),
    }


def _writable() -> Schema:
    whole = {"type": "integer", "minimum": 0}
    seconds = {"type": "number", "minimum": 0}
    return {
        "job_name": {"type": "string", "minLength": 1, "maxLength": 255},
        "job_type": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "Which handler carries it out.",
        },
        "cron_expression": {**_or_null(TEXT), "description": "Five, six or seven fields. Null: on demand only."},
        "cron_dialect": {
            **_or_null(DIALECT),
            "description": "How it is read. Default: six or seven fields as the Rust crate `cron` does (`quartz`: Sunday is "
            "1), five by `scheduler.cron_dialect`.",
        },
        "enabled": {**YES_OR_NO, "default": True},
        "allow_concurrent": {**YES_OR_NO, "default": False, "description": "False: one execution at a time."},
        "max_concurrent": {**_or_null({"type": "integer", "minimum": 1}), "description": "Null: no limit."},
        "max_retries": {**whole, "description": "Default `jobs.max_retries` (3)."},
        "retry_delay_seconds": {
            **seconds,
            "description": "The same before each retry. Default `jobs.retry_delay` (60).",
        },
        "timeout_seconds": {**seconds, "description": "Of one attempt. Default `jobs.job_timeout` (300)."},
        "payload": {**ANY, "description": "Any JSON: what the handler is called with."},
        "description": _or_null(TEXT),
    }


def _read_only() -> Schema:
    fields = {
        "last_run_at": _or_null(MOMENT),
        "last_run_status": _or_null({"type": "string", "enum": _WORDS}),
        "next_run_at": _or_null(MOMENT),
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "created_by": _or_null(TEXT),
    }
    return {name: {**schema, "readOnly": True} for name, schema in fields.items()}


def _execution() -> Schema:
    return {
        "id": {**ID, "description": "The run's id."},
        "job_id": ID,
        "job_name": TEXT,
        "execution_id": {"type": "string", "format": "uuid", "description": "Made from the run's id."},
        "worker_id": _or_null(TEXT),
        "started_at": _or_null(MOMENT),
        "completed_at": _or_null(MOMENT),
        "duration_ms": _or_null(WHOLE),
        "status": {"type": "string", "enum": _WORDS},
        "retry_count": WHOLE,
        "error_message": _or_null(TEXT),
        "error_details": _or_null({"type": "object"}),
        "result": ANY,
    }


def _object(properties: Schema, required: tuple[str, ...] | None = None, *, closed: bool = False) -> Schema:
    needed = list(properties) if required is None else list(required)
    schema: Schema = {"type": "object", "properties": properties, "required": needed}
    return {**schema, "additionalProperties": False} if closed else schema


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _page(of: str) -> Schema:
    item = {"$ref": f"#/components/schemas/{of}"}
    numbers = {"total": _or_null(WHOLE), "page": WHOLE, "page_size": WHOLE, "next_cursor": _or_null(TEXT)}
    return _object({"items": _list(item), **numbers})


CREATE = paper(
    "create_job",
    "jobs",
    "Create a job",
    answer="JobSaved",
    answer_example={**JOB, "last_run_at": None, "last_run_status": None, "notes": []},
    status=201,
    body="JobWrite",
    most_bytes=MOST_BYTES,
    body_example=BODY,
    body_required=True,
    errors=_SAVED,
    notes="A job type that no worker knows yet is taken, and `notes` says so: its executions wait. A job's id is its "
    "task's id.",
)
LIST = paper(
    "list_jobs",
    "jobs",
    "List jobs",
    answer="JobPage",
    answer_example={"items": [JOB], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(
        Param("enabled", "True: those that are enabled. False: those that are not.", {"type": "boolean"}, True),
        Param("job_name", "A part of the name.", example="cleanup"),
        Param("job_type", "Jobs of this type.", example="data_cleanup"),
        Param("include_system", "Built-in jobs too.", FLAG, False),
        *PAGING,
    ),
    errors=("INVALID_ARGUMENT",),
)
GET = paper("get_job", "jobs", "Read a job", answer="Job", answer_example=JOB, errors=_ID)
REPLACE = paper(
    "change_job",
    "jobs",
    "Change a job",
    answer="JobSaved",
    answer_example={**JOB, "max_retries": 5, "notes": []},
    body="JobChange",
    most_bytes=MOST_BYTES,
    body_example={"max_retries": 5, "allow_concurrent": True, "max_concurrent": 3},
    body_required=True,
    errors=(*_ID, *_SAVED, "VERSION_CONFLICT"),
    versioned=True,
    notes="What the body does not name stays. A job can be sent back as it was read.",
)
DELETE = paper(
    "delete_job",
    "jobs",
    "Delete a job",
    answer="Deleted",
    answer_example={"deleted": True},
    query=(
        Param("cancel_running", "Cancel the executions under way; else they finish.", FLAG, False),
        Param("purge", "Remove its executions as well, for good.", FLAG, False),
    ),
    errors=(*_ID, "INVALID_ARGUMENT", "INVALID_STATE"),
    notes="Its executions stay readable under its id until they are as old as the retention says.",
)
PAUSE = paper(
    "pause_job",
    "jobs",
    "Pause a job",
    answer="Job",
    answer_example={**JOB, "enabled": False, "next_run_at": None},
    errors=_ID,
    notes="No further execution by its schedule; those under way finish.",
)
RESUME = paper(
    "resume_job",
    "jobs",
    "Resume a job",
    answer="Job",
    answer_example=JOB,
    errors=_ID,
    notes="From now on: what was missed while it was paused is not made up for.",
)
EXECUTIONS = paper(
    "list_executions",
    "jobs",
    "The executions of a job",
    answer="ExecutionPage",
    answer_example={"items": [EXECUTION], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(
        Param(
            "status",
            "Statuses, as a list parted by commas or given several times.",
            {"type": "array", "items": {"type": "string", "enum": _WORDS}},
            ["failed", "timeout"],
        ),
        Param("execution_id", "This one alone.", {"type": "string", "format": "uuid"}, EXECUTION["execution_id"]),
        *PAGING,
    ),
    errors=(*_ID, "INVALID_ARGUMENT"),
    notes="Newest first. A retry belongs to the execution that it repeats: `retry_count` says how many there were.",
)
