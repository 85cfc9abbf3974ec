"""What people do, in groups: the operations that the audit log knows by their ids in the API."""

from __future__ import annotations

from typing import Final

from noonbell.service.reader import Reader
from noonbell.web.words import Words

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "changes": (
        *("create_task", "replace_task", "patch_task", "delete_task", "enable_task", "disable_task", "resume_task"),
        *("pause_task", "reset_task", "skip_slots", "create_job", "change_job", "delete_job"),
    ),
    "starts": ("trigger_task", "backfill_task", "publish_runs", "retry_run", "promote_run", "cancel_run"),
    "bulk": (
        *("apply_tasks", "enable_tasks", "disable_tasks", "cancel_runs", "retry_runs"),
        *("drain_queue", "clean_queue", "redrive_queue"),
    ),
    "queues": ("limit_queue", "pause_queue", "resume_queue", "drain_queue", "clean_queue", "redrive_queue"),
    "workers": ("change_worker", "drain_worker", "stop_worker", "resume_worker"),
    "access": ("create_token", "revoke_token", "rotate_secrets"),
    "alerts": (
        *("create_alert_rule", "change_alert_rule", "remove_alert_rule", "create_alert_channel"),
        *("change_alert_channel", "remove_alert_channel", "test_alert_channel"),
    ),
}


def actions_of(reader: Reader) -> tuple[str, ...]:
    """Of the filter `action`: the name of a group, or of one operation."""
    text = reader.text("action", None, least=1, most=60)
    return () if text is None else GROUPS.get(text, (text,))


def word_of_deed(action: str, words: Words) -> str:
    key = f"deed.{action}"
    return words(key) if words.has(key) else action


def word_of_event(type_: str, words: Words) -> str:
    key = f"event.{type_}"
    return words(key) if words.has(key) else type_
