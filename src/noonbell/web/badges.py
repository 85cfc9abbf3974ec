"""A status as it is shown: an icon, a word and a colour, the same wherever it stands. Pure."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from noonbell.web.icons import icon
from noonbell.web.words import Words

TONES: Final[dict[str, str]] = {
    # runs
    "SCHEDULED": "scheduled",
    "RUNNING": "running",
    "RETRYING": "retrying",
    "CALLBACK_PENDING": "callback",
    "SUCCESS": "ok",
    "CALLBACK_SUCCESS": "ok",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "FAILED_TIMEOUT": "timeout",
    "CANCELED": "canceled",
    "SKIPPED": "skipped",
    # attempts
    "LOST": "missed",
    # tasks
    "ENABLED": "ok",
    "DISABLED": "paused",
    "COMPLETED": "skipped",
    "ERROR": "failed",
    # workers and queues
    "running": "ok",
    "draining": "queued",
    "stopping": "queued",
    "lost": "missed",
    "paused": "paused",
    "open": "ok",
    # callbacks
    "RECEIVED": "ok",
    "IGNORED": "failed",
    # what a doctor finds
    "well": "ok",
    "care": "warn",
    "ill": "failed",
    # deliveries of alerts
    "pending": "scheduled",
    "delivered": "ok",
    "failed": "failed",
}
"""By what the services say."""

MARKS: Final[dict[str, str]] = {
    "ok": "ok",
    "failed": "bad",
    "timeout": "bad",
    "running": "active",
    "callback": "active",
    "retrying": "warn",
    "missed": "missed",
}
"""The fill of a tone in a chart; any other is idle."""


def tone_of(status: str) -> str:
    return TONES.get(status, "queued")


def mark_of(status: str) -> str:
    return MARKS.get(tone_of(status), "idle")


def word_of(status: str, words: Words) -> str:
    key = f"status.{status}"
    return words(key) if words.has(key) else status


def badge(status: str, words: Words) -> Markup:
    tone = tone_of(status)
    return Markup('<span class="badge tone-{}" data-status="{}">{}{}</span>').format(
        tone, status, icon(tone), word_of(status, words)
    )
