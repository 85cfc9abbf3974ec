"""Alerts: the rules that watch, the channels that tell, and what is remembered of both."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

from noonbell.clock import Instant
from noonbell.model.run import RunId
from noonbell.model.task import TaskId


class RuleKind(enum.StrEnum):
    FAILED = "failed"
    """A run ended in failure, its retries used up."""
    FAILURES = "failures"
    """So many runs of a task in a row did."""
    CALLBACK_TIMEOUT = "callback_timeout"
    LOST = "lost"
    """A worker was lost with a run in its hands."""
    NO_WORKER = "no_worker"
    MISFIRE = "misfire"
    LATE_START = "late_start"
    """A run is due and nobody has taken it."""
    OVERDUE = "overdue"
    """A slot is due and nobody has planned it."""
    SLOW = "slow"
    """A run takes longer than is usual for its task."""
    STORE = "store_unreachable"


BY_EVENT = frozenset(
    {RuleKind.FAILED, RuleKind.FAILURES, RuleKind.CALLBACK_TIMEOUT, RuleKind.LOST, RuleKind.NO_WORKER, RuleKind.MISFIRE}
)
"""Rules that read the stream of events. The others look for themselves, again and again."""

AFTER_SECONDS = {
    RuleKind.LATE_START: 60.0,
    RuleKind.OVERDUE: 10.0,
    RuleKind.SLOW: 60.0,
    RuleKind.STORE: 5.0,
}
"""How long it has to be so, where a rule does not say."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: RuleKind
    enabled: bool = True
    tasks: tuple[str, ...] = ()
    """Patterns of task names, `*` and `?` in them; none means every task."""
    channels: tuple[str, ...] = ()
    """None means every channel."""
    count: int = 3
    """`failures`: how many in a row."""
    after_seconds: float | None = None
    """Kinds of AFTER_SECONDS: how long it has to be so. `slow`: nothing shorter is called slow."""
    factor: float = 3.0
    """`slow`: how many times as long as usual."""
    repeat_seconds: float | None = None
    """Tell again after so long, while it lasts; None: once."""
    managed_by: str = "api"
    created_at: Instant = Instant(0)
    updated_at: Instant = Instant(0)

    @property
    def patience(self) -> float:
        return AFTER_SECONDS.get(self.kind, 0.0) if self.after_seconds is None else self.after_seconds


ChannelKind = Literal["webhook", "apprise"]


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: ChannelKind = "webhook"
    url: str
    """Secret as a whole where `apprise` reads it: its addresses carry passwords."""
    secret: str | None = None
    """`webhook`: signs as Standard Webhooks."""
    headers: dict[str, str] = {}
    enabled: bool = True
    managed_by: str = "api"
    created_at: Instant = Instant(0)
    updated_at: Instant = Instant(0)


class AlertState(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule knows of one subject: `task:17`, `store`. It is gone when all is well again."""

    rule: str
    subject: str
    count: int = 0
    """How often it was seen since it began."""
    raised_at: Instant | None = None
    """When it was told; None while it has not gone far enough."""
    told_at: Instant | None = None
    """When it was told last."""
    since: Instant
    task_id: TaskId | None = None
    task_name: str | None = None
    run_id: RunId | None = None
    message: str = ""


class What(enum.StrEnum):
    RAISED = "alert.raised"
    REPEATED = "alert.repeated"
    RECOVERED = "alert.recovered"
    TEST = "alert.test"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel is told. As JSON it is a webhook's body."""

    type: What
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


class DeliveryStatus(enum.StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
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


class Duty(msgspec.Struct, frozen=True, kw_only=True):
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
    notices: list[tuple[str, Notice]] = []
    """Channel and what it is told."""
    told: list[tuple[What, AlertState]] = []
    """For the stream itself."""


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A task that something of is late: a slot, a waiting run, or a run that takes long."""

    task_id: TaskId
    task_name: str
    since: Instant
    run_id: RunId | None = None
    count: int = 1
    usual_seconds: float | None = None
