"""What every scheduled task does: one request to the target. Standard library only, because each environment imports it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from urllib.parse import urlencode
from urllib.request import urlopen

SETTINGS = "BENCH_FAULTS"
"""The environment variable that has the settings, as JSON."""
LEASE = 5
"""Seconds until the work of a process that died is taken up again, wherever a setting decides it and admits this."""
CONNECTIONS = 5
"""To PostgreSQL, of the pool of one process."""


@dataclass(frozen=True)
class Settings:
    url: str
    """The database. Of Redis: with the prefix of all keys as its fragment."""
    target: str
    schedules: int
    every_second: bool
    """Each schedule fires every second; otherwise every minute."""
    folder: str
    """For files that a process keeps for its next life."""

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(self.schedules)]

    @classmethod
    def read(cls) -> Settings:
        return cls(**json.loads(os.environ[SETTINGS]))


def deliver(schedule: str, slot: float | None = None, key: object = None) -> None:
    """`slot`: seconds since 1970, where the scheduler tells it. `key`: what a repeat of the same work would have too."""
    told = {"slot": slot, "key": key}
    query = urlencode({name: value for name, value in told.items() if value is not None})
    with urlopen(f"{Settings.read().target}/{schedule}?{query}", timeout=30) as answer:  # noqa: S310 - our own target
        answer.read()


async def deliver_async(schedule: str, slot: float | None = None, key: object = None) -> None:
    await asyncio.to_thread(deliver, schedule, slot, key)


def is_setup() -> bool:
    """Asked to make tables and schedules, once before any process works."""
    return sys.argv[1:] == ["setup"]


def ready() -> None:
    print("is ready", flush=True)
