"""One run: why it is as it is and what can be done, how it went over time, each attempt with what was sent and answered,
callbacks with the reason of each refusal, the log.

Only the attempt that is looked at is read with its bodies, and a log is shown by its end.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidId, NotFound
from noonbell.model.event import Callback
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, Attempt, Run, RunBodies
from noonbell.model.task import ExecType, TaskSpec
from noonbell.service import naming
from noonbell.service.filters import cursor_at
from noonbell.service.run_json import shown, shown_bodies, shown_callback
from noonbell.web import explained
from noonbell.web.lately import FAILURES
from noonbell.web.page import Page
from noonbell.web.runs import bodies
from noonbell.web.runs import over_time as run_time
from noonbell.web.runs.advice import advice
from noonbell.web.runs.lines import log_page
from noonbell.web.runs.refusals import Refusal, refusal
from noonbell.web.site import Site
from noonbell.web.tasks.health import start_delay
from noonbell.web.visit import Visit

PANES: Final = ("request", "response", "callback", "log", "raw")
_PARTS: Final = 200
_STRANGERS: Final = 20
_MOST_ATTEMPTS: Final = 100


async def show(visit: Visit) -> Response:
    services = visit.site.services
    run = await found(visit)
    attempts, callbacks, log, parts, spec, told, payload = await asyncio.gather(
        services.store.attempts(run.id),
        services.callbacks.of_run(run.id),
        log_page(visit, run),
        services.runs.page(RunQuery(parent_id=run.id, page_size=_PARTS)) if run.parent_id is None else _no_parts(),
        spec_of(visit, run),
        services.explain.about_run(run.id),
        payload_of(visit, run),
    )
    chosen = chosen_attempt(visit, attempts)
    kept = RunBodies() if chosen is None else await services.store.bodies(run.id, chosen.attempt) or RunBodies()
    calls = [_callback(callback) for callback in callbacks]
    reason = explained.of(visit, told, here=run.id)
    bars = run_time.bars(run, attempts, callbacks, visit.now, 0 if spec is None else spec.callback_timeout_sec)
    exchange = Exchange.of(kept, chosen, payload)
    return visit.page(
        "run.html",
        run=run,
        is_final=run.status in FINAL,
        is_failed=run.status in FAILURES,
        spec=spec,
        explained=reason,
        advice=advice(run, spec, reason.cause, refused=_newest_refusal(calls)),
        delay_ms=start_delay(run),
        total_ms=in_all(run, attempts),
        progress=run_time.progress(run, visit.now),
        bars=bars,
        ends=run_time.ends(bars),
        axis=run_time.WIDTH,
        attempts=attempts[::-1][:_MOST_ATTEMPTS],
        chosen=chosen,
        exchange=exchange,
        callbacks=calls,
        strangers=await strangers(visit, run, spec),
        log=log,
        panes=PANES,
        pane=pane_of(visit, exchange, spec, has_log=bool(log.lines)),
        fan_out=None if parts is None or not parts.items else parts,
        raw=bodies.value(shown(run)),
        idempotency_key=idempotency_key_of(run.id, run.scheduled_time, run.idempotency_key),
        curl=None if spec is None or spec.exec_type is ExecType.JOB else curl(spec, kept),
        exact=bodies.exact,
        previous=await _neighbour(visit, run, "-id"),
        next=await _neighbour(visit, run, "id"),
    )


async def found(visit: Visit) -> Run:
    try:
        run = await visit.site.services.runs.get(naming.run_id(visit.piece("run_id")))
    except (NotFound, InvalidId):
        raise NotFound(visit.words("run.unknown")) from None
    visit.subject = f"/runs/{run.id}"
    return run


async def _no_parts() -> None:
    return None


async def spec_of(visit: Visit, run: Run) -> TaskSpec | None:
    """The task as it was when the run was planned; as it is now, where that version is gone."""
    task = await visit.site.services.store.task(run.task_id)
    if task is None:
        return None
    if task.version == run.task_version:
        return task.spec
    versions = await visit.site.services.tasks.versions(task)
    return next((version.spec for version in versions if version.version == run.task_version), task.spec)


async def payload_of(visit: Visit, run: Run) -> Any:
    carried = (await visit.site.services.store.inputs([run.id])).get(run.id)
    return None if carried is None else carried.payload


def chosen_attempt(visit: Visit, attempts: Sequence[Attempt]) -> Attempt | None:
    """The one that the address names, else the newest."""
    wanted = visit.query.get("attempt", "")
    return next((each for each in attempts if str(each.attempt) == wanted), attempts[-1] if attempts else None)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What went out in an attempt, and what came back; for a job, its payload and its result."""

    request_headers: Mapping[str, str]
    request: bodies.Body | None
    payload: bodies.Body | None
    response_headers: Mapping[str, str]
    response: bodies.Body | None
    result: bodies.Body | None
    details: bodies.Body | None
    is_truncated: bool
    """What was kept is not all that came."""

    @classmethod
    def of(cls, kept: RunBodies, attempt: Attempt | None, payload: Any) -> Exchange:
        told = shown_bodies(kept)
        return cls(
            told["request_headers"] or {},
            bodies.body(told["request_body"]),
            bodies.value(payload),
            told["response_headers"] or {},
            bodies.body(told["response_body"]),
            None if attempt is None else bodies.value(attempt.result),
            None if attempt is None or not attempt.error_details else bodies.value(attempt.error_details),
            kept.truncated,
        )

    @property
    def has_answer(self) -> bool:
        return bool(self.response_headers or self.response or self.result or self.details)


def in_all(run: Run, attempts: Sequence[Attempt]) -> int | None:
    """Milliseconds from the start of the first attempt to the end, where there were several: a run's own time is its last's."""
    starts = [attempt.start_time for attempt in attempts if attempt.start_time is not None]
    return None if run.end_time is None or len(starts) < 2 else (run.end_time - min(starts)) // 1000


def pane_of(visit: Visit, exchange: Exchange, spec: TaskSpec | None, *, has_log: bool) -> str:
    """The one that the address names, else the one that says most."""
    wanted = visit.query.get("show", "")
    if wanted in PANES:
        return wanted
    if spec is not None and spec.exec_type is ExecType.ASYNC:
        return "callback"
    if exchange.has_answer:
        return "response"
    return "log" if has_log else "request"


@dataclass(frozen=True, slots=True)
class Call:
    """A callback that came."""

    id: int
    status: str
    received_at: int
    headers: Mapping[str, str]
    body: bodies.Body | None
    refusal: Refusal | None
    says: str
    peer: str


def _callback(callback: Callback) -> Call:
    told = shown_callback(callback)
    return Call(
        callback.id,
        callback.status,
        callback.received_at,
        told["headers"],
        bodies.body(callback.body),
        refusal(callback.reason),
        run_time.says(callback),
        told["headers"].get("x-forwarded-for", ""),
    )


def _newest_refusal(calls: Sequence[Call]) -> str:
    """Why the newest callback was refused; nothing where it was not."""
    return calls[0].refusal.key if calls and calls[0].refusal is not None else ""


async def strangers(visit: Visit, run: Run, spec: TaskSpec | None) -> list[Call]:
    """Callbacks that found no run and came while this one waited: a wrong token may have been meant for it."""
    if spec is None or spec.exec_type is not ExecType.ASYNC or run.start_time is None:
        return []
    until = run.end_time or visit.now
    found = await visit.site.services.callbacks.rejected(_STRANGERS)
    return [_callback(each) for each in found if run.start_time <= each.received_at <= until]


def curl(spec: TaskSpec, kept: RunBodies) -> str:
    """The request as a line for a shell; secrets stay masked."""
    told = shown_bodies(kept)
    words = ["curl", "-i", "-X", spec.http_method, spec.target_url or ""]
    for name, value in (told["request_headers"] or {}).items():
        if name.lower() not in ("host", "content-length", "connection"):
            words += ["-H", f"{name}: {value}"]
    if (body := told["request_body"]) and len(body) <= bodies.MOST_SHOWN:
        words += ["--data-raw", body]
    return " ".join(shlex.quote(word) for word in words)


async def _neighbour(visit: Visit, run: Run, sort: str) -> int | None:
    """The run of the same task before (`-id`) or after (`id`) this one."""
    query = RunQuery(task_id=run.task_id, sort=sort, page_size=1, cursor=cursor_at(sort, run.id, run.id))
    found = (await visit.site.services.runs.page(query)).items
    return found[0].id if found else None


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/runs/{run_id}", show)]
