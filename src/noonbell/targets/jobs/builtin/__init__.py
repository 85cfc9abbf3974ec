"""Job types that every installation has. A new one is a file here, and a line in `handlers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noonbell.ports import Store
from noonbell.settings import Settings
from noonbell.targets.jobs.builtin import cleanup
from noonbell.targets.jobs.handler import Handler

TASKS: Final[Sequence[Mapping[str, Any]]] = (cleanup.TASK,)
"""What is scheduled without anybody asking for it: made when a node starts for the first time."""


def handlers(store: Store, settings: Settings) -> list[Handler]:
    return [cleanup.handler(store, settings.jobs.history_retention_days)]
