"""What pages are made from: one object, put together where the application is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from noonbell.model.attempt import Outcome
from noonbell.model.task import TaskSpec
from noonbell.service import Services
from noonbell.service.access import Access
from noonbell.service.alerts import Alerts
from noonbell.settings import Settings
from noonbell.web.counts import Counts
from noonbell.web.session import Sessions

TryCall: TypeAlias = Callable[[TaskSpec], Awaitable[Outcome]]
"""Call a task's HTTP target once, without a run: what "Test call" does before anything is saved."""


@dataclass(frozen=True, slots=True)
class Site:
    services: Services
    settings: Settings
    health: Callable[[], Mapping[str, Any]]
    """What the node says of itself."""
    sessions: Sessions
    access: Access | None = None
    """None: nobody is asked who they are, and nothing is written into the audit log."""
    alerts: Alerts | None = None
    asks_for_tokens: bool = False
    exposed: bool = False
    """Whether others than this machine can reach it."""
    try_call: TryCall | None = None
    counts: Counts = field(default_factory=Counts)
