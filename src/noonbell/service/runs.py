"""Runs: read, cancel, retry, promote; one by one, or all that a filter finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell.errors import ConcurrencyLimit, InvalidState, NotFound
from noonbell.model.event import LogLine
from noonbell.model.request import Canceled, Outcome, Page, Publication, Published, RunQuery
from noonbell.model.run import FINAL, Attempt, Origin, Run, RunId, RunStatus
from noonbell.ports import Store, Wakeup
from noonbell.service import run_json

BULK_LIMIT: Final = 10_000
"""Runs that one bulk change touches, at most."""

_BATCH: Final = 500


_FAILED: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT, RunStatus.CANCELED)


def cancelable(query: RunQuery) -> tuple[RunStatus, ...]:
    """The statuses of what a bulk cancel is for: all that are not final, as far as the query asks for them."""
    return tuple(status for status in query.status or tuple(RunStatus) if status not in FINAL)


def retryable(query: RunQuery) -> tuple[RunStatus, ...]:
    """Of a bulk retry: what failed or was canceled, and of other final ones those that the query asks for."""
    return tuple(status for status in query.status or _FAILED if status in FINAL)


@dataclass(frozen=True, slots=True)
class Bulk:
    """What a bulk change did."""

    matched: int
    """Runs that it applied to."""
    changed: int
    more: bool
    """Whether the limit cut it short: call again."""


class Runs:
    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self._store = store
        self._wakeup = wakeup

    async def get(self, run_id: RunId) -> Run:
        run = await self._store.run(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run

    async def show(self, run_id: RunId) -> dict[str, Any]:
        """The run with the bodies of its newest attempt and its payload."""
        run = await self.get(run_id)
        bodies = await self._store.bodies(run_id)
        return {
            **run_json.shown(run),
            **run_json.shown_bodies(bodies),
            "payload": await self._store.payload(run_id),
        }

    async def page(self, query: RunQuery) -> Page[Run]:
        return await self._store.runs(query)

    async def attempts(self, run_id: RunId) -> list[Attempt]:
        """Oldest first, each with its bodies."""
        await self.get(run_id)
        found = await self._store.attempts(run_id)
        return [
            msgspec.structs.replace(attempt, bodies=await self._store.bodies(run_id, attempt.attempt))
            for attempt in found
        ]

    async def log(self, run_id: RunId, after: int = 0, limit: int = 1_000) -> list[LogLine]:
        await self.get(run_id)
        return await self._store.log_lines(run_id, after, limit)

    async def cancel(self, run_id: RunId, *, by: str | None = None, reason: str = "") -> Canceled:
        """With the true status: a run that is final stays as it is."""
        answers = await self._store.cancel([run_id], by=by, reason=reason)
        if not answers:
            raise NotFound("there is no such run")
        if answers[0].canceled:
            await self._wake_for([run_id])
        return answers[0]

    async def retry(self, run_id: RunId, *, by: str | None = None) -> RunId:
        """A fresh run with what one that is final carried, beside it."""
        del by  # the run itself says that it is a retry, and of which; the audit log says who asked
        run = await self.get(run_id)
        if run.status not in FINAL:
            raise InvalidState(f"run {run_id} is {run.status}; only a run that is final can be retried")
        if run.parent_id is not None:
            raise InvalidState(f"run {run_id} is a part of run {run.parent_id}; retry that one")
        published = (await self._publish_again([run], once=False)).get(run_id)
        if published is None:
            raise NotFound("there is no such run")
        if published.outcome is Outcome.REFUSED or published.run_id is None:
            raise ConcurrencyLimit(f"task {run.task_id} is at its limit and takes no further run ({published.reason})")
        self._wakeup.signal(f"queue:{run.queue}")
        return published.run_id

    async def _publish_again(self, runs: list[Run], *, once: bool) -> dict[RunId, Published]:
        """By the run that it repeats, but for those that are gone. `once`: what was run again so before is not again."""
        inputs = await self._store.inputs([run.id for run in runs])
        published = await self._store.publish(
            [
                Publication(
                    task_id=run.task_id,
                    origin=Origin.RETRY,
                    payload=inputs[run.id].payload,
                    overrides=inputs[run.id].overrides,
                    priority=run.priority,
                    scheduled_time=run.scheduled_time,
                    retry_of_run_id=run.id,
                    key=f"redrive:{run.id}" if once else None,
                )
                for run in runs
                if run.id in inputs
            ]
        )
        return dict(zip((run.id for run in runs if run.id in inputs), published, strict=True))

    async def promote(self, run_id: RunId) -> Run:
        """A delayed or retrying run becomes due now; InvalidState if it does not wait for its time."""
        if not await self._store.promote_run(run_id):
            run = await self.get(run_id)
            raise InvalidState(f"run {run_id} is {run.status} and does not wait for its time")
        run = await self.get(run_id)
        self._wakeup.signal(f"queue:{run.queue}")
        return run

    async def cancel_where(self, query: RunQuery, *, by: str | None = None, dry_run: bool = False) -> Bulk:
        """Every run that the query finds and that is not final."""

        async def cancel(runs: list[Run]) -> int:
            return sum(answer.canceled for answer in (await self.cancel_each(runs, by=by)).values())

        return await self._each(query, cancelable(query), cancel, dry_run=dry_run)

    async def retry_where(
        self, query: RunQuery, *, by: str | None = None, dry_run: bool = False, once: bool = False
    ) -> Bulk:
        """Every run that the query finds and that failed or was canceled; others only where their status is asked for.

        With `once`, each of them once, however often this is called.
        """
        del by

        async def retry(runs: list[Run]) -> int:
            answers = await self.retry_each(runs, once=once)
            return sum(answer is not None and answer.outcome is Outcome.CREATED for answer in answers)

        return await self._each(query, retryable(query), retry, dry_run=dry_run)

    async def retry_each(self, runs: list[Run], *, once: bool = False) -> list[Published | None]:
        """What became of each of these final runs, in order; None where the task is in ERROR, or no longer there."""
        try:
            answers = await self._publish_again(runs, once=once)
        except (InvalidState, NotFound):  # such a task must not keep the others back
            answers = {}
            for run in runs:
                with suppress(InvalidState, NotFound):
                    answers |= await self._publish_again([run], once=once)
        for queue in sorted({run.queue for run in runs}):
            self._wakeup.signal(f"queue:{queue}")
        return [answers.get(run.id) for run in runs]

    async def cancel_each(self, runs: list[Run], *, by: str | None = None) -> dict[RunId, Canceled]:
        """What became of each that there still is."""
        answers = await self._store.cancel([run.id for run in runs], by=by)
        await self._wake_for([answer.run_id for answer in answers if answer.canceled])
        return {answer.run_id: answer for answer in answers}

    async def _each(
        self,
        query: RunQuery,
        statuses: tuple[RunStatus, ...],
        change: Callable[[list[Run]], Awaitable[int]],
        *,
        dry_run: bool,
    ) -> Bulk:
        """Find first, then change: what the change makes must not be found again."""
        if not statuses:
            return Bulk(0, 0, more=False)
        found: list[Run] = []
        cursor: str | None = None
        while len(found) < BULK_LIMIT:
            page = await self._store.runs(
                msgspec.structs.replace(query, status=statuses, sort="-id", page=1, page_size=_BATCH, cursor=cursor)
            )
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        if dry_run:
            return Bulk(len(found), 0, more=cursor is not None)
        changed = 0
        for start in range(0, len(found), _BATCH):
            changed += await change(found[start : start + _BATCH])
        return Bulk(len(found), changed, more=cursor is not None)

    async def _wake_for(self, run_ids: list[RunId]) -> None:
        """Whoever holds one of them is to stop, and the places are free."""
        if not run_ids:
            return
        self._wakeup.signal("orders")
        run = await self._store.run(run_ids[0])
        self._wakeup.signal("queue:*" if len(run_ids) > 1 or run is None else f"queue:{run.queue}")
