"""Workers: who is there, how much they hold, when they were last heard of; drain, resume, stop."""

from __future__ import annotations

from starlette.responses import Response

from noonbell.model.access import Role
from noonbell.model.worker import WorkerState
from noonbell.web.page import Handler, Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit


async def show(visit: Visit) -> Response:
    workers = await visit.site.services.workers.all()
    alive = [worker for worker in workers if worker["state"] != "lost"]
    return visit.page(
        "workers.html",
        workers=workers,
        held=sum(worker["running"] for worker in alive),
        places=sum(worker["concurrency"] for worker in alive),
    )


def set_to(state: WorkerState, key: str) -> Handler:
    async def handler(visit: Visit) -> Response:
        worker_id = visit.piece("worker_id")
        await visit.site.services.workers.set_state(worker_id, state)
        return visit.done(visit.words(key, name=worker_id), "/workers")

    return handler


def pages(site: Site) -> list[Page]:
    del site
    operator, state = Role.OPERATOR, WorkerState
    return [
        Page("/workers", show),
        Page("/workers/{worker_id}/drain", set_to(state.DRAINING, "worker.drained"), "POST", operator, "drain_worker"),
        Page("/workers/{worker_id}/resume", set_to(state.RUNNING, "worker.resumed"), "POST", operator, "resume_worker"),
        Page("/workers/{worker_id}/stop", set_to(state.STOPPING, "worker.stopped"), "POST", operator, "stop_worker"),
    ]
