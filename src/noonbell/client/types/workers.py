"""JSON of the API: queues, workers, worker protocol, calendars. Made by tools/reference.py from the declarations of the endpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from noonbell.client.types.task_inputs import QuietHoursInput, RateLimitInput
from noonbell.client.types.tasks import Origin, QuietHoursJson, RateLimitJson, RunStatus


class CalendarDayJson(TypedDict):
    day: str
    open: bool
    why: str


class CalendarDaysJson(TypedDict):
    items: list[CalendarDayJson]


class IcalSourceJson(TypedDict):
    url: str
    refresh_seconds: int


class CalendarJson(TypedDict):
    description: str
    timezone: str | None
    closed_weekdays: list[int]
    closed: list[str]
    open: list[str]
    ical: IcalSourceJson | None
    name: str
    revision: int
    ical_days: list[str]
    ical_fetched_at: str | None
    ical_checked_at: str | None
    ical_error: str | None
    tasks: int
    created_at: str
    updated_at: str
    changed_by: str | None


class SlotMoveJson(TypedDict):
    task_id: int
    task_name: str
    slot: str
    before: str | None
    after: str | None
    is_late: bool


class CalendarPreviewJson(TypedDict):
    changes: bool
    tasks: int
    moves: list[SlotMoveJson]
    more: bool
    until: str


class CalendarSavedJson(CalendarJson):
    changed: bool
    changed_tasks: list[int]


class IcalSourceInput(TypedDict):
    url: str
    refresh_seconds: NotRequired[int]


class CalendarWriteInput(TypedDict):
    description: NotRequired[str]
    timezone: NotRequired[str | None]
    closed_weekdays: NotRequired[Sequence[int]]
    closed: NotRequired[Sequence[str]]
    open: NotRequired[Sequence[str]]
    ical: NotRequired[IcalSourceInput | None]
    ical_days: NotRequired[Sequence[str] | None]
    ics: NotRequired[str | None]


class CalendarsJson(TypedDict):
    items: list[CalendarJson]


class ClaimWriteInput(TypedDict):
    queues: NotRequired[Sequence[str]]
    job_types: NotRequired[Sequence[str] | None]
    max: NotRequired[int]
    wait_seconds: NotRequired[float]
    version: NotRequired[int]
    labels: NotRequired[Mapping[str, str]]
    concurrency: NotRequired[int | None]


class ClaimedRunJson(TypedDict):
    run_id: int
    task_id: int
    task_name: str
    job_type: str | None
    payload: Any
    key: str | None
    idempotency_key: str
    queue: str
    priority: int
    attempt: int
    token: int
    scheduled_time: str
    previous_scheduled_time: str | None
    timeout_seconds: float
    ping_interval_ms: int
    lease_expires_at: str
    shard_index: int | None
    shard_total: int | None


class WorkerOrderJson(TypedDict):
    state: Literal["running", "draining", "stopping", "lost"]
    concurrency: int | None


class ClaimedJson(TypedDict):
    runs: list[ClaimedRunJson]
    worker: WorkerOrderJson


class DaysAskedInput(TypedDict):
    from_: NotRequired[str | None]
    count: NotRequired[int]


_DeadRunFilterInput = TypedDict("_DeadRunFilterInput", {"from": NotRequired[str | None]})


class DeadRunFilterInput(_DeadRunFilterInput):
    task: NotRequired[int | str | None]
    status: NotRequired[Sequence[RunStatus] | RunStatus]
    to: NotRequired[str | None]
    worker: NotRequired[str | None]
    key: NotRequired[str | None]
    origin: NotRequired[Origin | None]
    label: NotRequired[str | None]
    text: NotRequired[str | None]
    search: NotRequired[str | None]
    parent_id: NotRequired[int | None]
    step: NotRequired[str | None]


class DeadRunsInput(TypedDict):
    task: NotRequired[int | str | None]
    status: NotRequired[Sequence[RunStatus] | RunStatus]
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    worker: NotRequired[str | None]
    key: NotRequired[str | None]
    origin: NotRequired[Origin | None]
    label: NotRequired[str | None]
    text: NotRequired[str | None]
    search: NotRequired[str | None]
    parent_id: NotRequired[int | None]
    step: NotRequired[str | None]
    sort: NotRequired[Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]]
    page: NotRequired[int]
    page_size: NotRequired[int]
    cursor: NotRequired[str | None]


class ExtendWriteInput(TypedDict):
    worker_id: str
    token: int
    seconds: float


class OrderAnswerJson(TypedDict):
    run_id: int
    order: Literal["continue", "cancel", "lost"]
    lease_expires_at: str | None
    ping_interval_ms: int | None


class HeartbeatJson(TypedDict):
    runs: list[OrderAnswerJson]
    worker: WorkerOrderJson


class HeldRunInput(TypedDict):
    run_id: int
    token: int


class HeartbeatWriteInput(TypedDict):
    runs: NotRequired[Sequence[HeldRunInput]]


class LineInput(TypedDict):
    level: NotRequired[Literal["debug", "info", "warning", "error"]]
    message: Any


class LogWriteInput(TypedDict):
    worker_id: str
    token: int
    level: NotRequired[Literal["debug", "info", "warning", "error"]]
    message: NotRequired[Any]
    lines: NotRequired[Sequence[LineInput] | None]


class PreviewAskedInput(TypedDict):
    days: NotRequired[int]


class ProgressWriteInput(TypedDict):
    worker_id: str
    token: int
    current: float
    total: NotRequired[float | None]
    message: NotRequired[Any]


class QueueDepthStepJson(TypedDict):
    at: str
    samples: int
    waiting: float | None
    most_waiting: int | None
    longest_wait_ms: int | None


_QueueDepthJson = TypedDict("_QueueDepthJson", {"from": str})


class QueueDepthJson(_QueueDepthJson):
    name: str
    to: str
    by: Literal["minute", "hour", "day"]
    items: list[QueueDepthStepJson]


class UnservedJson(TypedDict):
    job_type: str | None
    lack: Literal["queue", "job_type", "version", "named", "labels", "part"]
    count: int
    is_least: bool
    run_id: int
    task_id: int
    since: str


class QueueJson(TypedDict):
    unserved: list[UnservedJson]
    name: str
    paused: bool
    concurrency: int | None
    rate_limit: RateLimitJson | None
    quiet: list[QuietHoursJson]
    spread_seconds: int
    waiting: int
    held: int
    delayed: int
    running: int
    oldest_at: str | None


class QueueWriteInput(TypedDict):
    rate_limit: NotRequired[RateLimitInput | None]
    concurrency: NotRequired[int | None]
    quiet: NotRequired[Sequence[QuietHoursInput]]
    spread_seconds: NotRequired[int]


class QueuesJson(TypedDict):
    items: list[QueueJson]


class RedriveWriteInput(TypedDict):
    filter: NotRequired[DeadRunFilterInput | None]
    dry_run: NotRequired[bool]


class SeriesListInput(TypedDict):
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    by: NotRequired[Literal["minute", "hour", "day"]]


class SettleWriteInput(TypedDict):
    worker_id: str
    token: int
    outcome: Literal["success", "fail", "error", "release"]
    result: NotRequired[Any]
    error_message: NotRequired[Any]
    error_details: NotRequired[Any]


class SettledRunJson(TypedDict):
    run_id: int
    status: RunStatus


class WorkerChangeInput(TypedDict):
    concurrency: int


class WorkerForgottenJson(TypedDict):
    worker_id: str
    deleted: bool


class WorkerJson(TypedDict):
    id: str
    state: Literal["running", "draining", "stopping", "lost"]
    version: int
    labels: dict[str, str]
    queues: list[str]
    job_types: list[str] | None
    concurrency: int
    running: int
    part_of: str | None
    started_at: str
    last_heartbeat_at: str


class WorkerStateSetJson(TypedDict):
    worker_id: str
    state: Literal["running", "draining", "stopping", "lost"]


class WorkersJson(TypedDict):
    items: list[WorkerJson]
    has_scheduler: bool
