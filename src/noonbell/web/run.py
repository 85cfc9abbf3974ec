"""One run: how it went over time, each attempt with request and response, callbacks with the reason of each refusal, log."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, Run
from noonbell.model.task import ExecType, TaskSpec
from noonbell.service import naming
from noonbell.service.filters import cursor_at
from noonbell.service.run_json import shown, shown_attempt, shown_callback
from noonbell.web import run_time
from noonbell.web.lately import FAILURES
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit, as_json, pretty

_MOST_SHOWN: Final = 64 * 1024
"""Characters of a body on a page; the whole is in the API."""
_LOG_LINES: Final = 1_000


async def show(visit: Visit) -> Response:
    services = visit.site.services
    run = await found(visit)
    attempts, callbacks, log, parts = await asyncio.gather(
        services.runs.attempts(run.id),
        services.callbacks.of_run(run.id),
        services.runs.log(run.id, limit=_LOG_LINES),
        services.runs.page(RunQuery(parent_id=run.id, page_size=100)) if run.parent_id is None else _no_parts(),
    )
    spec = await spec_of(visit, run)
    told = [_attempt(shown_attempt(attempt)) for attempt in attempts]
    return visit.page(
        "run.html",
        run=run,
        is_final=run.status in FINAL,
        is_failed=run.status in FAILURES,
        spec=spec,
        attempts=told[::-1],
        callbacks=[_callback(shown_callback(callback)) for callback in callbacks],
        log=log,
        fan_out=[] if parts is None else parts.items,
        bars=run_time.bars(run, attempts, callbacks, visit.now),
        axis=run_time.WIDTH,
        explained=await services.explain.of_run(run.id, visit.words.lang),
        payload=await _payload(visit, run),
        result=None if run.result is None else as_json(run.result),
        raw=as_json(shown(run)),
        curl=None if spec is None or spec.exec_type is ExecType.JOB else curl(spec, told[-1] if told else {}),
        previous=await _neighbour(visit, run, "-id"),
        next=await _neighbour(visit, run, "id"),
    )


async def found(visit: Visit) -> Run:
    run = await visit.site.services.runs.get(naming.run_id(visit.piece("run_id")))
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


async def _payload(visit: Visit, run: Run) -> str | None:
    inputs = await visit.site.services.store.inputs([run.id])
    carried = inputs.get(run.id)
    return None if carried is None or carried.payload is None else as_json(carried.payload)


def _attempt(told: dict[str, Any]) -> dict[str, Any]:
    for name in ("request_body", "response_body"):
        told[f"{name}_shown"], told[f"{name}_cut"] = cut(pretty(told[name]))
    told["details"] = as_json(told["error_details"]) if told["error_details"] else ""
    told["result_shown"] = "" if told["result"] is None else as_json(told["result"])
    return told


def _callback(told: dict[str, Any]) -> dict[str, Any]:
    told["body_shown"], told["body_cut"] = cut(pretty(told["body"]))
    return told


def cut(text: str) -> tuple[str, int]:
    """What a page shows of a body, and how many characters it leaves out."""
    return text[:_MOST_SHOWN], max(0, len(text) - _MOST_SHOWN)


def curl(spec: TaskSpec, attempt: Mapping[str, Any]) -> str:
    """The request as a line for a shell; secrets stay masked."""
    words = ["curl", "-i", "-X", spec.http_method, spec.target_url or ""]
    for name, value in (attempt.get("request_headers") or {}).items():
        if name.lower() not in ("host", "content-length", "connection"):
            words += ["-H", f"{name}: {value}"]
    if body := attempt.get("request_body"):
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
