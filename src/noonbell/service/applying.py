"""Tasks as files, on the server's side: what applying them would change, and applying them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noonbell.clock import instant_of, rfc3339, slot_of
from noonbell.errors import AlreadyExists, InvalidArgument
from noonbell.model.task import Task
from noonbell.service import task_json
from noonbell.service.activity import Activity, activities
from noonbell.service.reconcile import Report, reconcile
from noonbell.service.secrets import MASK, masked, refuse_carried, unmasked
from noonbell.service.task_fields import Draft
from noonbell.when import due, parse

if TYPE_CHECKING:
    from noonbell.service import Services

MOST_TASKS = 5_000


class Applying:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def apply(
        self,
        owner: str,
        declared: Sequence[Mapping[str, Any]],
        *,
        by: str | None = None,
        prune: bool = False,
        adopt: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """All of it, or nothing: a problem in one task, another owner's task, or one that has changed, stops the whole.

        A `version` in a task is the one that its writer has seen. With `dry_run` nothing is written. The answer says for
        each changed task what was and what is, and what that does to its next slot.
        """
        if len(declared) > MOST_TASKS:
            raise InvalidArgument.field("tasks", f"has {len(declared)} tasks; expected at most {MOST_TASKS}")
        versions = {str(task.get("name")): task["version"] for task in declared if isinstance(task.get("version"), int)}
        plain = [await self._plain(task) for task in declared]
        planned = await self._reconcile(owner, plain, by, versions, prune=prune, adopt=adopt, dry_run=True)
        if planned.foreign:
            taken = {f"tasks[{name}]": f"belongs to {other}" for name, other in planned.foreign.items()}
            raise AlreadyExists(
                "; ".join(f"{place} {said}" for place, said in taken.items()) + "; adopt takes them over", details=taken
            )
        changes = [await self._change(fields) for fields in plain if fields["name"] in planned.changed]
        report = planned
        if not dry_run:
            # As planned, or not at all: what was changed in between is not overwritten.
            seen = {change["name"]: change["version"] for change in changes} | versions
            report = await self._reconcile(owner, plain, by, seen, prune=prune, adopt=adopt, dry_run=False)
        return {
            "dry_run": dry_run,
            "created": list(report.created),
            "changed": [change for change in changes if change["name"] in report.changed],
            "unchanged": list(report.unchanged),
            "pruned": list(report.pruned),
        }

    async def _plain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Without the version, and with the secrets that an export shows as masked."""
        plain = {name: value for name, value in fields.items() if name != "version"}
        headers = fields.get("headers")
        hides = isinstance(headers, Mapping) and MASK in headers.values()
        if not (hides or fields.get("secret") == MASK) or not isinstance(fields.get("name"), str):
            return plain
        found = await self._services.store.task_named(str(fields["name"]))
        task = None if found is None else self._services.tasks.opened(found)
        if task is not None and isinstance(headers, Mapping):
            plain["headers"] = unmasked(headers, task.spec.headers)
        if task is not None and fields.get("secret") == MASK:
            plain["secret"] = task.spec.secret
        if task is not None:
            refuse_carried(task.spec, fields, plain)
        return plain

    async def _reconcile(
        self,
        owner: str,
        declared: Sequence[Mapping[str, Any]],
        by: str | None,
        versions: Mapping[str, int],
        *,
        prune: bool,
        adopt: bool,
        dry_run: bool,
    ) -> Report:
        return await reconcile(
            self._services,
            owner,
            declared,
            by=by or owner,
            prune=prune,
            adopt=adopt,
            dry_run=dry_run,
            versions=versions,
        )

    async def _change(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        task = await self._services.tasks.get(str(fields["name"]))
        draft = await self._services.tasks.draft_of_change(task, fields)
        doing = (await activities(self._services.store, [task.id])).get(task.id, Activity())
        return {
            "name": task.name,
            "version": task.version,
            "fields": _differences(task, draft),
            "next_before": _time(task.next_fire_at),
            "next_after": _time(await self._next_after(task, draft)),
            "running": doing.active_runs,
        }

    async def _next_after(self, task: Task, draft: Draft) -> int | None:
        """The cursor that the change leads to: kept, unless it is about when."""
        spec, was = draft.spec, task.spec
        when = (spec.schedule, spec.timezone, spec.start_at, spec.end_at)
        if spec.schedule is None:
            return None
        if when == (was.schedule, was.timezone, was.start_at, was.end_at) and draft.status in (None, task.status):
            return task.next_fire_at
        from noonbell.policy.account import bounds_of

        now = await self._services.store.now()
        slot = due.initial(parse(spec.schedule, spec.timezone), bounds_of(spec), slot_of(now))
        return None if slot is None or (draft.status or task.status) != "ENABLED" else instant_of(slot)


def _differences(task: Task, draft: Draft) -> dict[str, list[Any]]:
    before, after = task_json.written(task.spec), task_json.written(draft.spec)
    found = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    if draft.status is not None and draft.status is not task.status:
        found["status"] = [task.status, draft.status]
    if "headers" in found:
        found["headers"] = [masked(each) for each in found["headers"]]
    if "secret" in found:
        found["secret"] = [None if each is None else MASK for each in found["secret"]]
    return found


def _time(instant: int | None) -> str | None:
    return None if instant is None else rfc3339(instant)
