"""Why did, or didn't, this task run at T? One cause, one sentence, and the runs, people and times behind it.

First where the moment lies in the task's history (`service.account`), then what was recorded of it, then, for a run
that has not started, what blocks it (`blocked_reason`). A run that was planned long after its slot ran late because no
node planned; where a node noted that it could not reach the store meanwhile, that was the reason. The sentences are in
`locales/`, as `finding.…`.

What a task that runs after others waits for, or why nothing followed, is found by its joins and by the runs of its upstreams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.errors import NotFound
from noonbell.model.account import Activity, InstallationPause, Outage, SlotRun
from noonbell.model.flow import OPEN_STEP, StepStatus
from noonbell.model.request import RunQuery
from noonbell.model.run import FAILURES, FINAL, SUCCEEDED, DroppedRange, DropReason, Origin, Run, RunId, RunStatus
from noonbell.model.task import Task, TaskId
from noonbell.model.task_schedule import After, Join, JoinState, Upstream
from noonbell.model.worker import is_scheduler_alive
from noonbell.policy import joins as policy
from noonbell.policy.slot_history import State, VersionSpan
from noonbell.ports import Store
from noonbell.service import scope
from noonbell.service.account import TaskHistory, task_history
from noonbell.service.explain_findings import (
    SlotFinding,
    blocked_reason,
    calendar_name,
    canceled,
    ended,
    named,
    no_slot,
    of_pause,
    off,
    paused,
    skipped,
    under_way,
    unrecorded,
    was_down,
    was_held,
    was_moved,
    why_down,
    why_paused,
)
from noonbell.service.explain_words import shown
from noonbell.service.filters import cursor_at
from noonbell.service.service_levels import sentences_of
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
        """Explain a slot or a run of the task. Without a moment: the state that keeps it from running, else its
        newest slot, else its next.
        """
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
        """Of a step or a child: which run it belongs to. Of a flow: how its steps stand."""
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
        return told if run.status in FINAL else [*told, *await self._why_held(run)]

    async def _why_held(self, parent: Run) -> list[tuple[str, dict[str, Any]]]:
        """Of the first step or child that waits for more than a worker to take it: for what."""
        query = RunQuery(parent_id=parent.id, status=(RunStatus.SCHEDULED,), sort="id", page_size=1)
        for part in (await self._store.runs(query)).items:
            (task,) = scope.held(await self._store.tasks_by_id([part.task_id])) or (None,)
            if task is not None:
                found = await self._waits(await task_history(self._store, task), part)
                if found.cause != "waiting":
                    return [(found.key or found.cause, {**found.facts, "run": part.id}), *found.more]
        return []

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
        wait = None if after is None else await open_wait(self._store, task.id, after)
        if wait is not None:
            return wait
        run = None if activity.last_run_id is None else await self._store.run(activity.last_run_id)
        if run is None or newest.schedule is not None:
            return None
        found = await self._run(history, newest, run, is_slot=False)
        found.more += [] if after is None else await ended_otherwise(self._store, after, run)
        return found

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
        wait = await at_slot(self._store, history.task.id, after, at)
        run = None if wait is None or wait.run_id is None else await self._store.run(wait.run_id)
        if run is not None:
            return await self._run(history, stretch, run, is_slot=False)
        return None if wait is None or wait.run_id is not None else wait

    # What was recorded

    async def _without_run(self, history: TaskHistory, stretch: VersionSpan, slot: int) -> SlotFinding:
        dropped = await self._store.dropped(history.task.id, instant_of(slot), instant_of(slot))
        named = stretch.names(slot) or (
            stretch.is_chained and bool(dropped or history.task.next_fire_at == slot * SECOND)
        )
        if stretch.state is not State.ON and (named or stretch.schedule is None or stretch.is_chained):
            return off(history, stretch)
        if not named and stretch.schedule is None and stretch.spec.after is not None:
            return await nothing_yet(self._store, stretch.spec.after)
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
            return SlotFinding("calendar", "calendar_to_come", facts={"calendar": calendar_name(stretch)})
        if late < 0:
            to_come = SlotFinding("waiting", "waiting_to_come", facts={"slot": instant_of(placed.at), "span": -late})
            to_come.more += was_moved(stretch, instant_of(slot), instant_of(placed.at)) if placed.is_moved else []
            to_come.more += [] if pause is None else [("and_all_paused", of_pause(pause)), *why_paused(pause)]
            return to_come
        if pause is not None:
            return paused("paused_due", pause)
        if late <= stretch.spec.misfire_grace_seconds:
            return SlotFinding("waiting", "waiting_due")
        return SlotFinding("planner_late", "planner_late_due", facts={"span": late})

    async def _dropped(self, stretch: VersionSpan, slot: int, gone: DroppedRange) -> SlotFinding:
        facts = {"planned": gone.at, "last": gone.last, "count": gone.count, "policy": stretch.spec.misfire_policy}
        found = SlotFinding(str(gone.reason), facts=facts, since=gone.at)
        if gone.reason is DropReason.CALENDAR:
            return SlotFinding("calendar", facts={"calendar": calendar_name(stretch)}, since=gone.at)
        if gone.reason is DropReason.MISFIRE and (stretch.spec.schedule or {}).get("type") == "once":
            found.key = "misfire_once"
        pause = await self._pause(instant_of(slot), gone.at)
        if pause is not None:
            return paused("paused_dropped", pause, **facts)
        outage = await self._outage(instant_of(slot), gone.at)
        if outage is not None:
            found.more += [was_down(outage), *why_down(outage)]
        return found

    async def _slot_run(self, history: TaskHistory, stretch: VersionSpan, recorded: SlotRun) -> SlotFinding:
        run = await self._store.run(recorded.run_id)
        if run is None:  # removed since
            return SlotFinding("cleaned", facts={"last": recorded.slot})
        return await self._run(history, stretch, run, is_slot=True)

    async def _run(self, history: TaskHistory, stretch: VersionSpan, run: Run, *, is_slot: bool) -> SlotFinding:
        """Explain a run by its status. `is_slot`: a slot made it, so the planner may have been late."""
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
                found.more += was_held(history, stretch, run)
                if run.status is RunStatus.RUNNING and run.worker_id is None:
                    await self._note_children(run, found)
            case _ if details.get("kind") == "lost" or (details.get("kind") == "unknown" and run.lost_count):
                found = SlotFinding("lost", facts=ended(run))
            case _:
                found = await self._ran(history, stretch, run, is_slot=is_slot)
        found.run_id = run.id
        found.facts["run"] = run.id
        if run.moved_to is not None:
            found.more += was_moved(stretch, run.scheduled_time, run.moved_to)
        return found

    async def _note_children(self, run: Run, found: SlotFinding) -> None:
        """It is under way without a worker: perhaps it waits for the children that it has spawned."""
        active = tuple(status for status in RunStatus if status not in FINAL)
        query = RunQuery(parent_id=run.id, origin=Origin.SPAWN, status=active, page_size=1)
        count = (await self._store.runs(query)).total
        if count:
            found.key, found.facts = "running_children", {"count": count, "attempt": run.attempt}
            found.more += await self._why_held(run)

    async def _ran(self, history: TaskHistory, stretch: VersionSpan, run: Run, *, is_slot: bool) -> SlotFinding:
        due_at = run.scheduled_time if run.moved_to is None else run.moved_to
        late = (run.created_at - due_at) / SECOND
        if is_slot and late > stretch.spec.misfire_grace_seconds:
            facts = {"planned": run.created_at, "span": late, "status": run.status}
            pause = await self._pause(due_at, run.created_at)
            if pause is not None:
                return paused("paused_ran", pause, **facts)
            outage = await self._outage(due_at, run.created_at)
            if outage is None:
                return SlotFinding("planner_late", facts=facts)
            facts |= {"since": outage.since, "until": outage.until}
            return SlotFinding("store_down", facts=facts, since=outage.since, more=why_down(outage))
        found = SlotFinding("ran", "ran" if run.status in SUCCEEDED else "ran_badly", facts=ended(run))
        if run.attempt > 1 and (first := await self._store.attempts(run.id, limit=1)):
            found.more.append(("and_retried", {"attempt": run.attempt, "started": first[0].start_time}))
        waited = ((run.start_time or run.run_at) - run.run_at) / SECOND
        if held := was_held(history, stretch, run):
            found.more += held
        elif waited > stretch.spec.misfire_grace_seconds and run.attempt <= 1:
            found.more += await self._late_start(run, waited)
        return found

    async def _late_start(self, run: Run, waited: float) -> list[tuple[str, dict[str, Any]]]:
        start = run.start_time or run.run_at
        everything = await self._pause(run.run_at, start)
        if everything is not None:
            return [("and_all_was_paused", {**of_pause(everything), "span": waited}), *why_paused(everything)]
        pauses = await self._store.pauses(run.queue, run.run_at, start)
        if pauses:
            last = pauses[-1]
            told = {"queue": run.queue, "actor": last.by, "since": last.since, "until": last.until or start}
            return [("and_paused", {"span": waited, **told}), *why_paused(last)]
        outage = await self._outage(run.run_at, start)
        return [("and_late", {"span": waited}), *([] if outage is None else [was_down(outage), *why_down(outage)])]

    async def _retries(self, history: TaskHistory, run: Run) -> SlotFinding:
        """Until its time has come it is under way; then it waits as any other does."""
        is_due = run.next_retry_time is not None and run.next_retry_time <= history.now
        found = await self._waits(history, run) if is_due else under_way(run)
        return under_way(run) if found.cause == "waiting" else found

    async def _waits(self, history: TaskHistory, run: Run) -> SlotFinding:
        waits = await self._store.wait(run.id)
        found = (
            SlotFinding("waiting")
            if waits is None
            else blocked_reason(waits, run, await self._store.workers(), history.now)
        )
        if found.cause == "waiting" and run.lost_count:
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


async def names_of(store: Store, after: After) -> dict[int, str]:
    found = await store.tasks_by_id([TaskId(id_) for id_ in after.upstream_ids])
    names = {int(task.id): task.name for task in scope.held(found)}
    return {id_: names[id_] for id_ in after.upstream_ids if id_ in names}


async def nothing_yet(store: Store, after: After) -> SlotFinding:
    """A task without a schedule, and without anything that says more: what it runs after."""
    tasks = await store.tasks_by_id([TaskId(id_) for id_ in after.upstream_ids])
    gone = [task.name for task in scope.held(tasks) if task.deleted_at is not None]
    names = ", ".join((await names_of(store, after)).values())
    more = [("and_upstream_deleted", {"names": ", ".join(gone)})] if gone else []
    more += await ended_otherwise(store, after)
    return SlotFinding("not_a_slot", "not_a_slot_after", facts={"names": names}, more=more)


async def ended_otherwise(store: Store, after: After, last: Run | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Of upstreams whose newest run has ended since `last` was made, and not as the task asks for."""
    names = await names_of(store, after)
    newest = await store.newest_runs([TaskId(id_) for id_ in names], 1)
    told: list[tuple[str, dict[str, Any]]] = []
    for upstream in after.tasks:
        (run, *_) = newest.get(TaskId(int(upstream.task))) or (None,)
        if run is None or run.status not in FINAL or policy.matches(upstream.on, run.status):
            continue
        if last is None or run.id > last.id:
            facts = {"name": names[run.task_id], "status": run.status, "on": upstream.on}
            told.append(("and_upstream_run_ended", facts))
    return told


async def open_wait(store: Store, task_id: TaskId, after: After) -> SlotFinding | None:
    """What the newest open join of a task waits for."""
    (join, *_) = (await store.joins(task_id, limit=1)) or (None,)
    return None if join is None else _waiting(join, after, await names_of(store, after))


async def at_slot(store: Store, task_id: TaskId, after: After, slot: Instant) -> SlotFinding | None:
    """What became, or becomes, of a slot that upstreams have carried on; None where they have none. With `run_id`, the
    run that the join has made: it says the rest.
    """
    root = f"slot:{slot}"
    (join, *_) = (await store.joins(task_id, root, 1)) or (None,)
    names = await names_of(store, after)
    if join is not None and join.run_id is not None:
        return SlotFinding("ran", "ran", run_id=RunId(join.run_id))
    if join is not None and join.state is JoinState.OPEN:
        return _waiting(join, after, names)
    if join is not None:
        return SlotFinding("disabled", "upstream_disabled", facts={"slot": slot})
    return await _before_a_join(store, after, names, slot)


def _waiting(join: Join, after: After, names: Mapping[int, str]) -> SlotFinding:
    left = policy.missing(after, join.arrivals)
    on = {each.task: each.on for each in after.tasks}
    facts = {"missing": _listed(names, left), "slot": join.scheduled_time, "until": join.due_at}
    is_slot = join.root.startswith("slot:")
    key = "waiting_upstream" if is_slot else "waiting_upstream_run"
    found = SlotFinding("waiting", key, since=join.first_at, facts=facts)
    for id_, status in left.items():
        if status is not None:
            told = {"name": names.get(id_, id_), "slot": join.scheduled_time, "status": status, "on": on[id_]}
            found.more.append(("and_upstream_ended" if is_slot else "and_upstream_run_ended", told))
    return found


async def _before_a_join(store: Store, after: After, names: Mapping[int, str], slot: Instant) -> SlotFinding | None:
    pending: list[int] = []
    for upstream in after.tasks:
        id_ = TaskId(int(upstream.task))
        run = await _run_at(store, id_, slot)
        if run is not None and run.status in FINAL:
            return _unmatched(upstream, names, run, slot)
        dropped = [] if run is not None else await store.dropped(id_, slot, slot)
        if dropped:
            facts = {"name": names.get(id_, id_), "slot": slot, "reason": dropped[0].reason}
            return SlotFinding("upstream", "upstream_dropped", since=dropped[0].at, facts=facts)
        if run is not None or await store.joins(id_, f"slot:{slot}", 1):
            pending.append(id_)
    if not pending:
        return None
    return SlotFinding("waiting", "waiting_upstream_first", facts={"missing": _listed(names, pending), "slot": slot})


def _unmatched(upstream: Upstream, names: Mapping[int, str], run: Run, slot: Instant) -> SlotFinding:
    name = names.get(run.task_id, run.task_id)
    facts = {"name": name, "slot": slot, "status": run.status, "on": upstream.on, "blocking": run.id}
    return SlotFinding("upstream", "upstream_unmatched", since=run.end_time, facts=facts, blocking_run_id=run.id)


async def _run_at(store: Store, task_id: TaskId, slot: Instant) -> Run | None:
    """The run of an upstream that belongs to the slot: its own, or one that follows in turn."""
    (own, *_) = (await store.slot_runs(task_id, slot, slot, 1)) or (None,)
    if own is not None:
        return await store.run(own.run_id)
    (join, *_) = (await store.joins(task_id, f"slot:{slot}", 1)) or (None,)
    return None if join is None or join.run_id is None else await store.run(RunId(join.run_id))


def _listed(names: Mapping[int, str], ids: Any) -> str:
    return ", ".join(str(names.get(id_, id_)) for id_ in ids)
