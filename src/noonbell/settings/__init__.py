"""Settings: what an operator may choose. `load` puts them together from files, the environment and flags.

sections.py has every key with its default and meaning; a new key is one line there.
"""

from __future__ import annotations

from noonbell.settings.layers import KEYS, Loaded, load, plain
from noonbell.settings.sections import (
    Auth,
    Callback,
    Declared,
    DefaultRetry,
    Events,
    Executor,
    Jobs,
    Key,
    Logging,
    Metrics,
    Plans,
    Recovery,
    Scheduler,
    Secrets,
    Server,
    Settings,
    Store,
    Wakeup,
)

__all__ = [
    "KEYS",
    "Auth",
    "Callback",
    "Declared",
    "DefaultRetry",
    "Events",
    "Executor",
    "Jobs",
    "Key",
    "Loaded",
    "Logging",
    "Metrics",
    "Plans",
    "Recovery",
    "Scheduler",
    "Secrets",
    "Server",
    "Settings",
    "Store",
    "Wakeup",
    "load",
    "plain",
]
