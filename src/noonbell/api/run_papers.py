"""What the description says of the endpoints of runs and callbacks."""

from __future__ import annotations

from typing import Final

from noonbell.api.endpoint import Param
from noonbell.api.examples import ATTEMPT, CALLBACK_RECORD, REJECTED_RECORD, RUN, RUN_IN_LIST
from noonbell.api.limits import MOST_BYTES
from noonbell.api.paper import FILTER_OF_RUNS, PAGING, paper, whole

_ID: Final = ("INVALID_ID", "NOT_FOUND")
_LIMIT: Final = Param("limit", "How many, at most.", whole(1, 1_000, 100), 100)

LIST = paper(
    "list_runs",
    "runs",
    "The runs of all tasks",
    answer="RunPage",
    answer_example={"items": [RUN_IN_LIST], "total": 1, "page": 1, "page_size": 20, "next_cursor": None},
    query=(Param("task", "Runs of this task: its id, or its name.", example="sync_stats"), *FILTER_OF_RUNS, *PAGING),
    errors=("INVALID_ARGUMENT",),
)
GET = paper(
    "get_run",
    "runs",
    "Read a run",
    answer="Run",
    answer_example=RUN,
    errors=_ID,
    notes="With the request and the response of its newest attempt, and its payload.",
)
CANCEL = paper(
    "cancel_run",
    "runs",
    "Cancel a run",
    answer="Canceled",
    answer_example={"run_id": 7340033, "status": "CANCELED", "canceled": True},
    body="CancelWrite",
    body_example={"reason": "wrong day"},
    errors=(*_ID, "INVALID_JSON", "INVALID_ARGUMENT"),
    notes="From any status that is not final. A final run stays as it is: `canceled` is false, `status` the true one.",
)
RETRY = paper(
    "retry_run",
    "runs",
    "Run again what has ended",
    answer="Retried",
    answer_example={"run_id": 7340099, "retry_of_run_id": 7340033},
    errors=(*_ID, "INVALID_STATE", "CONCURRENCY_LIMIT"),
    notes="A new run beside the old one, with its payload.",
)
PROMOTE = paper(
    "promote_run",
    "runs",
    "Let a delayed or retrying run start now",
    answer="Promoted",
    answer_example={"run_id": 7340033, "status": "SCHEDULED", "run_at": "2026-11-15T02:30:00Z"},
    errors=(*_ID, "INVALID_STATE"),
)
ATTEMPTS = paper(
    "list_attempts",
    "runs",
    "The attempts of a run, oldest first",
    answer="Attempts",
    answer_example={"items": [ATTEMPT]},
    errors=_ID,
)
LOG = paper(
    "read_log",
    "runs",
    "The log lines of a run",
    answer="Log",
    answer_example={
        "items": [{"seq": 1, "at": "2026-11-15T02:30:00.1Z", "level": "info", "message": "starting"}],
        "next_after": 1,
    },
    query=(
        Param("after", "Lines after this one: `next_after` of the answer before.", whole(0, 2**53 - 1, 0), 0),
        Param("limit", "How many, at most.", whole(1, 10_000, 1_000), 1_000),
    ),
    errors=(*_ID, "INVALID_ARGUMENT"),
)
CALLBACKS = paper(
    "list_callbacks_of_run",
    "runs",
    "The callbacks of a run, newest first",
    answer="CallbackRecords",
    answer_example={"items": [CALLBACK_RECORD]},
    query=(_LIMIT,),
    errors=(*_ID, "INVALID_ARGUMENT"),
    notes="The ignored ones too, each with its reason.",
)
BATCH = paper(
    "publish_runs",
    "runs",
    "Publish up to 10,000 runs in one transaction",
    answer="BatchAnswer",
    answer_example={"runs": [{"run_id": 7340033, "outcome": "created"}, {"run_id": 7340001, "outcome": "exists"}]},
    body="BatchWrite",
    most_bytes=MOST_BYTES,
    body_example={
        "runs": [
            {"task": "send_mail", "payload": {"to": "a@example.com"}, "key": "mail-1"},
            {"task": 1, "delay_seconds": 30, "priority": 5},
        ]
    },
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT", "NOT_FOUND", "INVALID_STATE", "PAYLOAD_TOO_LARGE"),
    notes="All or nothing; answers in the order of the requests. A task at its limit that does not queue gives "
    "`refused` and no run.",
)
CANCEL_WHERE = paper(
    "cancel_runs",
    "runs",
    "Cancel every run that a filter finds",
    answer="RunsCanceled",
    answer_example={"matched": 12, "canceled": 12, "more": False},
    body="BulkRuns",
    body_example={"filter": {"task": "sync_stats", "status": ["SCHEDULED"]}},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT"),
    notes="At most 10,000 in one call; `more` says that there are others. `dry_run` only counts.",
)
RETRY_WHERE = paper(
    "retry_runs",
    "runs",
    "Run again every run that a filter finds",
    answer="RunsRetried",
    answer_example={"matched": 3, "retried": 3, "more": False},
    body="BulkRuns",
    body_example={"filter": {"task": "sync_stats", "from": "2026-11-15T00:00:00Z"}},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT"),
    notes="Those that failed or were canceled, unless `status` says otherwise.",
)
CALLBACK = paper(
    "callback",
    "callbacks",
    "A target says how a run ended",
    answer="CallbackAnswer",
    answer_example={"run_id": 7340033, "final_status": "SUCCESS"},
    body="CallbackWrite",
    body_example={"status": "SUCCESS", "data": {"rows": 42}},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT", "NOT_FOUND", "INVALID_STATE", "PAYLOAD_TOO_LARGE"),
    notes="The address is the `X-Callback-Url` that came with the request. A repeat on a final run is answered with the "
    'standing status and recorded as IGNORED. `{"status": "RUNNING"}` moves the deadline.',
)
CALLBACK_BY_IDS = paper(
    "callback_by_ids",
    "callbacks",
    "A target says how a run ended, without a token",
    answer="CallbackAnswer",
    answer_example={"run_id": 7340033, "final_status": "SUCCESS"},
    body="CallbackByIdsWrite",
    body_example={"task_id": 1, "run_id": 7340033, "status": "SUCCESS"},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT", "FORBIDDEN", "NOT_FOUND", "INVALID_STATE", "PAYLOAD_TOO_LARGE"),
    notes="Can be switched off with `callback.allow_id_mode`.",
)
REJECTED = paper(
    "list_rejected_callbacks",
    "callbacks",
    "Callbacks that found no run, newest first",
    answer="CallbackRecords",
    answer_example={"items": [REJECTED_RECORD]},
    query=(_LIMIT,),
    errors=("INVALID_ARGUMENT",),
)
