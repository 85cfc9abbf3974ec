"""What differs between two versions of a task, and between two people's edits of its form. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec

from noonbell.masking import mask_credentials
from noonbell.model.account import Activity
from noonbell.model.task import Task, TaskSpec, TaskVersion
from noonbell.service.secrets import MASK, MESSAGE_URLS, masked_values
from noonbell.service.tasks import masked_fields, shown
from noonbell.web.context import as_json
from noonbell.web.task_form import fields_of

_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class FieldChange:
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A version, and what was different in it from the one before."""

    version: TaskVersion
    fields: list[FieldChange]
    kind: str
    """`created`, `paused`, `resumed`, `completed`, `error`, `deleted`, `changed`, `same`."""


def changes(versions: Sequence[TaskVersion], names: Mapping[int, str] | None = None) -> list[VersionChange]:
    """Newest first; the first version has nothing before it. `versions` oldest first; `names` of the tasks that they
    run after.
    """
    made = [VersionChange(versions[0], [], "created")] if versions else []
    for before, after in pairwise(versions):
        fields = [*_differences(_told(before, names), _told(after, names)), *_secretly(before.spec, after.spec)]
        made.append(VersionChange(after, fields, _kind(before, after, fields)))
    return made[::-1]


def _differences(before: dict[str, Any], after: dict[str, Any], path: str = "") -> list[FieldChange]:
    """Objects are compared field by field, so that a change of one of ten headers shows one."""
    found: list[FieldChange] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{path}{name}.")
        else:
            found.append(FieldChange(f"{path}{name}", _brief(old), _brief(new)))
    return found


def _secretly(before: TaskSpec, after: TaskSpec) -> list[FieldChange]:
    """What changed behind a mask: that it did, and not to what."""
    was, found = masked_values(before), []
    for name, value in masked_values(after).items():
        old = was.get(name, value)
        shows = name.endswith(MESSAGE_URLS) and mask_credentials(old) != mask_credentials(value)
        if old != value and not shows:
            found.append(FieldChange(name, MASK, MASK))
    return found


def _kind(before: TaskVersion, after: TaskVersion, fields: Sequence[FieldChange]) -> str:
    if after.deleted and not before.deleted:
        return "deleted"
    if [field.name for field in fields] == ["status"]:
        return {"DISABLED": "paused", "ENABLED": "resumed", "COMPLETED": "completed", "ERROR": "error"}[after.status]
    return "changed" if fields else "same"


def _told(version: TaskVersion, names: Mapping[int, str] | None) -> dict[str, Any]:
    return {"status": "DELETED" if version.deleted else str(version.status), **masked_fields(version.spec, names)}


def _brief(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "–" if value is None else value if isinstance(value, str) else as_json(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


TAKE: Final = "take-"
"""Before a field's name: whose entry is taken, `mine` or `theirs`."""
_OURS: Final = ("version",)


@dataclass(frozen=True, slots=True)
class Difference:
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


def fields_at(
    task: Task,
    versions: Sequence[TaskVersion],
    version: int | None,
    dialect: str,
    names: Mapping[int, str] | None = None,
) -> dict[str, str] | None:
    """The form of the task as it was at that version. `dialect`: of a cron that it did not have yet; `names` of the tasks that it
    ran after.
    """
    for each in versions:
        if each.version == version:
            then = msgspec.structs.replace(task, spec=each.spec, version=each.version, status=each.status)
            return fields_of(shown(then, Activity(), names), dialect)
    return None


def differences(base: Mapping[str, str] | None, mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[Difference]:
    found = []
    for name, their in theirs.items():
        if name in _OURS or (name not in mine and name != "enabled"):  # a box that is not ticked is not sent
            continue
        my = mine.get(name, "").replace("\r\n", "\n")
        if my != their:
            found.append(Difference(name, None if base is None else base.get(name, ""), my, their))
    return found


def taken(fields: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The entries after it was chosen, field by field, whose are taken."""
    merged = {name: value for name, value in fields.items() if not name.startswith(TAKE)}
    for name, value in fields.items():
        field = name.removeprefix(TAKE)
        if name.startswith(TAKE) and value == "theirs" and field in theirs:
            merged[field] = theirs[field]
    return merged


def settled(mine: Mapping[str, str], found: Sequence[Difference]) -> dict[str, str]:
    """The form as shown with the differences: each field with its proposed choice."""
    return {**mine, **{each.name: each.theirs for each in found if each.take == "theirs"}}
