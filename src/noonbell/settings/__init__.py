"""Settings: what an operator may choose. `load` puts them together from files, the environment and flags.

sections.py has every key with its default and meaning; a new key is one line there.
"""

from __future__ import annotations

from noonbell.settings.loading import KEYS, Loaded, load, plain
from noonbell.settings.sections import (
    AuthSettings,
    CallbackSettings,
    DeclaredTask,
    ExecutorSettings,
    JobSettings,
    LoggingSettings,
    MetricsSettings,
    OidcSettings,
    PlanSettings,
    RecoverySettings,
    RetrySettings,
    SchedulerSettings,
    SecretSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)

__all__ = [
    "KEYS",
    "AuthSettings",
    "CallbackSettings",
    "DeclaredTask",
    "ExecutorSettings",
    "JobSettings",
    "Loaded",
    "LoggingSettings",
    "MetricsSettings",
    "OidcSettings",
    "PlanSettings",
    "RecoverySettings",
    "RetrySettings",
    "SchedulerSettings",
    "SecretSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "load",
    "plain",
]
