"""A line in the log for each attempt that was settled: what came of it, how long it took, and where it went."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter
from typing import Final, NamedTuple

from noonbell.clock import SystemClock, rfc3339
from noonbell.model.attempt import Assignment, Outcome
from noonbell.model.run import FAILURES, Lease, RunStatus, trace_id_of
from noonbell.model.settlement import Move, Settled, Settlement
from noonbell.ports import Target
from noonbell.sinks.logs import JsonLines, fit, only_listener, quoted

log = logging.getLogger("noonbell.runs")

_SAID: Final = {
    Move.FINISH: ("run ended", None),
    Move.RETRY: ("run will be retried", RunStatus.RETRYING),
    Move.PARK: ("run awaits its callback", RunStatus.CALLBACK_PENDING),
    Move.RELEASE: ("run handed back", RunStatus.SCHEDULED),
    Move.LOSE: ("run lost its worker", RunStatus.SCHEDULED),
}


class Line(NamedTuple):
    """The fields of a line, in their order, and before them its level and message."""

    level: int
    message: str
    trace_id: str
    task_id: int
    run_id: int
    attempt: int
    status: str | None
    err: str | None
    latency_ms: float | None
    target_url: str | None


class RunLog:
    def __init__(self) -> None:
        self._calls: dict[int, tuple[float | None, str | None]] = {}
        """Attempts that have ended and are not settled yet: milliseconds and address."""

    def watch(self, target: Target) -> Target:
        """The same target; how long its attempts took is remembered until they are settled."""
        return _Timed(target, self._calls)

    def settled(self, settled: Sequence[tuple[Lease, Settlement, Settled]]) -> None:
        """Write their lines. For a worker's `observe`."""
        least = log.getEffectiveLevel() if log.isEnabledFor(logging.WARNING) else logging.CRITICAL
        lines = [line for one in settled if (line := self._line(least, *one)) is not None]
        if not lines:
            return
        listener = only_listener(log)
        if listener is None:
            for line in lines:
                log.log(line.level, line.message, extra=dict(zip(_EXTRAS, line[2:], strict=True)))
            return
        written = _as_json if isinstance(listener.formatter, JsonLines) else _for_people
        now = rfc3339(SystemClock().now() // 1000 * 1000)
        listener.write([written(now, line) for line in lines])

    def _line(self, least: int, lease: Lease, settlement: Settlement, answer: Settled) -> Line | None:
        """None where nobody would read it."""
        latency_ms, target_url = self._calls.pop(lease.run_id, _UNKNOWN)
        message, status = _SAID[settlement.move]
        status = status or settlement.status
        level = logging.WARNING if status in FAILURES else logging.INFO
        if answer is Settled.LOST:
            message, level = "result came too late and was not written", logging.WARNING
        if level < least:
            return None
        trace_id = trace_id_of(lease.run_id, lease.scheduled_time, lease.trace_id)
        return Line(
            level,
            message,
            trace_id,
            lease.task_id,
            lease.run_id,
            lease.attempt,
            status,
            settlement.error_message,
            latency_ms,
            target_url,
        )


_EXTRAS: Final = Line._fields[2:]
_UNKNOWN: Final = (None, None)


def _for_people(now: str, line: Line) -> str:
    """As HumanLines has it."""
    level, message, trace_id, task_id, run_id, attempt, status, err, latency_ms, target_url = line
    text = f"{now:<24} {_LEVELS[level]:<7} {message} trace_id={trace_id} task_id={task_id} run_id={run_id} attempt={attempt}"
    if status is not None:
        text += f" status={status}"
    if err is not None:
        text += f" err={quoted(fit(err))}"
    if latency_ms is not None:
        text += f" latency_ms={latency_ms}"
    return text if target_url is None else f"{text} target_url={_quoted_url(target_url)}"


def _as_json(now: str, line: Line) -> str:
    """As JsonLines has it."""
    level, message, trace_id, task_id, run_id, attempt, status, err, latency_ms, target_url = line
    text = f'{{"ts":"{now}","level":"{_LEVELS[level]}","trace_id":"{trace_id}","task_id":{task_id},"run_id":{run_id}'
    text += f',"attempt":{attempt}'
    if status is not None:
        text += f',"status":"{status}"'
    text += f',"msg":"{message}"'
    if err is not None:
        text += f',"err":{json.dumps(fit(err), ensure_ascii=False)}'
    if latency_ms is not None:
        text += f',"latency_ms":{latency_ms}'
    return text + "}" if target_url is None else f'{text},"target_url":{_json_url(target_url)}}}'


_LEVELS: Final = {logging.INFO: "info", logging.WARNING: "warning"}


@lru_cache(maxsize=1024)
def _quoted_url(url: str) -> str:
    return quoted(fit(url))


@lru_cache(maxsize=1024)
def _json_url(url: str) -> str:
    return json.dumps(fit(url), ensure_ascii=False)


class _Timed:
    def __init__(self, target: Target, calls: dict[int, tuple[float | None, str | None]]) -> None:
        self._target, self._calls = target, calls

    async def execute(self, assignment: Assignment) -> Outcome:
        began = perf_counter()
        outcome = await self._target.execute(assignment)
        # Interrupted, it leaves nothing behind; ended, it is settled by the same worker soon.
        took = round((perf_counter() - began) * 1000, 1)
        self._calls[assignment.lease.run_id] = (took, assignment.task.spec.target_url)
        return outcome
