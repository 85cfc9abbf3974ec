"""The worker protocol: what a worker says by the API is read here, and what it is told is written down.

What follows from it is the engine's (`Desk`); wiring brings the two together.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from noonbell.clock import rfc3339
from noonbell.errors import InvalidId
from noonbell.model.attempt import Assignment, Outcome, OutcomeKind
from noonbell.model.idempotency import idempotency_key_of
from noonbell.model.request import Heartbeat
from noonbell.model.run import RunId, RunStatus
from noonbell.model.task import HTTP_QUEUE
from noonbell.model.worker import Attendance, Declared, LeaseOrder
from noonbell.service.reader import Problems, Reader, unfit

LONGEST_WAIT: Final = 30
MOST_RUNS: Final = 1_000
"""In one claim."""
MOST_HELD: Final = 10_000
"""In one heartbeat."""
MOST_QUEUES: Final = 1_000
MOST_CONCURRENCY: Final = 100_000
LONGEST_EXTENSION: Final = 604_800
"""A week, in seconds."""
LONGEST_MESSAGE: Final = 10_000
"""A longer one is cut: a result must not be lost over it."""
MOST_LINES: Final = 1_000

_OURS: Final = "the token that came with the claim"


class Desk(Protocol):
    """What the engine does for workers that come by the API: see `engine.protocol`."""

    async def claim(
        self, worker_id: str, said: Declared, most: int, wait_seconds: float
    ) -> tuple[list[Assignment], Attendance]: ...

    def hand_back(self, assignments: Sequence[Assignment]) -> None: ...

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[RunId, int]]) -> Heartbeat: ...

    async def progress(self, worker_id: str, run_id: RunId, token: int, progress: Mapping[str, Any]) -> LeaseOrder: ...

    async def log(self, worker_id: str, run_id: RunId, token: int, lines: Sequence[tuple[str, str]]) -> LeaseOrder: ...

    async def extend(self, worker_id: str, run_id: RunId, token: int, seconds: float) -> LeaseOrder: ...

    async def settle(self, worker_id: str, run_id: RunId, token: int, outcome: Outcome | None) -> RunStatus: ...


class Word(enum.StrEnum):
    SUCCESS = "success"
    FAIL = "fail"
    """Final at once."""
    ERROR = "error"
    """The retry policy decides."""
    RELEASE = "release"
    """Handed back unfinished: not counted as an attempt."""


class Level(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Claim:
    """What a claim got, until somebody has been told."""

    def __init__(self, desk: Desk, assignments: list[Assignment], attendance: Attendance) -> None:
        self._desk, self.assignments, self._attendance = desk, assignments, attendance

    def shown(self) -> dict[str, Any]:
        return {"runs": [shown(one) for one in self.assignments], "worker": shown_attendance(self._attendance)}

    def hand_back(self) -> None:
        """Whoever asked is gone."""
        self._desk.hand_back(self.assignments)


class WorkerProtocol:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def claim(self, worker_id: str, given: Mapping[str, Any]) -> Claim:
        worker_id = checked_id(worker_id)
        problems = Problems()
        reader = Reader(given, problems)
        said = _read_declared(reader)
        most = reader.integer("max", 1, 1, MOST_RUNS)
        wait = reader.number("wait_seconds", 20, 0, LONGEST_WAIT)
        reader.finish("a claim")
        problems.finish()
        return Claim(self._desk, *await self._desk.claim(worker_id, said, most, wait))

    async def heartbeat(self, worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        worker_id = checked_id(worker_id)
        problems = Problems()
        reader = Reader(given, problems)
        held = _read_held(reader)
        reader.finish("a heartbeat")
        problems.finish()
        beat = await self._desk.heartbeat(worker_id, held)
        return {
            "runs": [shown_order(order) for order in beat.orders],
            "worker": {"state": beat.state, "concurrency": beat.concurrency},
        }

    async def settle(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        problems = Problems()
        reader = Reader(given, problems)
        worker_id, token = _read_holder(reader)
        outcome = _read_outcome(reader)
        reader.finish("a settlement")
        problems.finish()
        return {"run_id": run_id, "status": await self._desk.settle(worker_id, run_id, token, outcome)}

    async def progress(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        problems = Problems()
        reader = Reader(given, problems)
        worker_id, token = _read_holder(reader)
        if reader.get("current") is None:
            reader.wrong("current", "is missing; expected a number")
        current = reader.number("current", 0, -1e15, 1e15)
        total = None if reader.get("total") is None else reader.number("total", 0, -1e15, 1e15)
        message = _message(reader.get("message"))
        reader.finish("progress")
        problems.finish()
        made = {"current": current, "total": total, "message": message}
        return shown_order(await self._desk.progress(worker_id, run_id, token, made))

    async def log(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        problems = Problems()
        reader = Reader(given, problems)
        worker_id, token = _read_holder(reader)
        lines = _read_lines(reader)
        reader.finish("a line of the log")
        problems.finish()
        return shown_order(await self._desk.log(worker_id, run_id, token, lines))

    async def extend(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        problems = Problems()
        reader = Reader(given, problems)
        worker_id, token = _read_holder(reader)
        if reader.get("seconds") is None:
            reader.wrong("seconds", "is missing; expected how long from now")
        seconds = reader.number("seconds", 1, 1, LONGEST_EXTENSION)
        reader.finish("an extension")
        problems.finish()
        return shown_order(await self._desk.extend(worker_id, run_id, token, seconds))


def checked_id(worker_id: str) -> str:
    if not 1 <= len(worker_id) <= 255 or unfit(worker_id) is not None:
        raise InvalidId("a worker's id has 1 to 255 characters, and none that controls a terminal")
    return worker_id


def _read_declared(reader: Reader) -> Declared:
    queues = reader.texts("queues", most=MOST_QUEUES) if reader.get("queues") is not None else ("default",)
    if reader.get("queues") == []:
        reader.wrong("queues", "names no queue; expected one or more")
    if HTTP_QUEUE in queues:
        reader.wrong("queues", "names 'http'; only built-in workers call HTTP targets")
    named = reader.get("job_types") is not None
    return Declared(
        queues=queues,
        job_types=reader.texts("job_types", most=10_000) if named else None,
        version=reader.integer("version", 0, 0, 2**31 - 1),
        concurrency=reader.integer("concurrency", None, 0, MOST_CONCURRENCY),
    )


def _read_held(reader: Reader) -> list[tuple[RunId, int]]:
    value = reader.get("runs")
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_HELD:
        reader.expected("runs", f"a list of at most {MOST_HELD} objects with run_id and token")
        return []
    held: list[tuple[RunId, int]] = []
    for index, each in enumerate(value):
        if reader.problems.are_enough:
            break
        if not isinstance(each, Mapping):
            reader.wrong(f"runs[{index}]", "is not an object; expected run_id and token")
            continue
        inner = Reader(each, reader.problems, f"runs[{index}]")
        for name in ("run_id", "token"):
            if inner.get(name) is None:
                inner.wrong(name, "is missing; expected a number")
        run_id = RunId(inner.integer("run_id", 0, 1, 2**53 - 1, "the id of a run"))
        held.append((run_id, inner.integer("token", 0, 0, 2**53 - 1, _OURS)))
        inner.finish("a run that is held")
    return held


def _read_holder(reader: Reader) -> tuple[str, int]:
    """Who speaks, and with which token."""
    for name, what in (("worker_id", "the id of the worker that claimed it"), ("token", _OURS)):
        if reader.get(name) is None:
            reader.wrong(name, f"is missing; expected {what}")
    return reader.text("worker_id", "", least=1), reader.integer("token", 0, 0, 2**53 - 1, _OURS)


def _read_outcome(reader: Reader) -> Outcome | None:
    if reader.get("outcome") is None:
        reader.wrong("outcome", f"is missing; expected one of {', '.join(Word)}")
    word = reader.choice("outcome", Word, Word.ERROR)
    result = reader.json("result")
    said = _message(reader.get("error_message"))
    details = reader.json("error_details")
    if details is not None and not isinstance(details, dict):
        details = {"value": details}
    return outcome_of(word, result, said, details)


def outcome_of(word: Word, result: Any, message: str, details: dict[str, Any] | None) -> Outcome | None:
    """As the engine knows it; None hands the run back."""
    match word:
        case Word.RELEASE:
            return None
        case Word.SUCCESS:
            return Outcome(kind=OutcomeKind.SUCCESS, result=result, error_details=details)
        case Word.FAIL | Word.ERROR:
            said = message or f"the worker said {word}"
            return Outcome(
                kind=OutcomeKind.FAILURE,
                failure=str(word),
                result=result,
                error_message=said,
                error_details={**(details or {}), "kind": str(word)},
            )


def _read_lines(reader: Reader) -> list[tuple[str, str]]:
    several = reader.get("lines")
    if several is None:
        return [_read_line(reader)]
    if not isinstance(several, list) or not 1 <= len(several) <= MOST_LINES:
        reader.expected("lines", f"a list of 1 to {MOST_LINES} objects with level and message")
        return []
    if reader.get("message") is not None:
        reader.wrong("message", "is one line, and lines are several; expected one of the two")
    lines: list[tuple[str, str]] = []
    for index, each in enumerate(several):
        if not isinstance(each, Mapping):
            reader.wrong(f"lines[{index}]", "is not an object; expected level and message")
            continue
        inner = Reader(each, reader.problems, f"lines[{index}]")
        lines.append(_read_line(inner))
        inner.finish("a line of the log")
    return lines


def _read_line(reader: Reader) -> tuple[str, str]:
    if reader.get("message") is None:
        reader.wrong("message", "is missing; expected a text")
    return str(reader.choice("level", Level, Level.INFO)), _message(reader.get("message"))


def _message(value: Any) -> str:
    """Whatever it is, as a text that can be kept."""
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:LONGEST_MESSAGE]


def shown(assignment: Assignment) -> dict[str, Any]:
    """One run as a claim hands it out."""
    lease, spec = assignment.lease, assignment.task.spec
    previous = assignment.previous_scheduled_time
    return {
        "run_id": lease.run_id,
        "task_id": lease.task_id,
        "task_name": assignment.task.name,
        "job_type": spec.job_type,
        "payload": lease.payload,
        "key": lease.key,
        "idempotency_key": idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key),
        "queue": lease.queue,
        "priority": lease.priority,
        "attempt": lease.attempt,
        "token": lease.token,
        "scheduled_time": rfc3339(lease.scheduled_time),
        "previous_scheduled_time": None if previous is None else rfc3339(previous),
        "timeout_seconds": spec.timeout_seconds,
        "ping_interval_ms": spec.ping_interval_ms,
        "lease_expires_at": rfc3339(lease.expires_at),
        "shard_index": lease.shard_index,
        "shard_total": lease.shard_total,
    }


def shown_order(order: LeaseOrder) -> dict[str, Any]:
    expires = order.lease_expires_at
    return {
        "run_id": order.run_id,
        "order": order.order,
        "lease_expires_at": None if expires is None else rfc3339(expires),
        "ping_interval_ms": order.ping_interval_ms,
    }


def shown_attendance(attendance: Attendance) -> dict[str, Any]:
    return {"state": attendance.state, "concurrency": attendance.concurrency}
