"""What the description says of the endpoints of tasks."""

from __future__ import annotations

from typing import Final

from noonbell.api.endpoint import Param
from noonbell.api.examples import BODY, FIRES, RUN_IN_LIST, TASK
from noonbell.api.limits import MOST_BYTES
from noonbell.api.paper import FILTER_OF_RUNS, FLAG, PAGING, one_of, paper, whole
from noonbell.model.task import TaskStatus

_ID: Final = ("INVALID_ID", "NOT_FOUND")
_SAVED: Final = ("INVALID_JSON", "INVALID_ARGUMENT", "ALREADY_EXISTS", "PAYLOAD_TOO_LARGE")

CREATE = paper(
    "create_task",
    "tasks",
    "Create a task",
    status=201,
    answer="TaskCreated",
    answer_example={"id": 1, "name": "sync_stats", **FIRES},
    body="TaskWrite",
    most_bytes=MOST_BYTES,
    body_example=BODY,
    body_required=True,
    errors=_SAVED,
    notes="`schedule` or its short form `cron_expr`, not both; neither means on demand only. Every wrong field is named "
    "in `details`, and fields that a task does not have are refused.",
)
LIST = paper(
    "list_tasks",
    "tasks",
    "List tasks",
    answer="TaskPage",
    answer_example={"items": [TASK], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(
        Param("status", "Tasks of this status.", one_of(TaskStatus), "ENABLED"),
        Param("name", "A part of the name.", example="sync"),
        Param("label", "Tasks with this label.", example="team=billing"),
        Param("queue", "Tasks whose runs go to this queue.", example="default"),
        Param("managed_by", "Who looks after them.", example="api"),
        Param("include_system", "Built-in tasks too.", FLAG, True),
        Param(
            "sort",
            "A leading `-` turns it round.",
            {
                "type": "string",
                "enum": [
                    f"{way}{name}"
                    for name in ("id", "name", "created_at", "updated_at", "next_fire_at")
                    for way in ("", "-")
                ],
            },
            "name",
        ),
        *PAGING,
    ),
    errors=("INVALID_ARGUMENT",),
)
GET = paper(
    "get_task",
    "tasks",
    "Read a task",
    answer="Task",
    answer_example=TASK,
    errors=_ID,
    notes='Its `ETag` is its version, for `If-Match`. Secrets show as `"***"`; written back so, they stay as they are.',
)
REPLACE = paper(
    "replace_task",
    "tasks",
    "Change a task: what is left out gets its default",
    answer="TaskUpdated",
    answer_example={"updated": True, "version": 2, **FIRES},
    body="TaskWrite",
    most_bytes=MOST_BYTES,
    body_example=BODY,
    body_required=True,
    errors=(*_ID, *_SAVED, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
)
PATCH = paper(
    "patch_task",
    "tasks",
    "Change a task: what is left out stays",
    answer="TaskUpdated",
    answer_example={"updated": True, "version": 3, **FIRES},
    body="TaskPatch",
    most_bytes=MOST_BYTES,
    body_example={"cron_expr": "*/10 * * * *", "description": "Every ten minutes"},
    body_required=True,
    errors=(*_ID, *_SAVED, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
    notes="`retry_policy`, `circuit`, `rate_limit` and `fanout` are changed field by field; any other field is replaced "
    "whole. `null` sets a field to its default.",
)
DELETE = paper(
    "delete_task",
    "tasks",
    "Delete a task",
    answer="Deleted",
    answer_example={"deleted": True},
    query=(
        Param("cancel_running", "Cancel the runs that are executing; else they finish.", FLAG, False),
        Param("purge", "Remove its history as well, for good.", FLAG, False),
    ),
    errors=(*_ID, "INVALID_ARGUMENT", "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
    notes="Its history stays and its name becomes free. Waiting runs are canceled.",
)
ENABLE = paper(
    "enable_task",
    "tasks",
    "Enable a task",
    answer="StatusOfTask",
    answer_example={"status": "ENABLED"},
    errors=(*_ID, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
    notes="It starts from now: what was missed while it was off is not made up for.",
)
DISABLE = paper(
    "disable_task",
    "tasks",
    "Disable a task",
    answer="StatusOfTask",
    answer_example={"status": "DISABLED"},
    errors=(*_ID, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
    notes="No further slot; what runs finishes.",
)
RESUME = paper(
    "resume_task",
    "tasks",
    "Another word for enable",
    answer="StatusOfTask",
    answer_example={"status": "ENABLED"},
    errors=(*_ID, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
)
PAUSE = paper(
    "pause_task",
    "tasks",
    "Another word for disable",
    answer="StatusOfTask",
    answer_example={"status": "DISABLED"},
    errors=(*_ID, "INVALID_STATE", "VERSION_CONFLICT"),
    versioned=True,
)
RESET = paper(
    "reset_task",
    "tasks",
    "Let a task in ERROR or COMPLETED start afresh",
    answer="StatusOfTask",
    answer_example={"status": "ENABLED"},
    errors=_ID,
)
SKIP = paper(
    "skip_slots",
    "tasks",
    "Skip the next slots of a task",
    answer="Skip",
    answer_example={"skip_next": 2},
    body="SkipWrite",
    body_example={"count": 2},
    errors=(*_ID, "INVALID_JSON", "INVALID_ARGUMENT"),
    notes="Each becomes a SKIPPED run with the reason `operator`. 0 takes it back, -1 skips until it is taken back.",
)
NEXT = paper(
    "next_slots",
    "tasks",
    "The next slots of a task",
    answer="Preview",
    answer_example={**FIRES, "description": "Every 5 minutes"},
    query=(Param("count", "How many.", whole(1, 1_000, 5), 5),),
    errors=(*_ID, "INVALID_ARGUMENT"),
)
TRIGGER = paper(
    "trigger_task",
    "tasks",
    "Run a task now",
    answer="Triggered",
    answer_example={"run_id": 7340033},
    body="TriggerWrite",
    most_bytes=MOST_BYTES,
    body_example={"override_body": '{"day": "2026-11-15"}', "key": "stats-2026-11-15"},
    errors=(*_ID, "INVALID_JSON", "INVALID_ARGUMENT", "CONCURRENCY_LIMIT", "INVALID_STATE", "PAYLOAD_TOO_LARGE"),
    notes="Works on a disabled task too. Without a `key` it always makes a run; with one, `outcome` says whether it did.",
)
RUNS = paper(
    "list_runs_of_task",
    "tasks",
    "The runs of a task",
    answer="RunPage",
    answer_example={"items": [RUN_IN_LIST], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(*FILTER_OF_RUNS, *PAGING),
    errors=(*_ID, "INVALID_ARGUMENT"),
)
ENABLE_WHERE = paper(
    "enable_tasks",
    "tasks",
    "Enable every task that a filter finds",
    answer="TasksChanged",
    answer_example={"status": "ENABLED", "changed": 3},
    body="BulkTasks",
    body_example={"filter": {"label": "team=billing"}},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT"),
)
DISABLE_WHERE = paper(
    "disable_tasks",
    "tasks",
    "Disable every task that a filter finds",
    answer="TasksChanged",
    answer_example={"status": "DISABLED", "changed": 3},
    body="BulkTasks",
    body_example={"filter": {"label": "team=billing"}},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT"),
)
