"""JSON of the API: jobs, plans, events, subscriptions, alerts, bulk, views, access, system. Made by tools/reference.py from the declarations of the endpoints."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from noonbell.client.types.task_inputs import QuietHoursInput
from noonbell.client.types.tasks import AttemptFieldsJson, JobPageFieldsJson, NoteJson, QuietHoursJson


class AlertAcknowledgeInput(TypedDict):
    rule: str
    subject: str
    note: NotRequired[str]


class AlertAcknowledgedJson(TypedDict):
    acknowledged: bool


class AlertChannelChangeInput(TypedDict, total=False):
    kind: Literal["webhook", "email", "slack", "teams", "telegram", "dingtalk", "feishu", "wecom", "apprise"]
    url: str
    secret: str | None
    headers: Mapping[str, str]
    to: Sequence[str]
    sender: str | None
    enabled: bool
    quiet: Sequence[QuietHoursInput]
    language: Literal["en", "zh"]
    spread_seconds: int


class AlertChannelFieldsJson(TypedDict):
    name: str
    url: str
    secret: str | None
    created_at: str
    updated_at: str


class AlertChannelJson(AlertChannelFieldsJson):
    kind: Literal["webhook", "email", "slack", "teams", "telegram", "dingtalk", "feishu", "wecom", "apprise"]
    headers: dict[str, str]
    to: list[str]
    sender: str | None
    enabled: bool
    quiet: list[QuietHoursJson]
    language: Literal["en", "zh"]
    spread_seconds: int
    managed_by: str


class AlertChannelWriteInput(AlertChannelChangeInput):
    name: str


class AlertChannelsJson(TypedDict):
    items: list[AlertChannelJson]


class BulkOperationFieldsJson(TypedDict):
    id: int
    created_at: str
    ended_at: str | None
    error: str | None


class AlertDeliveryFieldsJson(BulkOperationFieldsJson):
    attempts: int
    next_attempt_at: str | None
    response_code: int | None


class AlertDeliveryJson(AlertDeliveryFieldsJson):
    channel: str
    rule: str
    type: str | None
    subject: str
    title: str | None
    status: Literal["PENDING", "DELIVERED", "FAILED", "SKIPPED"]
    said: dict[str, Any] | None


class AlertDeliveriesJson(TypedDict):
    items: list[AlertDeliveryJson]


class AlertJson(TypedDict):
    rule: str
    kind: str | None
    subject: str
    task_id: int | None
    task_name: str | None
    run_id: int | None
    since: str
    raised_at: str | None
    count: int
    acknowledged_at: str | None
    acknowledged_by: str | None
    note: str | None
    muted_until: str | None
    mute_reason: str | None
    message: str
    code: str
    facts: dict[str, Any]


class AlertKeyInput(TypedDict):
    rule: str
    subject: str


class AlertMuteJson(TypedDict):
    id: int
    rule: str | None
    tasks: list[str]
    labels: dict[str, str]
    until: str
    reason: str
    by: str | None
    created_at: str


class AlertMuteWriteInput(TypedDict):
    rule: NotRequired[str | None]
    tasks: NotRequired[Sequence[str]]
    labels: NotRequired[Mapping[str, str]]
    until: str
    reason: NotRequired[str]


class AlertMutesJson(TypedDict):
    items: list[AlertMuteJson]


RuleKind: TypeAlias = Literal[
    "failed",
    "failures",
    "callback_timeout",
    "lost",
    "no_worker",
    "misfire",
    "late_start",
    "overdue",
    "slow",
    "store_unreachable",
    "subscription_disabled",
    "sla_breached",
    "sla_foreseen",
]


class AlertRuleChangeInput(TypedDict, total=False):
    kind: RuleKind | None
    enabled: bool
    tasks: Sequence[str]
    labels: Mapping[str, str]
    channels: Sequence[str]
    count: int
    after_seconds: float | None
    factor: float
    repeat_seconds: float | None


class AlertRuleJson(TypedDict):
    name: str
    kind: RuleKind
    enabled: bool
    tasks: list[str]
    labels: dict[str, str]
    channels: list[str]
    count: int
    after_seconds: float | None
    factor: float
    repeat_seconds: float | None
    managed_by: str
    created_at: str
    updated_at: str


class AlertRuleWriteInput(AlertRuleChangeInput):
    name: str


class AlertRulesJson(TypedDict):
    items: list[AlertRuleJson]


class AlertTestedJson(TypedDict):
    delivered: bool
    response_code: int | None
    error: str | None
    said: dict[str, Any] | None


class AlertsJson(TypedDict):
    items: list[AlertJson]


class SavedViewJson(TypedDict):
    list: Literal["tasks", "runs"]
    name: str
    query: str
    saved_by: str | None
    saved_at: str


class AllViewsJson(TypedDict):
    items: list[SavedViewJson]


class AuditCheckInput(TypedDict, total=False):
    limit: int
    expect_head: str | None


class AuditEntryJson(TypedDict):
    id: int
    at: str
    actor: str | None
    action: str
    subject: str
    peer: str
    request_id: str
    details: dict[str, Any]
    hash: str
    key: str | None


class AuditFlawJson(TypedDict):
    kind: Literal["changed", "forged", "unsigned", "unknown_key", "never_signed", "cut", "replaced"]
    first: int
    last: int
    key: str | None


class AuditListInput(TypedDict, total=False):
    limit: int
    before: int | None
    actor: str | None


class AuditPageJson(TypedDict):
    items: list[AuditEntryJson]
    next_before: int | None


class AuditStateJson(TypedDict):
    is_sound: bool
    since: int
    head: str | None
    signed: int
    signed_since: int | None
    key: str | None
    flaws: list[AuditFlawJson]


class BulkItemJson(TypedDict):
    id: int
    name: str
    why: str


class BulkListInput(TypedDict, total=False):
    limit: int
    before: int | None


BulkKind: TypeAlias = Literal[
    "retry_runs",
    "redrive_runs",
    "cancel_runs",
    "enable_tasks",
    "disable_tasks",
    "trigger_tasks",
    "delete_tasks",
    "change_tasks",
]


class BulkOperationJson(BulkOperationFieldsJson):
    kind: BulkKind
    status: Literal["RUNNING", "DONE", "CANCELED", "FAILED"]
    created_by: str | None
    canceled_by: str | None
    filter: dict[str, Any]
    listed: int | None
    undo_of: int | None
    change: dict[str, Any]
    total: int
    total_is_least: bool
    done: int
    skipped: int
    reasons: dict[str, int]


class BulkOperationsJson(TypedDict):
    items: list[BulkOperationJson]


class TasksChangeInput(TypedDict, total=False):
    labels: Mapping[str, str]
    queue: str | None
    timeout_seconds: float | None
    max_retries: int | None
    jitter_seconds: int | None


class BulkStartInput(TypedDict):
    kind: BulkKind
    filter: NotRequired[Mapping[str, Any] | None]
    ids: NotRequired[Sequence[int] | None]
    all: NotRequired[bool]
    change: NotRequired[TasksChangeInput | None]


class DeliveryListInput(TypedDict, total=False):
    limit: int
    before: int | None
    channel: str | None


class EventListInput(TypedDict, total=False):
    type: str | None
    task: int | str | None
    run: int | None
    queue: str | None
    after: str | None


class ExecutionFieldsJson(TypedDict):
    worker_id: str | None
    error_message: str | None
    result: Any
    omitted: NotRequired[dict[str, int]]


class ExecutionJson(ExecutionFieldsJson):
    id: int
    job_id: int
    job_name: str
    execution_id: str
    started_at: str | None
    completed_at: str | None
    duration_ms: int | None
    status: Literal["cancelled", "failed", "pending", "running", "skipped", "success", "timeout"]
    retry_count: int
    error_details: dict[str, Any] | None


class ExecutionListInput(TypedDict, total=False):
    status: (
        Sequence[Literal["cancelled", "failed", "pending", "running", "skipped", "success", "timeout"]]
        | Literal["cancelled", "failed", "pending", "running", "skipped", "success", "timeout"]
    )
    step: str | None
    page: int
    page_size: int
    cursor: str | None
    execution_id: str | None


class ExecutionPageJson(JobPageFieldsJson):
    items: list[ExecutionJson]


class HealthJson(TypedDict):
    ok: bool


class InstallationJson(TypedDict):
    version: str
    installation_id: str | None
    store: str


class JobWriteFieldsInput(TypedDict, total=False):
    cron_expression: str | None
    cron_dialect: Literal["standard", "cronjob", "quartz"] | None
    enabled: bool
    allow_concurrent: bool
    max_concurrent: int | None
    max_retries: int
    retry_delay_seconds: float
    timeout_seconds: float
    payload: Any
    description: str | None


class JobChangeInput(JobWriteFieldsInput, total=False):
    job_name: str
    job_type: str


class JobJson(TypedDict):
    id: int
    job_name: str
    job_type: str
    cron_expression: str | None
    cron_dialect: Literal["standard", "cronjob", "quartz"] | None
    enabled: bool
    allow_concurrent: bool
    max_concurrent: int | None
    max_retries: NotRequired[int]
    retry_delay_seconds: NotRequired[float]
    timeout_seconds: NotRequired[float]
    payload: NotRequired[Any]
    description: str | None
    last_run_at: str | None
    last_run_status: Literal["cancelled", "failed", "pending", "running", "skipped", "success", "timeout"] | None
    next_run_at: str | None
    created_at: str | None
    updated_at: str | None
    created_by: str | None


class JobListInput(TypedDict, total=False):
    include_system: bool
    page: int
    page_size: int
    cursor: str | None
    enabled: bool | None
    job_name: str | None
    job_type: str | None


class JobPageJson(JobPageFieldsJson):
    items: list[JobJson]


class JobSavedJson(JobJson):
    notes: list[NoteJson]


class JobWriteInput(JobWriteFieldsInput):
    job_name: str
    job_type: str


LastState: TypeAlias = Literal[
    "none", "queue", "not_worker", "running", "retry", "ok", "failed", "error", "timeout", "canceled", "skip"
]


class ParticipantJson(ExecutionFieldsJson):
    state: LastState


class PauseJson(TypedDict):
    paused: bool
    reason: str | None
    by: str | None
    since: str | None


class PauseChangedJson(PauseJson):
    changed: bool


class PauseWriteInput(TypedDict, total=False):
    reason: str


PlanState: TypeAlias = Literal["queue", "execute", "retry", "skip", "pause", "error", "close"]


PlanType: TypeAlias = Literal["none", "time", "second", "minute", "hour", "day", "week", "month"]


class PlanJson(TypedDict):
    plan_id: str
    plan_time: str
    real_repet: int
    exec_time: str | None
    plan_state: PlanState
    last_state: LastState
    skip_set: int
    skip_num: int
    note: str | None
    task_id: int
    task_name: str
    created_at: str
    updated_at: str
    request_id: str | None
    station: str
    caller: str | None
    description: str
    plan_type: PlanType
    plan_value: NotRequired[int]
    plan_repet: NotRequired[int]
    no_keep: bool
    target: Literal["api", "pub", "vote"]
    messages: list[Any]
    delete_on_complete: bool


class PlanListInput(TypedDict, total=False):
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
    station: str | None
    plan_type: Literal["day", "delay", "hour", "minute", "month", "none", "second", "time", "week"] | None
    state: Literal["active", "error", "history", "pause"] | None


class PlanPageJson(JobPageFieldsJson):
    items: list[PlanJson]


class PlanRemovedJson(TypedDict):
    plan_id: str
    deleted: bool


class PlanResultJson(AttemptFieldsJson):
    run_id: int
    exec_time: str
    state: LastState
    participants: list[ParticipantJson]
    omitted: NotRequired[dict[str, int]]


class PlanWholeJson(PlanJson):
    results: list[PlanResultJson]


class PlanWriteInput(TypedDict):
    plan_id: NotRequired[int | str | None]
    request_id: NotRequired[str | None]
    station: str
    caller: NotRequired[str | None]
    description: NotRequired[str]
    plan_type: PlanType
    plan_value: NotRequired[int]
    plan_repet: NotRequired[int]
    no_keep: NotRequired[bool]
    target: NotRequired[Literal["api", "pub", "vote"]]
    plan_time: NotRequired[int | str]
    messages: Sequence[Any]
    delete_on_complete: NotRequired[bool]


class SkippedItemsJson(TypedDict):
    items: list[BulkItemJson]


class SkippedListInput(TypedDict, total=False):
    limit: int
    after: int


class SubscriptionWriteFieldsInput(TypedDict, total=False):
    types: Sequence[str]
    tasks: Sequence[str]
    labels: Mapping[str, str]
    queues: Sequence[str]
    secret: str | None
    active: bool


class SubscriptionChangeInput(SubscriptionWriteFieldsInput, total=False):
    url: str
    from_: str | None


class SubscriptionJson(AlertChannelFieldsJson):
    types: list[str]
    tasks: list[str]
    labels: dict[str, str]
    queues: list[str]
    active: bool
    position: str
    pending: int
    behind: int
    delivered_at: str | None
    failing_since: str | None
    next_attempt_at: str | None
    disabled_at: str | None
    disabled_reason: str | None
    missed: int


class SubscriptionMoveInput(TypedDict):
    from_: str


class SubscriptionTestedJson(TypedDict):
    delivered: bool
    delivery_id: int
    response_code: int | None
    error: str | None


class SubscriptionWriteInput(SubscriptionWriteFieldsInput):
    name: str
    url: str


class SubscriptionsJson(TypedDict):
    items: list[SubscriptionJson]


class TokenJson(TypedDict):
    id: int
    name: str
    role: Literal["viewer", "worker", "operator", "admin"]
    labels: dict[str, str] | None
    queues: list[str] | None
    job_types: list[str] | None
    token: str
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None


class TokenListJson(TypedDict):
    items: list[TokenJson]


class TokenRevokedJson(TypedDict):
    name: str
    revoked: bool


class TokenWriteInput(TypedDict):
    name: str
    role: Literal["viewer", "worker", "operator", "admin"]
    labels: NotRequired[Mapping[str, str] | None]
    queues: NotRequired[Sequence[str] | None]
    job_types: NotRequired[Sequence[str] | None]
    expires_in: NotRequired[float | None]


class ViewWriteInput(TypedDict, total=False):
    query: str


class ViewsAskedInput(TypedDict):
    list: Literal["tasks", "runs"]


class WebhookDeliveryListedJson(AlertDeliveryFieldsJson):
    subscription: str
    event_id: str
    type: str
    status: Literal["PENDING", "DELIVERED", "FAILED"]
    replay_of: int | None


class WebhookDeliveriesJson(TypedDict):
    items: list[WebhookDeliveryListedJson]


class WebhookDeliveryJson(AlertDeliveryFieldsJson):
    subscription: str
    event_id: str
    type: str
    status: Literal["PENDING", "DELIVERED", "FAILED"]
    replay_of: int | None
    request_headers: dict[str, str]
    body: str
    response: str | None


class WebhookListInput(TypedDict, total=False):
    limit: int
    before: int | None
    status: Literal["PENDING", "DELIVERED", "FAILED"] | None
