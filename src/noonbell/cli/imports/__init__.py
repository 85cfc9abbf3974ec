"""Tasks from elsewhere: each reader turns one kind of source into tasks, or says why it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Imported:
    """One entry of a source: a task, or the reason why there is none."""

    where: str
    """Such as `line 12`."""
    source: str
    task: dict[str, Any] | None = None
    refused: str | None = None
    notes: list[str] = field(default_factory=list)
    """What was left out or is to be looked at."""


def unused(name: str, taken: set[str]) -> str:
    """The name, or the name with a number; from now on it is taken."""
    found, number = name, 2
    while found in taken:
        found = f"{name}-{number}"
        number += 1
    taken.add(found)
    return found
