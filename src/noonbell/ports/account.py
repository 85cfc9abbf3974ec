"""The account: what became of every slot, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noonbell.clock import Instant
from noonbell.model.account import Activity, Cleaned, Flaw, Outage, Pause, SlotRun, Wait
from noonbell.model.run import RunId
from noonbell.model.task import TaskId


class AccountStore(Protocol):
    async def slot_runs(self, task_id: TaskId, since: Instant, until: Instant, limit: int = 1000) -> list[SlotRun]:
        """What the slots of the stretch became, both ends included, oldest first, at most `limit`: skips too.

        Runs of triggers, backfills and retries are not among them, and neither are dropped slots.
        """

    async def slot_counts(self, since: Instant, until: Instant, seconds: int) -> dict[Instant, int]:
        """How many slots of all tasks became runs or skips, by stretches of `seconds` that begin at a multiple of it.

        Those in since <= slot < until; stretches without any are left out. Reads an index and no run, so it may be asked
        for a month of a million of them.
        """

    async def cleaned(self, task_id: TaskId) -> Cleaned:
        """How many runs of the task's slots `clean` has removed so far, and the last slot among them."""

    async def wait(self, run_id: RunId) -> Wait | None:
        """What stands between a run and its start, as of now. None for one that is under way, final or unknown."""

    async def activity(self, task_ids: Sequence[TaskId]) -> dict[TaskId, Activity]:
        """The newest run of each task and how many are under way and waiting, parts of a fan-out left out.

        Tasks without a run are left out. The questions it takes are as many for a hundred tasks as for one.
        """

    async def note_outage(self, seconds: float, node: str, reason: str | None = None) -> Outage:
        """A node says that it could not reach the store, or could not get on, for the `seconds` before now, and why."""

    async def outages(self, since: Instant, until: Instant) -> list[Outage]:
        """Those that touch the stretch, oldest first."""

    async def pauses(self, queue: str, since: Instant, until: Instant) -> list[Pause]:
        """When the queue was paused within the stretch, by whom and until when, oldest first."""

    async def flaws(self, limit: int = 100) -> list[Flaw]:
        """Rows that contradict each other, at most `limit`. Reads only. A sound store answers with nothing.

        A run that is final and still waits, that is not final and waits nowhere, or that is in two places; a part
        without its parent; a counter that a limit relies on and that is not what the rows say.
        """
