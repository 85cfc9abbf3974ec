"""A line in the log for each attempt that was settled: what came of it, how long it took, and where it went."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.run import FAILURES, Lease, RunStatus, trace_id_of
from noonbell.model.settlement import Move, Settled, Settlement
from noonbell.ports import Target

log = logging.getLogger("noonbell.runs")

_SAID: Final = {
    Move.FINISH: ("run ended", None),
    Move.RETRY: ("run will be retried", RunStatus.RETRYING),
    Move.PARK: ("run awaits its callback", RunStatus.CALLBACK_PENDING),
    Move.RELEASE: ("run handed back", RunStatus.SCHEDULED),
    Move.LOSE: ("run lost its worker", RunStatus.SCHEDULED),
}


class RunLog:
    def __init__(self) -> None:
        self._calls: dict[int, tuple[float, str | None]] = {}
        """Attempts that have ended and are not settled yet: milliseconds and address."""

    def watch(self, target: Target) -> Target:
        """The same target; how long its attempts took is remembered until they are settled."""
        return _Timed(target, self._calls)

    def settled(self, lease: Lease, settlement: Settlement, answer: Settled) -> None:
        """Write the line. For a worker's `observe`."""
        latency_ms, target_url = self._calls.pop(lease.run_id, (None, None))
        message, status = _SAID[settlement.move]
        status = status or settlement.status
        level = logging.WARNING if status in FAILURES else logging.INFO
        if answer is Settled.LOST:
            message, level = "result came too late and was not written", logging.WARNING
        if not log.isEnabledFor(level):
            return
        fields = {
            "trace_id": trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id),
            "task_id": lease.task_id,
            "run_id": lease.run_id,
            "attempt": lease.attempt,
            "status": status,
            "err": settlement.error_message,
            "latency_ms": latency_ms,
            "target_url": target_url,
        }
        log.log(level, message, extra=fields)


class _Timed:
    def __init__(self, target: Target, calls: dict[int, tuple[float, str | None]]) -> None:
        self._target, self._calls = target, calls

    async def execute(self, assignment: Assignment) -> Outcome:
        began = perf_counter()
        outcome = await self._target.execute(assignment)
        # Interrupted, it leaves nothing behind; ended, it is settled by the same worker soon.
        took = round((perf_counter() - began) * 1000, 1)
        self._calls[assignment.lease.run_id] = (took, assignment.task.spec.target_url)
        return outcome
