"""Settings: what an operator may choose. `load` puts them together from files, the environment and flags.

sections.py has every key with its default and meaning; a new key is one line there.
"""

from __future__ import annotations

from noonbell.settings.loading import KEYS, Loaded, load, plain
from noonbell.settings.sections import (
    AuthSettings,
    CallbackSettings,
    ClusterSettings,
    DeclaredTask,
    EventSettings,
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
    SettingKey,
    Settings,
    StoreSettings,
    WakeupSettings,
)

__all__ = [
    "KEYS",
    "AuthSettings",
    "CallbackSettings",
    "ClusterSettings",
    "DeclaredTask",
    "EventSettings",
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
    "SettingKey",
    "Settings",
    "StoreSettings",
    "WakeupSettings",
    "load",
    "plain",
]
