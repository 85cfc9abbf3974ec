"""Queues: how much waits, for how long, how fast it goes, who works on it; pause, resume, limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.account import Pause
from noonbell.model.request import RunQuery
from noonbell.model.task import HTTP_QUEUE
from noonbell.service.filters import from_the_top
from noonbell.service.queues import DEAD
from noonbell.web.page import Page
from noonbell.web.queues.pace import Pace, newest, paces, spark
from noonbell.web.site import Site
from noonbell.web.visit import Visit
from noonbell.web.workers import start_command

_MOST_DEAD: Final = 10
_LONGEST_REASON: Final = 200


@dataclass(frozen=True, slots=True)
class Row:
    queue: dict[str, Any]
    path: str
    """Where it is in the dashboard."""
    served_by: int
    pace: Pace
    pause: Pause | None
    reason: str
    """Why it is paused, as far as somebody said."""
    command: str
    """What starts a worker for it."""

    @property
    def is_alone(self) -> bool:
        return bool(self.queue["waiting"]) and not self.served_by and not self.queue["paused"]


def path_of(name: str, act: str = "") -> str:
    return f"/queues/{quote(name, safe='')}{act}"


async def show(visit: Visit) -> Response:
    services = visit.site.services
    rows = await rows_of(visit, await services.queues.all())
    rejected = await services.callbacks.rejected(20)
    return visit.page("queues.html", rows=rows, http_queue=HTTP_QUEUE, rejected=rejected, spark=spark)


async def rows_of(visit: Visit, queues: Sequence[dict[str, Any]]) -> list[Row]:
    services = visit.site.services
    workers = await services.workers.all()
    found = paces(await newest(services), visit.now, lambda run: run.queue)
    return [
        Row(
            queue=queue,
            path=path_of(queue["name"]),
            served_by=served_by(queue["name"], workers),
            pace=found.get(queue["name"], Pace()),
            command=start_command(visit, queue["name"]),
            **(await _why_paused(visit, queue)),
        )
        for queue in queues
    ]


async def _why_paused(visit: Visit, queue: dict[str, Any]) -> dict[str, Any]:
    if not queue["paused"]:
        return {"pause": None, "reason": ""}
    pauses = await visit.site.services.store.pauses(queue["name"], visit.now, visit.now)
    pause = pauses[-1] if pauses else None
    if pause is None or visit.site.access is None:
        return {"pause": pause, "reason": ""}
    about: dict[str, Any] = {"actions": ("pause_queue",), "about": (f"/queues/{queue['name']}",), "since": pause.since}
    entries = await visit.site.access.log(None, 1, **about)
    return {"pause": pause, "reason": str(entries[0]["details"].get("reason", "")) if entries else ""}


def served_by(queue: str, workers: Sequence[dict[str, Any]]) -> int:
    """How many workers take runs from it now."""
    return sum(worker["state"] == "running" and queue in worker["queues"] for worker in workers)


async def show_one(
    visit: Visit, problems: dict[str, str] | None = None, given: dict[str, str] | None = None
) -> Response:
    """`problems` and `given`: of a form of this page that was refused."""
    name, services = visit.piece("name"), visit.site.services
    (row,) = await rows_of(visit, [await services.queues.get(name)])
    dead = RunQuery(queue=name, status=DEAD, page_size=_MOST_DEAD, cursor=from_the_top("-id"))
    return visit.page(
        "queue.html",
        400 if problems else 200,
        row=row,
        http_queue=HTTP_QUEUE,
        spark=spark,
        dead=(await services.runs.page(dead)).items,
        dead_statuses=",".join(DEAD),
        problems=problems or {},
        limits=given or _limits(row.queue),
    )


def _limits(queue: dict[str, Any]) -> dict[str, str]:
    rate = queue["rate_limit"] or {}
    return {
        "concurrency": "" if queue["concurrency"] is None else str(queue["concurrency"]),
        "max": str(rate.get("max", "")),
        "per_seconds": f"{rate['per_seconds']:g}" if rate else "",
    }


async def pause(visit: Visit) -> Response:
    name, given = visit.piece("name"), await visit.fields()
    reason = given.get("reason", "").strip()[:_LONGEST_REASON]
    await visit.site.services.queues.pause(name, by=visit.actor)
    visit.subject = f"/queues/{name}"
    visit.details = {"reason": reason} if reason else {}
    return visit.done(visit.words("queue.paused", name=name), _back(visit, given), undo=path_of(name, "/resume"))


async def resume(visit: Visit) -> Response:
    name = visit.piece("name")
    await visit.site.services.queues.resume(name, by=visit.actor)
    visit.subject = f"/queues/{name}"
    return visit.done(visit.words("queue.resumed", name=name), _back(visit, await visit.fields()))


def _back(visit: Visit, given: dict[str, str]) -> str:
    """To the page that the button was on."""
    return path_of(visit.piece("name")) if given.get("from") == "queue" else "/queues"


async def limit(visit: Visit) -> Response:
    """Both limits of a queue, as the form says them; an empty field is no limit."""
    name, given = visit.piece("name"), await visit.fields()
    try:
        await visit.site.services.queues.limit(name, _wanted(given), by=visit.actor)
    except InvalidArgument as error:
        if visit.wants_json:
            raise
        problems = {field.rpartition(".")[2]: str(problem) for field, problem in error.details.items()}
        return await show_one(visit, problems, {field: given.get(field, "") for field in _limits({**_NO_LIMITS})})
    visit.subject = f"/queues/{name}"
    return visit.done(visit.words("queue.limited", name=name), path_of(name))


_NO_LIMITS: Final = {"concurrency": None, "rate_limit": None}


def _wanted(given: dict[str, str]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if given.get("concurrency", "").strip():
        wanted["concurrency"] = _whole("concurrency", given["concurrency"])
    if given.get("max", "").strip():
        wanted["rate_limit"] = {
            "max": _whole("max", given["max"]),
            "per_seconds": _whole("per_seconds", given.get("per_seconds") or "1"),
        }
    return wanted


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 10:
        raise InvalidArgument.field(name, f"is {text[:20]!r}; expected a whole number")
    return int(text)


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/queues", show),
        Page("/queues/{name}", show_one),
        Page("/queues/{name}/pause", pause, "POST", operator, deed="pause_queue"),
        Page("/queues/{name}/resume", resume, "POST", operator, deed="resume_queue"),
        Page("/queues/{name}/limit", limit, "POST", operator, deed="limit_queue"),
    ]
