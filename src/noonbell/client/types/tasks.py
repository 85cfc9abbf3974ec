"""JSON of the API: tasks, schedules, calendars. Made by tools/reference.py from the declarations of the endpoints."""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class UpstreamJson(TypedDict):
    task: int | str
    on: Literal["success", "failure", "skipped", "any"]


class AfterJson(TypedDict):
    tasks: list[UpstreamJson]
    join: Literal["all", "any"]
    same_slot: bool
    within_seconds: int


class AmqpMessageFieldsJson(TypedDict):
    url: str
    headers: dict[str, str]
    callback: bool
    callback_timeout_sec: int


class AmqpPropertiesJson(TypedDict):
    content_type: str
    content_encoding: str | None
    type: str | None
    app_id: str | None
    priority: int | None
    expiration_ms: int | None


class AmqpMessageJson(AmqpMessageFieldsJson):
    exchange: str
    routing_key: str
    properties: AmqpPropertiesJson
    persistent: bool
    mandatory: bool
    reply: bool


class ChangedTaskJson(TypedDict):
    name: str
    version: int
    fields: dict[str, list[Any]]
    next_before: str | None
    next_after: str | None
    running: int


class AppliedJson(TypedDict):
    dry_run: bool
    created: list[str]
    changed: list[ChangedTaskJson]
    unchanged: list[str]
    pruned: list[str]


class BackfilledJson(TypedDict):
    count: int
    slots: list[str]
    run_ids: list[int]
    created: int
    existing: int
    refused: int
    next_from: str | None


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
    is_new: bool
    tasks: int
    moves: list[SlotMoveJson]
    more: bool
    until: str


class CalendarSavedJson(CalendarJson):
    changed: bool
    changed_tasks: list[int]


class CalendarsJson(TypedDict):
    items: list[CalendarJson]


class ChangedInBatchJson(TypedDict):
    id: int
    version: int


class CircuitJson(TypedDict):
    failures: int
    cool_down_seconds: int


class CleanedJson(TypedDict):
    removed: int
    more: bool


class ClockChangesJson(TypedDict):
    gap: Literal["next", "skip", "earlier"] | None
    repeat: Literal["first", "both", "last"] | None


class CreatedInBatchJson(TypedDict):
    id: int
    name: str
    next_fire_at: str | None


class CronSpecJson(TypedDict):
    type: Literal["cron"]
    expr: str
    dialect: Literal["standard", "cronjob", "quartz"]
    dst: Literal["debian", "wall"]
    repeat: int | None
    source: str | None


class DeletedJson(TypedDict):
    deleted: bool


class DroppedSlotsJson(TypedDict):
    first: str
    last: str
    count: int
    reason: str


class EarlierRunsJson(TypedDict):
    count: int
    failed: int
    more: bool


class ExplanationJson(TypedDict):
    cause: str
    message: str
    slot: str | None
    run_id: int | None
    blocking_run_id: int | None
    policy: dict[str, Any] | None
    actor: str | None
    since: str | None
    next_slot: str | None


class FanoutJson(TypedDict):
    workers: int | Literal["all"]
    success: int | Literal["all", "any"]


class FireJson(TypedDict):
    utc: str
    local: str
    moved_from: NotRequired[str]
    quiet: NotRequired[Literal["hold", "skip"]]
    quiet_until: NotRequired[str]


class GrpcTlsJson(TypedDict):
    ca: str | None
    server_name: str | None
    cert: str | None
    key: str | None


class GrpcCallJson(TypedDict):
    address: str
    method: str
    metadata: dict[str, str]
    descriptor_set: str | None
    tls: GrpcTlsJson | None
    callback: bool


class IntervalSpecJson(TypedDict):
    type: Literal["interval"]
    unit: Literal["second", "minute", "hour", "day"]
    every: int
    anchor: str | None
    mode: Literal["fixed_rate", "fixed_delay"]
    repeat: int | None


class KeyLineJson(TypedDict):
    key: str
    max_per_key: int
    running: int
    waiting: int
    next_run_id: int | None
    oldest_at: str | None
    blocking_run_id: int | None


class KeyLinesJson(TypedDict):
    items: list[KeyLineJson]


class MonthlySpecJson(TypedDict):
    type: Literal["monthly"]
    day: int
    time: str
    repeat: int | None


class MqttMessageJson(AmqpMessageFieldsJson):
    topic: str
    qos: int
    retain: bool
    version: Literal["5", "3.1.1"]


class NatsMessageJson(AmqpMessageFieldsJson):
    subject: str
    jetstream: bool
    reply: bool


class NoteJson(TypedDict):
    code: str
    message: str


class OnceSpecJson(TypedDict):
    type: Literal["once"]
    at: str | None
    run_if_late: bool


class PreviewJson(TypedDict):
    next_fires: list[FireJson]
    description: str
    notes: list[NoteJson]


_QuietHoursJson = TypedDict("_QuietHoursJson", {"from": str})


class QuietHoursJson(_QuietHoursJson):
    to: str
    days: list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]]
    timezone: str | None
    what: Literal["hold", "skip"]


class RateLimitJson(TypedDict):
    max: int
    per_seconds: float
    key: str | None


class RedisMessageJson(AmqpMessageFieldsJson):
    stream: str | None
    channel: str | None
    maxlen: int | None


class RetryPolicyJson(TypedDict):
    max_retries: int
    strategy: Literal["fixed", "exponential"]
    local: bool
    initial_delay: float
    max_delay: float
    jitter: float
    retry_on: list[Literal["network", "timeout", "5xx", "429", "error", "callback_failed", "callback_timeout"]]


class AttemptFieldsJson(TypedDict):
    attempt: int
    start_time: str | None
    end_time: str | None
    result: Any
    error_message: str | None


Origin: TypeAlias = Literal[
    "schedule", "trigger", "publish", "backfill", "retry", "upstream", "flow", "spawn", "call", "import"
]


RunStatus: TypeAlias = Literal[
    "SCHEDULED",
    "RUNNING",
    "RETRYING",
    "CALLBACK_PENDING",
    "SUCCESS",
    "CALLBACK_SUCCESS",
    "FAILED",
    "TIMEOUT",
    "FAILED_TIMEOUT",
    "CANCELED",
    "SKIPPED",
]


SkipReason: TypeAlias = Literal[
    "overlap",
    "failure",
    "backoff",
    "circuit_open",
    "concurrency",
    "queue_full",
    "operator",
    "upstream_missing",
    "expired",
    "calendar",
    "quiet",
    "store_went_back",
]


class RunFieldsJson(AttemptFieldsJson):
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
    worker_id: str | None
    lease_expires_at: str | None
    response_code: int | None
    error_details: dict[str, Any] | None
    progress: dict[str, Any] | None
    trace_id: str | None
    idempotency_key: str | None
    duration_ms: int | None
    final_status: Literal["CANCELED", "FAILED", "SKIPPED", "SUCCESS"] | None


class RunInListJson(RunFieldsJson, total=False):
    omitted: dict[str, int]


class RunOnTimelineJson(TypedDict):
    run_id: int
    status: RunStatus
    scheduled_time: str
    start_time: str | None
    end_time: str | None


class JobPageFieldsJson(TypedDict):
    total: int | None
    page: int
    page_size: int
    next_cursor: str | None
    total_is_least: NotRequired[bool]


class RunPageJson(JobPageFieldsJson):
    items: list[RunInListJson]


class SchedulePreviewJson(TypedDict):
    next_fires: list[FireJson]
    description: str
    notes: list[NoteJson]
    skipped: NotRequired[list[FireJson]]


class SkipJson(TypedDict):
    skip_next: int


class SlaJson(TypedDict):
    start_within_seconds: float | None
    finish_within_seconds: float | None
    finish_by: str | None
    success_ratio: float | None
    window: str
    on_breach: Literal["alert", "raise_priority", "skip_next"]


class SlotJson(TypedDict):
    slot: str
    local: str
    last: str
    count: int
    outcome: Literal[
        "ran",
        "running",
        "waiting",
        "canceled",
        "skipped",
        "dropped",
        "disabled",
        "completed",
        "error",
        "deleted",
        "due",
        "planned",
        "cleaned",
        "missing",
    ]
    reason: str | None
    run_id: int | None
    status: RunStatus | None
    actor: str | None
    since: str | None
    task_version: int
    moved_to: str | None


_SlotPageJson = TypedDict("_SlotPageJson", {"from": str})


class SlotPageJson(_SlotPageJson):
    items: list[SlotJson]
    to: str
    next_from: str | None


class StatusOfTaskJson(TypedDict):
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"]


class ClaimedRunFieldsJson(TypedDict):
    job_type: str | None
    payload: Any
    queue: str
    priority: int
    timeout_seconds: float
    ping_interval_ms: int


ExecType: TypeAlias = Literal["SYNC", "ASYNC", "JOB", "FLOW", "COMMAND", "AMQP", "NATS", "REDIS", "MQTT", "GRPC"]


class StepFieldsJson(ClaimedRunFieldsJson):
    exec_type: ExecType
    http_method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
    target_url: str | None
    headers: dict[str, str]
    body_template: str | None
    follow_redirects: bool
    secret: str | None
    callback_method: Literal["POST", "PUT", "PATCH"]
    callback_timeout_sec: int
    cancel_url: str | None
    amqp: AmqpMessageJson | None
    nats: NatsMessageJson | None
    redis: RedisMessageJson | None
    mqtt: MqttMessageJson | None
    grpc: GrpcCallJson | None
    command: Any
    shell: bool
    env: dict[str, str]
    cwd: str | None
    user: str | None
    ok_codes: list[int]
    retry_policy: RetryPolicyJson | None
    worker_timeout_ms: int
    expires_in_seconds: int | None
    specific_worker_ids: list[str]
    min_worker_version: int
    delivery: Literal["at_least_once", "at_most_once"]
    on_lost: Literal["RETRY", "FAIL"]
    max_lost: int


class StepJson(StepFieldsJson):
    id: str
    needs: list[str]
    on: Literal["success", "failure", "skipped", "any"]
    when: str | None
    foreach: Any
    max_parallel: int | None
    allow_failure: bool


WhenClosed: TypeAlias = Literal["skip", "next_open_day", "previous_open_day", "run"]


class TaskCalendarJson(TypedDict):
    name: str
    when_closed: WhenClosed
    invert: bool


class TaskCreatedJson(TypedDict):
    next_fires: list[FireJson]
    notes: list[NoteJson]
    id: int
    name: str


class WeeklySpecJson(TypedDict):
    type: Literal["weekly"]
    weekday: int
    time: str
    repeat: int | None


MisfirePolicy: TypeAlias = Literal["FIRE_NOW", "FIRE_ONCE", "SKIP", "CATCH_UP_LIMITED"]


class TaskPauseJson(TypedDict):
    reason: str
    until: str | None
    by: str | None
    at: str


class TaskJson(StepFieldsJson):
    name: str
    description: str
    labels: dict[str, str]
    managed_by: str
    external_id: str | None
    meta: dict[str, Any]
    schedule: CronSpecJson | OnceSpecJson | IntervalSpecJson | WeeklySpecJson | MonthlySpecJson | None
    schedules: list[CronSpecJson | OnceSpecJson | IntervalSpecJson | WeeklySpecJson | MonthlySpecJson]
    exclude: list[CronSpecJson | OnceSpecJson | IntervalSpecJson | WeeklySpecJson | MonthlySpecJson]
    dst: ClockChangesJson | None
    timezone: str
    start_at: str | None
    end_at: str | None
    jitter_seconds: int
    calendar: TaskCalendarJson | None
    after: AfterJson | None
    max_concurrency: int | None
    concurrency_policy: Literal["QUEUE", "SKIP", "PARALLEL"]
    queue_depth: int | None
    overlap_action: Literal["ALLOW", "SKIP", "CANCEL_PREV", "PARALLEL"]
    failure_action: Literal["RUN_NEW", "SKIP", "RETRY", "BACKOFF", "HALF_OPEN"]
    circuit: CircuitJson
    misfire_policy: MisfirePolicy
    catchup_limit: int
    misfire_grace_seconds: int
    rate_limit: RateLimitJson | None
    concurrency_key: str | None
    max_per_key: int
    quiet: list[QuietHoursJson]
    spread_seconds: int
    sla: SlaJson | None
    worker_labels: dict[str, str]
    fanout: FanoutJson | None
    on_exhausted: Literal["KEEP", "ERROR"]
    delete_on_complete: bool
    steps: list[StepJson]
    cron_expr: str | None
    cron_dialect: Literal["standard", "cronjob", "quartz"] | None
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"]
    skip_next: int | None
    id: int
    version: int
    pause: TaskPauseJson | None
    created_by: str | None
    created_at: str
    updated_at: str
    next_fire_at: str | None
    last_run_id: int | None
    last_run_at: str | None
    last_run_status: RunStatus | None
    active_runs: int
    queued_runs: int


class TimeOffJson(TypedDict):
    since: str
    until: str | None
    reason: str
    by: str | None


class TaskOnTimelineJson(TypedDict):
    task_id: int
    task_name: str
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"]
    usual_ms: int | None
    runs: list[RunOnTimelineJson]
    earlier: EarlierRunsJson
    dropped: list[DroppedSlotsJson]
    off: list[TimeOffJson]
    planned: list[str]
    more_planned: bool
    overlap_risk: bool


class TaskPageJson(JobPageFieldsJson):
    items: list[TaskJson]


class TaskPausedJson(TypedDict):
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"]
    pause: NotRequired[TaskPauseJson]


class TaskUpdatedJson(TypedDict):
    next_fires: list[FireJson]
    notes: list[NoteJson]
    updated: bool
    version: int


class TasksChangedJson(TypedDict):
    status: Literal["ENABLED", "DISABLED", "COMPLETED", "ERROR"]
    changed: int


class TasksCreatedJson(TypedDict):
    tasks: list[CreatedInBatchJson]


class TasksDeletedJson(TypedDict):
    deleted: int


class TasksPatchedJson(TypedDict):
    tasks: list[ChangedInBatchJson]


_TimelineJson = TypedDict("_TimelineJson", {"from": str})


class TimelineJson(_TimelineJson):
    to: str
    items: list[TaskOnTimelineJson]
    total: int | None
    page: int
    page_size: int


PublishOutcome: TypeAlias = Literal["created", "exists", "running", "updated", "refused"]


class TriggeredJson(TypedDict):
    run_id: int
    outcome: NotRequired[PublishOutcome]
