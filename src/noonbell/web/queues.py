"""Queues: how much waits, for how long, who works on it; pause, resume, drain, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.model.access import Role
from noonbell.model.task import HTTP_QUEUE
from noonbell.web.page import Handler, Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit

ACTS: Final = ("pause", "resume")


async def show(visit: Visit) -> Response:
    services = visit.site.services
    queues = await services.queues.all()
    workers = await services.workers.all()
    rows = [{"queue": queue, "served_by": served_by(queue["name"], workers)} for queue in queues]
    rejected = await services.callbacks.rejected(20)
    return visit.page("queues.html", rows=rows, http_queue=HTTP_QUEUE, rejected=rejected)


def served_by(queue: str, workers: Sequence[dict[str, Any]]) -> int:
    """How many workers take runs from it now."""
    return sum(worker["state"] == "running" and queue in worker["queues"] for worker in workers)


def set_to(act: str) -> Handler:
    async def handler(visit: Visit) -> Response:
        name = visit.piece("name")
        queues = visit.site.services.queues
        await (queues.pause if act == "pause" else queues.resume)(name, by=visit.actor)
        return visit.done(visit.words(f"queue.{act}d", name=name), "/queues")

    return handler


async def limit(visit: Visit) -> Response:
    """Both limits of a queue, as the form says them; an empty field is no limit."""
    name, given = visit.piece("name"), await visit.fields()
    wanted: dict[str, Any] = {}
    if given.get("concurrency", "").strip():
        wanted["concurrency"] = _whole("concurrency", given["concurrency"])
    if given.get("max", "").strip():
        wanted["rate_limit"] = {
            "max": _whole("max", given["max"]),
            "per_seconds": _whole("per_seconds", given.get("per_seconds") or "1"),
        }
    await visit.site.services.queues.limit(name, wanted, by=visit.actor)
    return visit.done(visit.words("queue.limited", name=name), "/queues")


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 10:
        raise InvalidArgument.field(name, f"is {text[:20]!r}; expected a whole number")
    return int(text)


async def drain(visit: Visit) -> Response:
    name = visit.piece("name")
    done = await visit.site.services.queues.drain(name, by=visit.actor)
    return visit.done(visit.words("queue.drained", name=name, n=done.changed), "/queues")


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/queues", show),
        Page("/queues/{name}/pause", set_to("pause"), "POST", operator, deed="pause_queue"),
        Page("/queues/{name}/resume", set_to("resume"), "POST", operator, deed="resume_queue"),
        Page("/queues/{name}/limit", limit, "POST", operator, deed="limit_queue"),
        Page("/queues/{name}/drain", drain, "POST", operator, deed="drain_queue"),
    ]
