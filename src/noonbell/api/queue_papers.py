"""What the description says of queues and of backfills."""

from __future__ import annotations

from typing import Final

from noonbell.api.examples import RUN_IN_LIST
from noonbell.api.paper import FILTER_OF_RUNS, PAGING, paper
from noonbell.api.schemas import FLAG, ID, MOMENT, NUMBER, TEXT, WHOLE, Schema, ref
from noonbell.api.schemas import _list as listed
from noonbell.api.schemas import _object as an_object
from noonbell.api.schemas import _or_null as or_null
from noonbell.model.request import IfFinished
from noonbell.model.run import FINAL
from noonbell.service.backfill import MOST_SLOTS

_NAME: Final = ("INVALID_ID",)
_BODY: Final = ("INVALID_ID", "INVALID_JSON", "INVALID_ARGUMENT")
_EXAMPLE: Final = {
    "name": "default",
    "paused": False,
    "concurrency": 20,
    "rate_limit": {"max": 100, "per_seconds": 60.0, "key": None},
    "waiting": 12,
    "delayed": 3,
    "running": 20,
    "oldest_at": "2026-11-15T02:29:58Z",
}

LIST = paper("list_queues", "queues", "The queues", answer="Queues", answer_example={"items": [_EXAMPLE]})
GET = paper("get_queue", "queues", "Read a queue", answer="Queue", answer_example=_EXAMPLE, errors=_NAME)
LIMIT = paper(
    "limit_queue",
    "queues",
    "Limit a queue",
    answer="Queue",
    answer_example=_EXAMPLE,
    body="QueueWrite",
    body_example={"rate_limit": {"max": 100, "per_seconds": 60}, "concurrency": 20},
    body_required=True,
    errors=_BODY,
    notes="What is left out is no limit. Held over all nodes, from the next claim on.",
)
PAUSE = paper(
    "pause_queue",
    "queues",
    "Let nothing start from a queue",
    answer="Queue",
    answer_example={**_EXAMPLE, "paused": True},
    errors=_NAME,
    notes="What executes goes on.",
)
RESUME = paper("resume_queue", "queues", "Let runs start again", answer="Queue", answer_example=_EXAMPLE, errors=_NAME)
DRAIN = paper(
    "drain_queue",
    "queues",
    "Cancel what waits on a queue",
    answer="RunsCanceled",
    answer_example={"matched": 15, "canceled": 15, "more": False},
    errors=_NAME,
    notes="Delayed runs and retries too; what executes goes on. At most 10,000 in one call; `more` says that there are "
    "others.",
)
CLEAN = paper(
    "clean_queue",
    "queues",
    "Remove the final runs of a queue",
    answer="Cleaned",
    answer_example={"removed": 1200, "more": False},
    body="CleanWrite",
    body_example={"older_than_days": 30},
    body_required=True,
    errors=_BODY,
    notes="Those that ended longer ago, all or of some statuses. At most about 10,000 in one call; `more` says that there "
    "are others.",
)
DEAD = paper(
    "list_dead_runs",
    "queues",
    "The runs of a queue that failed for good",
    answer="RunPage",
    answer_example={
        "items": [{**RUN_IN_LIST, "status": "FAILED", "final_status": "FAILED"}],
        "total": 1,
        "page": 1,
        "page_size": 20,
        "next_cursor": None,
    },
    query=(*(param for param in FILTER_OF_RUNS if param.name != "queue"), *PAGING),
    errors=("INVALID_ID", "INVALID_ARGUMENT"),
)
REDRIVE = paper(
    "redrive_queue",
    "queues",
    "Run again what failed for good",
    answer="RunsRetried",
    answer_example={"matched": 3, "retried": 3, "more": False},
    body="RedriveWrite",
    body_example={"filter": {"from": "2026-11-15T00:00:00Z"}, "dry_run": False},
    errors=_BODY,
    notes="New runs beside the old ones, with what they carried. Each dead run is run again once, however often this is "
    "called. At most 10,000 in one call.",
)
BACKFILL = paper(
    "backfill_task",
    "tasks",
    "Run a task for slots of the past",
    answer="Backfilled",
    answer_example={
        "count": 2,
        "slots": ["2026-11-14T00:00:00Z", "2026-11-15T00:00:00Z"],
        "run_ids": [7340033, 7340034],
        "created": 2,
        "existing": 0,
        "refused": 0,
        "next_from": None,
    },
    body="BackfillWrite",
    body_example={"from": "2026-11-14T00:00:00Z", "to": "2026-11-15T00:00:00Z", "dry_run": True},
    body_required=True,
    errors=("INVALID_ID", "NOT_FOUND", "INVALID_JSON", "INVALID_ARGUMENT", "INVALID_STATE", "PAYLOAD_TOO_LARGE"),
    notes="One run for each slot from `from` to `to`, both included, beside whatever became of it then. A slot that was "
    "filled before is not filled again, unless `if_finished` says so. At most 10,000 slots in one call; `next_from` says "
    "where to go on. `dry_run` only lists them.",
)


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    limit = an_object(
        {"max": {"type": "integer", "minimum": 1}, "per_seconds": NUMBER, "key": or_null(TEXT)}, ("max", "per_seconds")
    )
    return {
        "Queue": an_object(
            {
                "name": TEXT,
                "paused": FLAG,
                "concurrency": {**or_null(WHOLE), "description": "Null: no limit."},
                "rate_limit": or_null(limit),
                "waiting": {**WHOLE, "description": "Due and not claimed."},
                "delayed": WHOLE,
                "running": WHOLE,
                "oldest_at": {**or_null(MOMENT), "description": "`run_at` of the run that has waited longest."},
            }
        ),
        "Queues": an_object({"items": listed(ref("Queue"))}),
        "QueueWrite": an_object(
            {"rate_limit": or_null(limit), "concurrency": or_null({"type": "integer", "minimum": 0})}, (), closed=True
        ),
        "Cleaned": an_object({"removed": WHOLE, "more": FLAG}),
        "CleanWrite": an_object(
            {
                "older_than_days": {"type": "number", "minimum": 0},
                "older_than_seconds": {"type": "number", "minimum": 0},
                "status": listed({"type": "string", "enum": sorted(FINAL)}),
            },
            (),
            closed=True,
        ),
        "RedriveWrite": an_object({"filter": {"type": "object"}, "dry_run": FLAG}, (), closed=True),
        "BackfillWrite": an_object(
            {
                "from": MOMENT,
                "to": {**MOMENT, "description": "Default: now."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_SLOTS, "default": MOST_SLOTS},
                "dry_run": FLAG,
                "payload": {"description": "In place of the task's payload."},
                "priority": WHOLE,
                "if_finished": {"type": "string", "enum": [str(each) for each in IfFinished], "default": "keep"},
            },
            ("from",),
            closed=True,
        ),
        "Backfilled": an_object(
            {
                "count": {**WHOLE, "description": "Slots of the stretch, as far as the limit lets."},
                "slots": listed(MOMENT),
                "run_ids": listed(ID),
                "created": WHOLE,
                "existing": {**WHOLE, "description": "Slots that had been filled before."},
                "refused": {**WHOLE, "description": "The task is at its limit and does not queue."},
                "next_from": or_null(MOMENT),
            }
        ),
    }
