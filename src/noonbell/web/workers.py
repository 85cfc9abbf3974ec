"""Workers: who is there, how much they hold and how fast they go, when they were last heard of; drain, resume, stop."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from noonbell.errors import InvalidArgument, NotFound
from noonbell.model.access import Role
from noonbell.model.run import Run, RunId
from noonbell.model.task import HTTP_QUEUE
from noonbell.model.worker import WorkerState
from noonbell.ports import Store
from noonbell.settings.masking import mask_addresses
from noonbell.targets.jobs.builtin import cleanup
from noonbell.web.page import Handler, Page
from noonbell.web.queues.pace import Pace, newest, paces, spark
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_MOST_LOOKED_AT: Final = 50
"""Runs that came back from lost workers whose attempts are looked at."""


@dataclass(frozen=True, slots=True)
class Row:
    worker: dict[str, Any]
    path: str
    pace: Pace
    is_old: bool
    """Another worker on one of its queues has a newer version."""
    requeued: list[RunId]
    """What was in its hands when it was lost, and is with others now: the newest of it."""


async def show(visit: Visit) -> Response:
    services = visit.site.services
    workers, runs = await services.workers.all(), await newest(services)
    found = paces(runs, visit.now, lambda run: run.worker_id)
    requeued = await taken_from(services.store, [one["id"] for one in workers if one["state"] == "lost"], runs)
    alive = [worker for worker in workers if worker["state"] != "lost"]
    rows = [
        Row(
            worker=worker,
            path=path_of(worker["id"]),
            pace=found.get(worker["id"], Pace()),
            is_old=worker["version"] < newest_version(worker, alive),
            requeued=requeued.get(worker["id"], []),
        )
        for worker in workers
    ]
    return visit.page(
        "workers.html",
        rows=rows,
        held=sum(worker["running"] for worker in alive),
        places=sum(worker["concurrency"] for worker in alive),
        has_jobs=any(takes_jobs(worker) for worker in alive),
        command=start_command(visit, "default"),
        spark=spark,
    )


def path_of(worker_id: str, act: str = "") -> str:
    return f"/workers/{quote(worker_id, safe='')}{act}"


def newest_version(worker: dict[str, Any], alive: Sequence[dict[str, Any]]) -> int:
    """Among those that share a queue with it."""
    return max([other["version"] for other in alive if set(other["queues"]) & set(worker["queues"])], default=0)


def takes_jobs(worker: dict[str, Any]) -> bool:
    """Whether it runs code of somebody's own; every node has workers for HTTP, and for what is built in."""
    types = worker["job_types"]
    return set(worker["queues"]) != {HTTP_QUEUE} and (types is None or not set(types) <= {cleanup.JOB_TYPE})


async def taken_from(store: Store, lost: Sequence[str], runs: Sequence[Run]) -> dict[str, list[RunId]]:
    """For each lost worker, the runs that were taken from it: as far as they are among the newest."""
    found: dict[str, list[RunId]] = {}
    if not lost:
        return found
    for run in [run for run in runs if run.lost_count][:_MOST_LOOKED_AT]:
        holders = {attempt.worker_id for attempt in await store.attempts(run.id) if attempt.status == "LOST"}
        for worker_id in holders.intersection(lost):
            found.setdefault(str(worker_id), []).append(run.id)
    return found


def start_command(visit: Visit, queue: str) -> str:
    """What somebody types to have a worker on that queue. Where the store is, only those see who see the settings."""
    url = visit.site.settings.store.url
    where = shlex.quote(mask_addresses(url)) if visit.may("admin") else f"{url.partition(':')[0]}:…"
    if queue == HTTP_QUEUE:
        return f"noonbell serve --store {where}"
    return f"noonbell worker --app MODULE:APP --queues {shlex.quote(queue)} --store {where}"


def set_to(state: WorkerState, key: str) -> Handler:
    async def handler(visit: Visit) -> Response:
        worker_id = visit.piece("worker_id")
        await visit.site.services.workers.set_state(worker_id, state)
        undo = path_of(worker_id, "/resume") if state is WorkerState.DRAINING else None
        return visit.done(visit.words(key, name=worker_id), "/workers", undo=undo)

    return handler


async def drain_ticked(visit: Visit) -> Response:
    """Those that were ticked; one that is gone meanwhile keeps nobody else back."""
    ticked = [value for name, value in await visit.form() if name == "id"]
    if not ticked:
        raise InvalidArgument(visit.words("bulk.nothing"))
    drained: list[str] = []
    for worker_id in dict.fromkeys(ticked):
        try:
            await visit.site.services.workers.set_state(worker_id, WorkerState.DRAINING)
        except NotFound:
            continue
        drained.append(worker_id)
    visit.subject, visit.details = "/workers", {"workers": drained}
    return visit.done(visit.words("worker.all_drained", n=len(drained)), "/workers")


async def change(visit: Visit) -> Response:
    """Another number of places, while it works."""
    worker_id, given = visit.piece("worker_id"), await visit.fields()
    text = given.get("concurrency", "").strip()
    if not text.isdecimal() or len(text) > 10:
        raise InvalidArgument.field("concurrency", f"is {text[:20]!r}; expected a whole number")
    await visit.site.services.workers.change(worker_id, {"concurrency": int(text)})
    visit.subject, visit.details = f"/workers/{worker_id}", {"concurrency": int(text)}
    return visit.done(visit.words("worker.changed", name=worker_id, n=int(text)), "/workers")


def pages(site: Site) -> list[Page]:
    del site
    operator, state = Role.OPERATOR, WorkerState
    return [
        Page("/workers", show),
        Page("/workers/drain", drain_ticked, "POST", operator, "drain_worker"),
        Page("/workers/{worker_id}/drain", set_to(state.DRAINING, "worker.drained"), "POST", operator, "drain_worker"),
        Page("/workers/{worker_id}/resume", set_to(state.RUNNING, "worker.resumed"), "POST", operator, "resume_worker"),
        Page("/workers/{worker_id}/stop", set_to(state.STOPPING, "worker.stopped"), "POST", operator, "stop_worker"),
        Page("/workers/{worker_id}/change", change, "POST", operator, "change_worker"),
    ]
