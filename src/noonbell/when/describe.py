"""The languages that schedules can be told in. A language is one module and one line in the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from noonbell.when import words_en, words_zh
from noonbell.when.cron_fields import Field


class Words(Protocol):
    """One language. Every function returns a phrase or a sentence without a full stop."""

    NOTES: Mapping[str, str]
    """Messages by name, with the facts in braces."""
    FIELDS: Mapping[str, str]
    """The names of the cron fields."""
    AGAIN: Mapping[str, str]
    """How often each of them starts over."""

    def cron(self, fields: Sequence[Field], both_days: bool) -> str: ...
    def once(self, at: datetime | None) -> str: ...
    def interval(self, every: int, unit: str, fixed_delay: bool) -> str: ...
    def weekly(self, weekday: int, time: int) -> str: ...
    def monthly(self, day: int, time: int) -> str: ...
    def in_zone(self, sentence: str, zone: str, *, wall: bool = False) -> str:
        """`wall`: fixed times that go by what the clock shows, and by nothing else."""
        ...


_LANGUAGES: Mapping[str, Words] = {"en": words_en, "zh": words_zh}


def words(lang: str) -> Words:
    """The language of a tag such as "zh-CN"; English if we have none."""
    return _LANGUAGES.get(lang.partition("-")[0].lower(), words_en)
