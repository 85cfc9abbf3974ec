"""Why did, or didn't, this task run at T? One cause, one sentence, and the runs, people and times behind it.

First where the moment lies in the task's life (`service.account`), then what was recorded of it, then, for a run that has
not started, what stands in its way (`service.hindrance`). A run that was planned long after its slot ran late because
nobody planned; where a node noted that it could not reach the store meanwhile, that was the reason.
"""

from __future__ import annotations

from typing import Any

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.errors import NotFound
from noonbell.model.account import Outage, SlotRun
from noonbell.model.run import SUCCEEDED, DroppedRange, DropReason, Origin, Run, RunId, RunStatus
from noonbell.model.task import Task
from noonbell.policy.past import State, Stretch
from noonbell.ports import Store
from noonbell.service import explain_json
from noonbell.service.account import Life, life_of
from noonbell.service.finding import Finding, canceled, ended, is_timed, no_slot, off, skipped, under_way, unrecorded
from noonbell.service.hindrance import Hindrance, hindrance


class Explain:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_task(self, task: Task, at: Instant | None = None, lang: str = "en") -> dict[str, Any]:
        """Without a moment: the state that keeps it from running, else its newest slot, else its next."""
        return explain_json.shown(*await self.about_task(task, at), lang)

    async def of_run(self, run_id: RunId, lang: str = "en") -> dict[str, Any]:
        return explain_json.shown(*await self.about_run(run_id), lang)

    async def about_task(self, task: Task, at: Instant | None = None) -> tuple[Life, Finding]:
        """The same before it is put into words: for whoever shows times and runs in a way of their own."""
        life = await life_of(self._store, task)
        return life, await self._at(life, int(slot_of(at))) if at is not None else await self._lately(life)

    async def about_run(self, run_id: RunId) -> tuple[Life, Finding]:
        run = await self._store.run(run_id)
        task = None if run is None else await self._store.task(run.task_id)
        if run is None or task is None:
            raise NotFound("there is no such run")
        life = await life_of(self._store, task)
        slot = int(slot_of(run.scheduled_time))
        is_slot = run.origin is Origin.SCHEDULE and run.parent_id is None
        stretch = life.at(slot) or life.stretches[0]
        found = await self._run(life, stretch, run, is_slot=is_slot)
        found.slot = slot if is_slot else None
        return life, found

    # Which moment

    async def _lately(self, life: Life) -> Finding:
        now, newest = int(slot_of(life.now)), life.stretches[-1]
        if newest.state is not State.ON:
            return off(life, newest)
        recorded = await self._newest(life)
        if recorded is not None:
            return await self._at(life, recorded)
        cursor = life.task.next_fire_at
        return await self._at(life, now if cursor is None else int(slot_of(cursor)))

    async def _newest(self, life: Life) -> int | None:
        """The last slot that is due, planned or not."""
        cursor, last = life.task.next_fire_at, life.task.accounted_to
        if cursor is not None and cursor <= life.now:
            due = life.stretches[-1].previous(int(slot_of(life.now)) + 1)
            return int(slot_of(cursor)) if due is None else due
        return int(slot_of(last)) if last else None

    async def _at(self, life: Life, slot: int) -> Finding:
        at = instant_of(slot)
        runs = await self._store.slot_runs(life.task.id, at, at, 1)
        stretch = life.at(slot) or (life.stretches[0] if slot >= slot_of(life.stretches[0].since) else None)
        if runs and stretch is not None:
            found = await self._slot_run(life, stretch, runs[0])
        elif stretch is None:
            born = life.stretches[0].since
            found = Finding("not_a_slot", "not_a_slot_unborn", since=born, facts={"at": at, "since": born})
        else:
            found = await self._without_run(life, stretch, slot)
        if found.cause != "not_a_slot":
            found.slot = slot
        return found

    # What was recorded

    async def _without_run(self, life: Life, stretch: Stretch, slot: int) -> Finding:
        dropped = await self._store.dropped(life.task.id, instant_of(slot), instant_of(slot))
        named = stretch.names(slot) or (stretch.is_chained and bool(dropped or life.task.next_fire_at == slot * SECOND))
        if stretch.state is not State.ON and (named or not is_timed(stretch)):
            return off(life, stretch)
        if not named:
            return no_slot(life, stretch, slot)
        if dropped:
            return await self._dropped(stretch, slot, dropped[0])
        if stretch is not life.stretches[-1] or slot <= life.planned_to:
            return unrecorded(life, stretch, slot)
        late = (life.now - instant_of(slot)) / SECOND
        if late < 0:
            return Finding("waiting", "waiting_to_come", facts={"slot": instant_of(slot), "span": -late})
        if late <= stretch.spec.misfire_grace_seconds:
            return Finding("waiting", "waiting_due")
        return Finding("planner_late", "planner_late_due", facts={"span": late})

    async def _dropped(self, stretch: Stretch, slot: int, gone: DroppedRange) -> Finding:
        facts = {"planned": gone.at, "last": gone.last, "count": gone.count, "policy": stretch.spec.misfire_policy}
        found = Finding(str(gone.reason), facts=facts, since=gone.at)
        if gone.reason is DropReason.MISFIRE and (stretch.spec.schedule or {}).get("type") == "once":
            found.key = "misfire_once"
        outage = await self._outage(instant_of(slot), gone.at)
        if outage is not None:
            found.more += [_was_down(outage), *_why_down(outage)]
        return found

    async def _slot_run(self, life: Life, stretch: Stretch, recorded: SlotRun) -> Finding:
        run = await self._store.run(recorded.run_id)
        if run is None:  # removed since
            return Finding("cleaned", facts={"last": recorded.slot})
        return await self._run(life, stretch, run, is_slot=True)

    async def _run(self, life: Life, stretch: Stretch, run: Run, *, is_slot: bool) -> Finding:
        """By its status. `is_slot`: it was born of one, so it may have been planned late."""
        details = run.error_details or {}
        match run.status:
            case RunStatus.SKIPPED:
                found = skipped(stretch, run, details)
            case RunStatus.CANCELED:
                found = canceled(run, details)
            case RunStatus.SCHEDULED:
                found = await self._waits(life, run)
            case RunStatus.RUNNING | RunStatus.CALLBACK_PENDING | RunStatus.RETRYING:
                found = under_way(run)
            case _ if details.get("kind") == "lost" or (details.get("kind") == "unknown" and run.lost_count):
                found = Finding("lost", facts=ended(run))
            case _:
                found = await self._ran(stretch, run, is_slot=is_slot)
        found.run_id = run.id
        found.facts["run"] = run.id
        return found

    async def _ran(self, stretch: Stretch, run: Run, *, is_slot: bool) -> Finding:
        late = (run.created_at - run.scheduled_time) / SECOND
        if is_slot and late > stretch.spec.misfire_grace_seconds:
            facts = {"planned": run.created_at, "span": late, "status": run.status}
            outage = await self._outage(run.scheduled_time, run.created_at)
            if outage is None:
                return Finding("planner_late", facts=facts)
            facts |= {"since": outage.since, "until": outage.until}
            return Finding("store_down", facts=facts, since=outage.since, more=_why_down(outage))
        found = Finding("ran", "ran" if run.status in SUCCEEDED else "ran_badly", facts=ended(run))
        waited = ((run.start_time or run.run_at) - run.run_at) / SECOND
        if waited > stretch.spec.misfire_grace_seconds and run.attempt <= 1:
            found.more += await self._late_start(run, waited)
        return found

    async def _late_start(self, run: Run, waited: float) -> list[tuple[str, dict[str, Any]]]:
        start = run.start_time or run.run_at
        pauses = await self._store.pauses(run.queue, run.run_at, start)
        if pauses:
            last = pauses[-1]
            told = {"queue": run.queue, "actor": last.by, "since": last.since, "until": last.until or start}
            return [("and_paused", {"span": waited, **told})]
        outage = await self._outage(run.run_at, start)
        return [("and_late", {"span": waited}), *([] if outage is None else [_was_down(outage), *_why_down(outage)])]

    async def _waits(self, life: Life, run: Run) -> Finding:
        waits = await self._store.wait(run.id)
        why = Hindrance("waiting") if waits is None else hindrance(waits, run, await self._store.workers(), life.now)
        found = Finding(why.cause, why.key, facts=dict(why.facts))
        found.actor, found.since, found.blocking_run_id = why.actor, why.since, why.blocking_run_id
        if why.cause == "waiting" and run.lost_count:
            found.cause, found.key, found.facts = "lost", "lost_waiting", {"losses": run.lost_count}
        return found

    async def _outage(self, since: Instant, until: Instant) -> Outage | None:
        """What nodes noted of the time, in one piece."""
        noted = await self._store.outages(since, until)
        if not noted:
            return None
        return Outage(
            since=min(one.since for one in noted),
            until=max(one.until for one in noted),
            node=noted[0].node,
            reason=next((one.reason for one in noted if one.reason), None),
        )


def _was_down(outage: Outage) -> tuple[str, dict[str, Any]]:
    return "and_store_was_down", {"since": outage.since, "until": outage.until}


def _why_down(outage: Outage) -> list[tuple[str, dict[str, Any]]]:
    return [("and_why_down", {"reason": outage.reason})] if outage.reason else []
