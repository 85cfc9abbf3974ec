"""What the description says of preview, stats, health and the like."""

from __future__ import annotations

from noonbell.api.endpoint import Param
from noonbell.api.examples import FIRES
from noonbell.api.paper import MOMENT, paper

PREVIEW = paper(
    "preview_schedule",
    "schedules",
    "What a schedule will do",
    answer="Preview",
    answer_example={**FIRES, "description": "Every 5 minutes"},
    body="PreviewWrite",
    body_example={"cron_expr": "*/5 * * * *", "timezone": "Asia/Shanghai", "count": 5},
    body_required=True,
    errors=("INVALID_JSON", "INVALID_ARGUMENT"),
    notes="Computed by the scheduler's own code. `Accept-Language: zh` gives the sentence and the notes in Chinese.",
)
STATS = paper(
    "stats",
    "stats",
    "How runs ended over a period",
    answer="Stats",
    answer_example={
        "from": "2026-11-14T12:00:00Z",
        "to": "2026-11-15T12:00:00Z",
        "total": 290,
        "by_status": {"SUCCESS": 287, "FAILED": 1, "RUNNING": 1, "SKIPPED": 1},
        "by_final_status": {"SUCCESS": 287, "FAILED": 1, "CANCELED": 0, "SKIPPED": 1},
        "success_rate": 0.9965,
        "tasks": [
            {
                "task_id": 1,
                "task_name": "sync_stats",
                "runs": 288,
                "success_rate": 0.9965,
                "average_duration_ms": 180,
                "average_lag_ms": 4,
            }
        ],
        "sample": 1000,
    },
    query=(
        Param("task", "Of this task: its id, or its name.", example="sync_stats"),
        Param("from", "From then on; a day before `to` if left out.", MOMENT, "2026-11-14T12:00:00Z"),
        Param("to", "Until then; now if left out.", MOMENT, "2026-11-15T12:00:00Z"),
    ),
    errors=("INVALID_ARGUMENT",),
    notes="Counts are exact; averages are over the newest finished runs, `sample` of them at most.",
)
HEALTHZ = paper(
    "healthz",
    "system",
    "Whether the service is well: `ok`, or 503",
    answer_example="ok",
)
VERSION = paper("version", "system", "The version", answer_example="v0.1.0")
LIVEZ = paper("livez", "system", "Whether the process is alive", answer_example="ok")
READYZ = paper(
    "readyz",
    "system",
    "Whether the service can do its work, part by part; 503 if not",
    answer="Health",
    answer_example={
        "ok": True,
        "reason": None,
        "store": {"ok": True, "since": "2026-11-15T02:00:00Z", "error": None},
        "planner": {"last_at": "2026-11-15T02:30:00Z", "lag_seconds": 0.002},
        "workers": [],
        "stalled": [],
        "errors": {},
    },
    notes=(
        "Not ready: the store does not answer, or a loop (planner, sweeper, claim, heartbeat) has made no progress for 5 s."
        " Then `code` and `message` say why, and `stalled` has each such loop with `since` and its last `error`."
    ),
)
METRICS = paper("metrics", "system", "Metrics for Prometheus", answer_example="cronjob_callback_pending 0.0\n")
