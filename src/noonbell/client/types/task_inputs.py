"""JSON of the API: what is given of tasks, schedules and calendars. Made by tools/reference.py from the declarations of the endpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from noonbell.client.types.tasks import ExecType, MisfirePolicy, Origin, RunStatus, WhenClosed


class UpstreamInput(TypedDict):
    task: int | str
    on: NotRequired[Literal["success", "failure", "skipped", "any"]]


class AfterInput(TypedDict):
    tasks: Sequence[UpstreamInput]
    join: NotRequired[Literal["all", "any"]]
    same_slot: NotRequired[bool]
    within_seconds: NotRequired[int]


class AmqpMessageFieldsInput(TypedDict):
    url: str
    headers: NotRequired[Mapping[str, str]]
    callback: NotRequired[bool]
    callback_timeout_sec: NotRequired[int]


class AmqpPropertiesInput(TypedDict, total=False):
    content_type: str
    content_encoding: str | None
    type: str | None
    app_id: str | None
    priority: int | None
    expiration_ms: int | None


class AmqpMessageInput(AmqpMessageFieldsInput, total=False):
    exchange: str
    routing_key: str
    properties: AmqpPropertiesInput
    persistent: bool
    mandatory: bool
    reply: bool


class RetryPolicyInput(TypedDict, total=False):
    max_retries: int
    strategy: Literal["fixed", "exponential"]
    local: bool
    initial_delay: float
    max_delay: float
    jitter: float
    retry_on: Sequence[Literal["network", "timeout", "5xx", "429", "error", "callback_failed", "callback_timeout"]]


class CallOptionsFieldsInput(TypedDict, total=False):
    headers: Mapping[str, str]
    retry_policy: RetryPolicyInput | None
    queue: str
    priority: int


class NatsMessageInput(AmqpMessageFieldsInput):
    subject: str
    jetstream: NotRequired[bool]
    reply: NotRequired[bool]


class RedisMessageInput(AmqpMessageFieldsInput, total=False):
    stream: str | None
    channel: str | None
    maxlen: int | None


class MqttMessageInput(AmqpMessageFieldsInput):
    topic: str
    qos: NotRequired[int]
    retain: NotRequired[bool]
    version: NotRequired[Literal["5", "3.1.1"]]


class GrpcTlsInput(TypedDict, total=False):
    ca: str | None
    server_name: str | None
    cert: str | None
    key: str | None


class GrpcCallInput(TypedDict):
    address: str
    method: str
    metadata: NotRequired[Mapping[str, str]]
    descriptor_set: NotRequired[str | None]
    tls: NotRequired[GrpcTlsInput | None]
    callback: NotRequired[bool]


class StepFieldsInput(CallOptionsFieldsInput, total=False):
    exec_type: ExecType
    http_method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
    target_url: str | None
    body_template: str | None
    follow_redirects: bool
    secret: str | None
    callback_method: Literal["POST", "PUT", "PATCH"]
    callback_timeout_sec: int
    cancel_url: str | None
    job_type: str | None
    payload: Any
    amqp: AmqpMessageInput | None
    nats: NatsMessageInput | None
    redis: RedisMessageInput | None
    mqtt: MqttMessageInput | None
    grpc: GrpcCallInput | None
    command: Any
    shell: bool
    env: Mapping[str, str]
    cwd: str | None
    user: str | None
    ok_codes: Sequence[int]
    timeout_seconds: float
    worker_timeout_ms: int
    ping_interval_ms: int
    expires_in_seconds: int | None
    specific_worker_ids: Sequence[str]
    min_worker_version: int
    delivery: Literal["at_least_once", "at_most_once"]
    on_lost: Literal["RETRY", "FAIL"]
    max_lost: int


class CronSpecInput(TypedDict):
    type: Literal["cron"]
    expr: str
    dialect: NotRequired[Literal["standard", "cronjob", "quartz"]]
    dst: NotRequired[Literal["debian", "wall"]]
    repeat: NotRequired[int | None]
    source: NotRequired[str | None]


class OnceSpecInput(TypedDict):
    type: Literal["once"]
    at: NotRequired[str | None]
    run_if_late: NotRequired[bool]


class IntervalSpecInput(TypedDict):
    type: Literal["interval"]
    unit: Literal["second", "minute", "hour", "day"]
    every: int
    anchor: NotRequired[str | None]
    mode: NotRequired[Literal["fixed_rate", "fixed_delay"]]
    repeat: NotRequired[int | None]


class WeeklySpecInput(TypedDict):
    type: Literal["weekly"]
    weekday: int
    time: str
    repeat: NotRequired[int | None]


class MonthlySpecInput(TypedDict):
    type: Literal["monthly"]
    day: int
    time: str
    repeat: NotRequired[int | None]


class ClockChangesInput(TypedDict, total=False):
    gap: Literal["next", "skip", "earlier"] | None
    repeat: Literal["first", "both", "last"] | None


class TaskCalendarInput(TypedDict):
    name: str
    when_closed: NotRequired[WhenClosed]
    invert: NotRequired[bool]


class CircuitInput(TypedDict, total=False):
    failures: int
    cool_down_seconds: int


class RateLimitInput(TypedDict):
    max: int
    per_seconds: float
    key: NotRequired[str | None]


_QuietHoursInput = TypedDict("_QuietHoursInput", {"from": str})


class QuietHoursInput(_QuietHoursInput):
    to: str
    days: NotRequired[Sequence[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]]]
    timezone: NotRequired[str | None]
    what: NotRequired[Literal["hold", "skip"]]


class SlaInput(TypedDict, total=False):
    start_within_seconds: float | None
    finish_within_seconds: float | None
    finish_by: str | None
    success_ratio: float | None
    window: str
    on_breach: Literal["alert", "raise_priority", "skip_next"]


class FanoutInput(TypedDict):
    workers: int | Literal["all"]
    success: NotRequired[int | Literal["all", "any"]]


class StepInput(StepFieldsInput):
    id: str
    needs: NotRequired[Sequence[str]]
    on: NotRequired[Literal["success", "failure", "skipped", "any"]]
    when: NotRequired[str | None]
    foreach: NotRequired[Any]
    max_parallel: NotRequired[int | None]
    allow_failure: NotRequired[bool]


class TaskWriteFieldsInput(StepFieldsInput, total=False):
    description: str
    labels: Mapping[str, str]
    external_id: str | None
    meta: Mapping[str, Any]
    schedule: CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput | None
    schedules: Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    exclude: Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    dst: ClockChangesInput | None
    timezone: str
    start_at: str | None
    end_at: str | None
    jitter_seconds: int
    calendar: TaskCalendarInput | None
    after: AfterInput | None
    max_concurrency: int | None
    concurrency_policy: Literal["QUEUE", "SKIP", "PARALLEL"]
    queue_depth: int | None
    overlap_action: Literal["ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL"]
    failure_action: Literal["RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"]
    circuit: CircuitInput
    misfire_policy: MisfirePolicy
    catchup_limit: int
    misfire_grace_seconds: int
    rate_limit: RateLimitInput | None
    concurrency_key: str | None
    max_per_key: int
    quiet: Sequence[QuietHoursInput]
    spread_seconds: int
    sla: SlaInput | None
    worker_labels: Mapping[str, str]
    fanout: FanoutInput | None
    on_exhausted: Literal["KEEP", "ERROR"]
    delete_on_complete: bool
    steps: Sequence[StepInput]
    cron_expr: str | None
    cron_dialect: Literal["standard", "cronjob", "quartz"] | None
    status: Literal["ENABLED", "DISABLED"] | None
    skip_next: int | None


class TaskPatchFieldsInput(TaskWriteFieldsInput, total=False):
    version: Any


class TaskInFileInput(TaskPatchFieldsInput):
    name: str


class ApplyInput(TypedDict):
    owner: str
    tasks: Sequence[TaskInFileInput]
    prune: NotRequired[bool]
    adopt: NotRequired[bool]
    dry_run: NotRequired[bool]


class BackfillWriteInput(TypedDict):
    from_: str
    to: NotRequired[str | None]
    limit: NotRequired[int]
    dry_run: NotRequired[bool]
    payload: NotRequired[Any]
    priority: NotRequired[int | None]
    if_finished: NotRequired[Literal["keep", "rerun", "rerun_failed", "rerun_succeeded"]]


class TaskFilterInput(TypedDict, total=False):
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"] | None
    name: str | None
    label: str | None
    queue: str | None
    managed_by: str | None
    include_system: bool


class BulkTasksInput(TypedDict, total=False):
    filter: TaskFilterInput | None
    all: bool


class IcalSourceInput(TypedDict):
    url: str
    refresh_seconds: NotRequired[int]


class CalendarWriteInput(TypedDict, total=False):
    description: str
    timezone: str | None
    closed_weekdays: Sequence[int]
    closed: Sequence[str]
    open: Sequence[str]
    ical: IcalSourceInput | None
    ical_days: Sequence[str] | None
    ics: str | None


class CleanWriteInput(TypedDict, total=False):
    older_than_days: float | None
    older_than_seconds: float | None
    keep: int | None
    status: (
        Sequence[Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"]]
        | Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"]
    )


class DaysAskedInput(TypedDict, total=False):
    from_: str | None
    count: int


class DedupeInput(TypedDict):
    mode: Literal["key", "debounce", "throttle"]
    key: str
    seconds: NotRequired[float | None]
    keep: NotRequired[Literal["first", "last"] | None]
    max_wait_seconds: NotRequired[float | None]


class ExplainTaskInput(TypedDict, total=False):
    at: str | None
    lang: str | None


class NextListInput(TypedDict, total=False):
    count: int


class PreviewAskedInput(TypedDict, total=False):
    days: int


class PreviewWriteInput(TypedDict, total=False):
    schedule: CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput | None
    cron_expr: str | None
    cron_dialect: Literal["standard", "cronjob", "quartz"] | None
    schedules: Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    exclude: Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    dst: ClockChangesInput | None
    calendar: TaskCalendarInput | None
    timezone: str
    quiet: Sequence[QuietHoursInput]
    count: int
    from_: str | None
    lang: str | None


class RemovalInput(TypedDict, total=False):
    cancel_running: bool
    purge: bool
    force: bool


class RunListFieldsInput(TypedDict, total=False):
    status: Sequence[RunStatus] | RunStatus
    to: str | None
    worker: str | None
    key: str | None
    origin: Origin | None
    label: str | None
    text: str | None
    search: str | None
    parent_id: int | None
    step: str | None


class RunsOfTaskInput(RunListFieldsInput, total=False):
    from_: str | None
    queue: str | None
    sort: Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]
    page: int
    page_size: int
    cursor: str | None


class SkipWriteInput(TypedDict, total=False):
    count: int


class SlotListInput(TypedDict, total=False):
    from_: str | None
    to: str | None
    limit: int


class TaskBatchChangeInput(TaskPatchFieldsInput):
    name: NotRequired[str]
    managed_by: NotRequired[str]
    id: int


class TaskBatchDeletionInput(TypedDict):
    id: int
    version: NotRequired[Any]


class TaskBatchDeleteInput(TypedDict):
    tasks: Sequence[TaskBatchDeletionInput]


class TaskWriteInput(TaskWriteFieldsInput):
    name: str
    managed_by: NotRequired[str]


class TaskBatchInput(TypedDict):
    tasks: Sequence[TaskWriteInput]


class TaskBatchPatchInput(TypedDict):
    tasks: Sequence[TaskBatchChangeInput]


class TaskListInput(TaskFilterInput, total=False):
    sort: Literal[
        "id",
        "-id",
        "name",
        "-name",
        "created_at",
        "-created_at",
        "updated_at",
        "-updated_at",
        "next_fire_at",
        "-next_fire_at",
    ]
    page: int
    page_size: int
    cursor: str | None


class TaskPatchInput(TaskPatchFieldsInput, total=False):
    name: str
    managed_by: str


class TaskPauseInput(TypedDict, total=False):
    reason: str
    until: str | None
    by: str | None
    at: str


class TaskPauseWriteInput(TypedDict, total=False):
    reason: str
    until: str | None
    for_seconds: int | None


class TaskReplaceInput(TaskPatchFieldsInput):
    name: str
    managed_by: NotRequired[str]


class TimelineListInput(TypedDict, total=False):
    name: str | None
    label: str | None
    from_: str | None
    to: str | None
    page: int
    page_size: int


class TriggerWriteInput(TypedDict, total=False):
    override_body: str | None
    force_async: bool
    payload: Any
    key: str | None
    if_finished: Literal["keep", "rerun", "rerun_failed", "rerun_succeeded"]
    update_waiting: bool
    delay_seconds: float
    run_at: str | None
    priority: int | None
    specific_worker_ids: Sequence[str] | None
    dedupe: DedupeInput | None
    concurrency_key: str | None
    expires_in_seconds: int | None
