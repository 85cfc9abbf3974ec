"""What the schedule of the form will do, while it is typed: in words, with its next slots, its traps and its effect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell import when
from noonbell.errors import InvalidArgument, ScheduleError
from noonbell.model.request import TaskQuery
from noonbell.model.task import Task
from noonbell.service.filters import cursor_at
from noonbell.service.reader import Problems
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.tasks import form as task_form
from noonbell.web.tasks.acts import found
from noonbell.web.times import instant_from
from noonbell.web.visit import Visit
from noonbell.when.cron_fields import Dialect
from noonbell.when.plain import from_quartz, propose

_CROWD: Final = 100
"""Tasks that are looked at for one that starts at the same time."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A schedule that the words in the field may mean: for somebody to take, never taken by itself."""

    fields: dict[str, str]
    """What the form would have to say."""
    text: str
    """The expression, where it is a cron."""
    sentence: str


async def preview(visit: Visit) -> Response:
    """A piece of the page."""
    fields = await visit.fields()
    task = None
    if fields.get("task_id"):
        visit.request.path_params["id"] = fields["task_id"]
        task = await found(visit)
    return visit.page("_preview.html", **await previewed(visit, fields, task))


async def previewed(visit: Visit, fields: Mapping[str, str], task: Task | None) -> dict[str, Any]:
    view: dict[str, Any] = {"preview": None, "preview_problem": "", "effect": None, "crowd": 0, "jitter": 0}
    view |= {"meant": meant(fields, visit.words.lang), "is_quartz": False, "dialect": ""}
    try:
        problems = Problems()
        schedule = task_form.schedule_of(fields, None if task is None else task.spec.schedule, problems)
        problems.finish()
        if schedule is None or (schedule["type"] == "cron" and not schedule["expr"]):
            return view
        view["is_quartz"] = view["meant"] is not None and propose(fields.get("cron_expr", "")) is None
        asked = {"schedule": schedule, "timezone": fields.get("timezone", "").strip() or "UTC", "count": 5}
        view["preview"] = await visit.site.services.previews.of(asked, visit.words.lang)
    except InvalidArgument as error:
        view["preview_problem"] = "; ".join(str(problem) for problem in error.details.values()) or error.message
        return view
    view["dialect"] = dialect_of(schedule)
    fires = view["preview"]["next_fires"]
    view["crowd"] = await others_at(visit, fires, task)
    view["jitter"] = 0 if _has_jitter(fields) else min(600, max(30, 5 * view["crowd"]))
    if task is not None:
        before = await visit.site.services.previews.next(task, 1, visit.words.lang)
        view["effect"] = effect(before["next_fires"], fires)
    return view


def _has_jitter(fields: Mapping[str, str]) -> bool:
    return fields.get("jitter_seconds", "").strip() not in ("", "0")


def meant(fields: Mapping[str, str], lang: str) -> Meant | None:
    """Plain words, or an expression as Quartz counts, where a cron expression is expected."""
    text = fields.get("cron_expr", "").strip()
    if fields.get("when") != "cron" or not text:
        return None
    proposal = propose(text)
    if proposal is not None and proposal.cron is None:
        spec: dict[str, Any] = {"type": "interval", "every": proposal.every, "unit": proposal.unit}
        told = {"when": "interval", "every": str(proposal.every), "unit": proposal.unit}
    else:
        is_quartz = fields.get("dialect") == Dialect.QUARTZ
        cron = proposal.cron if proposal is not None else None if is_quartz else from_quartz(text)
        if cron is None:
            return None
        spec, told = {"type": "cron", "expr": cron}, {"when": "cron", "cron_expr": cron}
        if fields.get("dialect", Dialect.STANDARD) != Dialect.STANDARD:
            told["dialect"] = str(Dialect.STANDARD)
    try:
        sentence = when.parse(spec, fields.get("timezone", "").strip() or "UTC").describe(lang)
    except ScheduleError:
        return None
    return Meant(told, told.get("cron_expr", ""), sentence)


def dialect_of(schedule: Mapping[str, Any]) -> str:
    """What kind of expression it is: `five`, `six`, `quartz` (its signs, in another dialect), `quartz_numbers`, `nickname`;
    nothing where it is no cron.
    """
    if schedule["type"] != "cron":
        return ""
    parts = str(schedule["expr"]).upper().split()
    if len(parts) < 5:
        return "nickname"
    if schedule.get("dialect") == Dialect.QUARTZ:
        return "quartz_numbers"
    day, weekday = parts[-3], parts[-1]
    if "?" in day + weekday or "#" in weekday or "L" in day or "W" in day or re.search(r"\dL", weekday):
        return "quartz"
    return "six" if len(parts) == 6 else "five"


async def others_at(visit: Visit, fires: list[dict[str, str]], task: Task | None) -> int:
    """How many other tasks start in the very second of the next slot, as far as their own next slot says."""
    if not fires:
        return 0
    at = instant_from(fires[0]["utc"])
    query = TaskQuery(sort="next_fire_at", page_size=_CROWD, cursor=cursor_at("next_fire_at", at - 1))
    found = (await visit.site.services.store.tasks(query)).items
    mine = None if task is None else task.id
    return sum(each.id != mine and each.next_fire_at == at for each in found)


def effect(before: list[dict[str, str]], after: list[dict[str, str]]) -> tuple[str | None, str | None] | None:
    """The next slot before and after; None where it stays."""
    was, will = (fires[0]["utc"] if fires else None for fires in (before, after))
    return None if was == will else (was, will)


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/tasks/preview", preview, "POST")]
