"""Endpoints of workers: what operators call, and the protocol that a worker calls (claim, heartbeat, settle, progress,
log, extend).
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request

from noonbell.api import params
from noonbell.api.endpoint import Endpoint, Given, call, endpoints_of
from noonbell.api.params import MOST_BYTES, read_object
from noonbell.model.access import Role
from noonbell.model.run import RunId
from noonbell.model.worker import LeaseOrder, WorkerState
from noonbell.service import Services
from noonbell.service.workers import (
    AllWorkers,
    Claim,
    ClaimWrite,
    ExtendWrite,
    HeartbeatWrite,
    LogWrite,
    ProgressWrite,
    SettledRun,
    SettleWrite,
    ShownClaim,
    ShownHeartbeat,
    ShownWorker,
    WorkerBounds,
    WorkerChange,
    WorkerForgotten,
    WorkerProtocol,
    WorkerStateSet,
)


class WorkerCalls:
    def __init__(self, services: Services) -> None:
        self._workers = services.workers

    @call("GET", "/workers", "list_workers", "The workers", Role.VIEWER, answer=AllWorkers)
    async def all(self) -> object:
        return {"items": await self._workers.all(), "has_scheduler": await self._workers.has_scheduler()}

    @call("GET", "/workers/{worker_id}", "get_worker", "Read a worker", Role.VIEWER, answer=ShownWorker)
    async def get(self, worker_id: str) -> object:
        return await self._workers.get(worker_id)

    @call(
        "PATCH", "/workers/{worker_id}", "change_worker", "Set how many runs a worker may run at once", Role.OPERATOR,
        body=WorkerChange, body_required=True, answer=ShownWorker,
    )  # fmt: skip
    async def change(self, given: Given, worker_id: str) -> object:
        """The worker learns its new concurrency with its next heartbeat. At 0 it takes no more runs."""
        return await self._workers.change(worker_id, given)

    @call(
        "DELETE", "/workers/{worker_id}", "forget_worker", "Remove a lost worker", Role.OPERATOR,
        answer=WorkerForgotten, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def forget(self, worker_id: str) -> object:
        """409 for a worker that is connected or still holds runs. A worker that comes back registers itself again."""
        return await self._workers.forget(worker_id)

    @call(
        "POST", "/workers/{worker_id}/drain", "drain_worker", "Drain a worker", Role.OPERATOR,
        answer=WorkerStateSet,
    )  # fmt: skip
    async def drain(self, request: Request, worker_id: str) -> object:
        """The worker finishes the runs that it holds."""
        return await self._set(request, worker_id, WorkerState.DRAINING)

    @call(
        "POST", "/workers/{worker_id}/stop", "stop_worker", "Stop a worker", Role.OPERATOR,
        answer=WorkerStateSet, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def stop(self, request: Request, worker_id: str) -> object:
        """The worker takes no more runs, finishes what it can, hands back the rest, and exits. 409 for one inside
        `noonbell serve`: drain it instead.
        """
        return await self._set(request, worker_id, WorkerState.STOPPING)

    @call(
        "POST", "/workers/{worker_id}/resume", "resume_worker", "Resume a worker", Role.OPERATOR,
        answer=WorkerStateSet,
    )  # fmt: skip
    async def resume(self, request: Request, worker_id: str) -> object:
        return await self._set(request, worker_id, WorkerState.RUNNING)

    async def _set(self, request: Request, worker_id: str, state: WorkerState) -> object:
        await read_object(request)
        return await self._workers.set_state(worker_id, state)


class ProtocolCalls:
    def __init__(self, protocol: WorkerProtocol, bounds: WorkerBounds) -> None:
        self._protocol, self._bounds = protocol, bounds

    @call(
        "POST", "/workers/{worker_id}/claim", "claim_runs", "Claim runs", Role.WORKER,
        body=ClaimWrite, most_bytes=MOST_BYTES, answer=ShownClaim, errors=("ALREADY_EXISTS", "RATE_LIMITED"),
        is_audited=False,
    )  # fmt: skip
    async def claim(self, request: Request, worker_id: str, given: Given) -> object:
        """Returns at once if there is a run, else as soon as there is one, or without any after `wait_seconds`. The
        first claim registers the worker. Nothing is lost if the connection breaks while it waits.
        """
        # The worker may hang up while it waits: then nothing is claimed for it, or what was is handed back.
        if (bounds := params.bounds(request)) is not None:
            given = await self._bounds.claim(bounds, worker_id, given)
        claiming = asyncio.create_task(self._protocol.claim(worker_id, given))
        leaving = asyncio.create_task(_hung_up(request))
        try:
            await asyncio.wait((claiming, leaving), return_when=asyncio.FIRST_COMPLETED)
            if claiming.done() and not leaving.done():
                return claiming.result().shown()
            return {"runs": []}  # the caller has gone
        finally:
            leaving.cancel()
            if leaving.done() or not claiming.done():
                await _let_go(claiming)

    @call(
        "POST", "/workers/{worker_id}/heartbeat", "heartbeat", "Renew leases, and receive orders",
        Role.WORKER, body=HeartbeatWrite, most_bytes=MOST_BYTES, answer=ShownHeartbeat, is_counted=False,
        is_audited=False,
    )  # fmt: skip
    async def heartbeat(self, request: Request, worker_id: str, given: Given) -> object:
        """`cancel`: stop the run; with a `lease_expires_at`, hand it back too. `lost`: another worker has it, or it
        has ended.
        """
        if (bounds := params.bounds(request)) is not None:
            await self._bounds.worker(bounds, worker_id)
        return await self._protocol.heartbeat(worker_id, given)

    @call(
        "POST", "/runs/{run_id}/settle", "settle_run", "Report how an attempt ended", Role.WORKER,
        body=SettleWrite, body_required=True, most_bytes=MOST_BYTES, answer=SettledRun, errors=("LEASE_LOST",),
        is_counted=False, is_audited=False,
    )  # fmt: skip
    async def settle(self, request: Request, run_id: RunId, given: Given) -> object:
        """`fail` is final, `error` follows the retry policy, `release` hands the run back, without counting an
        attempt. Only the current token is accepted; an old one is LEASE_LOST, with the current `status` in
        `details`.
        """
        await self._check(request, run_id, given)
        return await self._protocol.settle(run_id, given)

    @call(
        "POST", "/runs/{run_id}/progress", "report_progress", "Report progress", Role.WORKER,
        body=ProgressWrite, body_required=True, answer=LeaseOrder, errors=("LEASE_LOST",), is_counted=False,
        is_audited=False,
    )  # fmt: skip
    async def progress(self, request: Request, run_id: RunId, given: Given) -> object:
        await self._check(request, run_id, given)
        return await self._protocol.progress(run_id, given)

    @call(
        "POST", "/runs/{run_id}/log", "write_log", "Write to the log of a run", Role.WORKER,
        body=LogWrite, body_required=True, most_bytes=MOST_BYTES, answer=LeaseOrder, errors=("LEASE_LOST",),
        is_counted=False, is_audited=False,
    )  # fmt: skip
    async def log(self, request: Request, run_id: RunId, given: Given) -> object:
        """One line, or several in `lines`."""
        await self._check(request, run_id, given)
        return await self._protocol.log(run_id, given)

    @call(
        "POST", "/runs/{run_id}/extend", "extend_run", "Extend the deadline of an attempt", Role.WORKER,
        body=ExtendWrite, body_required=True, answer=LeaseOrder, errors=("LEASE_LOST",), is_counted=False,
        is_audited=False,
    )  # fmt: skip
    async def extend(self, request: Request, run_id: RunId, given: Given) -> object:
        """The lease and the timeout of the attempt end `seconds` from now. The next heartbeat renews the lease as usual."""
        await self._check(request, run_id, given)
        return await self._protocol.extend(run_id, given)

    async def _check(self, request: Request, run_id: RunId, given: Given) -> None:
        """A worker's token speaks of runs of its queues alone."""
        if (bounds := params.bounds(request)) is not None:
            await self._bounds.run(bounds, run_id, given.get("worker_id"))


async def _hung_up(request: Request) -> None:
    """Returns when the caller has gone. Its body has been read: nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _let_go(claiming: asyncio.Task[Claim]) -> None:
    claiming.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        (await claiming).hand_back()


def endpoints(services: Services) -> list[Endpoint]:
    found = endpoints_of(WorkerCalls(services), "workers")
    if services.protocol is not None:
        calls = ProtocolCalls(services.protocol, WorkerBounds(services.store))
        found += endpoints_of(calls, "worker protocol")
    return found
