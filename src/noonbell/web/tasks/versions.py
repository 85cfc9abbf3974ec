"""The versions of a task: what each changed, by whom, and the way back to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
from starlette.responses import Response

from noonbell.errors import InvalidState, NotFound
from noonbell.model.access import Role
from noonbell.model.task import Task, TaskSpec, TaskVersion
from noonbell.service.secrets import MASK, is_secret, masked
from noonbell.service.task_json import written
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks.acts import found
from noonbell.web.visit import Visit, as_json

_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Change:
    """A version, and what was different in it from the one before."""

    version: TaskVersion
    fields: list[Field]
    deed: str
    """`created`, `paused`, `resumed`, `completed`, `error`, `deleted`, `changed`, `same`."""


def changes(versions: Sequence[TaskVersion]) -> list[Change]:
    """Newest first; the first version has nothing before it. `versions` oldest first."""
    made = [Change(versions[0], [], "created")] if versions else []
    for before, after in pairwise(versions):
        fields = [*_differences(_told(before), _told(after)), *_secretly(before.spec, after.spec)]
        made.append(Change(after, fields, _deed(before, after, fields)))
    return made[::-1]


def _differences(before: dict[str, Any], after: dict[str, Any], path: str = "") -> list[Field]:
    """Objects are compared field by field, so that a change of one of ten headers shows one."""
    found: list[Field] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{path}{name}.")
        else:
            found.append(Field(f"{path}{name}", _brief(old), _brief(new)))
    return found


def _secretly(before: TaskSpec, after: TaskSpec) -> list[Field]:
    """What changed behind a mask: that it did, and not to what."""
    hidden = [
        f"headers.{name}"
        for name, value in after.headers.items()
        if is_secret(name) and before.headers.get(name, value) != value
    ]
    if before.secret != after.secret and before.secret is not None and after.secret is not None:
        hidden.append("secret")
    return [Field(name, MASK, MASK) for name in hidden]


def _deed(before: TaskVersion, after: TaskVersion, fields: Sequence[Field]) -> str:
    if after.deleted and not before.deleted:
        return "deleted"
    if [field.name for field in fields] == ["status"]:
        return {"DISABLED": "paused", "ENABLED": "resumed", "COMPLETED": "completed", "ERROR": "error"}[after.status]
    return "changed" if fields else "same"


def _told(version: TaskVersion) -> dict[str, Any]:
    return {"status": "DELETED" if version.deleted else str(version.status), **told(version.spec)}


def told(spec: TaskSpec) -> dict[str, Any]:
    """What somebody wrote, secrets masked."""
    fields = written(spec)
    fields["headers"] = masked(spec.headers)
    fields["secret"] = None if spec.secret is None else MASK
    return fields


def _brief(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "–" if value is None else value if isinstance(value, str) else as_json(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


async def restore(visit: Visit) -> Response:
    """The task says again what it said in that version; it stays on or off as it is, and who manages it stays too."""
    task = await found(visit)
    given = await visit.fields()
    wanted, seen = visit.piece("version"), given.get("seen", "")
    versions = await visit.site.services.tasks.versions(task)
    version = next((each for each in versions if str(each.version) == wanted), None)
    if version is None:
        raise NotFound(visit.words("versions.unknown", version=wanted[:20]))
    if is_managed(task):
        raise InvalidState(visit.words("form.managed_stays", by=task.spec.managed_by))
    expect = int(seen) if seen.isdecimal() and len(seen) < 10 else None
    old = visit.site.services.tasks.opened(msgspec.structs.replace(task, spec=version.spec))
    fields = {**written(old.spec), "managed_by": task.spec.managed_by}
    await visit.site.services.tasks.change(task.id, fields, partial=False, expect_version=expect, by=visit.actor)
    text = visit.words("versions.restored", name=task.name, version=version.version)
    return visit.done(text, go=f"/tasks/{task.id}/versions")


def is_managed(task: Task) -> bool:
    """By a file or by code, which would change it back."""
    return task.spec.managed_by.startswith(("file:", "code:"))


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/tasks/{id}/versions/{version}/restore", restore, "POST", Role.OPERATOR, deed="replace_task")]
