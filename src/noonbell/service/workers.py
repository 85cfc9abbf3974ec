"""Workers: which there are, what an operator wants of them, what a worker's token may touch, and the worker protocol.

`WorkerProtocol` reads what a worker sends by the API and writes the answers; `engine.worker_protocol.WorkerBackend` acts.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from noonbell.clock import read_monotonic
from noonbell.engine.worker_protocol import WorkerBackend
from noonbell.errors import Forbidden, InvalidId, InvalidState, NotFound
from noonbell.fields import Moment, filled, meta, plain, read, read_into
from noonbell.fields.kinds import unfit
from noonbell.fields.problems import Problems, ReadContext
from noonbell.model.access import TokenScope
from noonbell.model.call import CALL_TYPE, NAMED_TYPES
from noonbell.model.failure_text import failure_text, said_by
from noonbell.model.run import Assignment, Outcome, OutcomeKind, RunId, RunStatus, idempotency_key_of
from noonbell.model.target_kind import OWN_QUEUES
from noonbell.model.task import TaskId
from noonbell.model.worker import (
    PART_OF,
    SERVE,
    Attendance,
    LeaseOrder,
    WorkerDeclaration,
    WorkerInfo,
    WorkerState,
    is_scheduler_alive,
)
from noonbell.ports import ORDERS, Store, Wakeup, queue_topic


class ShownWorker(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "Worker"

    id: Annotated[str, meta(examples=["resizer-1"])]
    state: WorkerState
    version: Annotated[int, meta(examples=[3])]
    labels: Annotated[dict[str, str], meta("Its labels, for `worker_labels`.", examples=[{"gpu": "a100"}])]
    queues: Annotated[tuple[str, ...], meta(examples=[["default"]])]
    job_types: Annotated[
        tuple[str, ...] | None, meta("Null: any. An empty list: it makes HTTP requests.", examples=[["resize"]])
    ]
    concurrency: Annotated[int, meta("The most runs that it holds at once.", examples=[10])]
    running: Annotated[int, meta("Runs that it holds now.", examples=[2])]
    part_of: Annotated[str | None, meta("`serve`: inside a node, drained but never stopped alone.", examples=[None])]
    started_at: Moment
    last_heartbeat_at: Moment


class AllWorkers(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Workers"

    items: list[ShownWorker]
    has_scheduler: Annotated[bool, meta("False: no node plans; schedules do not fire, delayed runs and retries wait.")]


class WorkerChange(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a worker that can be changed"

    concurrency: Annotated[
        int,
        meta(
            "The most runs that it may hold; 0: none.",
            ge=0,
            le=MOST_CONCURRENCY,
            missing="how many runs it may run at once, 0 for none",
            examples=[10],
        ),
    ]


class WorkerStateSet(msgspec.Struct, frozen=True):
    worker_id: Annotated[str, meta(examples=["resizer-1"])]
    state: WorkerState


class WorkerForgotten(msgspec.Struct, frozen=True):
    worker_id: Annotated[str, meta(examples=["resizer-1"])]
    deleted: Annotated[bool, meta(examples=[True])]


class Workers:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store, self._wakeup = store, wakeup

    async def all(self) -> list[dict[str, Any]]:
        """Workers by id, each with how many runs it holds."""
        held = await self._store.held()
        return [shown(worker, held.get(worker.id, 0)) for worker in await self._store.workers()]

    async def has_scheduler(self) -> bool:
        """Whether a node plans on the store: without one, slots, delayed runs and retries wait."""
        return is_scheduler_alive(await self._store.scheduler_seen_at(), await self._store.now())

    async def get(self, worker_id: str) -> dict[str, Any]:
        worker_id = checked_id(worker_id)
        worker = next((one for one in await self._store.workers() if one.id == worker_id), None)
        if worker is None:
            raise NotFound("there is no worker {worker}", worker=repr(worker_id))
        held = await self._store.held([worker_id])
        return shown(worker, held.get(worker_id, 0))

    async def change(self, worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Set the worker's concurrency; the worker gets it with its next heartbeat."""
        wanted = read(WorkerChange, given)
        worker = await self._store.set_worker(checked_id(worker_id), concurrency=wanted.concurrency)
        self._wake(worker)
        return await self.get(worker.id)

    async def set_state(self, worker_id: str, state: WorkerState) -> dict[str, Any]:
        """DRAINING takes no more runs, STOPPING ends after those it has, RUNNING takes runs again.

        InvalidState: one that is a part of `noonbell serve` would leave a node behind that says it is ready.
        """
        if state is WorkerState.STOPPING:
            worker_id = checked_id(worker_id)
            if any(one.id == worker_id and one.meta.get(PART_OF) == SERVE for one in await self._store.workers()):
                raise InvalidState(
                    "worker {worker} is part of `noonbell serve` and cannot be stopped on its own: drain it, or"
                    " stop the node",
                    worker=repr(worker_id),
                )
        worker = await self._store.set_worker(checked_id(worker_id), state=state)
        self._wake(worker)
        return {"worker_id": worker.id, "state": worker.state}

    async def forget(self, worker_id: str) -> dict[str, Any]:
        """Remove a lost worker from the list. InvalidState: it is connected, or still holds runs."""
        worker_id = checked_id(worker_id)
        await self._store.forget_worker(worker_id)
        return {"worker_id": worker_id, "deleted": True}

    def _wake(self, worker: WorkerInfo) -> None:
        self._wakeup.signal(ORDERS)
        for queue in worker.queues:
            self._wakeup.signal(queue_topic(queue))


def shown(worker: WorkerInfo, running: int) -> dict[str, Any]:
    """The job type of calls is left out: it is how workers that make requests claim, and no job."""
    part_of, seen_at = worker.meta.get(PART_OF), worker.heartbeat_at
    types = None if worker.job_types is None else tuple(name for name in worker.job_types if name != CALL_TYPE)
    return plain(
        filled(ShownWorker, worker, running=running, part_of=part_of, last_heartbeat_at=seen_at, job_types=types)
    )


_FRESH: Final = 10.0
"""Seconds that a worker's name is known to be fine without asking the store."""
_MOST_KNOWN: Final = 10_000


class WorkerBounds:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, TokenScope], float] = {}

    async def claim(self, bounds: TokenScope, worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the claim asks for; without `queues` or `job_types`, all of the token's. Forbidden where it asks for others."""
        found = dict(given)
        for field, mine in (("queues", bounds.queues), ("job_types", bounds.job_types)):
            if mine and found.get(field) is None:
                found[field] = list(mine)
            asked = found.get(field)
            others = [str(name) for name in asked if name not in mine] if mine and isinstance(asked, list) else []
            if others:
                raise Forbidden(
                    f"this token is limited to {_named(mine, field)}, and does not cover {_named(others[:5], field)}"
                )
        await self.worker(bounds, worker_id)
        return found

    async def worker(self, bounds: TokenScope, worker_id: Any) -> None:
        """Raises Forbidden for the id of a worker that works on other queues or job types: its leases are not this
        token's.
        """
        if not isinstance(worker_id, str):
            return  # no name: reading the call refuses it
        known = (worker_id, bounds)
        now = read_monotonic()
        if now - self._known.get(known, -_FRESH) < _FRESH:
            return
        there = next((one for one in await self._store.workers() if one.id == worker_id), None)
        if there is not None and not set(there.queues) <= set(bounds.queues):
            raise Forbidden(
                f"worker {worker_id!r} is on other queues; this token is limited to {_named(bounds.queues)}"
            )
        types = None if there is None else there.job_types
        if there is not None and bounds.job_types and (types is None or not set(types) <= set(bounds.job_types)):
            raise Forbidden(
                f"worker {worker_id!r} has other job types;"
                f" this token is limited to {_named(bounds.job_types, 'job_types')}"
            )
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[known] = now

    async def run(self, bounds: TokenScope, run_id: RunId, worker_id: Any) -> None:
        """Raises Forbidden for a run of another queue or job type, whether a worker holds it or not."""
        run = await self._store.run(run_id)
        if run is not None and run.queue not in bounds.queues:
            raise Forbidden(f"this token is limited to {_named(bounds.queues)}, and the run is in another queue")
        if run is not None and bounds.job_types:
            task = await self._store.run_task(run_id)
            if task is None or task.spec.job_type not in bounds.job_types:
                raise Forbidden(
                    f"this token is limited to {_named(bounds.job_types, 'job_types')}, and the run has another one"
                )
        await self.worker(bounds, worker_id)


def _named(names: Sequence[str], field: str = "queues") -> str:
    word = field.replace("_", " ").removesuffix("s")
    return f"{word}{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


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


class SettleOutcome(enum.StrEnum):
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


def from_level(lowest: Level) -> tuple[Level, ...]:
    """The level itself and those above it."""
    every = tuple(Level)
    return every[every.index(lowest) :]


Token = Annotated[
    int,
    meta(
        "Received with the claim, and required in every call about this attempt.",
        ge=0,
        le=2**53 - 1,
        expected="the token that came with the claim",
        examples=[1794795000123456],
    ),
]
AnyText = Annotated[
    Any,
    meta(f"A text; what is longer than {LONGEST_MESSAGE} characters is cut.", anything=True, examples=["third page"]),
]


class ClaimWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a claim"

    queues: Annotated[
        tuple[str, ...],
        meta(
            'Not "http".',
            min_length=1,
            max_length=MOST_QUEUES,
            expected=f"a list of 1 to {MOST_QUEUES} names of queues",
        ),
    ] = ("default",)
    job_types: Annotated[tuple[str, ...] | None, meta("Null: any.", max_length=10_000)] = None
    max: Annotated[int, meta("The most runs to claim.", ge=1, le=MOST_RUNS)] = 1
    wait_seconds: Annotated[float, meta("How long to wait for a run.", ge=0, le=LONGEST_WAIT)] = 20
    version: Annotated[int, meta("The worker's version, for `min_worker_version`.", ge=0, le=2**31 - 1)] = 0
    labels: Annotated[
        dict[str, Annotated[str, meta(max_length=255)]],
        meta("The worker's labels, for `worker_labels`.", max_length=50, examples=[{"gpu": "a100"}]),
    ] = {}
    concurrency: Annotated[
        int | None,
        meta(
            "The most runs that the worker wants to hold; 100 by default. An operator may change it.",
            ge=0,
            le=MOST_CONCURRENCY,
        ),
    ] = None


class HeldRun(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a run that is held"

    run_id: Annotated[RunId, meta("The run.", ge=1, le=2**53 - 1, expected="the id of a run", examples=[7340033])]
    token: Token


class HeartbeatWrite(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a heartbeat"

    runs: Annotated[
        list[HeldRun],
        meta(
            "All that the worker holds.",
            max_length=MOST_HELD,
            expected=f"a list of at most {MOST_HELD} objects with run_id and token",
        ),
    ] = []


class AttemptCall(msgspec.Struct, frozen=True, kw_only=True):
    """What every call about an attempt carries."""

    worker_id: Annotated[
        str,
        meta("Who claimed it.", min_length=1, missing="the id of the worker that claimed it", examples=["resizer-1"]),
    ]
    token: Token


class SettleWrite(AttemptCall, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a settlement"

    outcome: Annotated[SettleOutcome, meta("How the attempt ended.")]
    result: Annotated[Any, meta("The result of the run.", examples=[{"rows": 42}])] = None
    error_message: AnyText = None
    error_details: Annotated[Any, meta("Kept with the run.")] = None


class ProgressWrite(AttemptCall, frozen=True, kw_only=True):
    noun: ClassVar[str] = "progress"

    current: Annotated[float, meta("The progress so far.", ge=-1e15, le=1e15, missing="a number", examples=[3])]
    total: Annotated[float | None, meta("The total.", ge=-1e15, le=1e15, examples=[10])] = None
    message: AnyText = None


class LineBody(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a line of the log"

    level: Annotated[Level, meta("The log level.")] = Level.INFO
    message: Annotated[Any, meta("A text.", anything=True, missing="a text", examples=["starting"])]


class LogWrite(AttemptCall, frozen=True, kw_only=True):
    noun: ClassVar[str] = "a line of the log"

    level: Annotated[Level, meta("The log level.")] = Level.INFO
    message: Annotated[Any, meta("One line; or several in `lines`.", anything=True, examples=["starting"])] = None
    lines: Annotated[
        list[LineBody] | None,
        meta(
            "Several lines at once.",
            min_length=1,
            max_length=MOST_LINES,
            expected=f"a list of 1 to {MOST_LINES} objects with level and message",
        ),
    ] = None


class ExtendWrite(AttemptCall, frozen=True, kw_only=True):
    noun: ClassVar[str] = "an extension"

    seconds: Annotated[
        float, meta("From now.", ge=1, le=LONGEST_EXTENSION, missing="how long from now", examples=[600])
    ]


class WorkerOrder(msgspec.Struct, frozen=True):
    """What an operator wants of the worker."""

    state: WorkerState
    concurrency: Annotated[int | None, meta(examples=[10])]


class ClaimedRun(msgspec.Struct, frozen=True, kw_only=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    task_id: Annotated[TaskId, meta(examples=[1])]
    task_name: Annotated[str, meta(examples=["resize_images"])]
    job_type: Annotated[str | None, meta(examples=["resize"])]
    payload: Annotated[Any, meta(examples=[{"image": "a.png"}])]
    key: Annotated[str | None, meta(examples=[None])]
    idempotency_key: Annotated[
        str, meta("The same for every attempt of the run.", examples=["5f0c1d7ab3e94c28-7340033"])
    ]
    queue: Annotated[str, meta(examples=["default"])]
    priority: int
    attempt: Annotated[int, meta(examples=[1])]
    token: Annotated[int, meta("Required in every call about this attempt.", examples=[1794795000123456])]
    scheduled_time: Moment
    previous_scheduled_time: Annotated[Moment | None, meta(examples=["2026-11-15T02:25:00Z"])]
    timeout_seconds: Annotated[float, meta(examples=[300.0])]
    ping_interval_ms: Annotated[int, meta("How often to send a heartbeat.", examples=[5000])]
    lease_expires_at: Annotated[Moment, meta(examples=["2026-11-15T02:30:15Z"])]
    shard_index: Annotated[int | None, meta(examples=[None])]
    shard_total: Annotated[int | None, meta(examples=[None])]


class ShownClaim(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Claimed"

    runs: list[ClaimedRun]
    worker: WorkerOrder


class ShownHeartbeat(msgspec.Struct, frozen=True):
    component: ClassVar[str] = "Heartbeat"

    runs: list[LeaseOrder]
    worker: WorkerOrder


class SettledRun(msgspec.Struct, frozen=True):
    run_id: Annotated[RunId, meta(examples=[7340033])]
    status: Annotated[RunStatus, meta(examples=["SUCCESS"])]


class Claim:
    """What a claim got, until it is answered."""

    def __init__(self, backend: WorkerBackend, assignments: list[Assignment], attendance: Attendance) -> None:
        self._backend, self.assignments, self._attendance = backend, assignments, attendance

    def shown(self) -> dict[str, Any]:
        return {"runs": [shown_claim(one) for one in self.assignments], "worker": plain(self._attendance)}

    def hand_back(self) -> None:
        """The worker is gone: give the runs back."""
        self._backend.hand_back(self.assignments)


class WorkerProtocol:
    def __init__(self, backend: WorkerBackend) -> None:
        self._backend = backend

    async def claim(self, worker_id: str, given: Mapping[str, Any]) -> Claim:
        worker_id = checked_id(worker_id)
        at = ReadContext(Problems())
        asked = read_into(ClaimWrite, given, at)
        for name in OWN_QUEUES.keys() & set(asked.queues):
            at.wrong("queues", f"names {name!r}; only built-in workers call {OWN_QUEUES[name].name} targets")
        for name in sorted(set(NAMED_TYPES) & set(asked.job_types or ())):
            what = "make calls" if name == CALL_TYPE else "carry it out"
            at.wrong("job_types", f"names {name!r}; only built-in workers {what}")
        if any(not 1 <= len(label) <= 255 or "=" in label for label in asked.labels):
            at.wrong("labels", "has a name that is empty, too long or has a '='; expected names of 1 to 255 characters")
        at.problems.finish()
        said = WorkerDeclaration(
            queues=asked.queues,
            job_types=asked.job_types,
            version=asked.version,
            concurrency=asked.concurrency,
            labels=tuple(sorted(asked.labels.items())),
        )
        return Claim(self._backend, *await self._backend.claim(worker_id, said, asked.max, asked.wait_seconds))

    async def heartbeat(self, worker_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        worker_id = checked_id(worker_id)
        asked = read(HeartbeatWrite, given)
        beat = await self._backend.heartbeat(worker_id, [(held.run_id, held.token) for held in asked.runs])
        return {
            "runs": [plain(order) for order in beat.orders],
            "worker": {"state": beat.state, "concurrency": beat.concurrency},
        }

    async def settle(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = read(SettleWrite, given)
        details = asked.error_details
        if details is not None and not isinstance(details, dict):
            details = {"value": details}
        outcome = outcome_of(asked.outcome, asked.result, _message(asked.error_message), details)
        return {"run_id": run_id, "status": await self._backend.settle(asked.worker_id, run_id, asked.token, outcome)}

    async def progress(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = read(ProgressWrite, given)
        made = {"current": asked.current, "total": asked.total, "message": _message(asked.message)}
        return plain(await self._backend.progress(asked.worker_id, run_id, asked.token, made))

    async def log(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        at = ReadContext(Problems())
        asked = read_into(LogWrite, given, at)
        if asked.lines is None and asked.message is None:
            at.wrong("message", "is missing; expected a text")
        if asked.lines is not None and asked.message is not None:
            at.wrong("message", "is one line, and lines are several; expected one of the two")
        at.problems.finish()
        lines = asked.lines or [LineBody(level=asked.level, message=asked.message)]
        written = [(str(line.level), _message(line.message)) for line in lines]
        return plain(await self._backend.log(asked.worker_id, run_id, asked.token, written))

    async def extend(self, run_id: RunId, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = read(ExtendWrite, given)
        return plain(await self._backend.extend(asked.worker_id, run_id, asked.token, asked.seconds))


def checked_id(worker_id: str) -> str:
    if not 1 <= len(worker_id) <= 255 or unfit(worker_id) is not None:
        raise InvalidId("a worker's id has 1 to 255 characters, and none that controls a terminal")
    return worker_id


def outcome_of(word: SettleOutcome, result: Any, message: str, details: dict[str, Any] | None) -> Outcome | None:
    """The outcome as the engine knows it; None where the worker hands the run back."""
    match word:
        case SettleOutcome.RELEASE:
            return None
        case SettleOutcome.SUCCESS:
            return Outcome(kind=OutcomeKind.SUCCESS, result=result, error_details=details)
        case SettleOutcome.FAIL | SettleOutcome.ERROR:
            said = message or failure_text("worker_said", word=str(word))
            return Outcome(
                kind=OutcomeKind.FAILURE,
                failure=str(word),
                result=result,
                error_message=str(said),
                error_details={**(details or {}), "kind": str(word), **said_by(said)},
            )


def _message(value: Any) -> str:
    """Any value, as a text that can be kept."""
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:LONGEST_MESSAGE]


def shown_claim(assignment: Assignment) -> dict[str, Any]:
    """One run as a claim hands it out."""
    lease, spec = assignment.lease, assignment.task.spec
    return plain(
        filled(
            ClaimedRun,
            lease,
            task_name=assignment.task.name,
            job_type=spec.job_type,
            idempotency_key=idempotency_key_of(lease.run_id, lease.scheduled_time, lease.idempotency_key),
            previous_scheduled_time=assignment.previous_scheduled_time,
            timeout_seconds=spec.timeout_seconds,
            ping_interval_ms=spec.ping_interval_ms,
            lease_expires_at=lease.expires_at,
        )
    )
