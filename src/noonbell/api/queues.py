"""Endpoints of queues."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, call, endpoints_of
from noonbell.api.params import read_object
from noonbell.api.responses import json_response, page_response
from noonbell.fields import plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.worker import QueueLimits
from noonbell.service import Services
from noonbell.service import scope as request_scope
from noonbell.service.cleaning import Cleaning, HistoryCleaned
from noonbell.service.filters import read_run_query, run_query
from noonbell.service.queues import AllQueues, DeadRunFilter, DeadRuns, Redriving, ShownQueue
from noonbell.service.runs import RunPage, RunsCanceled, RunsRetried, shown
from noonbell.service.scope import ScopeRule
from noonbell.service.time_series import QueueDepthAnswer, SeriesList


class QueueCalls:
    def __init__(self, services: Services) -> None:
        self._services, self._queues = services, services.queues

    @call("GET", "/queues", "list_queues", "The queues", Role.VIEWER, scope=ScopeRule.LIST, answer=AllQueues)
    async def all(self, request: Request) -> Response:
        del request
        scope = request_scope.current()
        found = await self._queues.all()
        return json_response({"items": [one for one in found if scope is None or scope.holds_queue(one["name"])]})

    @call("GET", "/queues/{name}", "get_queue", "Read a queue", Role.VIEWER, scope=ScopeRule.QUEUE, answer=ShownQueue)
    async def get(self, request: Request) -> Response:
        return json_response(await self._queues.get(params.piece(request, "name")))

    @call(
        "PUT", "/queues/{name}", "limit_queue", "Limit a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=QueueLimits, body_required=True, answer=ShownQueue,
    )  # fmt: skip
    async def limit(self, request: Request) -> Response:
        """A limit that is left out is removed. Limits apply across all nodes, from the next claim on."""
        given = await read_object(request, required=True)
        limited = await self._queues.limit(params.piece(request, "name"), given, by=params.actor(request))
        params.add_to_audit(request, concurrency=limited["concurrency"], rate_limit=limited["rate_limit"])
        return json_response(limited)

    @call(
        "POST", "/queues/{name}/pause", "pause_queue", "Pause a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        answer=ShownQueue,
    )  # fmt: skip
    async def pause(self, request: Request) -> Response:
        """Attempts that are running continue."""
        await read_object(request)
        return json_response(await self._queues.pause(params.piece(request, "name"), by=params.actor(request)))

    @call(
        "POST",
        "/queues/{name}/resume",
        "resume_queue",
        "Resume a queue",
        Role.OPERATOR,
        scope=ScopeRule.QUEUE,
        answer=ShownQueue,
    )
    async def resume(self, request: Request) -> Response:
        await read_object(request)
        return json_response(await self._queues.resume(params.piece(request, "name"), by=params.actor(request)))

    @call(
        "POST", "/queues/{name}/drain", "drain_queue", "Cancel the waiting runs of a"
        " queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        answer=RunsCanceled,
    )  # fmt: skip
    async def drain(self, request: Request) -> Response:
        """Delayed runs and retries are canceled too; running attempts continue. At most 10,000 per call."""
        await read_object(request)
        return json_response(await self._queues.drain(params.piece(request, "name"), by=params.actor(request)))

    @call(
        "POST", "/queues/{name}/clean", "clean_queue", "Remove the final runs of a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=Cleaning, body_required=True, answer=HistoryCleaned,
    )  # fmt: skip
    async def clean(self, request: Request) -> Response:
        """Those that ended longer ago, or all but the newest `keep` of the queue; of all statuses or of some. At
        most about 10,000 per call.
        """
        given = await read_object(request, required=True)
        done = await self._services.cleanings.clean_queue(params.piece(request, "name"), given)
        params.add_to_audit(request, removed=done.removed)
        return json_response(done)

    @call(
        "GET", "/queues/{name}/dead", "list_dead_runs", "The dead-lettered runs of a"
        " queue", Role.VIEWER, scope=ScopeRule.QUEUE,
        query=DeadRuns, answer=RunPage,
    )  # fmt: skip
    async def dead(self, request: Request) -> Response:
        asked = await read_run_query(params.query_of(request, DeadRuns), self._services.store, struct=DeadRuns)
        query = self._queues.dead(params.piece(request, "name"), asked)
        page = await self._services.runs.page(query)
        return page_response([shown(run) for run in page.items], page, query.page, query.page_size)

    @call(
        "GET", "/queues/{name}/depth", "queue_depth", "How many runs waited in a queue, over time", Role.VIEWER, scope=ScopeRule.QUEUE,
        query=SeriesList, answer=QueueDepthAnswer,
    )  # fmt: skip
    async def depth(self, request: Request) -> Response:
        """From samples that are taken once a minute. A step without a sample has null, not zero, since its depth is
        unknown.
        """
        asked = params.read_query(request, SeriesList)
        return json_response(plain(await self._services.series.depth(params.piece(request, "name"), asked)))

    @call(
        "POST", "/queues/{name}/redrive", "redrive_queue", "Retry the dead-lettered runs of a"
        " queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=Redriving, answer=RunsRetried,
    )  # fmt: skip
    async def redrive(self, request: Request) -> Response:
        """Creates a new run for each dead-lettered run, with the same payload. Each dead-lettered run is retried
        once, even if you repeat this. At most 10,000 per call.
        """
        problems = Problems()
        asked = read_into(Redriving, await read_object(request), ReadContext(problems))
        query = await run_query(asked.filter or DeadRunFilter(), self._services.store, ReadContext(problems, "filter"))
        problems.finish()
        if asked.dry_run:
            params.nothing_changed(request)
        done = await self._queues.redrive(
            params.piece(request, "name"), query, by=params.actor(request), dry_run=asked.dry_run
        )
        return json_response(done)


def endpoints(services: Services) -> list[Endpoint]:
    return endpoints_of(QueueCalls(services), "queues")
