"""Many tasks at once: those that were ticked, or all that the filter of the list finds, after a look at what they are."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task, TaskId
from noonbell.service.steps import TASK_ACTS, Step, change_tasks, tasks_step
from noonbell.web import bulk
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks.index import read
from noonbell.web.visit import Visit

_SAMPLE: Final = 10
_OPPOSITE: Final = {"enable": "disable", "disable": "enable"}


async def ask(visit: Visit) -> Response:
    """Which tasks it would be: how many, and the first of them."""
    act = bulk.act_of(visit, TASK_ACTS)
    total, sample = await _found(visit)
    return visit.page(
        "task_bulk.html",
        act=act,
        total=total,
        sample=sample,
        query=visit.query,
        undo=_OPPOSITE.get(act),
        back=visit.url("/tasks", **_kept(visit)),
    )


async def carry_out(visit: Visit) -> Response:
    act, given = bulk.act_of(visit, TASK_ACTS), await visit.fields()
    visit.subject, visit.deed = f"/tasks?{visit.request.url.query}"[:500], f"{act}_tasks"
    if act == "delete" and not given.get("place"):
        bulk.check_number(visit, given, (await _found(visit))[0])
    services, query = visit.site.services, None if _ticked(visit) is not None else _query(visit)

    async def take(place: str | None) -> Step:
        if query is None:
            return await change_tasks(services, act, await _tasks(visit, _ticked(visit) or []), by=visit.actor)
        return await tasks_step(services, act, query, place, by=visit.actor)

    back = visit.url("/tasks", **_kept(visit)).removeprefix(visit.root)
    return await bulk.taken(visit, given, take, f"bulk.done_{act}", back)


async def ticked(visit: Visit) -> Response:
    """Enable, disable or run the ticked ones; what could not be done is said, the others are done."""
    form = [*await visit.form(), *visit.query.items()]
    act = dict(form).get("act", "")
    ids = bulk.ids_of([value for name, value in form if name in ("id", "ids")])
    if act not in TASK_ACTS or not ids:
        raise InvalidArgument(visit.words("bulk.nothing"))
    if act == "delete":
        return visit.done("", go=visit.url("/tasks/bulk", act=act, ids=_listed(ids)).removeprefix(visit.root))
    tasks = await _tasks(visit, ids)
    step = await change_tasks(visit.site.services, act, tasks, by=visit.actor)
    visit.deed, visit.subject = f"{act}_tasks", f"/tasks?ids={_listed(ids[:50])}"
    undo = None
    if act in _OPPOSITE and step.done:
        back = _listed([number for number, _ in step.done])
        undo = visit.url("/tasks/ticked", act=_OPPOSITE[act], ids=back).removeprefix(visit.root)
    return visit.done(bulk.told(visit, f"bulk.done_{act}", step), "/tasks", undo=undo)


async def _found(visit: Visit) -> tuple[int, list[dict[str, Any]]]:
    """How many, and the first of them."""
    services = visit.site.services
    ids = _ticked(visit)
    if ids is None:
        page = await services.tasks.page(_query(visit))
        return page.total or 0, page.items[:_SAMPLE]
    tasks = await _tasks(visit, ids)
    return len(tasks), [{"name": task.name, "status": task.status} for task in tasks[:_SAMPLE]]


def _ticked(visit: Visit) -> list[int] | None:
    return bulk.ids_of([visit.query["ids"]]) if "ids" in visit.query else None


def _query(visit: Visit) -> TaskQuery:
    filters, query = read(visit)
    if query is None:
        raise InvalidArgument(filters.problem)
    return query


async def _tasks(visit: Visit, ids: list[int]) -> list[Task]:
    """Those of them that are not deleted, each as it stands."""
    found = await visit.site.services.store.tasks_by_id([TaskId(number) for number in ids])
    return sorted((task for task in found if task.deleted_at is None), key=lambda task: task.name)


def _kept(visit: Visit) -> dict[str, str]:
    return {name: value for name, value in visit.query.items() if name not in ("act", "ids", "page")}


def _listed(ids: list[int]) -> str:
    return ",".join(str(number) for number in ids)


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/tasks/bulk", ask, role=Role.OPERATOR),
        Page("/tasks/bulk", carry_out, "POST", Role.OPERATOR, deed="enable_tasks"),
        Page("/tasks/ticked", ticked, "POST", Role.OPERATOR, deed="enable_tasks"),
    ]
