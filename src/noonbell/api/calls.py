"""Endpoints of calls: HTTP requests without a task. The runs that they are have their own endpoints."""

from __future__ import annotations

from starlette.requests import Request

from noonbell.api.endpoint import Given, call
from noonbell.api.params import MOST_BYTES, add_to_audit, read_list
from noonbell.model.access import Role
from noonbell.service import Services
from noonbell.service.calls import CallBatchAnswer, CallBatchWrite, CallWrite
from noonbell.service.publishing import ShownPublished


class CallCalls:
    def __init__(self, services: Services) -> None:
        self._calls = services.calls

    @call(
        "POST", "/calls", "make_call", "Call a URL, now or later, without a task", Role.OPERATOR,
        body=CallWrite, body_required=True, most_bytes=MOST_BYTES, answer=ShownPublished, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def one(self, request: Request, given: Given, trace_id: str) -> object:
        """Once this returns, the call is stored: it is made at least once, and retried according to its policy. It
        is a run of a built-in task: `GET /runs/{run_id}` shows it, `POST /runs/{run_id}/cancel` cancels it, `GET
        /runs?origin=call` lists all calls. The outcome is sent to `success_url` or `failure_url`, as a call of
        its own.
        """
        made = await self._calls.call(given, trace_id=trace_id)
        add_to_audit(request, run_id=made.run_id)
        return ShownPublished(made.run_id, made.outcome)

    @call(
        "POST", "/calls/batch", "make_calls", "Create up to 10,000 calls in one transaction", Role.OPERATOR,
        body=CallBatchWrite, body_required=True, most_bytes=MOST_BYTES, answer=CallBatchAnswer, errors=("INVALID_STATE",),
    )  # fmt: skip
    async def batch(self, request: Request, trace_id: str) -> object:
        """All calls are stored, or none. The results are in the order of the calls."""
        wanted, problems = await read_list(request, "calls", "a list of calls", "a batch of calls")
        made = await self._calls.call_batch(wanted, problems, trace_id=trace_id)
        add_to_audit(request, calls=len(made))
        return {"calls": [ShownPublished(each.run_id, each.outcome) for each in made]}
