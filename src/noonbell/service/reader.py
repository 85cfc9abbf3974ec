"""Reading a JSON object: each field checked, every problem collected, so that a caller mends them all at once.

A reader returns a usable value even after a problem, so that reading goes on; nobody sees it, because `finish` raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from noonbell import when
from noonbell.clock import SECOND, Instant, from_datetime, instant_of
from noonbell.errors import InvalidArgument
from noonbell.service.json_text import DEEPEST, is_too_deep
from noonbell.settings.masking import is_named_for_a_secret, mask_addresses
from noonbell.when.schedule import EARLIEST, LATEST, shown

MOST_PROBLEMS: Final = 100
"""An answer names no more problems than this: a batch of 10,000 wrong runs is not told one by one."""

_MAY_HOLD_SECRETS: Final = frozenset({"headers", "url"})
"""Beside what is secret by its name: no message shows what they hold."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_FRACTION = re.compile(r"(\.\d{6})\d+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

T = TypeVar("T")


class Problems:
    """What is wrong, by the name of the field."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    @property
    def are_enough(self) -> bool:
        """Whether an answer can name no further ones, so that reading on is of no use."""
        return len(self.found) >= MOST_PROBLEMS

    def add(self, name: str, problem: str) -> None:
        if not self.are_enough:
            self.found.setdefault(name, problem)

    def take(self, error: InvalidArgument, *, under: str = "") -> None:
        """The problems that an error names, or its message where it names none."""
        if not error.details:
            self.add(under, error.message)
        for name, problem in error.details.items():
            self.add(f"{under}.{name}" if under else name, str(problem))

    def finish(self) -> None:
        if self.found:
            raise InvalidArgument.fields(self.found)


class Reader:
    """One object. `path` is what its fields are called by in messages: `retry_policy`, `runs[3]`."""

    def __init__(self, given: Mapping[str, Any], problems: Problems, path: str = "") -> None:
        self.given = given
        self.problems = problems
        self.path = path
        self._known: set[str] = set()

    def name_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, problem: str) -> None:
        self.problems.add(self.name_of(name), problem)

    def expected(self, name: str, what: str) -> None:
        """The usual complaint: which value it is, unless that may be a secret, and what would be right."""
        hides = is_named_for_a_secret(name) or name in _MAY_HOLD_SECRETS
        said = "wrong" if hides else mask_addresses(shown(self.given.get(name)))
        self.wrong(name, f"is {said}; expected {what}")

    def has(self, name: str) -> bool:
        """Whether the field is there, be it null."""
        self._known.add(name)
        return name in self.given

    def get(self, name: str) -> Any:
        self._known.add(name)
        return self.given.get(name)

    def know(self, names: Collection[str]) -> None:
        """Fields that somebody else reads."""
        self._known.update(names)

    def text(self, name: str, default: T, *, least: int = 0, most: int = 255, lines: bool = False) -> str | T:
        """`lines` lets line breaks and tabs in. Null is as good as absent."""
        value = self.get(name)
        if value is None:
            return default
        what = f"a text of {least} to {most} characters" if least else f"a text of at most {most} characters"
        if not isinstance(value, str) or not least <= len(value) <= most:
            self.expected(name, what)
            return default
        problem = unfit(value, lines=lines)
        if problem is not None:
            self.wrong(name, problem)
        return value

    def integer(self, name: str, default: T, low: int, high: int, what: str | None = None) -> int | T:
        value = self.get(name)
        if value is None:
            return default
        # 5.0 is how some languages write 5; true is not 1.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.expected(name, what or f"a whole number from {low} to {high}")
            return default
        return value

    def number(self, name: str, default: float, low: float, high: float, what: str | None = None) -> float:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.expected(name, what or f"a number from {low:g} to {high:g}")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.expected(name, "true or false")
            return default
        return value

    def choice(self, name: str, options: type[T], default: T) -> T:
        """One of an enum's values, written exactly so."""
        value = self.get(name)
        if value is None:
            return default
        try:
            if isinstance(value, str):
                return options(value)  # type: ignore[call-arg]
        except ValueError:
            pass
        self.expected(name, f"one of {', '.join(str(each) for each in options)}")  # type: ignore[attr-defined]
        return default

    def moment(self, name: str, zone: str | None = None) -> Instant | None:
        """An RFC 3339 time. With a `zone`, one without an offset is the zone's local time; else it is refused."""
        value = self.get(name)
        if value is None:
            return None
        try:
            return read_moment(value, zone)
        except ValueError as error:
            self.expected(name, str(error))
            return None

    def texts(self, name: str, *, most: int, length: int = 255) -> tuple[str, ...]:
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or len(value) > most:
            self.expected(name, f"a list of at most {most} texts")
            return ()
        found: dict[str, None] = {}
        for index, each in enumerate(value):
            if not isinstance(each, str) or not 1 <= len(each) <= length or unfit(each) is not None:
                self.wrong(f"{name}[{index}]", f"is {shown(each)}; expected a text of 1 to {length} characters")
            else:
                found[each] = None
        return tuple(found)

    def object(self, name: str) -> Reader | None:
        """The reader of a nested object; None if it is absent, null or something else."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.expected(name, "an object")
            return None
        return Reader(value, self.problems, self.name_of(name))

    def json(self, name: str, default: Any = None) -> Any:
        """Any JSON value that can be written down again."""
        if not self.has(name):
            return default
        value = self.given[name]
        problem = unfit_json(value)
        if problem is not None:
            self.wrong(name, problem)
            return default
        return value

    def finish(self, what: str) -> None:
        """Refuse the fields that nobody asked for. `what` is the thing that has no such field.

        No more of them than an answer names: each costs a comparison with every field that there is.
        """
        unknown = (name for name in self.given if name not in self._known)
        for name in islice(unknown, MOST_PROBLEMS - len(self.problems.found)):
            text = str(name)[:60]
            near = get_close_matches(text, self._known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.wrong(text, f"is not a field of {what}{hint}")


def unfit(text: str, *, lines: bool = False) -> str | None:
    """Why a text cannot be kept, if it cannot: control characters, or halves of a character."""
    if text.isascii() and text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "has a lone surrogate; expected text that can be written as UTF-8"
    found = _CONTROL.search(text)
    while found is not None and lines and found.group() in "\t\n\r":
        found = _CONTROL.search(text, found.end())
    if found is None:
        return None
    return f"has the control character U+{ord(found.group()):04X} at position {found.start()}"


def unfit_json(value: Any) -> str | None:
    """Why a value is not JSON that can be kept, if it is not."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return "has a lone surrogate; expected text that can be written as UTF-8"
    except RecursionError:
        return f"is nested deeper than {DEEPEST} levels"
    except (TypeError, ValueError, OverflowError):
        return f"is {shown(value)}; expected JSON"
    if is_too_deep(text):
        return f"is nested deeper than {DEEPEST} levels"
    # A number that JSON cannot write has become null. What reads back as it was, as all that came as JSON does, has none.
    if b"null" not in text or msgspec.json.decode(text) == value:
        return None
    if any(isinstance(each, float) and not math.isfinite(each) for each in leaves(value)):
        return "has a number that JSON cannot write"
    return None


def leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
        else:
            yield each


def read_moment(value: object, zone: str | None = None) -> Instant:
    """The instant that an RFC 3339 text names. ValueError says what was expected."""
    what = 'an RFC 3339 time such as "2026-11-15T02:30:00Z"'
    if isinstance(value, datetime):  # a YAML file or Python code gives these
        moment = value
    elif isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            moment = datetime.fromisoformat(_FRACTION.sub(r"\1", value.upper()))
        except ValueError:
            raise ValueError(what) from None
    else:
        raise ValueError(what)
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{what}, with its offset from UTC")
        instant = instant_of(when.zones.find(zone).first_showing(moment))
    else:
        instant = from_datetime(moment)
    if not EARLIEST * SECOND <= instant <= LATEST * SECOND:
        raise ValueError("a time from the year 2 to the year 9998")
    return instant
