"""What the filter bar proposes while somebody types: the keys there are, and the values that they have here."""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from noonbell.errors import InvalidArgument
from noonbell.model.request import TaskQuery
from noonbell.model.run import Origin, RunStatus
from noonbell.model.task import TaskStatus
from noonbell.web.badges import word_of
from noonbell.web.page import Page
from noonbell.web.runs.index import GROUPS
from noonbell.web.site import Site
from noonbell.web.tokens import RUNS, TASKS
from noonbell.web.visit import Visit

MOST: Final = 12
_SPANS: Final = ("1h", "24h", "7d", "30d")

Proposals = list[tuple[str, str]]
"""Values, each with what to say beside it."""


async def propose(visit: Visit) -> Response:
    room, key, text = (visit.query.get(name, "")[:255] for name in ("for", "key", "text"))
    if room not in ("tasks", "runs"):
        raise InvalidArgument.field("for", f"is {room[:40]!r}; expected tasks or runs")
    grammar = TASKS if room == "tasks" else RUNS
    if not key:
        found = [(f"{each}:", visit.words(f"filter.{grammar.keys[each]}")) for each in grammar.keys]
        found = [pair for pair in found if pair[0].startswith(text.casefold())]
    else:
        found = await _values(visit, room, key, text)
    return JSONResponse({"items": [{"value": value, "hint": hint} for value, hint in found[:MOST]]})


async def _values(visit: Visit, room: str, key: str, text: str) -> Proposals:
    services = visit.site.services
    match key:
        case "status":
            return _within(_statuses(visit, room), text)
        case "label":
            return [(f"{each.name}={each.value}", str(each.tasks)) for each in await services.store.labels(text, MOST)]
        case "queue":
            return _within([(each["name"], str(each["waiting"])) for each in await services.queues.all()], text)
        case "worker":
            workers = await services.workers.all()
            return _within([(each["id"], word_of(each["state"], visit.words)) for each in workers], text)
        case "task" | "name":
            page = await services.store.tasks(TaskQuery(name=text or None, page_size=MOST, sort="name"))
            return [(task.name, word_of(task.status, visit.words)) for task in page.items]
        case "origin":
            return _within([(str(each), visit.words(f"origin.{each}")) for each in Origin], text)
        case "after" | "before":
            return _within([(each, visit.words("filter.ago", span=each)) for each in _SPANS], text)
        case _:
            return []


def _statuses(visit: Visit, room: str) -> Proposals:
    if room == "tasks":
        return [(str(each), word_of(each, visit.words)) for each in TaskStatus]
    groups = [(name, visit.words(f"group.{name}")) for name in GROUPS]
    return [*groups, *((str(each), word_of(each, visit.words)) for each in RunStatus)]


def _within(found: Proposals, text: str) -> Proposals:
    wanted = text.casefold()
    return [pair for pair in found if wanted in pair[0].casefold() or wanted in pair[1].casefold()]


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/suggest", propose)]
