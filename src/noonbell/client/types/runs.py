"""JSON of the API: runs, stats, callbacks, calls. Made by tools/reference.py from the declarations of the endpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from noonbell.client.types.task_inputs import DedupeInput, RetryPolicyInput
from noonbell.client.types.tasks import (
    ExecType,
    Origin,
    PublishOutcome,
    RetryPolicyJson,
    RunStatus,
    SkipReason,
    SlaJson,
)


class RunFieldsJson(TypedDict):
    attempt: int
    worker_id: str | None
    start_time: str | None
    end_time: str | None
    response_code: int | None
    result: Any
    error_message: str | None
    error_details: dict[str, Any] | None
    duration_ms: int | None
    request_headers: dict[str, str] | None
    request_body: str | None
    response_headers: dict[str, str] | None
    response_body: str | None
    truncated: bool


class AttemptJson(RunFieldsJson):
    run_id: int
    status: str
    omitted: NotRequired[dict[str, int]]
    resent: bool


class AttemptListInput(TypedDict):
    after: NotRequired[int]
    limit: NotRequired[int]


class AttemptsJson(TypedDict):
    items: list[AttemptJson]
    next_after: NotRequired[int]


class PublishedJson(TypedDict):
    run_id: int | None
    outcome: PublishOutcome
    reason: NotRequired[str]


class BatchAnswerJson(TypedDict):
    runs: list[PublishedJson]


class BatchRunInput(TypedDict):
    override_body: NotRequired[str | None]
    force_async: NotRequired[bool]
    payload: NotRequired[Any]
    key: NotRequired[str | None]
    if_finished: NotRequired[Literal["keep", "rerun", "rerun_failed", "rerun_succeeded"]]
    update_waiting: NotRequired[bool]
    delay_seconds: NotRequired[float]
    run_at: NotRequired[str | None]
    priority: NotRequired[int | None]
    specific_worker_ids: NotRequired[Sequence[str] | None]
    dedupe: NotRequired[DedupeInput | None]
    concurrency_key: NotRequired[str | None]
    expires_in_seconds: NotRequired[int | None]
    task: int | str


class BatchWriteInput(TypedDict):
    runs: Sequence[BatchRunInput]


_RunFilterInput = TypedDict("_RunFilterInput", {"from": NotRequired[str | None]})


class RunFilterInput(_RunFilterInput):
    task: NotRequired[int | str | None]
    status: NotRequired[Sequence[RunStatus] | RunStatus]
    to: NotRequired[str | None]
    queue: NotRequired[str | None]
    worker: NotRequired[str | None]
    key: NotRequired[str | None]
    origin: NotRequired[Origin | None]
    label: NotRequired[str | None]
    text: NotRequired[str | None]
    search: NotRequired[str | None]
    parent_id: NotRequired[int | None]
    step: NotRequired[str | None]


class BulkRunsInput(TypedDict):
    filter: NotRequired[RunFilterInput | None]
    all: NotRequired[bool]
    dry_run: NotRequired[bool]


class CallBatchAnswerJson(TypedDict):
    calls: list[PublishedJson]


class CallOptionsInput(TypedDict):
    method: NotRequired[Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]]
    headers: NotRequired[Mapping[str, str]]
    timeout_seconds: NotRequired[float | None]
    retry_policy: NotRequired[RetryPolicyInput | None]
    success_url: NotRequired[str | None]
    failure_url: NotRequired[str | None]
    labels: NotRequired[Mapping[str, str]]
    body: NotRequired[Any]
    delay_seconds: NotRequired[float]
    run_at: NotRequired[str | None]
    expires_at: NotRequired[str | None]
    key: NotRequired[str | None]
    queue: NotRequired[str]
    priority: NotRequired[int]
    concurrency_key: NotRequired[str | None]
    max_per_key: NotRequired[int]
    rate_key: NotRequired[str | None]


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


class CallbackListInput(TypedDict):
    limit: NotRequired[int]
    before: NotRequired[int | None]


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


class CancelWriteInput(TypedDict):
    reason: NotRequired[str]


class CanceledJson(TypedDict):
    run_id: int
    status: RunStatus
    canceled: bool


class CleanRunsWriteInput(TypedDict):
    run_ids: Sequence[int]


class ErrorBudgetJson(TypedDict):
    window: str
    success_ratio: float | None
    wanted: float
    allowed: float
    failed: int
    left: float


class ExplainRunInput(TypedDict):
    lang: NotRequired[str | None]


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


class HistoryImportedJson(TypedDict):
    imported: int
    known: int
    removed: int
    recent: int


class KeptRunJson(TypedDict):
    run_id: int
    reason: Literal["not_found", "not_final", "part", "active_parts"]


class LoadListInput(TypedDict):
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    by: NotRequired[Literal["hour", "day"]]


class SpreadJson(TypedDict):
    average: int | None
    p50: int | None
    p95: int | None
    p99: int | None
    most: int | None


class LoadStepJson(TypedDict):
    at: str
    runs: int
    failed: int
    success_ratio: float | None
    queue_time_ms: SpreadJson
    duration_ms: SpreadJson


class LogLineJson(TypedDict):
    seq: int
    at: str
    level: str
    message: str


class LogJson(TypedDict):
    items: list[LogLineJson]
    next_after: int


class LogListInput(TypedDict):
    after: NotRequired[int]
    limit: NotRequired[int]
    level: NotRequired[Literal["debug", "info", "warning", "error"] | None]
    search: NotRequired[str | None]


class PromotedJson(TypedDict):
    run_id: int
    status: RunStatus
    run_at: str


_QueueStatsJson = TypedDict("_QueueStatsJson", {"from": str})


class QueueStatsJson(_QueueStatsJson):
    name: str
    to: str
    by: Literal["hour", "day"]
    total: LoadStepJson
    items: list[LoadStepJson]


class RetriedJson(TypedDict):
    run_id: int
    retry_of_run_id: int


class RetryWriteInput(TypedDict):
    from_step: NotRequired[str | None]


class RunListFieldsInput(TypedDict):
    task: NotRequired[int | str | None]
    status: NotRequired[Sequence[RunStatus] | RunStatus]
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    queue: NotRequired[str | None]
    worker: NotRequired[str | None]
    key: NotRequired[str | None]
    origin: NotRequired[Origin | None]
    label: NotRequired[str | None]
    text: NotRequired[str | None]
    search: NotRequired[str | None]
    parent_id: NotRequired[int | None]
    step: NotRequired[str | None]


class RunExportInput(RunListFieldsInput):
    format: NotRequired[Literal["csv", "ndjson"]]


class RunJson(RunFieldsJson):
    id: int
    task_id: int
    task_name: str
    task_version: int
    origin: Origin
    status: RunStatus
    scheduled_time: str
    run_at: str
    created_at: str
    updated_at: str
    queue: str
    moved_to: str | None
    priority: int
    key: str | None
    retry_count: int
    lost_count: int
    retry_of_run_id: int | None
    upstream_run_ids: list[int] | None
    parent_id: int | None
    shard_index: int | None
    shard_total: int | None
    step_id: str | None
    item_index: int | None
    skip_reason: SkipReason | None
    expires_at: str | None
    next_retry_time: str | None
    callback_deadline: str | None
    lease_expires_at: str | None
    progress: dict[str, Any] | None
    trace_id: str | None
    idempotency_key: str | None
    final_status: Literal["CANCELED", "FAILED", "SKIPPED", "SUCCESS"] | None
    payload: Any
    call: CallJson | None


class RunListInput(RunListFieldsInput):
    sort: NotRequired[Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]]
    page: NotRequired[int]
    page_size: NotRequired[int]
    cursor: NotRequired[str | None]


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


class ServiceLevelFiguresJson(TypedDict):
    at: str
    runs: int
    success_ratio: float | None
    start_delay_ms: SpreadJson
    queue_time_ms: SpreadJson
    duration_ms: SpreadJson
    breaches: dict[str, int]


class TaskServiceLevelJson(ServiceLevelFiguresJson):
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


class SlaListInput(TypedDict):
    task: NotRequired[int | str | None]
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    queue: NotRequired[str | None]
    label: NotRequired[str | None]
    by: NotRequired[Literal["hour", "day"] | None]


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


class StatsListInput(TypedDict):
    task: NotRequired[int | str | None]
    from_: NotRequired[str | None]
    to: NotRequired[str | None]


class WorkerLoadStepJson(LoadStepJson):
    busy: float | None


_WorkerStatsJson = TypedDict("_WorkerStatsJson", {"from": str})


class WorkerStatsJson(_WorkerStatsJson):
    worker_id: str
    concurrency: int
    to: str
    by: Literal["hour", "day"]
    total: WorkerLoadStepJson
    items: list[WorkerLoadStepJson]
