"""The endpoint of the timeline: what ran and what is planned, a page of tasks at a time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api import timeline_papers as papers
from noonbell.api.answers import json_answer
from noonbell.api.endpoint import Endpoint
from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.model.request import TaskQuery
from noonbell.service import Services
from noonbell.service.filters import read_task_query
from noonbell.service.reader import Reader
from noonbell.service.timeline import LONGEST, Timelines
from noonbell.service.timeline_json import LARGEST_PAGE, shown

_HALF = 12 * 3_600 * SECOND


class TimelineCalls:
    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._timelines = Timelines(services.store)

    async def page(self, request: Request) -> Response:
        reader = params.query(request)
        now = await self._store.now()
        since, until = _ends(reader, now)
        reader.integer("page_size", 20, 1, LARGEST_PAGE)
        query = read_task_query(Reader({**reader.given, "sort": "next_fire_at"}, reader.problems))
        reader.problems.finish()
        return json_answer(await self._told(query, since, until, now))

    async def _told(self, query: TaskQuery, since: Instant, until: Instant, now: Instant) -> dict[str, object]:
        lanes, total = await self._timelines.lanes(query, since, until, now)
        return {
            "from": rfc3339(since),
            "to": rfc3339(until),
            "items": [shown(lane) for lane in lanes],
            "total": total,
            "page": query.page,
            "page_size": query.page_size,
        }


def _ends(reader: Reader, now: Instant) -> tuple[Instant, Instant]:
    """A day around now, where nothing is said."""
    since, until = reader.moment("from"), reader.moment("to")
    if since is None:
        since = Instant(now - _HALF if until is None else until - 2 * _HALF)
    until = Instant(since + 2 * _HALF) if until is None else until
    if not SECOND <= until - since <= LONGEST:
        reader.wrong("to", "expected from one second to 32 days after from")
    return since, until


def endpoints(services: Services) -> list[Endpoint]:
    return [Endpoint(("GET",), "/timeline", TimelineCalls(services).page, **papers.TIMELINE)]
