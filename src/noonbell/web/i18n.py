"""Times and spans in the visitor's language. `static/times.js` keeps relative times up to date, with the same texts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from noonbell.clock import SECOND, from_datetime, rfc3339, slot_of
from noonbell.service.translation import Translator
from noonbell.when.zones import Zone

TAGS: Final = {"en": "en", "zh": "zh-CN"}
"""As the `lang` of a page has them."""
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Shown:
    iso: str
    """RFC 3339, UTC."""
    local: str
    """Date and time on the clock of the chosen zone; the year only where it is another."""
    offset: str
    """Of that clock, such as +08:00."""
    relative: str
    milliseconds: int
    whole: str
    """Date, time, offset and zone: what stands behind the short form."""


def instant_from(value: int | str) -> int:
    """An instant, from one or from RFC 3339 as services write it."""
    return from_datetime(datetime.fromisoformat(value)) if isinstance(value, str) else value


def shown(value: int | str, now: int, zone: Zone, words: Translator) -> Shown:
    at = instant_from(value)
    local = zone.local(int(slot_of(at)))
    text = short(local, zone.local(int(slot_of(now))), words)
    whole = f"{local:%Y-%m-%d %H:%M:%S} {offset(local)} {zone.name}"
    return Shown(rfc3339(at), text, offset(local), relative(at - now, words), at // 1000, whole)


def short(local: datetime, today: datetime, words: Translator) -> str:
    """The time; with its day if that is not today, and with its year if that is another."""
    clock = f"{local:%H:%M:%S}"
    if local.date() == today.date():
        return clock
    key = "time.day" if local.year == today.year else "time.day_of_year"
    return f"{words(key, day=local.day, month=words(f'month.{local.month}'), year=local.year)} {clock}"


def offset(local: datetime) -> str:
    text = local.isoformat()[19:25]
    return "+00:00" if text == "Z" else text


def relative(microseconds: int, words: Translator) -> str:
    seconds = abs(microseconds) / SECOND
    if seconds < 1:
        return words("time.now")
    return words("time.ahead" if microseconds > 0 else "time.ago", span=span(int(seconds), words))


def span(seconds: float, words: Translator) -> str:
    """Two units at most: `412 ms`, `12 s`, `1 m 12 s`, `3 d 4 h`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} {words('unit.ms')}"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} {words('unit.s')}"
    left = int(seconds)
    parts: list[tuple[int, str]] = []
    for size, name in UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, name))
        if len(parts) == 2:
            break
    return " ".join(f"{count} {words(f'unit.{name}')}" for count, name in parts if count)


def milliseconds(value: int | None, words: Translator) -> str:
    """A duration as the services tell it; nothing for none."""
    return "" if value is None else span(value / 1000, words)
