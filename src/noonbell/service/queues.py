"""Queues: what is in them, what limits them, and emptying them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noonbell.clock import SECOND, Instant, rfc3339
from noonbell.errors import InvalidId
from noonbell.model.request import RunQuery
from noonbell.model.run import FINAL, RunStatus
from noonbell.model.worker import Queue
from noonbell.ports import Store, Wakeup
from noonbell.service.policy_fields import read_rate_limit
from noonbell.service.reader import Problems, Reader, unfit
from noonbell.service.runs import Bulk, Runs

DEAD: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT)
"""Finally failed: nobody will try again."""

MOST_CLEANED: Final = 10_000
"""Runs that one call removes, at most."""

_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_BATCH: Final = 500
_LONGEST_AGE: Final = 3_153_600_000.0


class Queues:
    def __init__(self, store: Store, wakeup: Wakeup, runs: Runs) -> None:
        self._store, self._wakeup, self._runs = store, wakeup, runs

    async def all(self) -> list[dict[str, Any]]:
        return [shown(queue) for queue in await self._store.queues()]

    async def get(self, name: str) -> dict[str, Any]:
        """A queue that nobody has used or set yet is there all the same, and empty."""
        name = checked_name(name)
        found = next((queue for queue in await self._store.queues() if queue.name == name), None)
        return shown(found or Queue(name=name))

    async def limit(self, name: str, given: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Its rate limit and its concurrency; what is not given is no limit."""
        name = checked_name(name)
        problems = Problems()
        reader = Reader(given, problems)
        rate = read_rate_limit(reader)
        if rate is not None and rate.key is not None:
            reader.wrong("rate_limit.key", "works for tasks only; the limit of a queue counts all of its starts")
        concurrency = reader.integer("concurrency", None, 0, 2**31 - 1, "0 or more, or null for no limit")
        reader.finish("a queue")
        problems.finish()
        return await self._set(name, by, rate_limit=rate, concurrency=concurrency)

    async def pause(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Nothing more is claimed from it; what executes goes on."""
        return await self._set(checked_name(name), by, paused=True)

    async def resume(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        return await self._set(checked_name(name), by, paused=False)

    async def drain(self, name: str, *, by: str | None = None) -> Bulk:
        """Cancel what waits, delayed runs and retries included; what executes goes on."""
        return await self._runs.cancel_where(RunQuery(queue=checked_name(name), status=_WAITING), by=by)

    async def clean(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Remove final runs that ended longer ago than that: `removed`, and `more` if the limit cut it short."""
        name = checked_name(name)
        problems = Problems()
        reader = Reader(given, problems)
        seconds = _read_age(reader)
        statuses = _read_statuses(reader)
        reader.finish("a cleaning")
        problems.finish()
        before = Instant(await self._store.now() - round(seconds * SECOND))
        removed = 0
        while removed < MOST_CLEANED:
            gone = await self._store.clean(before, _BATCH, queue=name, status=statuses)
            removed += gone
            if gone < _BATCH:
                return {"removed": removed, "more": False}
        return {"removed": removed, "more": True}

    def dead(self, name: str, query: RunQuery) -> RunQuery:
        """The query for the runs of a queue that failed for good."""
        wanted = tuple(status for status in query.status or DEAD if status in DEAD)
        return msgspec.structs.replace(query, queue=checked_name(name), status=wanted or DEAD)

    async def redrive(self, name: str, query: RunQuery, *, by: str | None = None, dry_run: bool = False) -> Bulk:
        """Run again what failed for good, each of them once, however often this is asked for."""
        return await self._runs.retry_where(self.dead(name, query), by=by, dry_run=dry_run, once=True)

    async def _set(self, name: str, by: str | None, **fields: Any) -> dict[str, Any]:
        await self._store.set_queue(name, lambda queue: msgspec.structs.replace(queue, **fields), by=by)
        self._wakeup.signal(f"queue:{name}")
        return await self.get(name)


def checked_name(name: str) -> str:
    if not 1 <= len(name) <= 255 or unfit(name) is not None:
        raise InvalidId("a queue's name has 1 to 255 characters, and none that controls a terminal")
    return name


def _read_age(reader: Reader) -> float:
    days, seconds = reader.get("older_than_days"), reader.get("older_than_seconds")
    if (days is None) == (seconds is None):
        reader.wrong("older_than_seconds", "expected this or older_than_days, one of the two: how long ago they ended")
    if days is not None:
        return reader.number("older_than_days", 0, 0, _LONGEST_AGE / 86_400) * 86_400
    return reader.number("older_than_seconds", 0, 0, _LONGEST_AGE)


def _read_statuses(reader: Reader) -> tuple[RunStatus, ...]:
    words = reader.texts("status", most=len(FINAL))
    known = {str(status): status for status in FINAL}
    for word in words:
        if word not in known:
            reader.wrong("status", f"is {word!r}; expected some of {', '.join(sorted(FINAL))}")
    return tuple(known[word] for word in words if word in known)


def shown(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "paused": queue.paused,
        "concurrency": queue.concurrency,
        "rate_limit": None if queue.rate_limit is None else msgspec.to_builtins(queue.rate_limit),
        "waiting": queue.waiting,
        "delayed": queue.delayed,
        "running": queue.running,
        "oldest_at": None if queue.oldest_at is None else rfc3339(queue.oldest_at),
    }
