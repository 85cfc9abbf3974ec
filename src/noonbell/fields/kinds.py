"""Kinds of values: each class reads a value from JSON or from a query, and describes it as JSON Schema.

Reading and describing stand side by side, so that the bounds that OpenAPI names are the ones that are kept.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from noonbell.clock import EARLIEST, LATEST, SECOND, Instant, from_datetime, instant_of, rfc3339
from noonbell.errors import Sentence
from noonbell.fields.problems import LocalTime, Problems, ReadContext, shown
from noonbell.json_text import DEEPEST, is_too_deep

Schema = dict[str, Any]
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_NO_SECONDS = re.compile(r"^(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d)((?:[Zz]|[+-]\d\d:\d\d)?)$", re.ASCII)
_A_MOMENT: Final = 'an RFC 3339 time such as "2026-11-15T02:30:00Z"'
_FRACTION = re.compile(r"(\.\d{6})\d+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


class FieldKind(ABC):
    """What a value may be: read from JSON or from the text of a query, and described."""

    what: str = ""
    """The words that follow "expected"."""
    is_struct: ClassVar[bool] = False

    @abstractmethod
    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        """The value, or after a problem one of the right type, so that reading can go on."""

    @abstractmethod
    def schema(self) -> Schema:
        """What it is, as JSON Schema. Other Structs are referred to by the names of their components."""

    def bounded(self) -> Schema:
        """The same with the bounds that `read` keeps: for bodies. What an answer shows is bound by nothing."""
        return self.schema()

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        """Those that its schema refers to."""
        return ()

    @abstractmethod
    def sample(self) -> Any:
        """A value for examples. Also what stands for a value that is missing or wrong."""

    def from_text(self, text: str) -> Any:
        """As JSON would have it. What cannot be read stays a text, and is refused by `read`."""
        return text

    def plain(self, value: Any) -> Any:
        """From `msgspec.to_builtins` to what an answer shows."""
        return value

    @property
    def is_plain(self) -> bool:
        """Whether `plain` changes nothing."""
        return True


@dataclass(frozen=True, slots=True)
class IntegerKind(FieldKind):
    low: int
    high: int
    what: str
    exact: bool = False
    """5.0 is not 5."""

    def read(self, value: Any, at: ReadContext, name: str) -> int:
        # 5.0 is how some languages write 5; true is not 1.
        if not self.exact and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            at.expected(name, value, self.what)
            return self.sample()
        return value

    def schema(self) -> Schema:
        return {"type": "integer"}

    def bounded(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def sample(self) -> int:
        return max(self.low, 0)

    def from_text(self, text: str) -> Any:
        return int(text) if _INTEGER.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class NumberKind(FieldKind):
    low: float
    high: float
    what: str

    def read(self, value: Any, at: ReadContext, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            at.expected(name, value, self.what)
            return self.sample()
        return value

    def schema(self) -> Schema:
        return {"type": "number"}

    def bounded(self) -> Schema:
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def sample(self) -> float:
        return max(self.low, 0)

    def from_text(self, text: str) -> Any:
        return float(text) if _NUMBER.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class TextKind(FieldKind):
    least: int
    most: int
    lines: bool
    pattern: str | None
    what: str

    def read(self, value: Any, at: ReadContext, name: str) -> str:
        if not isinstance(value, str) or not self.least <= len(value) <= self.most:
            at.expected(name, value, self.what)
            return ""
        problem = unfit(value, lines=self.lines)
        if problem is not None:
            at.wrong(name, problem)
        elif self.pattern is not None and re.fullmatch(self.pattern, value) is None:
            at.expected(name, value, self.what)
        return value

    def schema(self) -> Schema:
        return {"type": "string"}

    def bounded(self) -> Schema:
        found: Schema = {"type": "string", "maxLength": self.most}
        if self.least:
            found["minLength"] = self.least
        if self.pattern is not None:
            found["pattern"] = f"^({self.pattern})$"
        return found

    def sample(self) -> str:
        return "text"


@dataclass(frozen=True, slots=True)
class BoolKind(FieldKind):
    what: str = "true or false"

    def read(self, value: Any, at: ReadContext, name: str) -> bool:
        if not isinstance(value, bool):
            at.expected(name, value, self.what)
        return value is True

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def sample(self) -> bool:
        return False

    def from_text(self, text: str) -> Any:
        return _FLAGS.get(text.lower(), text)


@dataclass(frozen=True, slots=True)
class ChoiceKind(FieldKind):
    """One of some words, written exactly so."""

    options: Mapping[str, Any]
    what: str

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        if not isinstance(value, str) or value not in self.options:
            at.expected(name, value, self.what)
            return next(iter(self.options.values()))
        return self.options[value]

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.options)}

    def sample(self) -> str:
        return next(iter(self.options))


@dataclass(frozen=True, slots=True)
class TimeKind(FieldKind):
    """A moment. Without an offset it is local time, where a zone is known, and else refused."""

    what: str = _A_MOMENT
    minutes: bool = False
    """Seconds may be left out."""

    def read(self, value: Any, at: ReadContext, name: str) -> Instant:
        try:
            return read_moment(value, at.zone, minutes=self.minutes)
        except ValueError as error:
            at.expected(name, value, str(error))
            return Instant(0)

    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time"}

    def sample(self) -> str:
        return "2026-11-15T02:30:00Z"

    def from_text(self, text: str) -> Any:
        # An offset's plus sign that was not encoded arrives as a blank.
        return re.sub(r" (\d\d:\d\d)$", r"+\1", text)

    def plain(self, value: Any) -> Any:
        return rfc3339(value)

    @property
    def is_plain(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class JsonKind(FieldKind):
    """Any JSON value that can be written down again."""

    what: str = "JSON"

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        problem = unfit_json(value)
        if problem is not None:
            at.wrong(name, problem)
            return None
        return value

    def schema(self) -> Schema:
        return {}

    def sample(self) -> Any:
        return None


@dataclass(frozen=True, slots=True)
class AnyKind(FieldKind):
    """What is taken as it comes, and checked where it is used. `of` is what it ought to be."""

    of: FieldKind | None = None
    what: str = "a value"

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        del at, name
        return value

    def schema(self) -> Schema:
        return {} if self.of is None else self.of.schema()

    def bounded(self) -> Schema:
        return {} if self.of is None else self.of.bounded()

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return () if self.of is None else self.of.structs()

    def sample(self) -> Any:
        return None if self.of is None else self.of.sample()


@dataclass(frozen=True, slots=True)
class ListKind(FieldKind):
    """A list. Texts and words that are there twice are there once."""

    of: FieldKind
    least: int
    most: int | None
    what: str
    into: type = list
    is_one: bool = False
    """Problems are those of the whole list, and a single word will do for it: a filter."""

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        if self.is_one and isinstance(value, str):
            value = [value]
        if (
            not isinstance(value, list | tuple)
            or len(value) < self.least
            or (self.most is not None and len(value) > self.most)
        ):
            at.expected(name, value, self.what)
            return self.into()
        if isinstance(self.of, JsonKind):
            return self.into(self.of.read(value, at, name) or ())
        found = []
        for index, each in enumerate(value):
            if at.problems.are_enough:
                break
            if (
                self.is_one
                and isinstance(self.of, ChoiceKind)
                and (not isinstance(each, str) or each not in self.of.options)
            ):
                at.expected(name, each, self.what)
                return self.into()
            found.append(self.of.read(each, at, f"{name}[{index}]"))
        return self.into(dict.fromkeys(found) if isinstance(self.of, TextKind | ChoiceKind) else found)

    def schema(self) -> Schema:
        return {"type": "array", "items": self.of.schema()}

    def bounded(self) -> Schema:
        found: Schema = {"type": "array", "items": self.of.bounded()}
        if self.least:
            found["minItems"] = self.least
        return found if self.most is None else {**found, "maxItems": self.most}

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return self.of.structs()

    def sample(self) -> Any:
        return [self.of.sample()] if self.least or self.of.is_struct else []

    def from_text(self, text: str) -> Any:
        return [self.of.from_text(part) for part in text.split(",") if part]

    def plain(self, value: Any) -> Any:
        return value if self.of.is_plain else [self.of.plain(each) for each in value]

    @property
    def is_plain(self) -> bool:
        return self.of.is_plain


@dataclass(frozen=True, slots=True)
class MapKind(FieldKind):
    """An object with names of the caller's own, and values of one kind."""

    of: FieldKind
    most: int | None
    what: str

    def read(self, value: Any, at: ReadContext, name: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or (self.most is not None and len(value) > self.most):
            at.expected(name, value, self.what)
            return {}
        if isinstance(self.of, JsonKind):
            return self.of.read(value, at, name) or {}
        inner = at.inside(name)
        found = {}
        for key, each in value.items():
            if at.problems.are_enough:
                break
            if not isinstance(key, str) or not 1 <= len(key) <= 255 or unfit(key) is not None:
                at.wrong(name, "has the name {value}; expected 1 to 255 characters", value=ascii(key)[:60])
            else:
                found[key] = self.of.read(each, inner, key)
        return found

    def schema(self) -> Schema:
        inner = self.of.schema()
        return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}

    def bounded(self) -> Schema:
        inner = self.of.bounded()
        found: Schema = {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}
        return found if self.most is None else {**found, "maxProperties": self.most}

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return self.of.structs()

    def sample(self) -> Any:
        return {}


@dataclass(frozen=True, slots=True)
class UnionKind(FieldKind):
    """A value of one of several kinds."""

    kinds: tuple[FieldKind, ...]
    what: str

    def read(self, value: Any, at: ReadContext, name: str) -> Any:
        for kind in self.kinds:
            scratch = Problems()
            found = kind.read(value, ReadContext(scratch, "", at.zone), name)
            if not scratch.found:
                return found
        at.expected(name, value, self.what)
        return self.kinds[0].sample()

    def schema(self) -> Schema:
        return {"anyOf": [kind.schema() for kind in self.kinds]}

    def bounded(self) -> Schema:
        return {"anyOf": [kind.bounded() for kind in self.kinds]}

    def structs(self) -> tuple[type[msgspec.Struct], ...]:
        return tuple(struct for kind in self.kinds for struct in kind.structs())

    def sample(self) -> Any:
        return self.kinds[0].sample()

    def from_text(self, text: str) -> Any:
        return next((made for kind in self.kinds if (made := kind.from_text(text)) != text), text)


def read_moment(value: object, zone: LocalTime | None = None, *, minutes: bool = False) -> Instant:
    """The instant that an RFC 3339 text names; with `minutes`, its seconds may be left out. ValueError says what was
    expected.
    """
    what = _A_MOMENT
    if minutes and isinstance(value, str):
        value = _NO_SECONDS.sub(r"\1:00\2", value)
    try:
        if isinstance(value, datetime):  # a YAML file or Python code gives these
            moment = value
        elif isinstance(value, str) and _RFC3339.fullmatch(value):
            moment = datetime.fromisoformat(_FRACTION.sub(r"\1", value.upper()))
        else:
            raise ValueError(what)
        if moment.tzinfo is None and zone is None:
            raise ValueError(f"{what}, with its offset from UTC")
        instant = from_datetime(moment) if moment.tzinfo is not None or zone is None else _shown_in(zone, moment)
    except OverflowError:
        raise ValueError(what) from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(what) else what) from None
    if not EARLIEST * SECOND <= instant <= LATEST * SECOND:
        raise ValueError("a time from the year 2 to the year 9998")
    return instant


def _shown_in(zone: LocalTime, moment: datetime) -> Instant:
    return instant_of(zone.first_showing(moment))


def unfit(text: str, *, lines: bool = False) -> str | None:
    """Why a text cannot be kept, if it cannot: control characters, or halves of a character."""
    if text.isascii() and text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "has a lone surrogate; expected text that can be encoded as UTF-8"
    found = _CONTROL.search(text)
    while found is not None and lines and found.group() in "\t\n\r":
        found = _CONTROL.search(text, found.end())
    if found is None:
        return None
    character = f"U+{ord(found.group()):04X}"
    return Sentence("has the control character {character} at position {at}", character=character, at=found.start())


def unfit_json(value: Any) -> str | None:
    """Why a value is not JSON that can be kept, if it is not."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return "has a lone surrogate; expected text that can be encoded as UTF-8"
    except RecursionError:
        return Sentence("is nested deeper than {most} levels", most=DEEPEST)
    except (TypeError, ValueError, OverflowError):
        return Sentence("is {value}; expected {what}", value=shown(value), what="JSON")
    if is_too_deep(text):
        return Sentence("is nested deeper than {most} levels", most=DEEPEST)
    # A number that JSON cannot write has become null. What reads back as it was, as all that came as JSON does, has none.
    if b"null" not in text or msgspec.json.decode(text) == value:
        return None
    if any(isinstance(each, float) and not math.isfinite(each) for each in leaves(value)):
        return "has a number that JSON cannot represent"
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
