"""What the user sees before anything is saved: the next slots, the sentence, the notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noonbell.when import normalise, parse
from noonbell.when.due import Bounds, initial
from noonbell.when.fields import rfc3339
from noonbell.when.schedule import Note
from noonbell.when.zones import find


@dataclass(frozen=True, slots=True)
class Preview:
    next_fires: tuple[tuple[str, str], ...]
    """(UTC, local), both RFC 3339; the local one with the offset of that moment."""
    description: str
    notes: tuple[Note, ...]


def preview(spec: Mapping[str, Any], timezone: str, count: int, after: int, lang: str = "en") -> Preview:
    """The next `count` slots after `after`, as if the task were created then. Raises like `parse`.

    Slots of a fixed_delay interval are shown as if runs took no time; a note says so.
    """
    schedule = parse(normalise(spec, timezone, after), timezone)
    held = find(timezone)
    fires: list[tuple[str, str]] = []
    limit = count if schedule.repeat is None else min(count, schedule.repeat)
    slot = initial(schedule, Bounds(), after)
    while slot is not None and len(fires) < limit:
        fires.append((rfc3339(slot), held.local(slot).isoformat()))
        slot = schedule.next(slot)
    return Preview(tuple(fires), schedule.describe(lang), schedule.notes(lang, after))
