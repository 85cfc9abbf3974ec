"""What the description says of alerts: their schemas, examples and words."""

from __future__ import annotations

from typing import Any, Final

from noonbell.api.endpoint import Param
from noonbell.api.paper import paper, whole
from noonbell.api.schemas import FLAG, ID, MOMENT, NUMBER, TEXT, WHOLE, Schema, ref
from noonbell.model.alert import DeliveryStatus, RuleKind

_RULE: Final[dict[str, Any]] = {
    "name": "billing-fails",
    "kind": "failed",
    "enabled": True,
    "tasks": ["billing-*"],
    "channels": [],
    "count": 3,
    "after_seconds": None,
    "factor": 3.0,
    "repeat_seconds": None,
}
_KEPT: Final = {
    "managed_by": "api",
    "created_at": "2026-11-15T12:00:00Z",
    "updated_at": "2026-11-15T12:00:00Z",
}
_CHANNEL: Final[dict[str, Any]] = {
    "name": "ops",
    "kind": "webhook",
    "url": "https://hooks.example.com/noonbell",
    "secret": "***",
    "headers": {},
    "enabled": True,
}
_ALERT: Final[dict[str, Any]] = {
    "rule": "billing-fails",
    "kind": "failed",
    "subject": "task:1",
    "task_id": 1,
    "task_name": "billing-nightly",
    "run_id": 7340033,
    "since": "2026-11-15T02:00:00.2Z",
    "raised_at": "2026-11-15T02:00:00.2Z",
    "count": 4,
    "message": "run 7340033 ended FAILED: the target answered 503 Service Unavailable",
}
_DELIVERY: Final[dict[str, Any]] = {
    "id": 7340099,
    "channel": "ops",
    "rule": "billing-fails",
    "type": "alert.raised",
    "subject": "task:1",
    "title": "billing-nightly failed",
    "status": "DELIVERED",
    "attempts": 1,
    "next_attempt_at": None,
    "created_at": "2026-11-15T02:00:01Z",
    "ended_at": "2026-11-15T02:00:01.2Z",
    "response_code": 200,
    "error": None,
}
_TESTED: Final = {"delivered": True, "response_code": 200, "error": None}
_DELETED: Final = {"deleted": True}


def schemas() -> Schema:
    """By name, for `components.schemas`."""
    rule, channel = _rule(), _channel()
    kept = {"managed_by": TEXT, "created_at": MOMENT, "updated_at": MOMENT}
    return {
        "AlertRuleWrite": _object({**rule, **kept}, ("name",), closed=True),
        "AlertRuleChange": _object({**rule, **kept}, (), closed=True),
        "AlertRule": _object({**rule, **kept}),
        "AlertRules": _items("AlertRule"),
        "AlertChannelWrite": _object({**channel, **kept}, ("name", "url"), closed=True),
        "AlertChannelChange": _object({**channel, **kept}, ("url",), closed=True),
        "AlertChannel": _object({**channel, **kept}),
        "AlertChannels": _items("AlertChannel"),
        "AlertTested": _object(
            {"delivered": FLAG, "response_code": _or_null(WHOLE), "error": _or_null(TEXT)},
        ),
        "AlertDeleted": _object({"deleted": FLAG}),
        "Alert": _object(_alert()),
        "Alerts": _items("Alert"),
        "AlertDelivery": _object(_delivery()),
        "AlertDeliveries": _items("AlertDelivery"),
    }


def _rule() -> Schema:
    names = {"type": "array", "items": TEXT}
    return {
        "name": TEXT,
        "kind": {"type": "string", "enum": [str(kind) for kind in RuleKind]},
        "enabled": {**FLAG, "default": True},
        "tasks": {**names, "description": "Names of tasks, `*` and `?` in them; none: every task."},
        "channels": {**names, "description": "None: every channel."},
        "count": {**WHOLE, "description": "`failures`: how many in a row. Default 3."},
        "after_seconds": {
            **_or_null(NUMBER),
            "description": "`overdue` (10), `late_start` (60), `slow` (60), `store_unreachable` (5): how long it lasts.",
        },
        "factor": {**NUMBER, "description": "`slow`: how many times as long as usual. Default 3."},
        "repeat_seconds": {**_or_null(NUMBER), "description": "Tell again after so long; null: once."},
    }


def _channel() -> Schema:
    return {
        "name": TEXT,
        "kind": {"type": "string", "enum": ["webhook", "apprise"]},
        "url": {**TEXT, "description": "Shown without its secrets; what was shown may be written back."},
        "secret": {**_or_null(TEXT), "description": "`webhook`: signs as Standard Webhooks. Never shown."},
        "headers": {"type": "object", "additionalProperties": TEXT},
        "enabled": {**FLAG, "default": True},
    }


def _alert() -> Schema:
    return {
        "rule": TEXT,
        "kind": _or_null(TEXT),
        "subject": TEXT,
        "task_id": _or_null(ID),
        "task_name": _or_null(TEXT),
        "run_id": _or_null(ID),
        "since": MOMENT,
        "raised_at": _or_null(MOMENT),
        "count": WHOLE,
        "message": TEXT,
    }


def _delivery() -> Schema:
    return {
        "id": ID,
        "channel": TEXT,
        "rule": TEXT,
        "type": TEXT,
        "subject": TEXT,
        "title": TEXT,
        "status": {"type": "string", "enum": [str(status) for status in DeliveryStatus]},
        "attempts": WHOLE,
        "next_attempt_at": _or_null(MOMENT),
        "created_at": MOMENT,
        "ended_at": _or_null(MOMENT),
        "response_code": _or_null(WHOLE),
        "error": _or_null(TEXT),
    }


def _object(properties: Schema, required: tuple[str, ...] | None = None, *, closed: bool = False) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else list(required),
    }
    return {**schema, "additionalProperties": False} if closed else schema


def _items(name: str) -> Schema:
    return _object({"items": {"type": "array", "items": ref(name)}})


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_SAVED: Final = ("INVALID_JSON", "INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE")
_RULE_BODY: Final = {"name": "billing-fails", "kind": "failed", "tasks": ["billing-*"]}
_CHANNEL_BODY: Final = {"name": "ops", "url": "https://hooks.example.com/noonbell", "secret": "whsec_MfKQ9r8GKYqrTwjU"}


def _without(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "name"}


OPEN = paper("alerts", "alerts", "What is wrong now", answer="Alerts", answer_example={"items": [_ALERT]})
RULES = paper("alert_rules", "alerts", "All rules", answer="AlertRules", answer_example={"items": [{**_RULE, **_KEPT}]})
CREATE_RULE = paper(
    "create_alert_rule",
    "alerts",
    "Make a rule",
    answer="AlertRule",
    answer_example={**_RULE, **_KEPT},
    status=201,
    body="AlertRuleWrite",
    body_example=_RULE_BODY,
    body_required=True,
    errors=(*_SAVED, "ALREADY_EXISTS"),
)
RULE = paper(
    "alert_rule",
    "alerts",
    "One rule",
    answer="AlertRule",
    answer_example={**_RULE, **_KEPT},
    errors=("NOT_FOUND",),
)
CHANGE_RULE = paper(
    "change_alert_rule",
    "alerts",
    "Replace a rule",
    answer="AlertRule",
    answer_example={**_RULE, **_KEPT},
    body="AlertRuleChange",
    body_example=_without(_RULE_BODY),
    body_required=True,
    errors=(*_SAVED, "NOT_FOUND", "INVALID_STATE"),
)
REMOVE_RULE = paper(
    "remove_alert_rule",
    "alerts",
    "Remove a rule, and what it remembers",
    answer="AlertDeleted",
    answer_example=_DELETED,
    errors=("NOT_FOUND", "INVALID_STATE"),
)
CHANNELS = paper(
    "alert_channels",
    "alerts",
    "All channels",
    answer="AlertChannels",
    answer_example={"items": [{**_CHANNEL, **_KEPT}]},
)
CREATE_CHANNEL = paper(
    "create_alert_channel",
    "alerts",
    "Make a channel",
    answer="AlertChannel",
    answer_example={**_CHANNEL, **_KEPT},
    status=201,
    body="AlertChannelWrite",
    body_example=_CHANNEL_BODY,
    body_required=True,
    errors=(*_SAVED, "ALREADY_EXISTS"),
)
CHANNEL = paper(
    "alert_channel",
    "alerts",
    "One channel",
    answer="AlertChannel",
    answer_example={**_CHANNEL, **_KEPT},
    errors=("NOT_FOUND",),
)
CHANGE_CHANNEL = paper(
    "change_alert_channel",
    "alerts",
    "Replace a channel",
    answer="AlertChannel",
    answer_example={**_CHANNEL, **_KEPT},
    body="AlertChannelChange",
    body_example=_without(_CHANNEL_BODY),
    body_required=True,
    errors=(*_SAVED, "NOT_FOUND", "INVALID_STATE"),
)
REMOVE_CHANNEL = paper(
    "remove_alert_channel",
    "alerts",
    "Remove a channel",
    answer="AlertDeleted",
    answer_example=_DELETED,
    errors=("NOT_FOUND", "INVALID_STATE"),
)
TEST_CHANNEL = paper(
    "test_alert_channel",
    "alerts",
    "Send a test to a channel, now",
    answer="AlertTested",
    answer_example=_TESTED,
    errors=("NOT_FOUND",),
)
DELIVERIES = paper(
    "alert_deliveries",
    "alerts",
    "What was sent, and what came of it",
    answer="AlertDeliveries",
    answer_example={"items": [_DELIVERY]},
    query=(
        Param("limit", "How many, newest first.", whole(1, 1_000, 100), 100),
        Param("before", "Those before this id.", whole(1, 2**53 - 1)),
        Param("channel", "Of this channel.", example="ops"),
    ),
    errors=("INVALID_ARGUMENT",),
)
