"""Schedules in words: the table of languages, and the warnings about traps, found as (code, facts) and then put into words.

A language is one module, one line in the table, and the texts of the warnings in `locales/`. The module has the sentences of
cron; another kind has its own in its file.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Protocol, TypeVar

import msgspec

from noonbell.model.task_schedule import GapRule, RepeatedTimeRule
from noonbell.when import words_en, words_zh
from noonbell.when.cron_fields import DAY, HOUR, CronField
from noonbell.when.phrases import clock, values
from noonbell.when.schedule import Note
from noonbell.when.wall_clock import LocalSlots
from noonbell.when.zones import YEAR, Zone

T = TypeVar("T")


class ScheduleWords(Protocol):
    """One language. Every function returns a phrase or a sentence without a full stop."""

    def cron(self, fields: Sequence[CronField], both_days: bool) -> str: ...
    def in_zone(self, sentence: str, zone: str, *, wall: bool = False) -> str:
        """`wall`: fixed times that go by what the clock shows, and by nothing else."""
        ...

    def composed(self, sentences: Sequence[str], excluded: Sequence[str]) -> str:
        """One sentence of several: what happens at the moments of each of `sentences`, but at none of `excluded`."""
        ...


_LANGUAGES: Mapping[str, ScheduleWords] = {"en": words_en, "zh": words_zh}


def words(lang: str) -> ScheduleWords:
    return in_language(_LANGUAGES, lang)


def in_language(table: Mapping[str, T], lang: str) -> T:
    """What a table has for the language of a tag such as "zh-CN"; English where it has none."""
    return table.get(lang.partition("-")[0].lower(), table["en"])


@cache
def _texts() -> dict[str, dict[str, str]]:
    """By language: the notes with their facts in braces, the names of the cron fields, how often each of them starts over."""
    folder = files("noonbell.when").joinpath("locales")
    return {lang: msgspec.json.decode(folder.joinpath(f"{lang}.json").read_bytes()) for lang in _LANGUAGES}


Found = tuple[str, Mapping[str, object]]

_FULL_DAY = 86_400
_CERTAIN_DAY = 28
"""Every month has this one."""


def worded(found: Sequence[Found], lang: str) -> tuple[Note, ...]:
    """Messages that differ in wording only share a code: what follows the code is in `_VARIANTS`."""
    texts = in_language(_texts(), lang)
    notes = []
    for name, facts in found:
        told = dict(facts)
        if "field" in told:
            told["again"] = texts.get(f"again.{told['field']}", "")
            told["field"] = texts[f"field.{told['field']}"]
        notes.append(Note(_VARIANTS.get(name, name), texts[f"note.{name}"].format(**told)))
    return tuple(notes)


_VARIANTS = {
    "both_day_fields_and": "both_day_fields",
    "uneven_step_days": "uneven_step",
    "single_step": "uneven_step",
    "dst_gap_skipped": "dst_gap",
    "dst_overlap_both": "dst_overlap",
    "dst_overlap_last": "dst_overlap",
    "dialect_differs_cronjob": "dialect_differs",
    "dialect_differs_quartz": "dialect_differs",
    "in_the_past_dropped": "in_the_past",
}


def of_cron(fields: Sequence[CronField], source: str, both_days: bool) -> list[Found]:
    return _of_day_fields(fields, both_days) + _of_steps(fields) + _of_fields_that_shift(fields, source)


def of_clock_changes(slots: LocalSlots, after: int | None, *, wall: bool = False) -> list[Found]:
    """The next gap and the next overlap, within a year, that a moment of the schedule falls into.

    That an interval goes on in an overlap is no surprise; that a time of day comes twice may be one.
    """
    if after is None:
        return []
    found: list[Found] = []
    gap = slots.in_gaps(after + 1, after + YEAR)
    if gap is not None:
        local, slot = gap
        facts = {**_reading(local), "instead": f"{slots.zone.local(slot):%H:%M}"}
        found.append(("dst_gap_skipped" if slots.gap is GapRule.SKIP else "dst_gap", facts))
    is_surprise = slots.fixed or wall or slots.repeat is not RepeatedTimeRule.BOTH
    overlap = slots.in_overlaps(after + 1, after + YEAR) if is_surprise else None
    if overlap is not None:
        found.append((_OVERLAPS[slots.repeat], _reading(overlap[0])))
    return found


_OVERLAPS = {
    RepeatedTimeRule.FIRST: "dst_overlap",
    RepeatedTimeRule.BOTH: "dst_overlap_both",
    RepeatedTimeRule.LAST: "dst_overlap_last",
}


def of_interval(step: int, fixed_delay: bool, zone: Zone) -> list[Found]:
    if fixed_delay:
        return [("fixed_delay", {})]
    if step % _FULL_DAY == 0 and zone.constant is None:
        return [("elapsed_days", {})]
    return []


def of_month_day(day: int) -> list[Found]:
    return [("clamped_day", {"day": day})] if day > _CERTAIN_DAY else []


def _reading(local: int) -> dict[str, object]:
    shown = datetime.fromtimestamp(local, UTC)
    return {"date": f"{shown:%Y-%m-%d}", "time": clock(local % _FULL_DAY)}


def _of_day_fields(fields: Sequence[CronField], both_days: bool) -> list[Found]:
    day, month, weekday = fields[3:]
    if not day.is_any and not weekday.is_any:
        name = "both_day_fields_and" if both_days else "both_day_fields"
        return [(name, {"day": day.text, "weekday": weekday.text})]
    if weekday.is_any and day.is_plain:
        first = values(day)[0]
        # 2001 is no leap year: 29 February counts as missing.
        if first > _CERTAIN_DAY and any(first > monthrange(2001, number)[1] for number in values(month)):
            return [("missing_days", {"day": first})]
    return []


def _of_steps(fields: Sequence[CronField]) -> list[Found]:
    found: list[Found] = []
    for field in fields:
        kind = field.kind
        for step in field.steps:
            facts = {"item": f"*/{step}", "field": kind.name, "size": kind.size, "first": kind.low}
            if step >= kind.size:
                found.append(("single_step", facts))
            elif kind is DAY:
                found.append(("uneven_step_days", facts))
            elif kind.size % step:
                found.append(("uneven_step", facts))
    return found


def _of_fields_that_shift(fields: Sequence[CronField], source: str) -> list[Found]:
    """Five fields read as six, or six as five."""
    second, minute, hour = fields[:3]
    parts = source.split()
    if len(parts) >= len(fields):
        if len(values(second)) > 1 and len(values(minute)) < minute.kind.size:
            return [("every_second", {"item": second.text, "count": len(values(second))})]
        return []
    # Every 2, 3, 4, 6, 8 or 12 hours is what people do want. Other steps go round unevenly in hours but well in minutes.
    odd = [step for step in hour.steps if HOUR.size % step]
    if len(parts) == len(fields) - 1 and odd and len(values(minute)) == 1:
        return [("looks_like_six_fields", {"step": odd[0], "instead": f"*/{odd[0]} * * * *"})]
    return []
