"""Making and changing a task: the form, what its schedule will do while it is typed, and a call before it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument, InvalidState, VersionConflict
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.task import ConcurrencyPolicy as Concurrency
from noonbell.model.task import ExecType, FailureAction, MisfirePolicy, OverlapAction, Task
from noonbell.service.filters import cursor_at
from noonbell.service.http_fields import Method
from noonbell.service.reader import Problems
from noonbell.service.secrets import MASK, unmasked
from noonbell.web import task_form
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.task_acts import found
from noonbell.web.times import instant_from
from noonbell.web.visit import Visit, pretty

_CROWD: Final = 100
"""Tasks that are looked at for one that starts at the same time."""
_CHOICES: Final = {
    "http_method": list(Method),
    "concurrency_policy": list(Concurrency),
    "overlap_action": list(OverlapAction),
    "failure_action": list(FailureAction),
    "misfire_policy": list(MisfirePolicy),
}


async def new(visit: Visit) -> Response:
    fields = {**task_form.EMPTY, "timezone": visit.zone.name}
    if "from" in visit.query:
        visit.request.path_params["id"] = visit.query["from"]
        copied = await visit.site.services.tasks.show(await found(visit))
        fields = {**task_form.fields_of(copied), "name": visit.words("form.copy_of", name=copied["name"])}
    return await form(visit, fields, None)


async def create(visit: Visit) -> Response:
    fields = await visit.fields()
    try:
        task = await visit.site.services.tasks.create(task_form.given_of(fields), by=visit.actor)
    except (InvalidArgument, AlreadyExists) as error:
        return await form(visit, fields, None, _problems(error))
    visit.subject = f"/tasks/{task.id}"
    return visit.done(visit.words("task.created", name=task.name), go=f"/tasks/{task.id}")


async def edit(visit: Visit) -> Response:
    task = await found(visit)
    shown = await visit.site.services.tasks.show(task)
    return await form(visit, task_form.fields_of(shown), task)


async def save(visit: Visit) -> Response:
    task, fields = await found(visit), await visit.fields()
    version = int(text) if (text := fields.get("version", "")).isdecimal() and len(text) < 10 else None
    try:
        given = task_form.given_of(fields, task.spec.schedule)
        if is_managed(task):
            if not fields.get("detach"):
                raise InvalidState(visit.words("form.managed_stays", by=task.spec.managed_by))
            given["managed_by"] = "api"
        if given["status"] == "DISABLED" and task.status != "ENABLED":
            del given["status"]  # COMPLETED and ERROR stay as they are; only `reset` and enabling end them
        await visit.site.services.tasks.change(task.id, given, partial=False, expect_version=version, by=visit.actor)
    except VersionConflict:
        problem = {"": visit.words("form.conflict", version=task.version)}
        theirs = task_form.fields_of(await visit.site.services.tasks.show(task))
        seen = {**fields, "version": str(task.version)}
        return await form(visit, seen, task, problem, 412, differences(fields, theirs))
    except (InvalidArgument, AlreadyExists, InvalidState) as error:
        return await form(visit, fields, task, _problems(error))
    return visit.done(visit.words("task.saved", name=given["name"]), go=f"/tasks/{task.id}")


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The fields of the form in which what was typed is not what the task says now: name, mine, theirs."""
    names = [name for name in theirs if name not in ("version", "enabled")]
    return [
        (name, mine[name], theirs[name])
        for name in names
        if name in mine and mine[name].replace("\r\n", "\n") != theirs[name]
    ]


def is_managed(task: Task) -> bool:
    """By a file or by code, which would change it back."""
    return task.spec.managed_by.startswith(("file:", "code:"))


def _problems(error: Any) -> dict[str, str]:
    if isinstance(error, InvalidArgument):
        return task_form.problems_of(error)
    return {"name" if isinstance(error, AlreadyExists) else "": error.message}


async def form(
    visit: Visit,
    fields: Mapping[str, str],
    task: Task | None,
    problems: Mapping[str, str] | None = None,
    status: int | None = None,
    differing: list[tuple[str, str, str]] | None = None,
) -> Response:
    return visit.page(
        "task_form.html",
        status or (400 if problems else 200),
        fields={name: fields.get(name, "") for name in (*_NAMES, *fields)},
        task=task,
        is_managed=task is not None and is_managed(task),
        problems=dict(problems or {}),
        differing=differing or [],
        choices=_CHOICES,
        kinds=task_form.KINDS,
        whens=task_form.WHENS,
        units=task_form.UNITS,
        presets=task_form.PRESETS,
        can_try=visit.site.try_call is not None,
        **await previewed(visit, fields, task),
    )


_NAMES: Final = (
    *("name", "description", "labels", "kind", "http_method", "target_url", "headers", "body_template", "job_type"),
    *("payload", "queue", "callback_timeout_sec", "when", "cron_expr", "every", "unit", "weekday", "day", "time", "at"),
    *("timezone", "jitter_seconds", "timeout_seconds", "max_retries", "initial_delay", "strategy", "max_concurrency"),
    *("concurrency_policy", "overlap_action", "failure_action", "misfire_policy", "catchup_limit", "priority"),
    *("enabled", "version", "rest", "detach"),
)


# While it is typed


async def preview(visit: Visit) -> Response:
    """A piece of the page: the schedule of the form in words, with its next slots and its effect."""
    fields = await visit.fields()
    task = None
    if fields.get("task_id"):
        visit.request.path_params["id"] = fields["task_id"]
        task = await found(visit)
    return visit.page("_preview.html", **await previewed(visit, fields, task))


async def previewed(visit: Visit, fields: Mapping[str, str], task: Task | None) -> dict[str, Any]:
    view: dict[str, Any] = {"preview": None, "preview_problem": "", "effect": None, "crowd": 0}
    try:
        problems = Problems()
        schedule = task_form.schedule_of(fields, None if task is None else task.spec.schedule, problems)
        problems.finish()
        if schedule is None or (schedule["type"] == "cron" and not schedule["expr"]):
            return view
        asked = {"schedule": schedule, "timezone": fields.get("timezone", "").strip() or "UTC", "count": 5}
        view["preview"] = await visit.site.services.previews.of(asked, visit.words.lang)
    except InvalidArgument as error:
        view["preview_problem"] = "; ".join(str(problem) for problem in error.details.values()) or error.message
        return view
    view["crowd"] = await others_at(visit, view["preview"]["next_fires"], task)
    if task is not None:
        before = await visit.site.services.previews.next(task, 1, visit.words.lang)
        view["effect"] = effect(before["next_fires"], view["preview"]["next_fires"])
    return view


async def others_at(visit: Visit, fires: list[dict[str, str]], task: Task | None) -> int:
    """How many other tasks start in the very second of the next slot, as far as their own next slot says."""
    if not fires:
        return 0
    at = instant_from(fires[0]["utc"])
    query = TaskQuery(sort="next_fire_at", page_size=_CROWD, cursor=cursor_at("next_fire_at", at - 1))
    found = (await visit.site.services.tasks.page(query)).items
    mine = None if task is None else task.id
    return sum(
        each["id"] != mine and each["next_fire_at"] is not None and instant_from(each["next_fire_at"]) == at
        for each in found
    )


def effect(before: list[dict[str, str]], after: list[dict[str, str]]) -> tuple[str | None, str | None] | None:
    """The next slot before and after; None where it stays."""
    was, will = (fires[0]["utc"] if fires else None for fires in (before, after))
    return None if was == will else (was, will)


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
        given["headers"] = unmasked(given["headers"], kept.headers)
        if given.get("secret") == MASK:
            given["secret"] = kept.secret
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
        Page("/tasks/preview", preview, "POST"),
        Page("/tasks/try", try_call, "POST", operator, deed="try_call"),
        Page("/tasks/{id}/edit", edit, role=operator),
        Page("/tasks/{id}/edit", save, "POST", operator, deed="replace_task"),
    ]
