"""Many tasks at once: those that were ticked, or all that the filter of the list finds, after a look at what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from noonbell.errors import ConcurrencyLimit, InvalidArgument, InvalidState, NotFound
from noonbell.model.access import Role
from noonbell.model.request import TaskQuery
from noonbell.model.task import TaskStatus
from noonbell.service import naming
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks import read
from noonbell.web.visit import Visit

ACTS: Final = ("enable", "disable")
_SAMPLE: Final = 10
_MOST: Final = 500


async def ask(visit: Visit) -> Response:
    """Which tasks it would be: how many, and the first of them."""
    act, query = _asked(visit)
    page = await visit.site.services.tasks.page(query)
    return visit.page(
        "task_bulk.html",
        act=act,
        total=page.total or 0,
        sample=page.items[:_SAMPLE],
        query=visit.query,
        back=visit.url("/tasks", **{name: value for name, value in visit.query.items() if name != "act"}),
    )


async def carry_out(visit: Visit) -> Response:
    act, query = _asked(visit)
    status = TaskStatus.ENABLED if act == "enable" else TaskStatus.DISABLED
    changed = await visit.site.services.tasks.set_status_where(query, status, by=visit.actor)
    visit.subject, visit.deed = f"/tasks?{visit.request.url.query}", f"{act}_tasks"
    kept = {name: value for name, value in visit.query.items() if name != "act"}
    return visit.done(visit.words(f"bulk.{act}d", n=changed), go=visit.url("/tasks", **kept).removeprefix(visit.root))


def _asked(visit: Visit) -> tuple[str, TaskQuery]:
    act = visit.query.get("act", "")
    if act not in ACTS:
        raise InvalidArgument.field("act", f"is {act[:40]!r}; expected {' or '.join(ACTS)}")
    filters, query = read(visit)
    if query is None:
        raise InvalidArgument(filters.problem)
    return act, query


async def ticked(visit: Visit) -> Response:
    """Enable, disable or run the ticked ones; what could not be done is said, the others are done."""
    form = await visit.form()
    act = dict(form).get("act", "")
    refs = [naming.task_ref(value) for name, value in form if name == "id"][:_MOST]
    if act not in (*ACTS, "trigger") or not refs:
        raise InvalidArgument(visit.words("bulk.nothing"))
    done, problems = await _each(visit, act, refs)
    visit.deed = f"{act}_tasks"
    visit.subject = f"/tasks ({', '.join(str(ref) for ref in refs[:20])})"
    text = visit.words(f"bulk.{act}d" if act != "trigger" else "bulk.triggered", n=done)
    if problems:
        text = f"{text} {visit.words('bulk.left', n=len(problems), why=problems[0])}"
    return visit.done(text, "/tasks")


async def _each(visit: Visit, act: str, refs: Sequence[naming.TaskRef]) -> tuple[int, list[str]]:
    services, problems, done = visit.site.services, [], 0
    for ref in refs:
        try:
            if act == "trigger":
                await services.publishing.trigger(ref, {}, trace_id=visit.request_id)
            elif act == "enable":
                await services.tasks.enable(ref, by=visit.actor)
            else:
                await services.tasks.disable(ref, by=visit.actor)
            done += 1
        except (ConcurrencyLimit, InvalidState, NotFound) as error:
            problems.append(error.message)
    return done, problems


def pages(site: Site) -> list[Page]:
    del site
    return [
        Page("/tasks/bulk", ask, role=Role.OPERATOR),
        Page("/tasks/bulk", carry_out, "POST", Role.OPERATOR, deed="enable_tasks"),
        Page("/tasks/ticked", ticked, "POST", Role.OPERATOR, deed="enable_tasks"),
    ]
