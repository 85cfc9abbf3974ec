"""Endpoints that compute an answer: slots with their outcomes, explanations, the timeline, statistics, previews of schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import Given, call
from noonbell.clock import SECOND, Instant, from_datetime, rfc3339
from noonbell.errors import InvalidArgument
from noonbell.fields import Moment, meta, plain, read_into
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import Role
from noonbell.model.request import RunQuery
from noonbell.model.run import RunId
from noonbell.service import Services
from noonbell.service import scope as request_scope
from noonbell.service.account import SlotList, SlotPage
from noonbell.service.explain_words import Explanation
from noonbell.service.filters import RunFilter, TaskRef, run_query, task_query
from noonbell.service.preview import PreviewWrite, SchedulePreview
from noonbell.service.scope import ScopeRule
from noonbell.service.service_levels import SlaAnswer, SlaList
from noonbell.service.stats import StatsAnswer, StatsList
from noonbell.service.time_series import LoadList, QueueStats, WorkerStats
from noonbell.service.timeline import LONGEST, Timeline, TimelineList, shown
from noonbell.service.translation import language as known_language
from noonbell.when import zones

Asked = TypeVar("Asked", bound=RunFilter)

Lang = Annotated[
    str | None,
    meta(
        "The language of the sentence, `en` or `zh`; by default from `Accept-Language`.",
        min_length=2,
        max_length=20,
        examples=["zh"],
    ),
]


class ExplainRun(msgspec.Struct, frozen=True, kw_only=True):
    lang: Lang = None


class ExplainTask(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[
        Moment | None,
        meta(
            "The time; without an offset, local time in the task's zone. If left out: what keeps the task from"
            " running, else its newest slot, else its next."
        ),
    ] = None
    lang: Lang = None


class ReportCalls:
    def __init__(self, services: Services) -> None:
        self._services = services

    @call(
        "GET", "/tasks/{id}/slots", "list_slots", "The slots of a time range, each with its"
        " outcome", Role.VIEWER, scope=ScopeRule.TASK,
        query=SlotList, answer=SlotPage,
    )  # fmt: skip
    async def slots(self, request: Request, ref: TaskRef) -> object:
        """Past slots are those of the versions of the task that were in force then. Slots that share an outcome
        (dropped, off) are one item: `count` of them, from `slot` to `last`. For more, continue from `next_from`.
        """
        task = await self._services.tasks.get(ref, deleted=True)
        asked = params.read_query(request, SlotList, zones.find(task.spec.timezone))
        if asked.since is not None and asked.until is not None and asked.until < asked.since:
            raise InvalidArgument.field("to", "is before from")
        return await self._services.slots.page(task, asked.since, asked.until, asked.limit)

    @call(
        "GET", "/tasks/{id}/explain", "explain_task", "Why a task did or did not"
        " run", Role.VIEWER, scope=ScopeRule.TASK,
        query=ExplainTask, answer=Explanation,
    )  # fmt: skip
    async def task(self, request: Request, ref: TaskRef, language: str) -> object:
        task = await self._services.tasks.get(ref, deleted=True)
        asked = params.read_query(request, ExplainTask, zones.find(task.spec.timezone))
        return await self._services.explain.of_task(task, asked.at, known_language(asked.lang or language))

    @call(
        "GET", "/runs/{run_id}/explain", "explain_run", "Why a run ended as it did, or what it waits"
        " for", Role.VIEWER, scope=ScopeRule.RUN,
        query=ExplainRun, answer=Explanation, tag="runs",
    )  # fmt: skip
    async def run(self, asked: ExplainRun, run_id: RunId, language: str) -> object:
        return await self._services.explain.of_run(run_id, known_language(asked.lang or language))

    @call(
        "GET", "/timeline", "timeline", "What ran and what is planned, task by task", Role.VIEWER, scope=ScopeRule.LIST,
        query=TimelineList, answer=Timeline,
    )  # fmt: skip
    async def page(self, query: Given) -> object:
        """Tasks that fire next come first. For each task, the newest runs in the time range are shown one by one and
        earlier ones are counted in `earlier`; of future slots, the first ones are shown.
        """
        at = ReadContext(Problems())
        asked = read_into(TimelineList, query, at)
        now = await self._services.store.now()
        since, until = _ends(asked, now)
        if not SECOND <= until - since <= LONGEST:
            at.wrong("to", "expected a time from one second to 32 days after from")
        at.problems.finish()
        wanted = msgspec.structs.replace(
            task_query(asked, at), sort="next_fire_at", page=asked.page, page_size=asked.page_size
        )
        lanes, total = await self._services.timelines.lanes(wanted, since, until, now)
        return {
            "from": rfc3339(since),
            "to": rfc3339(until),
            "items": [shown(lane) for lane in lanes],
            "total": total,
            "page": asked.page,
            "page_size": asked.page_size,
        }

    @call(
        "POST", "/schedules/preview", "preview_schedule", "What a schedule will do", Role.VIEWER, scope=ScopeRule.ANYTHING,
        body=PreviewWrite, body_required=True, answer=SchedulePreview, is_audited=False, tag="schedules",
    )  # fmt: skip
    async def preview(self, given: Given, language: str) -> object:
        """Computed by the scheduler's own code. `Accept-Language: zh` gives the sentence and the notes in Chinese."""
        return await self._services.previews.of(given, language)

    @call(
        "GET", "/stats", "stats", "How runs ended over a period", Role.VIEWER, scope=ScopeRule.LIST,
        query=StatsList, answer=StatsAnswer, tag="stats",
    )  # fmt: skip
    async def stats(self, query: Given) -> object:
        """About all runs that ended in the time range from `from` to `to`, in whole minutes (up to two days back),
        hours (90 days) or UTC days.

        Counts and averages are exact, percentiles are within 2 %. Runs that have not ended count in `by_status` if they
        were due in the time range.
        """
        _, runs = await self._runs_asked_for(StatsList, query)
        return await self._services.stats.over(runs.since, runs.until, runs.task_id)

    @call(
        "GET", "/stats/queues/{name}", "queue_stats", "How long the runs of a queue waited and took, over time", Role.VIEWER,
        scope=ScopeRule.QUEUE, query=LoadList, answer=QueueStats, tag="stats",
    )  # fmt: skip
    async def of_queue(self, asked: LoadList, name: str) -> object:
        """From the roll-ups: a run counts when it ended. Percentiles are within 2 %. `GET /queues/{name}/depth` has
        the runs that wait.
        """
        return plain(await self._services.series.queue(name, asked))

    @call(
        "GET", "/stats/workers/{worker_id}", "worker_stats", "How busy a worker was, over time", Role.VIEWER,
        query=LoadList, answer=WorkerStats, tag="stats",
    )  # fmt: skip
    async def of_worker(self, asked: LoadList, worker_id: str) -> object:
        """From the roll-ups: a run counts when it ended. Only for workers that `GET /workers` lists: one without a
        heartbeat for a day is not listed.
        """
        worker = await self._services.workers.get(worker_id)
        started_at = from_datetime(datetime.fromisoformat(worker["started_at"]))
        found = await self._services.series.worker(worker["id"], worker["concurrency"], started_at, asked)
        return plain(found)

    @call(
        "GET", "/stats/sla", "service_levels", "How well tasks meet their service"
        " levels", Role.VIEWER, scope=ScopeRule.LIST,
        query=SlaList, answer=SlaAnswer, tag="stats",
    )  # fmt: skip
    async def service_levels(self, query: Given) -> object:
        """For each task: start delay, queue time, duration, the ratio of runs that succeeded, the error budget that is
        left, and breaches.

        From the roll-ups, for 90 days by hour and day. Expected breaches are listed with those that have happened.
        """
        asked, runs = await self._runs_asked_for(SlaList, query)
        found = await self._services.levels.over(
            runs.since, runs.until, task_id=runs.task_id, label=runs.label, queue=runs.queue, by=asked.by
        )
        return plain(found)

    async def _runs_asked_for(self, struct: type[Asked], query: Given) -> tuple[Asked, RunQuery]:
        """The query string, and the runs that it names; for a token with a scope, those of one task in it."""
        at = ReadContext(Problems())
        asked = read_into(struct, query, at)
        runs = await run_query(asked, self._services.store, at)
        if runs.scope is not None and runs.task_id is None:
            at.wrong(
                "task", "is missing; this token has a scope, and statistics are available only for single tasks in it"
            )
        at.problems.finish()
        if runs.task_id is not None:
            await request_scope.check_tasks(self._services.store, [runs.task_id])
        return asked, runs


_HALF = 12 * 3_600 * SECOND


def _ends(asked: TimelineList, now: Instant) -> tuple[Instant, Instant]:
    """The stretch that was asked for; a day around now by default."""
    since, until = asked.since, asked.until
    if since is None:
        since = Instant(now - _HALF if until is None else until - 2 * _HALF)
    return since, Instant(since + 2 * _HALF) if until is None else until
