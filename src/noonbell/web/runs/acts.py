"""What a visitor does to one run: cancel it, retry it, start it now, replay it with changes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from noonbell.errors import InvalidArgument, InvalidJson
from noonbell.model.access import Role
from noonbell.model.task import ExecType
from noonbell.web.jsontext import read_json
from noonbell.web.page import Page
from noonbell.web.runs.run import found, spec_of
from noonbell.web.site import Site
from noonbell.web.visit import Visit, as_json


async def cancel(visit: Visit) -> Response:
    run = await found(visit)
    answer = await visit.site.services.runs.cancel(run.id, by=visit.actor)
    key = "run.canceled" if answer.canceled else "run.too_late"
    return visit.done(visit.words(key, status=answer.status), f"/runs/{run.id}")


async def retry(visit: Visit) -> Response:
    run = await found(visit)
    fresh = await visit.site.services.runs.retry(run.id, by=visit.actor)
    return visit.done(visit.words("run.retried", of=run.id), go=f"/runs/{fresh}")


async def promote(visit: Visit) -> Response:
    run = await found(visit)
    await visit.site.services.runs.promote(run.id)
    return visit.done(visit.words("run.promoted"), f"/runs/{run.id}")


async def ask_replay(visit: Visit) -> Response:
    """The form, with what the run carried."""
    run = await found(visit)
    spec = await spec_of(visit, run)
    carried = (await visit.site.services.store.inputs([run.id])).get(run.id)
    is_job = spec is not None and spec.exec_type is ExecType.JOB
    if is_job:
        text = "" if carried is None or carried.payload is None else as_json(carried.payload)
    else:
        overrides = {} if carried is None else carried.overrides or {}
        text = str(overrides.get("override_body") or (spec.body_template if spec is not None else "") or "")
    return visit.page("run_replay.html", run=run, is_job=is_job, text=text, problem=None)


async def replay(visit: Visit) -> Response:
    run, given = await found(visit), await visit.fields()
    is_job = given.get("is_job") == "1"
    text = given.get("text", "").replace("\r\n", "\n")
    wanted: dict[str, Any] = {}
    try:
        if is_job and text.strip():
            wanted["payload"] = read_json(text)
        elif not is_job and text:
            wanted["override_body"] = text
        published = await visit.site.services.publishing.trigger(run.task_id, wanted, trace_id=visit.request_id)
    except (InvalidArgument, InvalidJson) as error:
        return visit.page("run_replay.html", 400, run=run, is_job=is_job, text=text, problem=error.message)
    return visit.done(visit.words("run.replayed", of=run.id), go=f"/runs/{published.run_id}")


def pages(site: Site) -> list[Page]:
    del site
    operator = Role.OPERATOR
    return [
        Page("/runs/{run_id}/cancel", cancel, "POST", operator, deed="cancel_run"),
        Page("/runs/{run_id}/retry", retry, "POST", operator, deed="retry_run"),
        Page("/runs/{run_id}/promote", promote, "POST", operator, deed="promote_run"),
        Page("/runs/{run_id}/replay", ask_replay, role=operator),
        Page("/runs/{run_id}/replay", replay, "POST", operator, deed="trigger_task"),
    ]
