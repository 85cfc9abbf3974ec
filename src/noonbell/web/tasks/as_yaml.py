"""The form as YAML, and back: the same task, the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.account import Activity
from noonbell.model.task import Task, TaskId, TaskStatus
from noonbell.service.task_json import shown
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks import form as task_form
from noonbell.web.tasks.acts import found
from noonbell.web.tasks.sheet import fields_of, form
from noonbell.web.visit import Visit
from noonbell.web.yamltext import read_yaml

_MOST: Final = 200_000
"""Characters."""


async def show(visit: Visit) -> Response:
    """What the form says, as a file would say it."""
    fields = await visit.fields()
    task = await task_of(visit, fields)
    try:
        if task is None:
            given = task_form.given_of(fields)
        else:
            given = task_form.change_of(fields, await visit.site.services.tasks.show(task))
    except InvalidArgument as error:
        return await form(visit, fields, task, task_form.problems_of(error))
    return page(visit, written(given), fields, task)


async def back(visit: Visit) -> Response:
    """From the text to the form; a text that is no task stays where it is, with what is wrong with it."""
    fields = await visit.fields()
    task = await task_of(visit, fields)
    try:
        told = await fields_from(visit, fields.get("yaml", ""), task)
    except InvalidArgument as error:
        return page(visit, fields.get("yaml", ""), fields, task, error)
    return await form(visit, {**told, "version": fields.get("version", "")}, task)


async def fields_from(visit: Visit, text: str, task: Task | None) -> dict[str, str]:
    given = await read(text)
    status = TaskStatus.DISABLED if given.get("status") == "DISABLED" else TaskStatus.ENABLED
    tasks = visit.site.services.tasks
    spec = await tasks.check(given) if task is None else (await tasks.draft_of_change(task, given)).spec
    whole = Task(id=TaskId(0), version=1, status=status, spec=spec, created_at=visit.now, updated_at=visit.now)
    return fields_of(visit, shown(whole, Activity()))


def page(
    visit: Visit, text: str, fields: Mapping[str, str], task: Task | None, error: InvalidArgument | None = None
) -> Response:
    problems = {} if error is None else dict(error.details) or {"": error.message}
    return visit.page(
        "task_yaml.html",
        200 if error is None else 400,
        text=text,
        task=task,
        version=fields.get("version", ""),
        problems=problems,
    )


async def task_of(visit: Visit, fields: Mapping[str, str]) -> Task | None:
    if not fields.get("task_id"):
        return None
    visit.request.path_params["id"] = fields["task_id"]
    return await found(visit)


def written(given: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(given), sort_keys=False, allow_unicode=True, width=100)
    return text


async def read(text: str) -> dict[str, Any]:
    """One task: its fields, or `tasks:` with one of them. Raises InvalidArgument."""
    try:
        told = await read_yaml(text, _MOST)
    except InvalidArgument as error:
        raise InvalidArgument.field("yaml", error.message) from None
    if isinstance(told, dict) and set(told) == {"tasks"}:
        listed = told["tasks"]
        told = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
    if not isinstance(told, dict):
        raise InvalidArgument.field("yaml", "is something else than the fields of one task")
    return told


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/tasks/yaml", show, "POST", Role.OPERATOR),
        Page("/tasks/form", back, "POST", Role.OPERATOR),
    ]
