"""What is wrong with a value, collected by the name of its field, and quoted in a few words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final, Protocol

from noonbell.errors import InvalidArgument, Sentence
from noonbell.masking import is_named_for_a_secret, mask_addresses

MOST_PROBLEMS: Final = 100
"""An answer names no more problems than this, however many a body has."""
SHOWN: Final = 60
"""The most of a wrong value that an error message quotes."""
_MAY_HOLD_SECRETS: Final = frozenset({"headers", "env", "url"})
"""Beside names that speak of a secret: no message shows what these fields hold."""


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
        for name, problem in error.sentences.items():
            self.add(f"{under}.{name}" if under else name, problem)

    def finish(self) -> None:
        """Raises InvalidArgument with all of them, if there are any."""
        if self.found:
            raise InvalidArgument.fields(self.found)


class LocalTime(Protocol):
    """A time zone, for times that name no offset."""

    def first_showing(self, moment: datetime, /) -> int:
        """The first second, since 1970, at which a clock of the zone shows that time."""
        ...


@dataclass(frozen=True, slots=True)
class ReadContext:
    """The object that is being read: where its problems go, and what its fields are called by in them."""

    problems: Problems
    path: str = ""
    zone: LocalTime | None = None

    def name_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def inside(self, name: str) -> ReadContext:
        """Of the object or the list that the field holds."""
        return ReadContext(self.problems, self.name_of(name), self.zone)

    def wrong(self, name: str, problem: str, /, **facts: Any) -> None:
        """With facts, `problem` is the template of a Sentence."""
        self.problems.add(self.name_of(name), Sentence(problem, **facts) if facts else problem)

    def expected(self, name: str, value: Any, what: str) -> None:
        """The usual complaint: which value it is, unless that may be a secret, and what would be right."""
        if is_named_for_a_secret(name) or name in _MAY_HOLD_SECRETS:
            self.wrong(name, "is wrong; expected {what}", what=what)
        else:
            self.wrong(name, "is {value}; expected {what}", value=mask_addresses(shown(value)), what=what)


def shown(value: object) -> str:
    """A value as an error message quotes it: never longer than a line, and never at the cost of a large value."""
    text = repr(_beginning(value, [SHOWN]))
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _beginning(value: object, left: list[int]) -> object:
    """As much of a value as `shown` can quote. `left` is the number of values that may still be copied."""
    left[0] -= 1
    if isinstance(value, str | bytes):
        return value[: SHOWN + 1]
    if isinstance(value, dict):
        return {
            _beginning(name, left): _beginning(each, left) for name, each in islice(value.items(), max(0, left[0] + 1))
        }
    if isinstance(value, list | tuple):
        copied = [_beginning(each, left) for each in islice(value, max(0, left[0] + 1))]
        return copied if isinstance(value, list) else tuple(copied)
    return value
