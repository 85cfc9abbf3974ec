"""When things happen: the table of schedule kinds, and how a spec becomes a schedule.

Pure: nothing here does I/O or reads a clock. A new kind is one file and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol

from noonbell.errors import ScheduleError
from noonbell.when.cron import Cron
from noonbell.when.fields import Fields, refusal
from noonbell.when.interval import Interval
from noonbell.when.monthly import Monthly
from noonbell.when.once import Once
from noonbell.when.schedule import EARLIEST, LATEST, Note, Schedule, shown
from noonbell.when.weekly import Weekly
from noonbell.when.zones import Zone, find, zone

__all__ = ["EARLIEST", "KINDS", "LATEST", "Note", "Schedule", "normalise", "parse", "zone"]


class Kind(Protocol):
    """What the table holds: the class of a kind, which can read its own spec."""

    def read(self, given: Fields, zone: Zone, now: int | None, seconds_field: bool) -> Schedule:
        """The schedule; raises ScheduleError with all problems. `now` stands in for a moment left null."""
        ...


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {"cron": Cron, "once": Once, "interval": Interval, "weekly": Weekly, "monthly": Monthly}
)


def parse(spec: Mapping[str, Any], timezone: str = "UTC", *, seconds_field: bool = True) -> Schedule:
    """The schedule that a spec stands for; cached.

    Raises ScheduleError, whose details name every wrong field: "timezone", "schedule", "schedule.type",
    "schedule.expr" and so on. `seconds_field` False refuses cron expressions of six fields.

    A `once` at null or an `interval` with anchor null waits for `normalise` to know the time of creation: until then
    the one has no slot and the other counts from 1970.
    """
    try:
        # The class is in the key because True == 1 == 1.0.
        key = tuple((name, value.__class__, value) for name, value in spec.items())
        return _parse_cached(key, timezone, seconds_field)
    except (AttributeError, TypeError):
        # Not a mapping, or with a value that cannot be hashed: reading it says what is wrong.
        return _read(spec, timezone, None, seconds_field)


def normalise(
    spec: Mapping[str, Any], timezone: str = "UTC", now: int | None = None, *, seconds_field: bool = True
) -> dict[str, Any]:
    """The canonical JSON form, to be stored: every default filled in, cron as six fields.

    `now` is the slot of creation: what "at": null and "anchor": null stand for. What a cron expression was written as is
    kept as "source" where it differs. Raises like `parse`; what it returns is a fixed point of itself.
    """
    return _read(spec, timezone, now, seconds_field).spec()


@lru_cache(maxsize=16_384)
def _parse_cached(key: tuple[tuple[str, type, Any], ...], timezone: str, seconds_field: bool) -> Schedule:
    return _read({name: value for name, _, value in key}, timezone, None, seconds_field)


def _read(spec: object, timezone: object, now: int | None, seconds_field: bool) -> Schedule:
    problems: dict[str, str] = {}
    held = _zone_or_utc(timezone, problems)
    if not isinstance(spec, Mapping):
        problems["schedule"] = f'is {shown(spec)}; expected an object such as {{"type": "cron", "expr": "@daily"}}'
        raise refusal(problems)
    name = spec.get("type")
    if not isinstance(name, str) or name not in KINDS:
        said = "is missing" if name is None else f"is {shown(name)}"
        problems["schedule.type"] = f"{said}; expected one of {', '.join(KINDS)}"
        raise refusal(problems)
    return KINDS[name].read(Fields(spec, problems), held, now, seconds_field)


def _zone_or_utc(timezone: object, problems: dict[str, str]) -> Zone:
    try:
        return find(timezone)
    except ScheduleError as bad:
        problems.update(bad.details)
        return find("UTC")
