"""JSON of the API: runs, stats, callbacks, calls, queues, workers, worker protocol. Made by tools/reference.py from the declarations of the endpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from noonbell.client.types.task_inputs import (
    CallOptionsFieldsInput,
    QuietHoursInput,
    RateLimitInput,
    RunListFieldsInput,
    TriggerWriteInput,
)
from noonbell.client.types.tasks import (
    AttemptFieldsJson,
    ClaimedRunFieldsJson,
    ExecType,
    PublishOutcome,
    QuietHoursJson,
    RateLimitJson,
    RetryPolicyJson,
    RunFieldsJson,
    RunStatus,
    SlaJson,
)


class AttemptJson(AttemptFieldsJson):
    run_id: int
    status: str
    worker_id: str | None
    response_code: int | None
    error_details: dict[str, Any] | None
    omitted: NotRequired[dict[str, int]]
    resent: bool
    duration_ms: int | None
    request_headers: dict[str, str] | None
    request_body: str | None
    response_headers: dict[str, str] | None
    response_body: str | None
    truncated: bool


class AttemptListInput(TypedDict, total=False):
    after: int
    limit: int


class AttemptsJson(TypedDict):
    items: list[AttemptJson]
    next_after: NotRequired[int]


class PublishedJson(TypedDict):
    run_id: int | None
    outcome: PublishOutcome
    reason: NotRequired[str]


class BatchAnswerJson(TypedDict):
    runs: list[PublishedJson]


class BatchRunInput(TriggerWriteInput):
    task: int | str


class BatchWriteInput(TypedDict):
    runs: Sequence[BatchRunInput]


_RunFilterInput = TypedDict("_RunFilterInput", {"from": NotRequired[str | None]})


class RunFilterInput(_RunFilterInput, RunListFieldsInput, total=False):
    task: int | str | None
    queue: str | None


class BulkRunsInput(TypedDict, total=False):
    filter: RunFilterInput | None
    all: bool
    dry_run: bool


class CallBatchAnswerJson(TypedDict):
    calls: list[PublishedJson]


class CallOptionsInput(CallOptionsFieldsInput, total=False):
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
    timeout_seconds: float | None
    success_url: str | None
    failure_url: str | None
    labels: Mapping[str, str]
    body: Any
    delay_seconds: float
    run_at: str | None
    expires_at: str | None
    key: str | None
    concurrency_key: str | None
    max_per_key: int
    rate_key: str | None


class CallWriteInput(CallOptionsInput):
    url: str


class CallBatchWriteInput(TypedDict):
    calls: Sequence[CallWriteInput]


class CallJson(TypedDict):
    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
    headers: dict[str, str]
    timeout_seconds: float | None
    retry_policy: RetryPolicyJson | None
    success_url: str | None
    failure_url: str | None
    labels: dict[str, str]
    concurrency_key: str | None
    max_per_key: int | None
    rate_key: str | None


class CallbackAnswerJson(TypedDict):
    run_id: int
    final_status: Literal["CANCELED", "FAILED", "SKIPPED", "SUCCESS"] | None


class CallbackWriteInput(TypedDict):
    status: Literal["SUCCESS", "FAILED", "RUNNING"]
    data: NotRequired[Any]
    error_message: NotRequired[Any]
    progress: NotRequired[Any]


class CallbackByIdsWriteInput(CallbackWriteInput):
    task_id: int
    run_id: int


class CallbackListInput(TypedDict, total=False):
    limit: int
    before: int | None


class CallbackRecordJson(TypedDict):
    id: int
    run_id: int | None
    task_id: int | None
    received_at: str
    status: str
    reason: str | None
    headers: dict[str, str]
    body: str
    omitted: NotRequired[dict[str, int]]


class CallbackRecordsJson(TypedDict):
    items: list[CallbackRecordJson]


class CancelWriteInput(TypedDict, total=False):
    reason: str


class CanceledJson(TypedDict):
    run_id: int
    status: RunStatus
    canceled: bool


class ClaimWriteInput(TypedDict, total=False):
    queues: Sequence[str]
    job_types: Sequence[str] | None
    max: int
    wait_seconds: float
    version: int
    labels: Mapping[str, str]
    concurrency: int | None


class ClaimedRunJson(ClaimedRunFieldsJson):
    run_id: int
    task_id: int
    task_name: str
    key: str | None
    idempotency_key: str
    attempt: int
    token: int
    scheduled_time: str
    previous_scheduled_time: str | None
    lease_expires_at: str
    shard_index: int | None
    shard_total: int | None


class WorkerOrderJson(TypedDict):
    state: Literal["running", "draining", "stopping", "lost"]
    concurrency: int | None


class ClaimedJson(TypedDict):
    runs: list[ClaimedRunJson]
    worker: WorkerOrderJson


class CleanRunsWriteInput(TypedDict):
    run_ids: Sequence[int]


_DeadRunFilterInput = TypedDict("_DeadRunFilterInput", {"from": NotRequired[str | None]})


class DeadRunFilterInput(_DeadRunFilterInput, RunListFieldsInput, total=False):
    task: int | str | None


class DeadRunsInput(RunListFieldsInput, total=False):
    task: int | str | None
    from_: str | None
    sort: Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]
    page: int
    page_size: int
    cursor: str | None


class ErrorBudgetJson(TypedDict):
    window: str
    success_ratio: float | None
    wanted: float
    allowed: float
    failed: int
    left: float


class ExplainRunInput(TypedDict, total=False):
    lang: str | None


class ExtendWriteInput(TypedDict):
    worker_id: str
    token: int
    seconds: float


class StepInGraphJson(TypedDict):
    id: str
    needs: list[str]
    on: Literal["success", "failure", "skipped", "any"]
    when: str | None
    foreach: bool
    allow_failure: bool
    exec_type: ExecType
    calls: str
    queue: str
    status: Literal["WAITING", "RUNNING", "SUCCESS", "FAILED", "SKIPPED", "CANCELED"]
    reason: str | None
    message: str | None
    total: int
    succeeded: int
    failed: int
    run_id: int | None
    copied_from: int | None
    started_at: str | None
    ended_at: str | None


class FlowGraphJson(TypedDict):
    run_id: int
    task_id: int
    task_version: int
    status: RunStatus
    retry_of_run_id: int | None
    steps: list[StepInGraphJson]


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


class HeartbeatWriteInput(TypedDict, total=False):
    runs: Sequence[HeldRunInput]


class HistoryImportedJson(TypedDict):
    imported: int
    known: int
    removed: int
    recent: int


class KeptRunJson(TypedDict):
    run_id: int
    reason: Literal["not_found", "not_final", "part", "active_parts"]


class LineInput(TypedDict):
    level: NotRequired[Literal["debug", "info", "warning", "error"]]
    message: Any


class LoadListInput(TypedDict, total=False):
    from_: str | None
    to: str | None
    by: Literal["hour", "day"]


class SpreadJson(TypedDict):
    average: int | None
    p50: int | None
    p95: int | None
    p99: int | None
    most: int | None


class LoadStepFieldsJson(TypedDict):
    at: str
    runs: int
    success_ratio: float | None
    queue_time_ms: SpreadJson
    duration_ms: SpreadJson


class LoadStepJson(LoadStepFieldsJson):
    failed: int


class LogLineJson(TypedDict):
    seq: int
    at: str
    level: str
    message: str


class LogJson(TypedDict):
    items: list[LogLineJson]
    next_after: int


class LogListInput(TypedDict, total=False):
    after: int
    limit: int
    level: Literal["debug", "info", "warning", "error"] | None
    search: str | None


class LogWriteInput(TypedDict):
    worker_id: str
    token: int
    level: NotRequired[Literal["debug", "info", "warning", "error"]]
    message: NotRequired[Any]
    lines: NotRequired[Sequence[LineInput] | None]


class ProgressWriteInput(TypedDict):
    worker_id: str
    token: int
    current: float
    total: NotRequired[float | None]
    message: NotRequired[Any]


class PromotedJson(TypedDict):
    run_id: int
    status: RunStatus
    run_at: str


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


class QueuePauseJson(TypedDict):
    reason: str
    by: str | None
    since: str


class UnservedJson(TypedDict):
    job_type: str | None
    lack: Literal["queue", "job_type", "version", "named", "labels", "part"]
    count: int
    is_least: bool
    run_id: int
    task_id: int
    since: str


class QueueJson(TypedDict):
    pause: QueuePauseJson | None
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


class QueuePauseWriteInput(TypedDict, total=False):
    reason: str


_QueueStatsJson = TypedDict("_QueueStatsJson", {"from": str})


class QueueStatsJson(_QueueStatsJson):
    name: str
    to: str
    by: Literal["hour", "day"]
    total: LoadStepJson
    items: list[LoadStepJson]


class QueueWriteInput(TypedDict, total=False):
    rate_limit: RateLimitInput | None
    concurrency: int | None
    quiet: Sequence[QuietHoursInput]
    spread_seconds: int


class QueuesJson(TypedDict):
    items: list[QueueJson]


class RedriveWriteInput(TypedDict, total=False):
    filter: DeadRunFilterInput | None
    dry_run: bool


class RetriedJson(TypedDict):
    run_id: int
    retry_of_run_id: int


class RetryWriteInput(TypedDict, total=False):
    from_step: str | None


class RunExportInput(RunListFieldsInput, total=False):
    task: int | str | None
    from_: str | None
    queue: str | None
    format: Literal["csv", "ndjson"]


class RunJson(RunFieldsJson):
    payload: Any
    call: CallJson | None
    request_headers: dict[str, str] | None
    request_body: str | None
    response_headers: dict[str, str] | None
    response_body: str | None
    truncated: bool


class RunListInput(RunListFieldsInput, total=False):
    task: int | str | None
    from_: str | None
    queue: str | None
    sort: Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]
    page: int
    page_size: int
    cursor: str | None


class RunRecordInput(TypedDict):
    task: int | str
    key: str
    status: Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"]
    scheduled_time: str
    end_time: str
    created_at: NotRequired[str | None]
    start_time: NotRequired[str | None]
    attempt: NotRequired[int]
    response_code: NotRequired[int | None]
    error_message: NotRequired[str | None]
    trace_id: NotRequired[str | None]
    request_headers: NotRequired[Mapping[str, str] | None]
    request_body: NotRequired[str | None]
    response_body: NotRequired[str | None]
    truncated: NotRequired[bool]


class RunRecordsInput(TypedDict):
    runs: Sequence[RunRecordInput]


class RunsCanceledJson(TypedDict):
    matched: int
    canceled: int
    more: bool


class RunsCleanedJson(TypedDict):
    removed: int
    kept: list[KeptRunJson]


class RunsRetriedJson(TypedDict):
    matched: int
    retried: int
    more: bool


class SeriesListInput(TypedDict, total=False):
    from_: str | None
    to: str | None
    by: Literal["minute", "hour", "day"]


class ServiceLevelFiguresJson(LoadStepFieldsJson):
    start_delay_ms: SpreadJson
    breaches: dict[str, int]


class TaskServiceLevelJson(LoadStepFieldsJson):
    start_delay_ms: SpreadJson
    breaches: dict[str, int]
    task_id: int
    task_name: str
    sla: SlaJson | None
    is_default: bool
    error_budget: ErrorBudgetJson | None
    points: list[ServiceLevelFiguresJson]


class SlaBreachJson(TypedDict):
    id: int
    task_id: int
    run_id: int | None
    rule: Literal["start_within_seconds", "finish_within_seconds", "finish_by", "success_ratio"]
    deadline: str
    foreseen_at: str | None
    expected_at: str | None
    usual_ms: int | None
    breached_at: str | None
    resolved_at: str | None


_ServiceLevelsJson = TypedDict("_ServiceLevelsJson", {"from": str})


class ServiceLevelsJson(_ServiceLevelsJson):
    to: str
    total: ServiceLevelFiguresJson
    points: list[ServiceLevelFiguresJson]
    tasks: list[TaskServiceLevelJson]
    tasks_total: int
    breaches: list[SlaBreachJson]


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


class SlaListInput(TypedDict, total=False):
    task: int | str | None
    from_: str | None
    to: str | None
    queue: str | None
    label: str | None
    by: Literal["hour", "day"] | None


class TaskStatsJson(TypedDict):
    task_id: int
    task_name: str
    runs: int
    success_rate: float | None
    average_duration_ms: int | None
    p95_duration_ms: int | None
    average_lag_ms: int | None
    p95_lag_ms: int | None


_StatsJson = TypedDict("_StatsJson", {"from": str})


class StatsJson(_StatsJson):
    to: str
    total: int
    by_status: dict[str, int]
    by_final_status: dict[str, int]
    dropped: int
    success_rate: float | None
    duration_ms: SpreadJson
    start_delay_ms: SpreadJson
    queue_time_ms: SpreadJson
    tasks: list[TaskStatsJson]


class StatsListInput(TypedDict, total=False):
    task: int | str | None
    from_: str | None
    to: str | None


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


class WorkerLoadStepJson(LoadStepFieldsJson):
    failed: int
    busy: float | None


class WorkerStateSetJson(TypedDict):
    worker_id: str
    state: Literal["running", "draining", "stopping", "lost"]


_WorkerStatsJson = TypedDict("_WorkerStatsJson", {"from": str})


class WorkerStatsJson(_WorkerStatsJson):
    worker_id: str
    concurrency: int
    to: str
    by: Literal["hour", "day"]
    total: WorkerLoadStepJson
    items: list[WorkerLoadStepJson]


class WorkersJson(TypedDict):
    items: list[WorkerJson]
    has_scheduler: bool
