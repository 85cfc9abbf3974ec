"""What the description says of workers: the endpoints for operators, and the protocol that workers speak."""

from __future__ import annotations

from typing import Final

from noonbell.api.limits import MOST_BYTES
from noonbell.api.paper import paper
from noonbell.api.schemas import ANY, ID, MOMENT, STATUS, TEXT, WHOLE, Schema, ref
from noonbell.api.schemas import _list as listed
from noonbell.api.schemas import _object as an_object
from noonbell.api.schemas import _or_null as or_null
from noonbell.model.worker import Order, WorkerState
from noonbell.service.protocol import (
    LONGEST_EXTENSION,
    LONGEST_WAIT,
    MOST_CONCURRENCY,
    MOST_HELD,
    MOST_RUNS,
    Level,
    Word,
)

_BODY: Final = ("INVALID_JSON", "INVALID_ARGUMENT")
_WORKER: Final = ("INVALID_ID", "NOT_FOUND")
_HELD: Final = ("INVALID_ID", "NOT_FOUND", *_BODY, "LEASE_LOST", "PAYLOAD_TOO_LARGE")

_EXAMPLE: Final = {
    "id": "resizer-1",
    "state": "running",
    "version": 3,
    "queues": ["default"],
    "job_types": ["resize"],
    "concurrency": 10,
    "running": 2,
    "part_of": None,
    "started_at": "2026-11-15T02:00:00Z",
    "last_heartbeat_at": "2026-11-15T02:30:04.5Z",
}
_CLAIMED: Final = {
    "run_id": 7340033,
    "task_id": 1,
    "task_name": "resize_images",
    "job_type": "resize",
    "payload": {"image": "a.png"},
    "key": None,
    "idempotency_key": "5f0c1d7ab3e94c28-7340033",
    "queue": "default",
    "priority": 0,
    "attempt": 1,
    "token": 1794795000123456,
    "scheduled_time": "2026-11-15T02:30:00Z",
    "previous_scheduled_time": "2026-11-15T02:25:00Z",
    "timeout_seconds": 300.0,
    "ping_interval_ms": 5000,
    "lease_expires_at": "2026-11-15T02:30:15Z",
    "shard_index": None,
    "shard_total": None,
}
_WANTED: Final = {"state": "running", "concurrency": 10}
_ORDER: Final = {
    "run_id": 7340033,
    "order": "continue",
    "lease_expires_at": "2026-11-15T02:30:20Z",
    "ping_interval_ms": 5000,
}
_HOLDER: Final = {"worker_id": "resizer-1", "token": 1794795000123456}

LIST = paper("list_workers", "workers", "The workers", answer="Workers", answer_example={"items": [_EXAMPLE]})
GET = paper("get_worker", "workers", "Read a worker", answer="Worker", answer_example=_EXAMPLE, errors=_WORKER)
CHANGE = paper(
    "change_worker",
    "workers",
    "Set how many runs a worker may hold",
    answer="Worker",
    answer_example=_EXAMPLE,
    body="WorkerChange",
    body_example={"concurrency": 10},
    body_required=True,
    errors=(*_WORKER, *_BODY),
    notes="The worker hears of it with its next heartbeat. 0: it takes no more.",
)
DRAIN = paper(
    "drain_worker",
    "workers",
    "Let a worker take no more runs",
    answer="WorkerStateSet",
    answer_example={"worker_id": "resizer-1", "state": "draining"},
    errors=_WORKER,
    notes="What it holds, it finishes.",
)
STOP = paper(
    "stop_worker",
    "workers",
    "Let a worker end",
    answer="WorkerStateSet",
    answer_example={"worker_id": "resizer-1", "state": "stopping"},
    errors=(*_WORKER, "INVALID_STATE"),
    notes="It takes no more, finishes what it can, hands back the rest, and goes. One inside `noonbell serve` is 409: drain it.",
)
RESUME = paper(
    "resume_worker",
    "workers",
    "Let a worker take runs again",
    answer="WorkerStateSet",
    answer_example={"worker_id": "resizer-1", "state": "running"},
    errors=_WORKER,
)
CLAIM = paper(
    "claim_runs",
    "worker protocol",
    "A worker asks for runs",
    answer="Claimed",
    answer_example={"runs": [_CLAIMED], "worker": _WANTED},
    body="ClaimWrite",
    most_bytes=MOST_BYTES,
    body_example={"queues": ["default"], "job_types": None, "max": 10, "wait_seconds": 20, "version": 0},
    errors=("INVALID_ID", *_BODY, "ALREADY_EXISTS", "RATE_LIMITED"),
    notes="Answers at once if there is something, else as soon as there is, or with none after `wait_seconds`. The first "
    "claim registers the worker. A connection that breaks while it waits loses nothing.",
)
HEARTBEAT = paper(
    "heartbeat",
    "worker protocol",
    "A worker renews its leases and hears orders",
    answer="Heartbeat",
    answer_example={"runs": [_ORDER], "worker": _WANTED},
    body="HeartbeatWrite",
    most_bytes=MOST_BYTES,
    body_example={"runs": [{"run_id": 7340033, "token": 1794795000123456}]},
    errors=("INVALID_ID", *_BODY),
    notes="`cancel`: stop it; with a `lease_expires_at`, hand it back too. `lost`: it is somebody else's, or over.",
)
SETTLE = paper(
    "settle_run",
    "worker protocol",
    "A worker says how an attempt ended",
    answer="SettledAnswer",
    answer_example={"run_id": 7340033, "status": "SUCCESS"},
    body="SettleWrite",
    most_bytes=MOST_BYTES,
    body_example={**_HOLDER, "outcome": "success", "result": {"rows": 42}},
    body_required=True,
    errors=_HELD,
    notes="`fail` is final, `error` follows the retry policy, `release` hands the run back, not counted as an attempt. "
    "Only the current token is heard; an old one is LEASE_LOST, with the standing `status` in `details`.",
)
PROGRESS = paper(
    "report_progress",
    "worker protocol",
    "A worker says how far it has come",
    answer="OrderAnswer",
    answer_example=_ORDER,
    body="ProgressWrite",
    body_example={**_HOLDER, "current": 3, "total": 10, "message": "third page"},
    body_required=True,
    errors=_HELD,
)
LOG = paper(
    "write_log",
    "worker protocol",
    "A worker writes to the log of a run",
    answer="OrderAnswer",
    answer_example=_ORDER,
    body="LogWrite",
    most_bytes=MOST_BYTES,
    body_example={**_HOLDER, "level": "info", "message": "starting"},
    body_required=True,
    errors=_HELD,
    notes="One line, or several in `lines`.",
)
EXTEND = paper(
    "extend_run",
    "worker protocol",
    "A worker asks for more time",
    answer="OrderAnswer",
    answer_example={**_ORDER, "lease_expires_at": "2026-11-15T02:40:00Z"},
    body="ExtendWrite",
    body_example={**_HOLDER, "seconds": 600},
    body_required=True,
    errors=_HELD,
    notes="Lease and timeout of the attempt end so many seconds from now. The next heartbeat renews the lease as ever.",
)


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    state = {"type": "string", "enum": [str(each) for each in WorkerState]}
    wanted = an_object({"state": state, "concurrency": or_null(WHOLE)})
    holder = {"worker_id": {**TEXT, "minLength": 1, "maxLength": 255}, "token": WHOLE}
    named = tuple(holder)
    return {
        "Worker": an_object(
            {
                "id": TEXT,
                "state": state,
                "version": WHOLE,
                "queues": listed(TEXT),
                "job_types": {**or_null(listed(TEXT)), "description": "Null: any."},
                "concurrency": WHOLE,
                "running": {**WHOLE, "description": "Runs that it holds now."},
                "part_of": {**or_null(TEXT), "description": "`serve`: inside a node, drained but never stopped alone."},
                "started_at": MOMENT,
                "last_heartbeat_at": MOMENT,
            }
        ),
        "Workers": an_object({"items": listed(ref("Worker"))}),
        "WorkerChange": an_object({"concurrency": _whole(0, MOST_CONCURRENCY)}, closed=True),
        "WorkerStateSet": an_object({"worker_id": TEXT, "state": state}),
        "ClaimWrite": _claim(),
        "Claimed": an_object({"runs": listed(ref("ClaimedRun")), "worker": wanted}),
        "ClaimedRun": _claimed(),
        "HeartbeatWrite": an_object(
            {
                "runs": {
                    "type": "array",
                    "items": an_object({"run_id": ID, "token": WHOLE}, closed=True),
                    "maxItems": MOST_HELD,
                }
            },
            (),
            closed=True,
        ),
        "Heartbeat": an_object({"runs": listed(ref("OrderAnswer")), "worker": wanted}),
        "OrderAnswer": an_object(
            {
                "run_id": ID,
                "order": {"type": "string", "enum": [str(each) for each in Order]},
                "lease_expires_at": or_null(MOMENT),
                "ping_interval_ms": or_null(WHOLE),
            }
        ),
        "SettleWrite": an_object(
            {
                **holder,
                "outcome": {"type": "string", "enum": [str(each) for each in Word]},
                "result": ANY,
                "error_message": or_null(TEXT),
                "error_details": ANY,
            },
            (*named, "outcome"),
            closed=True,
        ),
        "SettledAnswer": an_object({"run_id": ID, "status": STATUS}),
        "ProgressWrite": an_object(
            {**holder, "current": {"type": "number"}, "total": or_null({"type": "number"}), "message": or_null(TEXT)},
            (*named, "current"),
            closed=True,
        ),
        "LogWrite": an_object(
            {**holder, **_line(), "lines": listed(an_object(_line(), ("message",)))}, named, closed=True
        ),
        "ExtendWrite": an_object(
            {**holder, "seconds": {"type": "number", "minimum": 1, "maximum": LONGEST_EXTENSION}}, closed=True
        ),
    }


def _whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _line() -> Schema:
    return {
        "level": {"type": "string", "enum": [str(each) for each in Level], "default": "info"},
        "message": TEXT,
    }


def _claim() -> Schema:
    fields = {
        "queues": {**listed(TEXT), "minItems": 1, "description": 'Default ["default"]. Not "http".'},
        "job_types": {**or_null(listed(TEXT)), "description": "Null: any."},
        "max": {**_whole(1, MOST_RUNS), "default": 1},
        "wait_seconds": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 20},
        "version": {**_whole(0, 2**31 - 1), "default": 0},
        "concurrency": {
            **or_null(_whole(0, MOST_CONCURRENCY)),
            "description": "The most that the worker wants to hold; 100 if it does not say. An operator may set another.",
        },
    }
    return an_object(fields, (), closed=True)


def _claimed() -> Schema:
    return an_object(
        {
            "run_id": ID,
            "task_id": ID,
            "task_name": TEXT,
            "job_type": or_null(TEXT),
            "payload": ANY,
            "key": or_null(TEXT),
            "idempotency_key": {**TEXT, "description": "The same for every attempt of the run."},
            "queue": TEXT,
            "priority": WHOLE,
            "attempt": WHOLE,
            "token": {**WHOLE, "description": "Goes with every call about this attempt."},
            "scheduled_time": MOMENT,
            "previous_scheduled_time": or_null(MOMENT),
            "timeout_seconds": {"type": "number"},
            "ping_interval_ms": {**WHOLE, "description": "How often a heartbeat is wanted."},
            "lease_expires_at": MOMENT,
            "shard_index": or_null(WHOLE),
            "shard_total": or_null(WHOLE),
        }
    )
