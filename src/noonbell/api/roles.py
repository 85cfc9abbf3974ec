"""The role that each endpoint asks for, by its name. A new endpoint needs a line here; a test says so."""

from __future__ import annotations

from typing import Final

from noonbell.model.access import Role

_VIEWER: Final = (
    # tasks, runs, slots
    *("list_tasks", "get_task", "next_slots", "list_runs_of_task", "list_slots", "explain_task", "explain_run"),
    *("list_runs", "get_run", "list_attempts", "read_log", "list_callbacks_of_run", "list_rejected_callbacks"),
    # queues, workers, schedules, figures
    *(
        "list_queues",
        "get_queue",
        "list_dead_runs",
        "list_workers",
        "get_worker",
        "preview_schedule",
        "stats",
        "timeline",
    ),
    # other words for the same
    *("list_jobs", "get_job", "list_executions", "list_plans", "get_plan"),
    # events and alerts: what channels hold is masked
    *("events", "alerts", "alert_rules", "alert_rule", "alert_channels", "alert_channel", "alert_deliveries"),
    # the service
    *("version", "metrics", "description", "docs"),
)
_OPERATOR: Final = (
    *("create_task", "replace_task", "patch_task", "delete_task", "apply_tasks", "enable_tasks", "disable_tasks"),
    *("enable_task", "disable_task", "resume_task", "pause_task", "reset_task", "skip_slots", "trigger_task"),
    *("backfill_task", "publish_runs", "cancel_runs", "retry_runs", "cancel_run", "retry_run", "promote_run"),
    *("limit_queue", "pause_queue", "resume_queue", "drain_queue", "clean_queue", "redrive_queue"),
    *("change_worker", "drain_worker", "stop_worker", "resume_worker"),
    *("create_job", "change_job", "delete_job", "pause_job", "resume_job"),
    *("publish_plan", "remove_plan", "pause_plan", "resume_plan", "skip_plan", "reset_plan", "close_plan"),
    *("create_alert_rule", "change_alert_rule", "remove_alert_rule"),
    # callbacks that name their run
    "callback_by_ids",
)
_WORKER: Final = ("claim_runs", "heartbeat", "settle_run", "report_progress", "write_log", "extend_run")
_ADMIN: Final = (
    *("create_token", "list_tokens", "revoke_token", "audit_log"),
    # channels hold credentials, and send to where they say
    *("create_alert_channel", "change_alert_channel", "remove_alert_channel", "test_alert_channel"),
)

OPEN: Final = frozenset({"healthz", "livez", "readyz", "callback"})
"""Need no token: whoever watches over the process has none, and a callback brings its own."""

ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(_WORKER, Role.WORKER),
    **dict.fromkeys(_VIEWER, Role.VIEWER),
    **dict.fromkeys(_OPERATOR, Role.OPERATOR),
    **dict.fromkeys(_ADMIN, Role.ADMIN),
}

UNTOLD: Final = frozenset(
    {
        *("claim_runs", "heartbeat", "settle_run", "report_progress", "write_log", "extend_run"),
        *("callback", "callback_by_ids", "preview_schedule"),
    }
)
"""Not in the audit log: they change no setting, and what they do is kept with the run."""
