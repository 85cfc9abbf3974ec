"""Alerts: the rules that watch, the channels that tell, and what is remembered of both."""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar

import msgspec

from noonbell.clock import Instant
from noonbell.fields import Moment, meta
from noonbell.model.calendar import LONGEST_SPREAD, MOST_QUIET, QuietHours
from noonbell.model.run import RunId
from noonbell.model.task import TaskId
from noonbell.model.task_schedule import Labels


class RuleKind(enum.StrEnum):
    FAILED = "failed"
    """A run ended in failure, its retries used up."""
    FAILURES = "failures"
    """`count` runs of a task in a row did."""
    CALLBACK_TIMEOUT = "callback_timeout"
    LOST = "lost"
    """A worker was lost with a run in its hands."""
    NO_WORKER = "no_worker"
    MISFIRE = "misfire"
    LATE_START = "late_start"
    """A run is due and no worker has claimed it."""
    OVERDUE = "overdue"
    """A slot is due and no planner has planned it."""
    SLOW = "slow"
    """A run takes longer than is usual for its task."""
    STORE = "store_unreachable"
    SUBSCRIPTION = "subscription_disabled"
    """A webhook subscription was disabled, because its receiver failed for too long."""
    SLA_BREACHED = "sla_breached"
    """A run, or a task, has broken its service level."""
    SLA_FORESEEN = "sla_foreseen"
    """A run is expected to break its service level."""


BY_EVENT = frozenset(
    {
        *(RuleKind.FAILED, RuleKind.FAILURES, RuleKind.CALLBACK_TIMEOUT, RuleKind.LOST, RuleKind.NO_WORKER),
        *(RuleKind.MISFIRE, RuleKind.SUBSCRIPTION, RuleKind.SLA_BREACHED, RuleKind.SLA_FORESEEN),
    }
)
"""Rules that read the stream of events. The others look for themselves, again and again."""

AFTER_SECONDS = {
    RuleKind.LATE_START: 60.0,
    RuleKind.OVERDUE: 10.0,
    RuleKind.SLOW: 60.0,
    RuleKind.STORE: 5.0,
}
"""How long it has to be so, where a rule does not say."""


MOST_RULES = 100
MOST_CHANNELS = 100
"""Made by API. All rules are read every second and asked about each event, and all channels go with them."""
MOST_NAMES = 1_000
"""Of tasks, in one rule."""
MOST_PATTERNS = 100
"""Of those names that have `*`, `?` or `[` in them, in one rule."""
MONTH = 30 * 86_400.0
Name = Annotated[
    str,
    meta(
        "Unique.",
        min_length=1,
        max_length=100,
        pattern="[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        expected="1 to 100 letters, digits, dots, dashes and underscores, a letter or digit first",
    ),
]
ManagedBy = Annotated[str, meta("`settings` if it is declared there.", read_only=True)]
ReadOnlyMoment = Annotated[Moment, meta(read_only=True)]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    component: ClassVar[str] = "AlertRule"
    noun: ClassVar[str] = "an alert rule"

    name: Annotated[Name, meta(examples=["billing-fails"])]
    kind: Annotated[RuleKind, meta("The condition that it checks.")]
    enabled: Annotated[bool, meta("False: ignored.")] = True
    tasks: Annotated[
        tuple[str, ...],
        meta(
            "Names of tasks; `*` and `?` are wildcards, in at most 100 names. None: every task.",
            max_length=MOST_NAMES,
            examples=[["billing-*"]],
        ),
    ] = ()
    labels: Annotated[
        Labels,
        meta(
            "Only tasks that have all of these labels. None: every task.", max_length=50, examples=[{"team": "billing"}]
        ),
    ] = {}
    channels: Annotated[
        tuple[Annotated[str, meta(max_length=100)], ...], meta("None: every channel.", max_length=100)
    ] = ()
    count: Annotated[int, meta("`failures`: the number in a row.", ge=1, le=10_000)] = 3
    after_seconds: Annotated[
        float | None,
        meta(
            "`overdue` (10), `late_start` (60), `slow` (60), `store_unreachable` (5): how long it has to be so.",
            ge=0,
            le=MONTH,
        ),
    ] = None
    factor: Annotated[float, meta("`slow`: how many times as long as usual.", ge=1, le=1_000)] = 3.0
    repeat_seconds: Annotated[float | None, meta("Notify again after this long; null: only once.", ge=60, le=MONTH)] = (
        None
    )
    managed_by: ManagedBy = "api"
    created_at: ReadOnlyMoment = Instant(0)
    updated_at: ReadOnlyMoment = Instant(0)

    @property
    def patience(self) -> float:
        return AFTER_SECONDS.get(self.kind, 0.0) if self.after_seconds is None else self.after_seconds


class RuleBody(Rule, frozen=True, kw_only=True):
    component: ClassVar[str] = "AlertRuleWrite"
    example: ClassVar[dict[str, Any]] = {"name": "billing-fails", "kind": "failed", "tasks": ["billing-*"]}

    kind: Annotated[
        RuleKind | None, meta("The condition that it checks; by default the kind that it is named after.", default=None)
    ] = None  # type: ignore[assignment]


class RuleChange(RuleBody, frozen=True, kw_only=True):
    component: ClassVar[str] = "AlertRuleChange"
    example: ClassVar[dict[str, Any]] = {"kind": "failed", "tasks": ["billing-*"]}

    name: Annotated[str, meta("As the path says.", read_only=True, default=None)] = ""


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    noun: ClassVar[str] = "an alert channel"

    name: Annotated[Name, meta(examples=["ops"])]
    kind: str = "webhook"
    """One of `alerts.channels.KINDS`."""
    url: Annotated[
        str,
        meta(
            "Where messages are sent, as shown by the service. Shown without its secrets; what was shown may be written back. Required except for `telegram`.",
            max_length=4_000,
            examples=["https://hooks.example.com/noonbell"],
        ),
    ] = ""
    secret: str | None = None
    headers: Annotated[
        dict[str, Annotated[str, meta(max_length=8_000)]],
        meta("Sent with each notice.", max_length=50, expected="an object of at most 50 headers"),
    ] = {}
    to: Annotated[
        tuple[Annotated[str, meta(min_length=1, max_length=320)], ...],
        meta(
            "`email`: addresses of recipients. `telegram`: ids of chats.", max_length=50, examples=[["ops@example.com"]]
        ),
    ] = ()
    sender: Annotated[
        str | None, meta("`email`: the address that messages come from.", min_length=3, max_length=320)
    ] = None
    enabled: Annotated[bool, meta("False: ignored.")] = True
    quiet: Annotated[
        tuple[QuietHours, ...],
        meta("Times of the day in which messages wait until they end, or are skipped.", max_length=MOST_QUIET),
    ] = ()
    language: Annotated[str, meta("The language of the messages: `en` or `zh`.", choices=("en", "zh"))] = "en"
    spread_seconds: Annotated[
        int, meta("After quiet hours, the messages that waited are sent within this time.", ge=0, le=LONGEST_SPREAD)
    ] = 0
    managed_by: ManagedBy = "api"
    created_at: ReadOnlyMoment = Instant(0)
    updated_at: ReadOnlyMoment = Instant(0)


class AlertState(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule knows of one subject: `task:17`, `store`. It is gone when all is well again."""

    rule: str
    subject: str
    count: int = 0
    """How often it was seen since it began."""
    raised_at: Instant | None = None
    """When its first message was made; None while the rule's bound is not reached."""
    told_at: Instant | None = None
    """When its last message was made; None for one that was raised while it was muted."""
    since: Instant
    task_id: TaskId | None = None
    task_name: str | None = None
    run_id: RunId | None = None
    message: str = ""
    """In English."""
    code: str = ""
    """Which sentence the message is (`policy.alerts.TEXTS`); empty for states from before there were codes."""
    facts: dict[str, Any] = {}
    """What stands in it."""


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that send no messages for a while. They are raised and shown all the same."""

    component: ClassVar[str] = "AlertMute"
    noun: ClassVar[str] = "a mute"

    id: Annotated[int, meta(read_only=True, examples=[7340101])] = 0
    rule: Annotated[str | None, meta("Alerts of this rule; null: of every rule.", min_length=1, max_length=100)] = None
    tasks: Annotated[
        tuple[str, ...],
        meta("Alerts about these tasks; `*` and `?` are wildcards. None: about everything.", max_length=100),
    ] = ()
    labels: Annotated[
        Labels,
        meta("Alerts about tasks that have all of these labels.", max_length=50, examples=[{"team": "billing"}]),
    ] = {}
    until: Annotated[Moment, meta("When it ends.", examples=["2026-11-15T04:00:00Z"])]
    reason: Annotated[str, meta("The reason, shown with it.", max_length=500, examples=["the database moves"])] = ""
    by: Annotated[str | None, meta("The name of the token that created it.", read_only=True, examples=["alice"])] = None
    created_at: ReadOnlyMoment = Instant(0)


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks after an open alert. It is gone with the alert."""

    rule: str
    subject: str
    at: Instant
    by: str | None = None
    note: str = ""


class AlertMessageType(enum.StrEnum):
    RAISED = "alert.raised"
    REPEATED = "alert.repeated"
    RECOVERED = "alert.recovered"
    TEST = "alert.test"


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to a channel. As JSON it is a webhook's body."""

    type: AlertMessageType
    time: str
    rule: str
    kind: str
    subject: str
    title: str
    message: str
    since: str | None = None
    count: int = 0
    task_id: int | None = None
    task_name: str | None = None
    run_id: int | None = None
    code: str = ""
    """Which sentence `message` is, for receivers that speak another language."""
    facts: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    """Of the tasks, where one message is about many."""


class DeliveryStatus(enum.StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    """It came due in quiet hours of its channel that skip."""


class AlertDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One notice to one channel."""

    id: int
    channel: str
    rule: str
    subject: str
    status: DeliveryStatus
    attempts: int
    next_at: Instant | None
    created_at: Instant
    ended_at: Instant | None
    response_code: int | None
    error: str | None
    notice: dict[str, Any]


class LeaderLease(msgspec.Struct, frozen=True, kw_only=True):
    """Work that one node does for all, held for a while."""

    name: str
    token: int
    position: int
    """Up to which number of the event stream it has been done."""


class AlertStep(msgspec.Struct, kw_only=True):
    """What one pass over the stream and the readings comes to; all of it is written together."""

    states: list[AlertState] = []
    closed: list[tuple[str, str]] = []
    """Rule and subject of states that are over."""
    notices: list[tuple[str, AlertMessage]] = []
    """Each message, with the name of the channel that gets it."""
    told: list[tuple[AlertMessageType, AlertState]] = []
    """For the stream itself."""


class OverdueTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task with something overdue: a slot, a queued run, or a slow run."""

    task_id: TaskId
    task_name: str
    since: Instant
    run_id: RunId | None = None
    count: int = 1
    usual_seconds: float | None = None
