"""The runs of a month as rows: every status, attempts, bodies, callbacks and events for a share of them, 1 in 50 under way.

Ids say when a run was born, as the store's do. The same numbers are drawn each time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.clock import SECOND, Instant
from noonbell.model.target_kind import ExecType
from noonbell.model.task import Task
from noonbell.stores.sql.active_runs import Place, RunFlag
from noonbell.stores.sql.ids import floor_at

BUSY_EVERY: Final = 12
"""Seconds between two slots of the first task, which a fifth of all runs belong to."""
RARE_WORKER: Final = "worker-gone"
"""One that ended weeks ago."""
RARE_ERROR: Final = "certificate of ledger.internal has expired"
WORKERS: Final = 40
DAYS: Final = 30
DAY: Final = 86_400 * SECOND
_BATCH: Final = 50_000

_ENDS: Final = ("SUCCESS", "FAILED", "SKIPPED", "TIMEOUT", "CANCELED", "FAILED_TIMEOUT")
_WEIGHTS: Final = (90.0, 4.0, 3.5, 1.2, 1.0, 0.3)
_ERRORS: Final = ("the target returned 503", "connection refused", "no response within 10 s", "ValueError: no such row")

COLUMNS: Final = {
    "runs": (
        *("id", "task_id", "task_version", "origin", "status", "slot", "scheduled_time", "run_at", "created_at"),
        *("updated_at", "queue", "priority", "attempt", "retry_count", "lost_count", "skip_reason", "trouble"),
        *("start_time", "end_time", "next_retry_time", "callback_deadline", "worker_id", "response_code"),
        *("error_message", "error_details", "result", "trace_id"),
    ),
    "live": (
        *("run_id", "place", "task_id", "queue", "turn", "run_at", "at", "job_type", "gate", "flags", "min_version"),
        *("attempt", "retry_count", "lost_count", "token", "worker_id", "claimed_at", "expires_at", "deadline_at"),
    ),
    "inputs": ("run_id", "payload", "overrides"),
    "bodies": (
        *("run_id", "attempt", "request_headers", "request_body", "response_headers", "response_body", "truncated"),
    ),
    "attempts": (
        *("run_id", "attempt", "status", "worker_id", "start_time", "end_time", "response_code", "error_message"),
    ),
    "callbacks": ("id", "run_id", "task_id", "received_at", "status", "reason", "headers", "body"),
    "events": ("id", "seq", "at", "type", "data"),
}


@dataclass
class Poured:
    """Rows that wait to be written, by table."""

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {table: [] for table in COLUMNS})

    def add(self, table: str, *row: Any) -> None:
        self.rows[table].append(row)


class Month:
    """The runs of a month, oldest first. `live` of the newest are not over."""

    def __init__(self, tasks: Sequence[Task], count: int, now: Instant) -> None:
        self._tasks, self._count, self._now = tasks, count, now
        self._live = count // 50
        self._draw = random.Random(7)
        self._seq = 0

    def batches(self) -> Iterator[Poured]:
        poured = Poured()
        for number, (at, task) in enumerate(self._births(), 1):
            self._run(poured, number, at, task)
            if number % _BATCH == 0:
                yield poured
                poured = Poured()
        yield poured

    @property
    def events(self) -> int:
        return self._seq

    def _births(self) -> Iterator[tuple[int, Task]]:
        """Of five runs one is the busy task's, at its slots; the others are anybody's, some tasks' more often."""
        busy, others = self._tasks[0], self._tasks[1:]
        step = DAYS * DAY // self._count
        last_slot = self._now // SECOND // BUSY_EVERY * BUSY_EVERY
        first_slot = last_slot - (self._count // 5) * BUSY_EVERY
        slots = 0
        for number in range(self._count):
            at = self._now - (self._count - number) * step
            if number % 5 == 0:
                slots += 1
                yield (first_slot + slots * BUSY_EVERY) * SECOND, busy
            else:
                yield at, others[int(self._draw.random() ** 2 * len(others))]

    def _run(self, poured: Poured, number: int, at: int, task: Task) -> None:
        draw = self._draw
        # Of the ids that a millisecond has, one half is the busy task's: its slots do not keep step with the others.
        run_id = floor_at(at) + number % 2_048 + (2_048 if task is self._tasks[0] else 0)
        left = self._count - number
        is_new = left % 3 == 0 and left < 3 * self._live
        if (is_new or left % 100_000 == 500) and task is not self._tasks[0]:
            self._under_way(poured, run_id, at, task)
        else:
            self._over(poured, number, run_id, at, task)
        if number % 10 == 0:
            poured.add("inputs", run_id, '{"customer": 4711, "since": "2026-11-01"}', None)
        if number % 5 == 0:
            self._seq += 1
            kind = draw.choice(("run.started", "run.succeeded", "run.failed"))
            poured.add("events", run_id, self._seq, at, kind, json.dumps([[task.id, run_id, "SUCCESS"]]))

    def _over(self, poured: Poured, number: int, run_id: int, at: int, task: Task) -> None:
        spec, draw = task.spec, self._draw
        status = draw.choices(_ENDS, _WEIGHTS)[0]
        if status == "SUCCESS" and spec.exec_type is ExecType.ASYNC:
            status = "CALLBACK_SUCCESS"
        is_bad, skipped = status not in ("SUCCESS", "CALLBACK_SUCCESS"), status == "SKIPPED"
        start = None if skipped else at + draw.randrange(2_000, 900_000)
        end = at if start is None else start + draw.randrange(5_000, 20_000_000)
        worker = f"worker-{draw.randrange(WORKERS)}" if number % 5_003 or number > self._count // 2 else RARE_WORKER
        error = draw.choice(_ERRORS) if is_bad and not skipped and status != "CANCELED" else None
        if error is not None and number % 997 == 0:
            error = RARE_ERROR
        retried = number % 33 == 0 and not skipped
        origin, slot = ("schedule", at // SECOND * SECOND) if spec.schedule else ("publish", None)
        scheduled = at
        if number % 100 == 51:
            origin, slot, scheduled = "backfill", None, at - 5 * DAY
        poured.add(
            "runs",
            *(run_id, task.id, 1, origin, status, slot, scheduled, at, at, end, spec.queue, spec.priority),
            *(0 if skipped else 1 + retried, int(retried), 0, "overlap" if skipped else None),
            *(status if is_bad else None, start, end, None, None, None if skipped else worker),
            *(None if spec.exec_type is ExecType.JOB or skipped else 503 if is_bad else 200, error),
            *(None if error is None else '{"kind": "http_5xx"}', None, f"{run_id:032x}"),
        )
        if retried:
            before = start or at
            poured.add("attempts", run_id, 1, "FAILED", worker, at, before, 503, _ERRORS[0])
        if number % 10 == 3 and not skipped:
            body = json.dumps({"rows": number % 997, "note": "n" * 300})
            poured.add("bodies", run_id, 1 + retried, '{"X-Noonbell-Run": "1"}', "{}", "{}", body, 0)
        if status == "CALLBACK_SUCCESS":
            poured.add("callbacks", run_id, run_id, task.id, end, "ACCEPTED", None, "{}", '{"status": "SUCCESS"}')

    def _under_way(self, poured: Poured, run_id: int, at: int, task: Task) -> None:
        spec, draw, soon = task.spec, self._draw, self._now + 7_200 * SECOND
        gated = spec.exec_type is not ExecType.JOB
        wait = Place.GATED if gated else Place.READY
        status, place = draw.choices(
            (("SCHEDULED", wait), ("SCHEDULED", Place.LATER), ("RETRYING", Place.LATER), ("RUNNING", Place.LEASED)),
            (12, 3, 2, 3),
        )[0]
        if spec.exec_type is ExecType.ASYNC and draw.random() < 0.5:
            status, place = "CALLBACK_PENDING", Place.PARKED
        held, started = place is Place.LEASED, status != "SCHEDULED"
        worker = f"worker-{draw.randrange(WORKERS)}" if started else None
        later = soon + draw.randrange(40) * 3_600 * SECOND if place in (Place.LATER, Place.PARKED) else None
        flags = (RunFlag.CALLBACK if spec.exec_type is ExecType.ASYNC else 0) | (
            RunFlag.RETRIED if status == "RETRYING" else 0
        )
        poured.add(
            "runs",
            *(run_id, task.id, 1, "trigger", "SCHEDULED" if held else status, None, at),
            *(later or at, at, at, spec.queue, spec.priority),
            *(int(started), int(status == "RETRYING"), 0, None, None, at if started and not held else None, None),
            *(later if status == "RETRYING" else None, later if place is Place.PARKED else None),
            *(None if held else worker, None, _ERRORS[0] if status == "RETRYING" else None, None, None, None),
        )
        poured.add(
            "live",
            *(run_id, int(place), task.id, spec.queue, -spec.priority, later or at, soon if held else later),
            *(spec.job_type, task.id if gated else None, flags, 0, int(started), int(status == "RETRYING"), 0),
            *(at if started else 0, worker if held else None, at if held else None, soon if held else None),
            soon if held else None,
        )
