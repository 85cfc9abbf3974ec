"""Why did, or didn't, this task run at T? One cause, one sentence, and the runs, people and times behind it.

First where the moment lies in the task's history (`service.account`), then what was recorded of it, then, for a run that has
not started, what blocks it (`blocked_reason`). A run that was planned long after its slot ran late because no node planned;
where a node noted that it could not reach the store meanwhile, that was the reason. The sentences are in `locales/`, as `finding.…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from noonbell.clock import SECOND, Instant, instant_of, rfc3339, slot_of
from noonbell.errors import NotFound
from noonbell.fields import Moment, meta
from noonbell.model.account import Activity, InstallationPause, Outage, SlotRun, Wait
from noonbell.model.call import CALL_TYPE
from noonbell.model.flow import OPEN_STEP, StepStatus
from noonbell.model.quiet import QuietAction
from noonbell.model.request import RunQuery
from noonbell.model.run import (
    FAILURES,
    FINAL,
    SUCCEEDED,
    DroppedRange,
    DropReason,
    Origin,
    Run,
    RunId,
    RunStatus,
    SkipReason,
)
from noonbell.model.target_kind import COMMAND_TYPE, COMMANDS, HTTP, OWN_QUEUES
from noonbell.model.task import Task, TaskSpec
from noonbell.model.worker import Lack, WorkerInfo, is_scheduler_alive, label_pairs
from noonbell.policy.quiet import quiet_at
from noonbell.policy.slot_history import State, VersionSpan
from noonbell.policy.workers import WorkerNeeds, lack, takes_runs
from noonbell.ports import Store
from noonbell.service import explain_after, scope
from noonbell.service.account import SlotOutcome, TaskHistory, task_history
from noonbell.service.explain_after import UpstreamFinding
from noonbell.service.extras import how_to_install
from noonbell.service.filters import cursor_at
from noonbell.service.service_levels import sentences_of
from noonbell.service.translation import FailureFact, Translator
from noonbell.when import Composed, zones
from noonbell.when.calendar import Placed, Placement

_NOTICED = 2 * SECOND
"""Microseconds until a node has noticed that the clock was set."""
_MONTH: Final = 32 * 86_400
_WAITING: Final = (RunStatus.SCHEDULED, RunStatus.RETRYING)
_WAITING_SEEN: Final = 50
"""Runs of a task among which the one that has waited longest is sought: the first that were made."""
_FROM_THE_FIRST: Final = cursor_at("id", 0, 0)


_FOR_A_SCHEDULER: Final = frozenset(
    {"waiting_to_come", "waiting_due", "waiting_until", "running_retry", "planner_late_due"}
)
"""Sentences about what waits for a scheduler to plan it, or to make it ready."""


class Explain:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_task(self, task: Task, at: Instant | None = None, lang: str = "en") -> dict[str, Any]:
        """Without a moment: the state that keeps it from running, else its newest slot, else its next."""
        return shown(*await self.about_task(task, at), lang)

    async def of_run(self, run_id: RunId, lang: str = "en") -> dict[str, Any]:
        return shown(*await self.about_run(run_id), lang)

    async def about_task(self, task: Task, at: Instant | None = None) -> tuple[TaskHistory, SlotFinding]:
        """The same before it is put into words: for pages, which show times and runs in their own way."""
        history = await task_history(self._store, task)
        found = await self._at(history, int(slot_of(at))) if at is not None else await self._lately(history)
        await self._note_scheduler(history, found)
        return history, found

    async def about_run(self, run_id: RunId) -> tuple[TaskHistory, SlotFinding]:
        run = await self._store.run(run_id)
        task = None if run is None else await self._store.task(run.task_id)
        if run is None or task is None:
            raise NotFound("there is no such run")
        history = await task_history(self._store, task)
        slot = int(slot_of(run.scheduled_time))
        is_slot = run.origin is Origin.SCHEDULE and run.parent_id is None
        stretch = history.at(slot) or history.stretches[0]
        found = await self._run(history, stretch, run, is_slot=is_slot)
        found.slot = slot if is_slot else None
        found.more += await self._about_flow(run)
        found.more += sentences_of(await self._store.sla_breaches(10, run_id=run.id))
        await self._note_scheduler(history, found)
        return history, found

    async def _about_flow(self, run: Run) -> list[tuple[str, dict[str, Any]]]:
        """Of a step or a child, whose it is; of a flow, how its steps stand."""
        if run.step_id is not None:
            item = [] if run.item_index is None else [("and_item", {"item": run.item_index})]
            return [("and_step", {"step": run.step_id, "parent": run.parent_id}), *item]
        if run.origin is Origin.SPAWN:
            return [("and_child", {"parent": run.parent_id})]
        steps = await self._store.flow_states(run.id)
        if not steps:
            return []
        over = sum(step.status not in OPEN_STEP for step in steps)
        told: list[tuple[str, dict[str, Any]]] = [("and_steps", {"count": over, "total": len(steps)})]
        for key, status in (("and_steps_running", StepStatus.RUNNING), ("and_steps_failed", StepStatus.FAILED)):
            names = [step.step_id for step in steps if step.status is status]
            if names:
                told.append((key, {"names": named(names)}))
        return told

    async def _note_scheduler(self, history: TaskHistory, found: SlotFinding) -> None:
        """Say that no scheduler is running, where only a scheduler brings it on."""
        if found.key in _FOR_A_SCHEDULER and not is_scheduler_alive(await self._store.scheduler_seen_at(), history.now):
            found.more.append(("and_no_scheduler", {}))

    # Which moment

    async def _lately(self, history: TaskHistory) -> SlotFinding:
        now, newest = int(slot_of(history.now)), history.stretches[-1]
        if newest.state is not State.ON:
            found = off(history, newest)
            if newest.state is State.COMPLETED:
                await self._note_last_run(history, found)
            return found
        recorded = await self._newest(history)
        if recorded is not None:
            return await self._at(history, recorded)
        asked_for = await self._asked_for(history)
        if asked_for is not None:
            return asked_for
        cursor = history.task.next_fire_at
        return await self._at(history, now if cursor is None else int(slot_of(cursor)))

    async def _asked_for(self, history: TaskHistory) -> SlotFinding | None:
        """Of a task without a slot behind it: its run that has waited longest; without a schedule, else its newest run."""
        task, newest = history.task, history.stretches[-1]
        activity = (await self._store.activity([task.id])).get(task.id)
        if activity is None:
            activity = Activity()
        if activity.queued_runs:
            query = RunQuery(
                task_id=task.id, status=_WAITING, sort="id", page_size=_WAITING_SEEN, cursor=_FROM_THE_FIRST
            )
            waiting = (await self._store.runs(query)).items
            if waiting:
                found = await self._run(
                    history, newest, min(waiting, key=lambda run: (run.run_at, run.id)), is_slot=False
                )
                if activity.queued_runs > 1:
                    found.more.append(("and_others_wait", {"count": activity.queued_runs}))
                return found
        after = newest.spec.after
        wait = None if after is None else await explain_after.open_wait(self._store, task.id, after)
        if wait is not None:
            return _following(wait)
        run = None if activity.last_run_id is None else await self._store.run(activity.last_run_id)
        return (
            None if run is None or newest.schedule is not None else await self._run(history, newest, run, is_slot=False)
        )

    async def _note_last_run(self, history: TaskHistory, found: SlotFinding) -> None:
        """Say how the last run of a task went that has no further slot: one that failed was its only chance."""
        activity = (await self._store.activity([history.task.id])).get(history.task.id)
        run = None if activity is None or activity.last_run_id is None else await self._store.run(activity.last_run_id)
        if run is None:
            return
        key = "and_last_run" if run.status in FINAL else "and_last_run_open"
        if run.status in FAILURES and run.error_message:
            key = "and_last_run_failed"
        found.run_id = run.id
        found.more.append((key, {"run": run.id, **ended(run)}))

    async def _newest(self, history: TaskHistory) -> int | None:
        """The last slot that is due, planned or not."""
        cursor, last = history.task.next_fire_at, history.task.accounted_to
        if history.task.calendar_use is not None and history.stretches[-1].placement is not None:
            return _newest_under_calendar(history)
        if cursor is not None and cursor <= history.now:
            due = history.stretches[-1].previous(int(slot_of(history.now)) + 1)
            return int(slot_of(cursor)) if due is None else due
        return int(slot_of(last)) if last else None

    async def _at(self, history: TaskHistory, slot: int) -> SlotFinding:
        named = history.at(slot)
        moved = None if named is not None and named.names(slot) else _moved_here(history, slot)
        slot = slot if moved is None else moved
        at = instant_of(slot)
        runs = await self._store.slot_runs(history.task.id, at, at, 1)
        stretch = history.at(slot) or (history.stretches[0] if slot >= slot_of(history.stretches[0].since) else None)
        followed = None if runs else await self._follows(history, stretch or history.stretches[0], at)
        if runs and stretch is not None:
            found = await self._slot_run(history, stretch, runs[0])
        elif followed is not None:
            found = followed
        elif stretch is None:
            born = history.stretches[0].since
            found = SlotFinding("not_a_slot", "not_a_slot_unborn", since=born, facts={"at": at, "since": born})
        else:
            found = await self._without_run(history, stretch, slot)
        if found.cause != "not_a_slot":
            found.slot = slot
            for step in await self._store.clock_steps(at, Instant(at + _NOTICED)):
                key = "and_clock_forward" if step.step > 0 else "and_clock_back"
                facts = {"since": step.since, "until": step.until, "span": abs(step.seconds), "node": step.node}
                found.more.append((key, facts))
            found.more += await self._went_back(at, at)
        return found

    async def _went_back(self, since: Instant, until: Instant) -> list[tuple[str, dict[str, Any]]]:
        noted = await self._store.store_returns(since, until)
        return [("and_went_back", {"since": one.since, "until": one.until, "node": one.node}) for one in noted]

    async def _follows(self, history: TaskHistory, stretch: VersionSpan, at: Instant) -> SlotFinding | None:
        """Of a slot that the task does not have itself: what its upstreams have carried on to it."""
        after = stretch.spec.after
        if after is None or not after.same_slot:
            return None
        wait = await explain_after.at_slot(self._store, history.task.id, after, at)
        run = None if wait is None or wait.run_id is None else await self._store.run(wait.run_id)
        if run is not None:
            return await self._run(history, stretch, run, is_slot=False)
        return None if wait is None or wait.run_id is not None else _following(wait)

    # What was recorded

    async def _without_run(self, history: TaskHistory, stretch: VersionSpan, slot: int) -> SlotFinding:
        dropped = await self._store.dropped(history.task.id, instant_of(slot), instant_of(slot))
        named = stretch.names(slot) or (
            stretch.is_chained and bool(dropped or history.task.next_fire_at == slot * SECOND)
        )
        if stretch.state is not State.ON and (named or stretch.schedule is None or stretch.is_chained):
            return off(history, stretch)
        if not named and stretch.schedule is None and stretch.spec.after is not None:
            names = await explain_after.names_of(self._store, stretch.spec.after)
            return SlotFinding("not_a_slot", "not_a_slot_after", facts={"names": ", ".join(names.values())})
        if not named:
            return no_slot(history, stretch, slot)
        if dropped:
            return await self._dropped(stretch, slot, dropped[0])
        is_past = stretch is not history.stretches[-1] or slot <= history.planned_to
        if is_past if stretch.placement is None else not stretch.is_open:
            return unrecorded(history, stretch, slot)
        placed = Placed(slot, slot) if stretch.placement is None else stretch.placement.place(slot)
        late = (history.now - instant_of(placed.at)) / SECOND
        pause = await self._store.installation_pause()
        if late < 0 and placed.is_closed:
            return SlotFinding("calendar", "calendar_to_come", facts={"calendar": _calendar_name(stretch)})
        if late < 0:
            to_come = SlotFinding("waiting", "waiting_to_come", facts={"slot": instant_of(placed.at), "span": -late})
            to_come.more += _was_moved(stretch, instant_of(slot), instant_of(placed.at)) if placed.is_moved else []
            to_come.more += [] if pause is None else [("and_all_paused", _of_pause(pause)), *_why_paused(pause)]
            return to_come
        if pause is not None:
            return _paused("paused_due", pause)
        if late <= stretch.spec.misfire_grace_seconds:
            return SlotFinding("waiting", "waiting_due")
        return SlotFinding("planner_late", "planner_late_due", facts={"span": late})

    async def _dropped(self, stretch: VersionSpan, slot: int, gone: DroppedRange) -> SlotFinding:
        facts = {"planned": gone.at, "last": gone.last, "count": gone.count, "policy": stretch.spec.misfire_policy}
        found = SlotFinding(str(gone.reason), facts=facts, since=gone.at)
        if gone.reason is DropReason.CALENDAR:
            return SlotFinding("calendar", facts={"calendar": _calendar_name(stretch)}, since=gone.at)
        if gone.reason is DropReason.MISFIRE and (stretch.spec.schedule or {}).get("type") == "once":
            found.key = "misfire_once"
        pause = await self._pause(instant_of(slot), gone.at)
        if pause is not None:
            return _paused("paused_dropped", pause, **facts)
        outage = await self._outage(instant_of(slot), gone.at)
        if outage is not None:
            found.more += [_was_down(outage), *_why_down(outage)]
        return found

    async def _slot_run(self, history: TaskHistory, stretch: VersionSpan, recorded: SlotRun) -> SlotFinding:
        run = await self._store.run(recorded.run_id)
        if run is None:  # removed since
            return SlotFinding("cleaned", facts={"last": recorded.slot})
        return await self._run(history, stretch, run, is_slot=True)

    async def _run(self, history: TaskHistory, stretch: VersionSpan, run: Run, *, is_slot: bool) -> SlotFinding:
        """By its status. `is_slot`: it was born of one, so it may have been planned late."""
        details = run.error_details or {}
        match run.status:
            case RunStatus.SKIPPED:
                found = skipped(stretch, run, details)
            case RunStatus.CANCELED:
                found = canceled(run, details)
            case RunStatus.SCHEDULED:
                found = await self._waits(history, run)
            case RunStatus.RETRYING:
                found = await self._retries(history, run)
            case RunStatus.RUNNING | RunStatus.CALLBACK_PENDING:
                found = under_way(run)
                found.more += _was_held(history, stretch, run)
                if run.status is RunStatus.RUNNING and run.worker_id is None:
                    await self._note_children(run, found)
            case _ if details.get("kind") == "lost" or (details.get("kind") == "unknown" and run.lost_count):
                found = SlotFinding("lost", facts=ended(run))
            case _:
                found = await self._ran(history, stretch, run, is_slot=is_slot)
        found.run_id = run.id
        found.facts["run"] = run.id
        if run.moved_to is not None:
            found.more += _was_moved(stretch, run.scheduled_time, run.moved_to)
        return found

    async def _note_children(self, run: Run, found: SlotFinding) -> None:
        """It is under way without a worker: perhaps it waits for the children that it has spawned."""
        active = tuple(status for status in RunStatus if status not in FINAL)
        query = RunQuery(parent_id=run.id, origin=Origin.SPAWN, status=active, page_size=1)
        count = (await self._store.runs(query)).total
        if count:
            found.key, found.facts = "running_children", {"count": count, "attempt": run.attempt}

    async def _ran(self, history: TaskHistory, stretch: VersionSpan, run: Run, *, is_slot: bool) -> SlotFinding:
        due_at = run.scheduled_time if run.moved_to is None else run.moved_to
        late = (run.created_at - due_at) / SECOND
        if is_slot and late > stretch.spec.misfire_grace_seconds:
            facts = {"planned": run.created_at, "span": late, "status": run.status}
            pause = await self._pause(due_at, run.created_at)
            if pause is not None:
                return _paused("paused_ran", pause, **facts)
            outage = await self._outage(due_at, run.created_at)
            if outage is None:
                return SlotFinding("planner_late", facts=facts)
            facts |= {"since": outage.since, "until": outage.until}
            return SlotFinding("store_down", facts=facts, since=outage.since, more=_why_down(outage))
        found = SlotFinding("ran", "ran" if run.status in SUCCEEDED else "ran_badly", facts=ended(run))
        waited = ((run.start_time or run.run_at) - run.run_at) / SECOND
        if held := _was_held(history, stretch, run):
            found.more += held
        elif waited > stretch.spec.misfire_grace_seconds and run.attempt <= 1:
            found.more += await self._late_start(run, waited)
        return found

    async def _late_start(self, run: Run, waited: float) -> list[tuple[str, dict[str, Any]]]:
        start = run.start_time or run.run_at
        everything = await self._pause(run.run_at, start)
        if everything is not None:
            return [("and_all_was_paused", {**_of_pause(everything), "span": waited}), *_why_paused(everything)]
        pauses = await self._store.pauses(run.queue, run.run_at, start)
        if pauses:
            last = pauses[-1]
            told = {"queue": run.queue, "actor": last.by, "since": last.since, "until": last.until or start}
            return [("and_paused", {"span": waited, **told})]
        outage = await self._outage(run.run_at, start)
        return [("and_late", {"span": waited}), *([] if outage is None else [_was_down(outage), *_why_down(outage)])]

    async def _retries(self, history: TaskHistory, run: Run) -> SlotFinding:
        """Until its time has come it is under way; then it waits as any other does."""
        is_due = run.next_retry_time is not None and run.next_retry_time <= history.now
        found = await self._waits(history, run) if is_due else under_way(run)
        return under_way(run) if found.cause == "waiting" else found

    async def _waits(self, history: TaskHistory, run: Run) -> SlotFinding:
        waits = await self._store.wait(run.id)
        why = (
            BlockedReason("waiting")
            if waits is None
            else blocked_reason(waits, run, await self._store.workers(), history.now)
        )
        found = SlotFinding(why.cause, why.key, facts=dict(why.facts), more=list(why.more))
        found.actor, found.since, found.blocking_run_id = why.actor, why.since, why.blocking_run_id
        if why.cause == "waiting" and run.lost_count:
            found.cause, found.key, found.facts = "lost", "lost_waiting", {"losses": run.lost_count}
        return found

    async def _pause(self, since: Instant, until: Instant) -> InstallationPause | None:
        """The last time that everything was paused within the stretch."""
        found = await self._store.installation_pauses(since, until)
        return found[-1] if found else None

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


def _newest_under_calendar(history: TaskHistory) -> int | None:
    """The last slot by effective time that is due or accounted for, of the last month."""
    placed = history.stretches[-1].placement
    task = history.task
    until = max(task.accounted_to, min(task.next_fire_at or history.now, history.now))
    if placed is None or until <= 0:
        return None
    last = int(slot_of(until))
    found = Placement(placed.schedule, placed.days, placed.bounds).due(last - _MONTH, last, 1, 1)
    named = [one for one in (*found.newest, *found.closed) if any(part.names(one.slot) for part in history.stretches)]
    return max(named).slot if named else None


def _moved_here(history: TaskHistory, at: int) -> int | None:
    """The last of the slots that a calendar has moved to this moment."""
    for stretch in reversed(history.stretches):
        if stretch.placement is not None:
            placed = Placement(stretch.placement.schedule, stretch.placement.days, stretch.bounds)
            found = placed.due(at, at, 1, 0).newest
            if found and any(one.names(found[-1].slot) and one.version == stretch.version for one in history.stretches):
                return found[-1].slot
    return None


def _calendar_name(stretch: VersionSpan) -> str:
    return "" if stretch.spec.calendar is None else stretch.spec.calendar.name


def _was_moved(stretch: VersionSpan, slot: Instant, at: Instant) -> list[tuple[str, dict[str, Any]]]:
    return [("and_moved", {"slot": slot, "at": at, "calendar": _calendar_name(stretch)})]


def _of_pause(pause: InstallationPause) -> dict[str, Any]:
    """For the sentences: who, and from when to when."""
    return {"actor": pause.by, "since": pause.since, "until": pause.until}


def _why_paused(pause: InstallationPause) -> list[tuple[str, dict[str, Any]]]:
    return [("and_pause_reason", {"reason": pause.reason})] if pause.reason else []


def _was_down(outage: Outage) -> tuple[str, dict[str, Any]]:
    return "and_store_was_down", {"since": outage.since, "until": outage.until}


def _why_down(outage: Outage) -> list[tuple[str, dict[str, Any]]]:
    return [("and_why_down", {"reason": outage.reason})] if outage.reason else []


CAUSES: Final = (
    *("ran", "running", "waiting", "not_a_slot", "overlap", "failure", "backoff", "circuit_open", "concurrency"),
    *("queue_full", "rate_limited", "queue_paused", "no_worker", "misfire", "catchup_cap", "disabled", "completed"),
    *("error", "deleted", "canceled", "lost", "planner_late", "store_down"),
    "paused",
    *("operator", "cleaned", "missing", "upstream", "upstream_missing", "key_full", "expired", "calendar", "quiet"),
    "store_went_back",
)
"""Those of the contract; everything was paused; then a skip that an operator asked for, what retention removed, what must never be, an upstream
that did not end as it had to, a join whose time ran out, a key of which as many runs as may be are under way, a run that no
worker had claimed by its time, a slot whose day is closed, quiet hours, and what a store that lost its last commits may have delivered.
"""


@dataclass(slots=True)
class SlotFinding:
    """A cause and all that is known of it; `key` names the sentence where a cause has several."""

    cause: str
    key: str = ""
    slot: int | None = None
    run_id: RunId | None = None
    blocking_run_id: int | None = None
    actor: str | None = None
    since: Instant | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """For the sentence: an `Instant` is written as a time, a float as a span, anything else as it is."""
    more: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Sentences that follow."""


def _was_held(history: TaskHistory, stretch: VersionSpan, run: Run) -> list[tuple[str, dict[str, Any]]]:
    """That quiet hours of its task held a run which has started since: known from the version of the task, where no later one
    changed them meanwhile. What the quiet hours of its queue held is not written down.
    """
    if run.origin is Origin.TRIGGER or run.start_time is None or run.attempt > 1:
        return []
    spec = stretch.spec
    quiet = quiet_at(spec.quiet, spec.timezone, run.run_at)
    if quiet is None or quiet.action is QuietAction.SKIP or run.start_time < quiet.until:
        return []
    later = history.stretches[history.stretches.index(stretch) + 1 :]
    if any(one.valid_from < quiet.until and one.spec.quiet != spec.quiet for one in later):
        return []
    return [("and_quiet", {"until": quiet.until})]


def _following(wait: UpstreamFinding) -> SlotFinding:
    blocking = wait.facts.get("blocking")
    return SlotFinding(
        wait.cause, wait.key, since=wait.since, facts=wait.facts, more=wait.more, blocking_run_id=blocking
    )


def _paused(key: str, pause: InstallationPause, **facts: Any) -> SlotFinding:
    return SlotFinding(
        "paused",
        key,
        actor=pause.by,
        since=pause.since,
        facts={**facts, **_of_pause(pause)},
        more=_why_paused(pause),
    )


def off(history: TaskHistory, stretch: VersionSpan) -> SlotFinding:
    found = SlotFinding(str(stretch.state), since=stretch.since, actor=stretch.by)
    found.facts = {"actor": stretch.by, "since": stretch.since}
    later = history.stretches[history.stretches.index(stretch) + 1 :]
    back = next((one for one in later if one.state is State.ON), None)
    if stretch.state is State.OFF and back is not None:
        found.more.append(("and_back_on", {"actor": back.by, "since": back.since}))
    return found


_RULE = ("schedule", "schedules", "exclude", "dst", "timezone")


def no_slot(history: TaskHistory, stretch: VersionSpan, slot: int) -> SlotFinding:
    at = instant_of(slot)
    if stretch.schedule is None:
        return SlotFinding("not_a_slot", "not_a_slot_on_demand")
    before, after = _neighbours(history, slot)
    found = SlotFinding("not_a_slot", facts={"at": at, "before": before, "after": after, "rule": stretch})
    if isinstance(stretch.schedule, Composed) and stretch.bounds.admit(slot) and stretch.schedule.excludes(slot):
        found.key = "not_a_slot_excluded"
        return found
    place = history.stretches.index(stretch)
    for number in range(place, 0, -1):
        old, new = history.stretches[number - 1], history.stretches[number]
        if all(getattr(old.spec, name) == getattr(new.spec, name) for name in _RULE):
            continue
        version_since, by = new.valid_from, new.changed_by
        if old.would_name(slot):
            found.key, found.actor, found.since = "not_a_slot_changed", by, version_since
            found.facts |= {"actor": by, "since": version_since}
        break
    return found


def _neighbours(history: TaskHistory, slot: int) -> tuple[Instant | None, Instant | None]:
    before = next((at for one in reversed(history.stretches) if (at := one.previous(slot)) is not None), None)
    after = next((at for one in history.stretches if (at := next(one.slots(slot), None)) is not None), None)
    if after is None and history.task.next_fire_at is not None and history.task.next_fire_at > instant_of(slot):
        after = int(slot_of(history.task.next_fire_at))
    return (None if before is None else instant_of(before)), (None if after is None else instant_of(after))


def unrecorded(history: TaskHistory, stretch: VersionSpan, slot: int) -> SlotFinding:
    if stretch.remaining is not None and stretch.count(stretch.after, slot) > stretch.remaining:
        later = history.stretches[history.stretches.index(stretch) + 1 :]
        return off(history, later[0]) if later else SlotFinding("completed", facts={"since": history.now})
    if history.cleaned.count and instant_of(slot) <= history.cleaned.last:
        return SlotFinding(str(SlotOutcome.CLEANED), facts={"last": history.cleaned.last})
    return SlotFinding(str(SlotOutcome.MISSING))


def skipped(stretch: VersionSpan, run: Run, details: Mapping[str, Any]) -> SlotFinding:
    spec, cause = stretch.spec, str(run.skip_reason)
    blocking = details.get("blocking_run_id")
    found = SlotFinding(cause, blocking_run_id=blocking, actor=details.get("by"))
    if cause == "concurrency" and spec.max_concurrency == 0:
        found.key = "concurrency_none"
    found.facts = {
        "blocking": blocking,
        "actor": found.actor,
        "failures": spec.circuit.failures,
        "span": float(spec.circuit.cool_down_seconds),
        "limit": spec.queue_depth if cause == "queue_full" else spec.max_concurrency,
    }
    if run.skip_reason is SkipReason.CALENDAR:
        found.facts["calendar"] = _calendar_name(stretch)
    if run.skip_reason is SkipReason.EXPIRED:
        found.since = run.end_time
        found.facts |= {"span": ((run.expires_at or run.run_at) - run.run_at) / SECOND, "until": run.expires_at}
    if run.skip_reason is SkipReason.UPSTREAM_MISSING:
        found.facts |= {"missing": _named(details.get("missing") or {}), "span": _waited(run, details)}
    return found


def _named(missing: Mapping[str, str | None]) -> str:
    """`load, extract (FAILED)`: a task with the status of its run, if it had one."""
    return ", ".join(name if status is None else f"{name} ({status})" for name, status in missing.items())


def _waited(run: Run, details: Mapping[str, Any]) -> float:
    return (run.created_at - int(details.get("since") or run.created_at)) / SECOND


def canceled(run: Run, details: Mapping[str, Any]) -> SlotFinding:
    why = {"deleted": "deleted", "error": "error"}.get(details.get("why", ""), "canceled")
    key = "canceled_replaced" if details.get("why") == "replaced" else f"{why}_canceled" if why != "canceled" else why
    found = SlotFinding(why, key, actor=details.get("by"), since=run.end_time, facts=ended(run))
    found.facts["actor"] = found.actor
    return found


def under_way(run: Run) -> SlotFinding:
    facts: dict[str, Any] = {"attempt": run.attempt, "started": run.start_time, "worker": run.worker_id}
    if run.status is RunStatus.CALLBACK_PENDING:
        return SlotFinding("running", "running_callback", since=run.start_time, facts={"until": run.callback_deadline})
    if run.status is RunStatus.RETRYING:
        facts |= {
            "until": run.next_retry_time,
            "error": None if run.error_message is None else FailureFact(run.error_message, run.error_details),
        }
        return SlotFinding("running", "running_retry", since=run.start_time, facts=facts)
    if run.worker_id is None:  # a flow or a fan-out: its parts have workers
        return SlotFinding("running", "running_parts", since=run.start_time, facts={"started": run.start_time})
    return SlotFinding("running", since=run.start_time, facts=facts)


def ended(run: Run) -> dict[str, Any]:
    return {
        "started": run.start_time,
        "ended": run.end_time,
        "status": run.status,
        "error": FailureFact(run.error_message or "", run.error_details),
        "worker": run.worker_id,
    }


@dataclass(frozen=True, slots=True)
class BlockedReason:
    cause: str
    key: str = ""
    actor: str | None = None
    since: Instant | None = None
    blocking_run_id: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    more: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Sentences that follow."""


_MOST_NAMED: Final = 20
"""Job types and workers that a sentence names, at most."""

_SENTENCES: Final = {
    Lack.QUEUE: "no_worker",
    Lack.JOB_TYPE: "no_worker_type",
    Lack.VERSION: "no_worker_version",
    Lack.LABELS: "no_worker_labels",
    Lack.NAMED: "no_worker_named",
    Lack.PART: "no_worker_part",
}


def blocked_reason(wait: Wait, run: Run, workers: Sequence[WorkerInfo], now: Instant) -> BlockedReason:
    """A pause first, then a worker that is missing: while these last, no limit matters."""
    if wait.until is not None and wait.is_quiet:
        return BlockedReason("quiet", "quiet_held", since=run.run_at, facts={"until": wait.until})
    if wait.until is not None and wait.rated_until is None:
        return BlockedReason("waiting", "waiting_until", facts={"until": wait.until})
    if wait.all_paused is not None:
        everything = wait.all_paused
        facts = _of_pause(everything)
        more = _why_paused(everything)
        return BlockedReason("paused", actor=everything.by, since=everything.since, facts=facts, more=more)
    if wait.paused is not None:
        pause = wait.paused
        facts = {"queue": pause.queue, "actor": pause.by, "since": pause.since}
        return BlockedReason("queue_paused", actor=pause.by, since=pause.since, facts=facts)
    missing = lack(workers, _wanted(wait, run.queue))
    if missing is not None:
        return _no_worker(missing, wait, run.queue, workers)
    if wait.key is not None:
        held = {"key": wait.key, "limit": wait.key_limit, "count": wait.key_running, "ahead": wait.key_before}
        sentence = "key_full" if wait.key else "key_full_empty"
        return BlockedReason("key_full", sentence, blocking_run_id=wait.blocking_run_id, facts=held)
    if wait.limit is not None:
        key = "concurrency_wait" if wait.limit else "concurrency_shut"
        taken: dict[str, Any] = {"limit": wait.limit, "blocking": wait.blocking_run_id}
        return BlockedReason("concurrency", key, blocking_run_id=wait.blocking_run_id, facts=taken)
    if wait.rated_until is not None and wait.rated_until > now:
        facts = {"until": wait.rated_until, **({} if wait.rate_key is None else {"key": wait.rate_key})}
        sentence = "rate_limited" if wait.rate_key is None else "rate_limited_key"
        return BlockedReason("rate_limited", sentence, since=None, facts=facts)
    return BlockedReason("waiting")


def _wanted(wait: Wait, queue: str) -> WorkerNeeds:
    return WorkerNeeds(
        queue=queue,
        job_type=wait.job_type,
        min_version=wait.min_version,
        workers=frozenset(wait.workers) if wait.workers else None,
        labels=frozenset(wait.labels),
        had=frozenset(wait.had),
    )


def _no_worker(missing: Lack, wait: Wait, queue: str, workers: Sequence[WorkerInfo]) -> BlockedReason:
    kind = OWN_QUEUES.get(queue)
    facts: dict[str, Any] = {
        "queue": queue,
        "job_type": COMMANDS.name
        if wait.job_type == COMMAND_TYPE
        else wait.job_type or (HTTP if kind is None else kind).name,
        "version": wait.min_version,
        "names": named(wait.workers),
    }
    if wait.job_type == COMMAND_TYPE and missing in (Lack.QUEUE, Lack.JOB_TYPE):
        return BlockedReason("no_worker", "no_worker_commands", facts=facts)
    if missing is Lack.QUEUE and kind is not None and kind.extra is not None:
        facts |= {"kind": kind.name, "install": how_to_install(kind)}
        return BlockedReason("no_worker", "no_worker_client", facts=facts)
    found = BlockedReason("no_worker", _SENTENCES[missing], facts=facts)
    if missing is Lack.LABELS:
        found.facts["names"] = named(_missing_labels(wait.labels, queue, workers))
    if missing is Lack.JOB_TYPE and scope.current() is None:  # the names of other jobs are not for a token with a scope
        known = {name for one in workers if takes_runs(one) and queue in one.queues for name in one.job_types or ()}
        known.discard(CALL_TYPE)
        found.more.append(("and_known", {"types": named(sorted(known))}))
    return found


def _missing_labels(wanted: Sequence[str], queue: str, workers: Sequence[WorkerInfo]) -> list[str]:
    """Those that no worker of the queue has; all, where each is there and no worker has them together."""
    there = {pair for one in workers if takes_runs(one) and queue in one.queues for pair in label_pairs(one.labels)}
    return [pair for pair in wanted if pair not in there] or list(wanted)


def named(names: Sequence[str]) -> str | None:
    """Some of them, for a sentence; None where there are none."""
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown}, …" if len(names) > _MOST_NAMED else shown or None


_POLICIES: Final[Mapping[str, tuple[str, ...]]] = {
    "overlap": ("overlap_action",),
    "failure": ("failure_action",),
    "backoff": ("failure_action", "retry_policy"),
    "circuit_open": ("failure_action", "circuit"),
    "concurrency": ("concurrency_policy", "max_concurrency"),
    "queue_full": ("concurrency_policy", "max_concurrency", "queue_depth"),
    "rate_limited": ("rate_limit",),
    "key_full": ("concurrency_key", "max_per_key"),
    "misfire": ("misfire_policy", "misfire_grace_seconds"),
    "catchup_cap": ("misfire_policy",),
    "store_went_back": ("delivery",),
    "paused_dropped": ("misfire_policy", "misfire_grace_seconds"),
    "lost": ("on_lost", "max_lost"),
    "expired": ("expires_in_seconds",),
    "calendar": ("calendar",),
    "quiet": ("quiet", "spread_seconds"),
    "canceled_replaced": ("overlap_action",),
}
"""The fields of a task that decided, by cause or by the key of the sentence."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    cause: Annotated[str, meta(examples=["overlap"], schema={"enum": list(CAUSES)})]
    message: Annotated[str, meta(examples=["Skipped: run 7340031 of the task was not over yet (overlap_action SKIP)."])]
    slot: Annotated[Moment | None, meta("Null where the moment is none.")]
    run_id: Annotated[RunId | None, meta(examples=[7340033])]
    blocking_run_id: Annotated[RunId | None, meta("The run that stood in the way.", examples=[7340031])]
    policy: Annotated[
        dict[str, Any] | None,
        meta("The fields of the task that decided, with their values then.", examples=[{"overlap_action": "SKIP"}]),
    ]
    actor: Annotated[str | None, meta("Who disabled, deleted, paused, canceled or skipped.", examples=[None])]
    since: Annotated[Moment | None, meta("Since when, or when it happened.", examples=[None])]
    next_slot: Annotated[Moment | None, meta("When it fires next.", examples=["2026-11-15T02:35:00Z"])]


def shown(history: TaskHistory, found: SlotFinding, lang: str) -> dict[str, Any]:
    told = _Teller(history, found, lang)
    return {
        "cause": found.cause,
        "message": " ".join(told.sentences()),
        "slot": None if found.slot is None else rfc3339(instant_of(found.slot)),
        "run_id": found.run_id,
        "blocking_run_id": found.blocking_run_id,
        "policy": _policy(told.spec, found),
        "actor": found.actor,
        "since": None if found.since is None else rfc3339(found.since),
        "next_slot": None if history.task.next_fire_at is None else rfc3339(history.task.next_fire_at),
    }


def _policy(spec: TaskSpec, found: SlotFinding) -> dict[str, Any] | None:
    names = _POLICIES.get(found.key) or _POLICIES.get(found.cause)
    return None if names is None else {name: getattr(spec, name) for name in names}


class _Teller:
    """Facts as words: times in the zone that the task had."""

    def __init__(self, history: TaskHistory, found: SlotFinding, lang: str) -> None:
        stretch = None if found.slot is None else history.at(found.slot)
        self.spec = history.task.spec if stretch is None else stretch.spec
        self._found, self._words, self._zone = found, Translator(lang), zones.find(self.spec.timezone)

    def sentences(self) -> list[str]:
        said = [(self._found.key or self._found.cause, self._found.facts), *self._found.more]
        told = [(key, {name: self._word(name, value) for name, value in facts.items()}) for key, facts in said]
        return [self._words(f"finding.{key}", **facts) for key, facts in told]

    def _word(self, name: str, value: Any) -> str:
        if isinstance(value, VersionSpan):
            return "" if value.schedule is None else value.schedule.describe(self._words.lang)
        if isinstance(value, FailureFact):
            return value.in_words(self._words)
        if value is None:
            return self._words("finding_word.somebody" if name == "actor" else "finding_word.none")
        if name in TIMES:
            return self._zone.local(int(slot_of(value))).isoformat(" ")
        return span(value, self._words) if name == "span" else str(value)


def span(seconds: float, words: Translator) -> str:
    """The two largest units that say something: `3 d 13 h`, `12 min 5 s`, `0 s`."""
    days, rest = divmod(max(0, int(seconds)), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    begin = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(
        f"{count} {words(f'finding_unit.{unit}')}" for count, unit in parts[begin : begin + 2] if count or begin == 3
    )


TIMES: Final = frozenset(
    {"at", "slot", "started", "ended", "since", "until", "planned", "before", "after", "last"},
)
"""The facts that are moments, of all sentences."""
