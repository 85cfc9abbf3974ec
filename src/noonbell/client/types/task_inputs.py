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
    reply: NotRequired[bool]


class AmqpPropertiesInput(TypedDict):
    content_type: NotRequired[str]
    content_encoding: NotRequired[str | None]
    type: NotRequired[str | None]
    app_id: NotRequired[str | None]
    priority: NotRequired[int | None]
    expiration_ms: NotRequired[int | None]


class AmqpMessageInput(AmqpMessageFieldsInput):
    exchange: NotRequired[str]
    routing_key: NotRequired[str]
    properties: NotRequired[AmqpPropertiesInput]
    persistent: NotRequired[bool]
    mandatory: NotRequired[bool]


class NatsMessageInput(AmqpMessageFieldsInput):
    subject: str
    jetstream: NotRequired[bool]


class RedisMessageInput(TypedDict):
    url: str
    headers: NotRequired[Mapping[str, str]]
    callback: NotRequired[bool]
    callback_timeout_sec: NotRequired[int]
    stream: NotRequired[str | None]
    channel: NotRequired[str | None]
    maxlen: NotRequired[int | None]


class MqttMessageInput(TypedDict):
    url: str
    headers: NotRequired[Mapping[str, str]]
    callback: NotRequired[bool]
    callback_timeout_sec: NotRequired[int]
    topic: str
    qos: NotRequired[int]
    retain: NotRequired[bool]
    version: NotRequired[Literal["5", "3.1.1"]]


class GrpcTlsInput(TypedDict):
    ca: NotRequired[str | None]
    server_name: NotRequired[str | None]
    cert: NotRequired[str | None]
    key: NotRequired[str | None]


class GrpcCallInput(TypedDict):
    address: str
    method: str
    metadata: NotRequired[Mapping[str, str]]
    descriptor_set: NotRequired[str | None]
    tls: NotRequired[GrpcTlsInput | None]
    callback: NotRequired[bool]


class RetryPolicyInput(TypedDict):
    max_retries: NotRequired[int]
    strategy: NotRequired[Literal["fixed", "exponential"]]
    local: NotRequired[bool]
    initial_delay: NotRequired[float]
    max_delay: NotRequired[float]
    jitter: NotRequired[float]
    retry_on: NotRequired[
        Sequence[Literal["network", "timeout", "5xx", "429", "error", "callback_failed", "callback_timeout"]]
    ]


class StepFieldsInput(TypedDict):
    exec_type: NotRequired[ExecType]
    http_method: NotRequired[Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]]
    target_url: NotRequired[str | None]
    headers: NotRequired[Mapping[str, str]]
    body_template: NotRequired[str | None]
    follow_redirects: NotRequired[bool]
    secret: NotRequired[str | None]
    callback_method: NotRequired[Literal["POST", "PUT", "PATCH"]]
    callback_timeout_sec: NotRequired[int]
    cancel_url: NotRequired[str | None]
    job_type: NotRequired[str | None]
    payload: NotRequired[Any]
    amqp: NotRequired[AmqpMessageInput | None]
    nats: NotRequired[NatsMessageInput | None]
    redis: NotRequired[RedisMessageInput | None]
    mqtt: NotRequired[MqttMessageInput | None]
    grpc: NotRequired[GrpcCallInput | None]
    queue: NotRequired[str]
    command: NotRequired[Any]
    shell: NotRequired[bool]
    env: NotRequired[Mapping[str, str]]
    cwd: NotRequired[str | None]
    user: NotRequired[str | None]
    ok_codes: NotRequired[Sequence[int]]
    timeout_seconds: NotRequired[float]
    retry_policy: NotRequired[RetryPolicyInput | None]
    priority: NotRequired[int]
    worker_timeout_ms: NotRequired[int]
    ping_interval_ms: NotRequired[int]
    expires_in_seconds: NotRequired[int | None]
    specific_worker_ids: NotRequired[Sequence[str]]
    min_worker_version: NotRequired[int]
    delivery: NotRequired[Literal["at_least_once", "at_most_once"]]
    on_lost: NotRequired[Literal["RETRY", "FAIL"]]
    max_lost: NotRequired[int]


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


class ClockChangesInput(TypedDict):
    gap: NotRequired[Literal["next", "skip", "earlier"] | None]
    repeat: NotRequired[Literal["first", "both", "last"] | None]


class TaskCalendarInput(TypedDict):
    name: str
    when_closed: NotRequired[WhenClosed]
    invert: NotRequired[bool]


class CircuitInput(TypedDict):
    failures: NotRequired[int]
    cool_down_seconds: NotRequired[int]


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


class SlaInput(TypedDict):
    start_within_seconds: NotRequired[float | None]
    finish_within_seconds: NotRequired[float | None]
    finish_by: NotRequired[str | None]
    success_ratio: NotRequired[float | None]
    window: NotRequired[str]
    on_breach: NotRequired[Literal["alert", "raise_priority", "skip_next"]]


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


class TaskWriteFieldsInput(StepFieldsInput):
    description: NotRequired[str]
    labels: NotRequired[Mapping[str, str]]
    external_id: NotRequired[str | None]
    meta: NotRequired[Mapping[str, Any]]
    schedule: NotRequired[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput | None]
    schedules: NotRequired[
        Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    ]
    exclude: NotRequired[
        Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    ]
    dst: NotRequired[ClockChangesInput | None]
    timezone: NotRequired[str]
    start_at: NotRequired[str | None]
    end_at: NotRequired[str | None]
    jitter_seconds: NotRequired[int]
    calendar: NotRequired[TaskCalendarInput | None]
    after: NotRequired[AfterInput | None]
    max_concurrency: NotRequired[int | None]
    concurrency_policy: NotRequired[Literal["QUEUE", "SKIP", "PARALLEL"]]
    queue_depth: NotRequired[int | None]
    overlap_action: NotRequired[Literal["ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL"]]
    failure_action: NotRequired[Literal["RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"]]
    circuit: NotRequired[CircuitInput]
    misfire_policy: NotRequired[MisfirePolicy]
    catchup_limit: NotRequired[int]
    misfire_grace_seconds: NotRequired[int]
    rate_limit: NotRequired[RateLimitInput | None]
    concurrency_key: NotRequired[str | None]
    max_per_key: NotRequired[int]
    quiet: NotRequired[Sequence[QuietHoursInput]]
    spread_seconds: NotRequired[int]
    sla: NotRequired[SlaInput | None]
    worker_labels: NotRequired[Mapping[str, str]]
    fanout: NotRequired[FanoutInput | None]
    on_exhausted: NotRequired[Literal["KEEP", "ERROR"]]
    delete_on_complete: NotRequired[bool]
    steps: NotRequired[Sequence[StepInput]]
    cron_expr: NotRequired[str | None]
    cron_dialect: NotRequired[Literal["standard", "cronjob", "quartz"] | None]
    status: NotRequired[Literal["ENABLED", "DISABLED"] | None]
    skip_next: NotRequired[int | None]


class TaskPatchFieldsInput(TaskWriteFieldsInput):
    version: NotRequired[Any]


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


class TaskFilterInput(TypedDict):
    status: NotRequired[Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"] | None]
    name: NotRequired[str | None]
    label: NotRequired[str | None]
    queue: NotRequired[str | None]
    managed_by: NotRequired[str | None]
    include_system: NotRequired[bool]


class BulkTasksInput(TypedDict):
    filter: NotRequired[TaskFilterInput | None]
    all: NotRequired[bool]


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


class CleanWriteInput(TypedDict):
    older_than_days: NotRequired[float | None]
    older_than_seconds: NotRequired[float | None]
    keep: NotRequired[int | None]
    status: NotRequired[
        Sequence[Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"]]
        | Literal["CALLBACK_SUCCESS", "CANCELED", "FAILED", "FAILED_TIMEOUT", "SKIPPED", "SUCCESS", "TIMEOUT"]
    ]


class DaysAskedInput(TypedDict):
    from_: NotRequired[str | None]
    count: NotRequired[int]


class DedupeInput(TypedDict):
    mode: Literal["key", "debounce", "throttle"]
    key: str
    seconds: NotRequired[float | None]
    keep: NotRequired[Literal["first", "last"] | None]
    max_wait_seconds: NotRequired[float | None]


class ExplainTaskInput(TypedDict):
    at: NotRequired[str | None]
    lang: NotRequired[str | None]


class NextListInput(TypedDict):
    count: NotRequired[int]


class PreviewAskedInput(TypedDict):
    days: NotRequired[int]


class PreviewWriteInput(TypedDict):
    schedule: NotRequired[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput | None]
    cron_expr: NotRequired[str | None]
    cron_dialect: NotRequired[Literal["standard", "cronjob", "quartz"] | None]
    schedules: NotRequired[
        Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    ]
    exclude: NotRequired[
        Sequence[CronSpecInput | OnceSpecInput | IntervalSpecInput | WeeklySpecInput | MonthlySpecInput]
    ]
    dst: NotRequired[ClockChangesInput | None]
    calendar: NotRequired[TaskCalendarInput | None]
    timezone: NotRequired[str]
    quiet: NotRequired[Sequence[QuietHoursInput]]
    count: NotRequired[int]
    from_: NotRequired[str | None]
    lang: NotRequired[str | None]


class RemovalInput(TypedDict):
    cancel_running: NotRequired[bool]
    purge: NotRequired[bool]
    force: NotRequired[bool]


class RunListFieldsInput(TypedDict):
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


class RunsOfTaskInput(RunListFieldsInput):
    from_: NotRequired[str | None]
    queue: NotRequired[str | None]
    sort: NotRequired[Literal["-id", "id", "-scheduled_time", "scheduled_time", "-created_at", "created_at"]]
    page: NotRequired[int]
    page_size: NotRequired[int]
    cursor: NotRequired[str | None]


class SkipWriteInput(TypedDict):
    count: NotRequired[int]


class SlotListInput(TypedDict):
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    limit: NotRequired[int]


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


class TaskListInput(TaskFilterInput):
    sort: NotRequired[
        Literal[
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
    ]
    page: NotRequired[int]
    page_size: NotRequired[int]
    cursor: NotRequired[str | None]


class TaskPatchInput(TaskPatchFieldsInput):
    name: NotRequired[str]
    managed_by: NotRequired[str]


class TaskPauseInput(TypedDict):
    reason: NotRequired[str]
    until: NotRequired[str | None]
    by: NotRequired[str | None]
    at: NotRequired[str]


class TaskPauseWriteInput(TypedDict):
    reason: NotRequired[str]
    until: NotRequired[str | None]
    for_seconds: NotRequired[int | None]


class TaskReplaceInput(TaskPatchFieldsInput):
    name: str
    managed_by: NotRequired[str]


class TimelineListInput(TypedDict):
    name: NotRequired[str | None]
    label: NotRequired[str | None]
    from_: NotRequired[str | None]
    to: NotRequired[str | None]
    page: NotRequired[int]
    page_size: NotRequired[int]


class TriggerWriteInput(TypedDict):
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
