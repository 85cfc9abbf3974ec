"""Making and changing a task: the form, what is wrong with it while it is filled in, and a call before it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, VersionConflict
from noonbell.model.access import Role
from noonbell.model.task import ExecType, Task
from noonbell.service.secrets import MASK, refuse_carried, unmasked
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks import as_yaml as task_yaml
from noonbell.web.tasks import form as task_form
from noonbell.web.tasks.acts import found
from noonbell.web.tasks.merge import choices, fields_at, settled, taken
from noonbell.web.tasks.sheet import default_dialect, fields_of, form, is_managed
from noonbell.web.visit import Visit, pretty
from noonbell.when.plain import propose


async def new(visit: Visit) -> Response:
    fields = {**task_form.EMPTY, "timezone": visit.zone.name, "dialect": default_dialect(visit)}
    if "from" in visit.query:
        visit.request.path_params["id"] = visit.query["from"]
        copied = await visit.site.services.tasks.show(await found(visit))
        fields = {**fields_of(visit, copied), "name": visit.words("form.copy_of", name=copied["name"])}
    return await form(visit, fields, None)


async def create(visit: Visit) -> Response:
    fields = await visit.fields()
    try:
        given = await task_yaml.read(fields["yaml"]) if "yaml" in fields else task_form.given_of(fields)
        task = await visit.site.services.tasks.create(given, by=visit.actor)
    except (InvalidArgument, AlreadyExists) as error:
        return await _refused(visit, fields, None, error)
    visit.subject = f"/tasks/{task.id}"
    return visit.done(visit.words("task.created", name=task.name), go=f"/tasks/{task.id}")


async def edit(visit: Visit) -> Response:
    """`?jitter=120` is how the timeline proposes to spread tasks that start together: filled in, and not saved."""
    task = await found(visit)
    fields = fields_of(visit, await visit.site.services.tasks.show(task))
    jitter = visit.query.get("jitter", "")
    if jitter.isdecimal() and len(jitter) < 6:
        fields["jitter_seconds"] = jitter
    return await form(visit, fields, task, is_jitter_proposed=bool(jitter))


async def save(visit: Visit) -> Response:
    task, fields = await found(visit), await visit.fields()
    version = int(text) if (text := fields.get("version", "")).isdecimal() and len(text) < 10 else None
    stored = await visit.site.services.tasks.show(task)
    theirs = fields_of(visit, stored)
    fields = taken(fields, theirs)
    try:
        given = await _given(visit, fields, task, stored)
        await visit.site.services.tasks.change(task.id, given, partial=False, expect_version=version, by=visit.actor)
    except VersionConflict:
        return await _conflict(visit, fields, task, version, theirs)
    except (InvalidArgument, AlreadyExists, InvalidState) as error:
        return await _refused(visit, fields, task, error)
    return visit.done(visit.words("task.saved", name=given.get("name", task.name)), go=f"/tasks/{task.id}")


async def review(visit: Visit) -> Response:
    """What saving would change, before it is saved."""
    task, fields = await found(visit), await visit.fields()
    theirs = fields_of(visit, await visit.site.services.tasks.show(task))
    fields = taken(fields, theirs)
    return await form(visit, fields, task, changes=choices(None, fields, theirs))


async def _given(visit: Visit, fields: Mapping[str, str], task: Task, stored: Mapping[str, Any]) -> dict[str, Any]:
    given = await task_yaml.read(fields["yaml"]) if "yaml" in fields else task_form.change_of(fields, stored)
    if is_managed(task):
        if not fields.get("detach"):
            raise InvalidState(visit.words("form.managed_stays", by=task.spec.managed_by))
        given["managed_by"] = "api"
    if given.get("status") == "DISABLED" and task.status != "ENABLED":
        del given["status"]  # COMPLETED and ERROR stay as they are; only `reset` and enabling end them
    return given


async def _conflict(
    visit: Visit, fields: Mapping[str, str], task: Task, version: int | None, theirs: Mapping[str, str]
) -> Response:
    """Somebody was faster: every field of both, and of what both began with, to choose from."""
    problem = {"": visit.words("form.conflict", version=task.version)}
    if "yaml" in fields:
        return task_yaml.page(visit, fields["yaml"], fields, task, InvalidArgument(problem[""]))
    base = fields_at(task, await visit.site.services.tasks.versions(task), version, default_dialect(visit))
    differing = choices(base, fields, theirs)
    shown = {**settled(fields, differing), "version": str(task.version)}
    return await form(visit, shown, task, problem, status=412, differing=differing)


async def _refused(visit: Visit, fields: Mapping[str, str], task: Task | None, error: Any) -> Response:
    if "yaml" in fields:
        told = error if isinstance(error, InvalidArgument) else InvalidArgument(error.message)
        return task_yaml.page(visit, fields["yaml"], fields, task, told)
    return await form(visit, fields, task, _problems(visit, fields, error))


def _problems(visit: Visit, fields: Mapping[str, str], error: Any) -> dict[str, str]:
    if not isinstance(error, InvalidArgument):
        return {"name" if isinstance(error, AlreadyExists) else "": error.message}
    problems = task_form.problems_of(error)
    proposal = propose(fields.get("cron_expr", ""))
    if "cron_expr" in problems and proposal is not None:
        problems["cron_expr"] = visit.words(
            "form.words_not_saved", cron=proposal.cron or f"{proposal.every} {proposal.unit}"
        )
    return problems


# While it is filled in


async def check(visit: Visit) -> Response:
    """What is wrong with the form as it stands, by field; nothing is written."""
    fields = await visit.fields()
    task = await task_yaml.task_of(visit, fields)
    tasks = visit.site.services.tasks
    try:
        if task is None:
            await tasks.check(task_form.given_of(fields))
        else:
            await tasks.draft_of_change(task, task_form.change_of(fields, await tasks.show(task)))
    except InvalidArgument as error:
        return JSONResponse({"problems": _problems(visit, fields, error)})
    return JSONResponse({"problems": {}})


async def try_call(visit: Visit) -> Response:
    """Send the request of the form once, and show what came back. Nothing is saved, and there is no run."""
    fields = await visit.fields()
    call = visit.site.try_call
    if call is None:
        raise InvalidState(visit.words("try.not_here"))
    given = {**task_form.given_of({**fields, "when": "none", "name": fields.get("name") or "test call"})}
    if given["exec_type"] == ExecType.JOB:
        raise InvalidState(visit.words("try.http_only"))
    if fields.get("task_id"):
        visit.request.path_params["id"] = fields["task_id"]
        kept = visit.site.services.tasks.opened(await found(visit)).spec
        written = dict(given)
        given["headers"] = unmasked(given["headers"], kept.headers)
        if given.get("secret") == MASK:
            given["secret"] = kept.secret
        refuse_carried(kept, written, given)
    spec = await visit.site.services.tasks.check(given)
    outcome = await call(spec)
    bodies = outcome.bodies
    return visit.page(
        "_try.html",
        outcome=outcome,
        body=pretty(bodies.response_body if bodies is not None else None),
    )


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/tasks/new", new, role=operator),
        Page("/tasks/new", create, "POST", operator, deed="create_task"),
        Page("/tasks/check", check, "POST", operator),
        Page("/tasks/try", try_call, "POST", operator, deed="try_call"),
        Page("/tasks/{id}/edit", edit, role=operator),
        Page("/tasks/{id}/edit", save, "POST", operator, deed="replace_task"),
        Page("/tasks/{id}/review", review, "POST", operator),
    ]
