"""What a visitor does to one task: run it, pause it, resume it, reset it, skip slots, delete it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response

from noonbell.errors import InvalidArgument, InvalidJson
from noonbell.model.access import Role
from noonbell.model.task import Task
from noonbell.service import naming
from noonbell.service.tasks import Removal
from noonbell.web.jsontext import read_json
from noonbell.web.page import Handler, Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit


async def trigger(visit: Visit) -> Response:
    task, given = await found(visit), await visit.fields()
    published = await visit.site.services.publishing.trigger(task.id, _wanted(given), trace_id=visit.request_id)
    text = visit.words("task.triggered", name=task.name)
    if given.get("open") and published.run_id is not None:
        return visit.done(text, go=f"/runs/{published.run_id}")
    return visit.done(text, back(given, task))


def _wanted(given: dict[str, str]) -> dict[str, Any]:
    """What a run has of its own: another body or payload."""
    wanted: dict[str, Any] = {}
    if given.get("override_body"):
        wanted["override_body"] = given["override_body"]
    if given.get("payload", "").strip():
        try:
            wanted["payload"] = read_json(given["payload"])
        except InvalidJson as error:
            raise InvalidArgument.field("payload", error.message) from None
    return wanted


async def skip(visit: Visit) -> Response:
    task, given = await found(visit), await visit.fields()
    text = given.get("count", "1").strip()
    if not text.lstrip("-").isdecimal() or len(text) > 8:
        raise InvalidArgument.field("count", f"is {text[:20]!r}; expected a number")
    changed = await visit.site.services.tasks.skip(task.id, int(text), by=visit.actor)
    return visit.done(visit.words("task.skipping", n=changed.skip_next, name=task.name), back(given, task))


async def ask_delete(visit: Visit) -> Response:
    task = await found(visit)
    return visit.page("task_delete.html", task=await visit.site.services.tasks.show(task), problem=None)


async def delete(visit: Visit) -> Response:
    task, given = await found(visit), await visit.fields()
    if given.get("name", "") != task.name:
        shown = await visit.site.services.tasks.show(task)
        problem = visit.words("delete.type_name", name=task.name)
        return visit.page("task_delete.html", 400, task=shown, problem=problem)
    removal = Removal(cancel_running="cancel_running" in given, purge="purge" in given)
    await visit.site.services.tasks.delete(task.id, removal, by=visit.actor)
    return visit.done(visit.words("task.deleted", name=task.name), go="/tasks")


def change(act: Callable[[Visit, Task], Awaitable[Task]], key: str, undo: str | None = None) -> Handler:
    """A button that sets the task's status, and says what came of it; `undo` is the button that takes it back."""

    async def handler(visit: Visit) -> Response:
        task, given = await found(visit), await visit.fields()
        await act(visit, task)
        way_back = None if undo is None else f"/tasks/{task.id}/{undo}"
        return visit.done(visit.words(key, name=task.name), back(given, task), undo=way_back)

    return handler


async def enable(visit: Visit, task: Task) -> Task:
    return await visit.site.services.tasks.enable(task.id, by=visit.actor)


async def disable(visit: Visit, task: Task) -> Task:
    return await visit.site.services.tasks.disable(task.id, by=visit.actor)


async def reset(visit: Visit, task: Task) -> Task:
    return await visit.site.services.tasks.reset(task.id, by=visit.actor)


async def found(visit: Visit, *, deleted: bool = False) -> Task:
    task = await visit.site.services.tasks.get(naming.task_ref(visit.piece("id")), deleted=deleted)
    visit.subject = f"/tasks/{task.id}"
    return task


def back(given: dict[str, str], task: Task) -> str:
    """Where a browser without scripts goes after a button: the list, if it came from there."""
    return "/tasks" if given.get("from") == "list" else f"/tasks/{task.id}"


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/tasks/{id}/trigger", trigger, "POST", operator, deed="trigger_task"),
        Page("/tasks/{id}/enable", change(enable, "task.enabled", "disable"), "POST", operator, deed="enable_task"),
        Page("/tasks/{id}/disable", change(disable, "task.disabled", "enable"), "POST", operator, deed="disable_task"),
        Page("/tasks/{id}/reset", change(reset, "task.reset"), "POST", operator, deed="reset_task"),
        Page("/tasks/{id}/skip", skip, "POST", operator, deed="skip_slots"),
        Page("/tasks/{id}/delete", ask_delete, role=operator),
        Page("/tasks/{id}/delete", delete, "POST", operator, deed="delete_task"),
    ]
