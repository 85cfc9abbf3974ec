"""Schedules in words, for lists and pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noonbell import when
from noonbell.errors import ScheduleError


def sentence(schedule: Mapping[str, Any] | None, timezone: str, lang: str) -> str:
    """What the schedule says, in words; nothing for a task that runs on demand only."""
    if schedule is None:
        return ""
    try:
        return when.parse(schedule, timezone).describe(lang)
    except ScheduleError as error:
        return error.message


def written(schedule: Mapping[str, Any] | None) -> str:
    """The expression as somebody wrote it, where the schedule is a cron."""
    if schedule is None or schedule.get("type") != "cron":
        return ""
    return str(schedule.get("source") or schedule.get("expr", ""))
