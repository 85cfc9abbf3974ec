"""Alerts as JSON. An address that carries a secret is not shown, nor is a signing secret."""

from __future__ import annotations

from typing import Any

import msgspec

from noonbell.clock import rfc3339
from noonbell.model.alert import AlertState, Channel, Delivery, Rule
from noonbell.sealing import is_sealed
from noonbell.service.secrets import MASK, masked
from noonbell.settings.masking import origin_alone


def rule_json(rule: Rule) -> dict[str, Any]:
    fields = msgspec.to_builtins(rule)
    return {**fields, "created_at": rfc3339(rule.created_at), "updated_at": rfc3339(rule.updated_at)}


def channel_json(channel: Channel) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(channel),
        "url": shown_url(channel),
        "secret": None if channel.secret is None else MASK,
        "headers": masked(channel.headers),
        "created_at": rfc3339(channel.created_at),
        "updated_at": rfc3339(channel.updated_at),
    }


def shown_url(channel: Channel) -> str:
    """Addresses of channels are secrets: of a webhook's its origin is shown, of apprise's the name of the service."""
    if is_sealed(channel.url):
        return MASK  # its key is not here
    if channel.kind == "apprise":
        return f"{channel.url.partition('://')[0]}://{MASK}"
    return origin_alone(channel.url)


def state_json(state: AlertState, kind: str | None) -> dict[str, Any]:
    return {
        "rule": state.rule,
        "kind": kind,
        "subject": state.subject,
        "task_id": state.task_id,
        "task_name": state.task_name,
        "run_id": state.run_id,
        "since": rfc3339(state.since),
        "raised_at": None if state.raised_at is None else rfc3339(state.raised_at),
        "count": state.count,
        "message": state.message,
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "channel": delivery.channel,
        "rule": delivery.rule,
        "type": delivery.notice.get("type"),
        "subject": delivery.subject,
        "title": delivery.notice.get("title"),
        "status": delivery.status,
        "attempts": delivery.attempts,
        "next_attempt_at": None if delivery.next_at is None else rfc3339(delivery.next_at),
        "created_at": rfc3339(delivery.created_at),
        "ended_at": None if delivery.ended_at is None else rfc3339(delivery.ended_at),
        "response_code": delivery.response_code,
        "error": delivery.error,
    }
