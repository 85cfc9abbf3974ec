"""Who may do what, written out by hand. The code has tables of its own; these are what they are compared with.

A new route or page needs a line here, by somebody who has thought about whose it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noonbell.model.access import Role

OPEN: Final = """
GET /api/v1/healthz
GET /api/v1/livez
GET /api/v1/readyz
POST /api/v1/callbacks/{callback_token}
PUT /api/v1/callbacks/{callback_token}
PATCH /api/v1/callbacks/{callback_token}
"""
"""Without a token."""

VIEWER: Final = """
GET /openapi.json
GET /docs
GET /metrics
GET /api/v1/version
GET /api/v1/stats
GET /api/v1/stats/queues/{name}
GET /api/v1/stats/workers/{worker_id}
GET /api/v1/stats/sla
GET /api/v1/timeline
GET /api/v1/events
GET /api/v1/tasks
GET /api/v1/tasks/{id}
GET /api/v1/tasks/{id}/next
GET /api/v1/tasks/{id}/runs
GET /api/v1/tasks/{id}/keys
GET /api/v1/tasks/{id}/slots
GET /api/v1/tasks/{id}/explain
GET /api/v1/runs
GET /api/v1/runs/export
GET /api/v1/runs/{run_id}
GET /api/v1/runs/{run_id}/explain
GET /api/v1/runs/{run_id}/attempts
GET /api/v1/runs/{run_id}/graph
GET /api/v1/runs/{run_id}/log
GET /api/v1/runs/{run_id}/callbacks
GET /api/v1/callbacks
GET /api/v1/bulk
GET /api/v1/bulk/{bulk_id}
GET /api/v1/bulk/{bulk_id}/skipped
GET /api/v1/views
GET /api/v1/pause
GET /api/v1/calendars
GET /api/v1/calendars/{calendar}
GET /api/v1/calendars/{calendar}/days
GET /api/v1/queues
GET /api/v1/queues/{name}
GET /api/v1/queues/{name}/dead
GET /api/v1/queues/{name}/depth
GET /api/v1/workers
GET /api/v1/workers/{worker_id}
GET /api/v1/plans
GET /api/v1/plans/{plan_id}
GET /api/jobs
GET /api/jobs/{id}
GET /api/jobs/{id}/executions
GET /api/v1/alerts
GET /api/v1/alerts/mutes
GET /api/v1/alerts/rules
GET /api/v1/alerts/rules/{rule}
GET /api/v1/alerts/channels
GET /api/v1/alerts/channels/{channel}
GET /api/v1/alerts/deliveries
GET /api/v1/subscriptions
GET /api/v1/subscriptions/{subscription}
GET /api/v1/subscriptions/{subscription}/deliveries
GET /api/v1/subscriptions/{subscription}/deliveries/{delivery_id}
POST /api/v1/schedules/preview
"""

WORKER: Final = """
POST /api/v1/workers/{worker_id}/claim
POST /api/v1/workers/{worker_id}/heartbeat
POST /api/v1/runs/{run_id}/settle
POST /api/v1/runs/{run_id}/progress
POST /api/v1/runs/{run_id}/log
POST /api/v1/runs/{run_id}/extend
"""
"""For the token's own queues; tests/security/test_worker_tokens.py."""

OPERATOR: Final = """
POST /api/v1/tasks
POST /api/v1/tasks/apply
POST /api/v1/tasks/batch
PATCH /api/v1/tasks/batch
DELETE /api/v1/tasks/batch
POST /api/v1/tasks/enable
POST /api/v1/tasks/disable
PUT /api/v1/tasks/{id}
PATCH /api/v1/tasks/{id}
DELETE /api/v1/tasks/{id}
PATCH /api/v1/tasks/{id}/enable
POST /api/v1/tasks/{id}/enable
PATCH /api/v1/tasks/{id}/disable
POST /api/v1/tasks/{id}/disable
POST /api/v1/tasks/{id}/resume
POST /api/v1/tasks/{id}/pause
POST /api/v1/tasks/{id}/reset
POST /api/v1/tasks/{id}/skip
POST /api/v1/tasks/{id}/trigger
POST /api/v1/tasks/{id}/backfill
POST /api/v1/tasks/{id}/clean
POST /api/v1/runs/batch
POST /api/v1/calls
POST /api/v1/calls/batch
POST /api/v1/runs/cancel
POST /api/v1/runs/retry
POST /api/v1/runs/clean
POST /api/v1/bulk
POST /api/v1/bulk/{bulk_id}/cancel
POST /api/v1/bulk/{bulk_id}/undo
PUT /api/v1/views/{of}/{view}
DELETE /api/v1/views/{of}/{view}
POST /api/v1/runs/{run_id}/cancel
POST /api/v1/runs/{run_id}/retry
POST /api/v1/runs/{run_id}/promote
PUT /api/v1/queues/{name}
POST /api/v1/queues/{name}/pause
POST /api/v1/queues/{name}/resume
POST /api/v1/queues/{name}/drain
POST /api/v1/queues/{name}/clean
POST /api/v1/queues/{name}/redrive
POST /api/v1/pause
POST /api/v1/resume
PUT /api/v1/calendars/{calendar}
DELETE /api/v1/calendars/{calendar}
POST /api/v1/calendars/{calendar}/preview
POST /api/v1/calendars/{calendar}/refresh
PATCH /api/v1/workers/{worker_id}
DELETE /api/v1/workers/{worker_id}
POST /api/v1/workers/{worker_id}/drain
POST /api/v1/workers/{worker_id}/stop
POST /api/v1/workers/{worker_id}/resume
POST /api/v1/callbacks
PUT /api/v1/callbacks
PATCH /api/v1/callbacks
POST /api/jobs
PUT /api/jobs/{id}
DELETE /api/jobs/{id}
POST /api/jobs/{id}/pause
POST /api/jobs/{id}/resume
POST /api/v1/plans
DELETE /api/v1/plans/{plan_id}
POST /api/v1/plans/{plan_id}/pause
POST /api/v1/plans/{plan_id}/resume
POST /api/v1/plans/{plan_id}/skip
POST /api/v1/plans/{plan_id}/reset
POST /api/v1/plans/{plan_id}/close
POST /api/v1/alerts/acknowledge
POST /api/v1/alerts/unacknowledge
POST /api/v1/alerts/mutes
DELETE /api/v1/alerts/mutes/{mute}
POST /api/v1/alerts/rules
PUT /api/v1/alerts/rules/{rule}
DELETE /api/v1/alerts/rules/{rule}
"""

ADMIN: Final = """
POST /api/v1/tokens
GET /api/v1/tokens
DELETE /api/v1/tokens/{token}
GET /api/v1/audit
GET /api/v1/audit/check
GET /api/v1/installation
POST /api/v1/runs/import
POST /api/v1/alerts/channels
PUT /api/v1/alerts/channels/{channel}
DELETE /api/v1/alerts/channels/{channel}
POST /api/v1/alerts/channels/{channel}/test
POST /api/v1/subscriptions
PATCH /api/v1/subscriptions/{subscription}
DELETE /api/v1/subscriptions/{subscription}
POST /api/v1/subscriptions/{subscription}/test
POST /api/v1/subscriptions/{subscription}/replay
POST /api/v1/subscriptions/{subscription}/deliveries/{delivery_id}/replay
"""

LEGACY_OPEN: Final = """
GET /legacy/api/v1/healthz
POST /legacy/api/v1/callbacks/{callback_token}
"""
"""Those under /legacy are there where `server.legacy_api` says so."""

LEGACY_VIEWER: Final = """
GET /legacy/metrics
GET /legacy/api/v1/version
GET /legacy/api/v1/tasks
GET /legacy/api/v1/tasks/{id}
GET /legacy/api/v1/tasks/{id}/runs
GET /legacy/api/v1/runs/{run_id}
"""

LEGACY_OPERATOR: Final = """
POST /legacy/api/v1/tasks
PATCH /legacy/api/v1/tasks/{id}
PUT /legacy/api/v1/tasks/{id}
DELETE /legacy/api/v1/tasks/{id}
PATCH /legacy/api/v1/tasks/{id}/enable
PATCH /legacy/api/v1/tasks/{id}/disable
POST /legacy/api/v1/tasks/{id}/trigger
POST /legacy/api/v1/runs/{run_id}/cancel
POST /legacy/api/v1/callbacks
"""


def _lines(text: str, role: Role | None) -> dict[str, Role | None]:
    return dict.fromkeys(text.strip().splitlines(), role)


ROUTES: Final[dict[str, Role | None]] = {
    **_lines(OPEN, None),
    **_lines(VIEWER, Role.VIEWER),
    **_lines(WORKER, Role.WORKER),
    **_lines(OPERATOR, Role.OPERATOR),
    **_lines(ADMIN, Role.ADMIN),
}
"""Method and path of every route of the API: the least role that may call it; None for no token at all."""


LEGACY_ROUTES: Final[dict[str, Role | None]] = {
    **_lines(LEGACY_OPEN, None),
    **_lines(LEGACY_VIEWER, Role.VIEWER),
    **_lines(LEGACY_OPERATOR, Role.OPERATOR),
}


MAY: Final[dict[Role | None, set[Role | None]]] = {
    None: {None},
    Role.VIEWER: {None, Role.VIEWER},
    Role.WORKER: {None, Role.WORKER},
    Role.OPERATOR: {None, Role.VIEWER, Role.WORKER, Role.OPERATOR},
    Role.ADMIN: {None, Role.VIEWER, Role.WORKER, Role.OPERATOR, Role.ADMIN},
}
"""By role: whose calls it may make. `Role.includes` is not asked."""


SCOPED: Final[dict[str, str]] = {
    "ANYTHING": """
GET /openapi.json
GET /docs
GET /api/v1/version
POST /api/v1/schedules/preview
""",
    "LIST": """
GET /api/v1/stats
GET /api/v1/stats/sla
GET /api/v1/timeline
GET /api/v1/events
GET /api/v1/tasks
GET /api/v1/runs
GET /api/v1/runs/export
GET /api/v1/queues
POST /api/v1/tasks/enable
POST /api/v1/tasks/disable
POST /api/v1/runs/cancel
POST /api/v1/runs/retry
""",
    "TASK": """
GET /api/v1/tasks/{id}
GET /api/v1/tasks/{id}/next
GET /api/v1/tasks/{id}/runs
GET /api/v1/tasks/{id}/keys
GET /api/v1/tasks/{id}/slots
GET /api/v1/tasks/{id}/explain
PUT /api/v1/tasks/{id}
PATCH /api/v1/tasks/{id}
DELETE /api/v1/tasks/{id}
PATCH /api/v1/tasks/{id}/enable
POST /api/v1/tasks/{id}/enable
PATCH /api/v1/tasks/{id}/disable
POST /api/v1/tasks/{id}/disable
POST /api/v1/tasks/{id}/resume
POST /api/v1/tasks/{id}/pause
POST /api/v1/tasks/{id}/reset
POST /api/v1/tasks/{id}/skip
POST /api/v1/tasks/{id}/trigger
POST /api/v1/tasks/{id}/backfill
POST /api/v1/tasks/{id}/clean
""",
    "RUN": """
GET /api/v1/runs/{run_id}
GET /api/v1/runs/{run_id}/explain
GET /api/v1/runs/{run_id}/attempts
GET /api/v1/runs/{run_id}/graph
GET /api/v1/runs/{run_id}/log
GET /api/v1/runs/{run_id}/callbacks
POST /api/v1/runs/{run_id}/cancel
POST /api/v1/runs/{run_id}/retry
POST /api/v1/runs/{run_id}/promote
""",
    "QUEUE": """
GET /api/v1/queues/{name}
GET /api/v1/queues/{name}/dead
GET /api/v1/queues/{name}/depth
GET /api/v1/stats/queues/{name}
PUT /api/v1/queues/{name}
POST /api/v1/queues/{name}/pause
POST /api/v1/queues/{name}/resume
POST /api/v1/queues/{name}/drain
POST /api/v1/queues/{name}/clean
POST /api/v1/queues/{name}/redrive
""",
    "BODY": """
POST /api/v1/runs/clean
POST /api/v1/tasks
POST /api/v1/tasks/apply
POST /api/v1/tasks/batch
PATCH /api/v1/tasks/batch
DELETE /api/v1/tasks/batch
POST /api/v1/runs/batch
""",
    "NOTHING": """
GET /api/v1/bulk
GET /api/v1/bulk/{bulk_id}
GET /api/v1/bulk/{bulk_id}/skipped
POST /api/v1/bulk
POST /api/v1/bulk/{bulk_id}/cancel
POST /api/v1/bulk/{bulk_id}/undo
GET /api/v1/views
PUT /api/v1/views/{of}/{view}
DELETE /api/v1/views/{of}/{view}
GET /metrics
GET /api/v1/callbacks
GET /api/v1/pause
GET /api/v1/calendars
GET /api/v1/calendars/{calendar}
GET /api/v1/calendars/{calendar}/days
GET /api/v1/workers
GET /api/v1/workers/{worker_id}
GET /api/v1/stats/workers/{worker_id}
GET /api/v1/plans
GET /api/v1/plans/{plan_id}
GET /api/jobs
GET /api/jobs/{id}
GET /api/jobs/{id}/executions
GET /api/v1/alerts
GET /api/v1/alerts/mutes
GET /api/v1/alerts/rules
GET /api/v1/alerts/rules/{rule}
GET /api/v1/alerts/channels
GET /api/v1/alerts/channels/{channel}
GET /api/v1/alerts/deliveries
GET /api/v1/subscriptions
GET /api/v1/subscriptions/{subscription}
GET /api/v1/subscriptions/{subscription}/deliveries
GET /api/v1/subscriptions/{subscription}/deliveries/{delivery_id}
POST /api/v1/calls
POST /api/v1/calls/batch
POST /api/v1/pause
POST /api/v1/resume
PUT /api/v1/calendars/{calendar}
DELETE /api/v1/calendars/{calendar}
POST /api/v1/calendars/{calendar}/preview
POST /api/v1/calendars/{calendar}/refresh
PATCH /api/v1/workers/{worker_id}
DELETE /api/v1/workers/{worker_id}
POST /api/v1/workers/{worker_id}/drain
POST /api/v1/workers/{worker_id}/stop
POST /api/v1/workers/{worker_id}/resume
POST /api/v1/callbacks
PUT /api/v1/callbacks
PATCH /api/v1/callbacks
POST /api/jobs
PUT /api/jobs/{id}
DELETE /api/jobs/{id}
POST /api/jobs/{id}/pause
POST /api/jobs/{id}/resume
POST /api/v1/plans
DELETE /api/v1/plans/{plan_id}
POST /api/v1/plans/{plan_id}/pause
POST /api/v1/plans/{plan_id}/resume
POST /api/v1/plans/{plan_id}/skip
POST /api/v1/plans/{plan_id}/reset
POST /api/v1/plans/{plan_id}/close
POST /api/v1/alerts/acknowledge
POST /api/v1/alerts/unacknowledge
POST /api/v1/alerts/mutes
DELETE /api/v1/alerts/mutes/{mute}
POST /api/v1/alerts/rules
PUT /api/v1/alerts/rules/{rule}
DELETE /api/v1/alerts/rules/{rule}
""",
}
"""By rule of scopes: the routes of viewers and operators. A scope is not for admins; those of workers are bound by the protocol."""
SCOPE_RULES: Final[dict[str, str]] = {
    **{line: rule for rule, text in SCOPED.items() for line in text.strip().splitlines()},
    **{
        line: "NOTHING"
        for text in (WORKER, ADMIN, LEGACY_VIEWER, LEGACY_OPERATOR)
        for line in text.strip().splitlines()
    },
}


class Rule(NamedTuple):
    role: Role | None
    """The least role that may open or send it; None for no token at all."""
    deed: str = ""
    """What the audit log calls it; empty: it changes nothing."""


_EVERYONE, _VIEWER, _OPERATOR, _ADMIN = Rule(None), Rule(Role.VIEWER), Rule(Role.OPERATOR), Rule(Role.ADMIN)


def _by_operator(deed: str) -> Rule:
    return Rule(Role.OPERATOR, deed)


def _by_admin(deed: str) -> Rule:
    return Rule(Role.ADMIN, deed)


PAGES: Final[dict[str, Rule]] = {
    # for everyone
    "GET /login": _EVERYONE,
    "GET /oidc": _EVERYONE,
    "GET /oidc-callback": _EVERYONE,
    "POST /login": _EVERYONE,
    "POST /logout": _EVERYONE,
    "POST /preferences": _EVERYONE,
    # to look at
    "GET /": _VIEWER,
    "GET /search": _VIEWER,
    "GET /palette": _VIEWER,
    "GET /suggest": _VIEWER,
    "GET /timeline": _VIEWER,
    "GET /timeline.ics": _VIEWER,
    "GET /tasks": _VIEWER,
    "GET /tasks/export": _VIEWER,
    "GET /tasks/{id}": _VIEWER,
    "GET /tasks/{id}/schedule": _VIEWER,
    "GET /tasks/{id}/runs": _VIEWER,
    "GET /tasks/{id}/configuration": _VIEWER,
    "GET /tasks/{id}/versions": _VIEWER,
    "GET /tasks/{id}/activity": _VIEWER,
    "POST /tasks/preview": _VIEWER,
    "GET /runs": _VIEWER,
    "GET /runs/export": _VIEWER,
    "GET /runs/{run_id}": _VIEWER,
    "GET /runs/{run_id}/compare": _VIEWER,
    "GET /runs/{run_id}/compare/{other}": _VIEWER,
    "GET /runs/{run_id}/download/{what}": _VIEWER,
    "GET /calls": _VIEWER,
    "GET /calendars": _VIEWER,
    "GET /calendars/{name}": _VIEWER,
    "GET /sla": _VIEWER,
    "GET /sla.csv": _VIEWER,
    "GET /bulk": _VIEWER,
    "GET /bulk/{bulk_id}": _VIEWER,
    "GET /bulk/{bulk_id}/skipped": _VIEWER,
    "GET /queues": _VIEWER,
    "GET /queues/{name}": _VIEWER,
    "GET /workers": _VIEWER,
    "GET /workers/{worker_id}": _VIEWER,
    "GET /settings": _VIEWER,
    "GET /settings/about": _VIEWER,
    "GET /settings/alerts": _VIEWER,
    "GET /settings/subscriptions": _VIEWER,
    "GET /settings/subscriptions/{name}": _VIEWER,
    "GET /settings/subscriptions/{name}/deliveries/{delivery_id}": _VIEWER,
    "GET /settings/diagnostics": _VIEWER,
    "GET /settings/retention": _VIEWER,
    "GET /settings/secrets": _VIEWER,
    # forms of operators
    "GET /tasks/new": _OPERATOR,
    "GET /tasks/import": _OPERATOR,
    "GET /tasks/bulk": _OPERATOR,
    "GET /tasks/{id}/edit": _OPERATOR,
    "GET /tasks/{id}/delete": _OPERATOR,
    "GET /tasks/{id}/run": _OPERATOR,
    "POST /tasks/check": _OPERATOR,
    "POST /tasks/yaml": _OPERATOR,
    "POST /tasks/form": _OPERATOR,
    "POST /tasks/{id}/review": _OPERATOR,
    "GET /runs/bulk": _OPERATOR,
    "GET /runs/{run_id}/replay": _OPERATOR,
    "GET /timeline/backfill": _OPERATOR,
    "GET /queues/{name}/redrive": _OPERATOR,
    "GET /queues/{name}/clean": _OPERATOR,
    "GET /settings/new/rule": _OPERATOR,
    "GET /settings/new/mute": _OPERATOR,
    "GET /settings/rules/{name}": _OPERATOR,
    "GET /settings/rules/{name}/remove": _OPERATOR,
    # changes by operators
    "POST /tasks/new": _by_operator("create_task"),
    "POST /tasks/import": _by_operator("apply_tasks"),
    "POST /tasks/try": _by_operator("try_call"),
    "POST /tasks/bulk": _by_operator("enable_tasks"),
    "POST /tasks/ticked": _by_operator("enable_tasks"),
    "POST /tasks/{id}/edit": _by_operator("replace_task"),
    "POST /tasks/{id}/versions/{version}/restore": _by_operator("replace_task"),
    "POST /tasks/{id}/trigger": _by_operator("trigger_task"),
    "POST /tasks/{id}/run": _by_operator("trigger_task"),
    "POST /tasks/{id}/enable": _by_operator("enable_task"),
    "POST /tasks/{id}/disable": _by_operator("disable_task"),
    "POST /tasks/{id}/reset": _by_operator("reset_task"),
    "POST /tasks/{id}/skip": _by_operator("skip_slots"),
    "POST /tasks/{id}/delete": _by_operator("delete_task"),
    "POST /timeline/backfill": _by_operator("backfill_task"),
    "POST /runs/bulk": _by_operator("retry_runs"),
    "POST /runs/ticked": _by_operator("retry_runs"),
    "POST /bulk/{bulk_id}/cancel": _by_operator("cancel_bulk"),
    "POST /bulk/{bulk_id}/undo": _by_operator("undo_bulk"),
    "POST /views": _by_operator("save_view"),
    "POST /views/remove": _by_operator("remove_view"),
    "POST /runs/{run_id}/cancel": _by_operator("cancel_run"),
    "POST /runs/{run_id}/retry": _by_operator("retry_run"),
    "POST /runs/{run_id}/promote": _by_operator("promote_run"),
    "POST /runs/{run_id}/replay": _by_operator("trigger_task"),
    "POST /calls": _by_operator("make_call"),
    "POST /pause": _by_operator("pause_all"),
    "POST /resume": _by_operator("resume_all"),
    "POST /calendars": _by_operator("save_calendar"),
    "POST /calendars/{name}": _by_operator("save_calendar"),
    "POST /calendars/{name}/delete": _by_operator("delete_calendar"),
    "POST /calendars/{name}/refresh": _by_operator("refresh_calendar"),
    "POST /queues/{name}/pause": _by_operator("pause_queue"),
    "POST /queues/{name}/resume": _by_operator("resume_queue"),
    "POST /queues/{name}/limit": _by_operator("limit_queue"),
    "POST /queues/{name}/drain": _by_operator("drain_queue"),
    "POST /queues/{name}/redrive": _by_operator("redrive_queue"),
    "POST /queues/{name}/clean": _by_operator("clean_queue"),
    "POST /workers/drain": _by_operator("drain_worker"),
    "POST /workers/{worker_id}/drain": _by_operator("drain_worker"),
    "POST /workers/{worker_id}/resume": _by_operator("resume_worker"),
    "POST /workers/{worker_id}/stop": _by_operator("stop_worker"),
    "POST /workers/{worker_id}/change": _by_operator("change_worker"),
    "POST /workers/{worker_id}/forget": _by_operator("forget_worker"),
    "POST /alerts/acknowledge": _by_operator("acknowledge_alert"),
    "POST /alerts/unacknowledge": _by_operator("unacknowledge_alert"),
    "POST /settings/new/mute": _by_operator("mute_alerts"),
    "POST /settings/mutes/{mute}/end": _by_operator("unmute_alerts"),
    "POST /settings/new/rule": _by_operator("create_alert_rule"),
    "POST /settings/rules/{name}": _by_operator("change_alert_rule"),
    "POST /settings/rules/{name}/remove": _by_operator("remove_alert_rule"),
    # admins
    "GET /activity": _ADMIN,
    "GET /activity.csv": _ADMIN,
    "GET /activity/check": _ADMIN,
    "GET /activity/{number}": _ADMIN,
    "GET /settings/tokens": _ADMIN,
    "GET /settings/new/subscription": _ADMIN,
    "GET /settings/subscriptions/{name}/edit": _ADMIN,
    "GET /settings/subscriptions/{name}/remove": _ADMIN,
    "GET /settings/new/channel": _ADMIN,
    "GET /settings/channels/{name}": _ADMIN,
    "GET /settings/channels/{name}/remove": _ADMIN,
    "POST /settings/tokens": _by_admin("create_token"),
    "POST /settings/tokens/{name}/revoke": _by_admin("revoke_token"),
    "POST /settings/new/channel": _by_admin("create_alert_channel"),
    "POST /settings/channels/{name}": _by_admin("change_alert_channel"),
    "POST /settings/channels/{name}/test": _by_admin("test_alert_channel"),
    "POST /settings/channels/{name}/remove": _by_admin("remove_alert_channel"),
    "POST /settings/new/subscription": _by_admin("create_subscription"),
    "POST /settings/subscriptions/{name}/edit": _by_admin("change_subscription"),
    "POST /settings/subscriptions/{name}/remove": _by_admin("remove_subscription"),
    "POST /settings/subscriptions/{name}/test": _by_admin("test_subscription"),
    "POST /settings/subscriptions/{name}/switch": _by_admin("change_subscription"),
    "POST /settings/subscriptions/{name}/replay": _by_admin("replay_subscription"),
    "POST /settings/subscriptions/{name}/deliveries/{delivery_id}/replay": _by_admin("replay_delivery"),
}
