"""Two people changed a task: what each made of every field, and which of the two is taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from noonbell.model.account import Activity
from noonbell.model.task import Task, TaskVersion
from noonbell.service.task_json import shown
from noonbell.web.tasks.form import fields_of

TAKE: Final = "take-"
"""Before a field's name: whose entry is taken, `mine` or `theirs`."""
_OURS: Final = ("version",)


@dataclass(frozen=True, slots=True)
class Choice:
    """A field in which what was typed is not what the task says now."""

    name: str
    base: str | None
    """What it was when the form was opened; None where that is not known."""
    mine: str
    theirs: str

    @property
    def take(self) -> str:
        """Who alone changed it is taken; where both did, the one who looks at it."""
        return "theirs" if self.base is not None and self.mine == self.base else "mine"

    @property
    def is_conflict(self) -> bool:
        return self.base is None or self.base not in (self.mine, self.theirs)


def fields_at(task: Task, versions: Sequence[TaskVersion], version: int | None, dialect: str) -> dict[str, str] | None:
    """The form of the task as it was at that version. `dialect`: of a cron that it did not have yet."""
    for each in versions:
        if each.version == version:
            then = msgspec.structs.replace(task, spec=each.spec, version=each.version, status=each.status)
            return fields_of(shown(then, Activity()), dialect)
    return None


def choices(base: Mapping[str, str] | None, mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[Choice]:
    found = []
    for name, their in theirs.items():
        if name in _OURS or (name not in mine and name != "enabled"):  # a box that is not ticked is not sent
            continue
        my = mine.get(name, "").replace("\r\n", "\n")
        if my != their:
            found.append(Choice(name, None if base is None else base.get(name, ""), my, their))
    return found


def taken(fields: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The entries after it was chosen, field by field, whose are taken."""
    merged = {name: value for name, value in fields.items() if not name.startswith(TAKE)}
    for name, value in fields.items():
        field = name.removeprefix(TAKE)
        if name.startswith(TAKE) and value == "theirs" and field in theirs:
            merged[field] = theirs[field]
    return merged


def settled(mine: Mapping[str, str], found: Sequence[Choice]) -> dict[str, str]:
    """The form as it is shown while somebody chooses: as if each choice were left as it is."""
    return {**mine, **{each.name: each.theirs for each in found if each.take == "theirs"}}
