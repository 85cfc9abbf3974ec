"""Endpoints of queues."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.api.params import read_object
from noonbell.api.responses import page_answer
from noonbell.fields import plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.worker import QueueLimits
from noonbell.service import Services
from noonbell.service import scope as request_scope
from noonbell.service.cleaning import Cleaned, CleanWrite
from noonbell.service.filters import read_run_query, run_query
from noonbell.service.pauses import QueuePauseWrite
from noonbell.service.queues import AllQueues, DeadRunFilter, DeadRuns, RedriveWrite, ShownQueue
from noonbell.service.runs import RunPage, RunsCanceled, RunsRetried, shown
from noonbell.service.scope import ScopeRule
from noonbell.service.time_series import QueueDepthAnswer, SeriesList


class QueueCalls:
    def __init__(self, services: Services) -> None:
        self._services, self._queues = services, services.queues

    @call("GET", "/queues", "list_queues", "The queues", Role.VIEWER, scope=ScopeRule.LIST, answer=AllQueues)
    async def all(self) -> object:
        scope = request_scope.current()
        found = await self._queues.all()
        return {"items": [one for one in found if scope is None or scope.holds_queue(one["name"])]}

    @call("GET", "/queues/{name}", "get_queue", "Read a queue", Role.VIEWER, scope=ScopeRule.QUEUE, answer=ShownQueue)
    async def get(self, name: str) -> object:
        return await self._queues.get(name)

    @call(
        "PUT", "/queues/{name}", "limit_queue", "Limit a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=QueueLimits, body_required=True, answer=ShownQueue,
    )  # fmt: skip
    async def limit(self, request: Request, given: Given, name: str, by: str | None) -> object:
        """A limit that is left out is removed. Limits apply across all nodes, from the next claim on."""
        limited = await self._queues.limit(name, given, by=by)
        params.add_to_audit(request, concurrency=limited["concurrency"], rate_limit=limited["rate_limit"])
        return limited

    @call(
        "POST", "/queues/{name}/pause", "pause_queue", "Pause a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=QueuePauseWrite, answer=ShownQueue,
    )  # fmt: skip
    async def pause(self, request: Request, name: str, given: Given, by: str | None) -> object:
        """Attempts that are running continue. If the queue is already paused, a given reason replaces the one before."""
        paused = await self._queues.pause(name, given, by=by)
        if reason := (given.get("reason") or "").strip():
            params.add_to_audit(request, reason=reason)
        return paused

    @call(
        "POST", "/queues/{name}/resume", "resume_queue", "Resume a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        answer=ShownQueue,
    )  # fmt: skip
    async def resume(self, request: Request, name: str, by: str | None) -> object:
        await read_object(request)
        return await self._queues.resume(name, by=by)

    @call(
        "POST", "/queues/{name}/drain", "drain_queue", "Cancel the waiting runs of a"
        " queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        answer=RunsCanceled,
    )  # fmt: skip
    async def drain(self, request: Request, name: str, by: str | None) -> object:
        """Delayed runs and retries are canceled too; running attempts continue. At most 10,000 per call."""
        await read_object(request)
        return await self._queues.drain(name, by=by)

    @call(
        "POST", "/queues/{name}/clean", "clean_queue", "Remove the final runs of a queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=CleanWrite, body_required=True, answer=Cleaned,
    )  # fmt: skip
    async def clean(self, request: Request, given: Given, name: str) -> object:
        """Those that ended longer ago, or all but the newest `keep` of the queue; of all statuses or of some. At
        most about 10,000 per call.
        """
        done = await self._services.cleanings.clean_queue(name, given)
        params.add_to_audit(request, removed=done.removed)
        return done

    @call(
        "GET", "/queues/{name}/dead", "list_dead_runs", "The dead-lettered runs of a"
        " queue", Role.VIEWER, scope=ScopeRule.QUEUE,
        query=DeadRuns, answer=RunPage,
    )  # fmt: skip
    async def dead(self, query: Given, name: str) -> object:
        asked = await read_run_query(query, self._services.store, struct=DeadRuns)
        page = await self._services.runs.page(self._queues.dead(name, asked))
        return page_answer([shown(run) for run in page.items], page, asked)

    @call(
        "GET", "/queues/{name}/depth", "queue_depth", "How many runs waited in a queue, over time", Role.VIEWER, scope=ScopeRule.QUEUE,
        query=SeriesList, answer=QueueDepthAnswer,
    )  # fmt: skip
    async def depth(self, asked: SeriesList, name: str) -> object:
        """From samples that are taken once a minute. A step without a sample has null, not zero, since its depth is
        unknown.
        """
        return plain(await self._services.series.depth(name, asked))

    @call(
        "POST", "/queues/{name}/redrive", "redrive_queue", "Retry the dead-lettered runs of a"
        " queue", Role.OPERATOR, scope=ScopeRule.QUEUE,
        body=RedriveWrite, answer=RunsRetried,
    )  # fmt: skip
    async def redrive(self, request: Request, given: Given, name: str, by: str | None) -> object:
        """Creates a new run for each dead-lettered run, with the same payload. Each dead-lettered run is retried
        once, even if you repeat this. At most 10,000 per call.
        """
        problems = Problems()
        asked = read_into(RedriveWrite, given, ReadContext(problems))
        query = await run_query(asked.filter or DeadRunFilter(), self._services.store, ReadContext(problems, "filter"))
        problems.finish()
        if asked.dry_run:
            params.nothing_changed(request)
        return await self._queues.redrive(name, query, by=by, dry_run=asked.dry_run)
