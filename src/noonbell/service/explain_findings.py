"""What is found of a slot or a run: a cause, and the facts for its sentence; and what keeps a run
that is due from starting. Pure: `explain` reads the store.

The sentences are in `locales/`, as `finding.…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.clock import SECOND, Instant, instant_of, slot_of
from noonbell.fields.kinds import read_moment
from noonbell.model.account import InstallationPause, Outage, Pause, Wait
from noonbell.model.calendar import QuietAction
from noonbell.model.call import CALL_TYPE
from noonbell.model.run import Origin, Run, RunId, RunStatus, SkipReason
from noonbell.model.target_kind import COMMAND_TYPE, COMMANDS, HTTP, OWN_QUEUES
from noonbell.model.task import SCHEDULER_ACTOR
from noonbell.model.worker import Lack, WorkerInfo, label_pairs
from noonbell.policy.quiet import quiet_at
from noonbell.policy.slot_history import State, VersionSpan
from noonbell.policy.workers import WorkerNeeds, lack, takes_runs
from noonbell.service import scope
from noonbell.service.account import SlotOutcome, TaskHistory
from noonbell.service.translation import FailureFact
from noonbell.when import Composed


def calendar_name(stretch: VersionSpan) -> str:
    return "" if stretch.spec.calendar is None else stretch.spec.calendar.name


def was_moved(stretch: VersionSpan, slot: Instant, at: Instant) -> list[tuple[str, dict[str, Any]]]:
    return [("and_moved", {"slot": slot, "at": at, "calendar": calendar_name(stretch)})]


def of_pause(pause: InstallationPause) -> dict[str, Any]:
    """The facts of a pause for its sentence: by whom, and from when to when."""
    return {"actor": pause.by, "since": pause.since, "until": pause.until}


def why_paused(pause: InstallationPause | Pause) -> list[tuple[str, dict[str, Any]]]:
    return [("and_pause_reason", {"reason": pause.reason})] if pause.reason else []


def was_down(outage: Outage) -> tuple[str, dict[str, Any]]:
    return "and_store_was_down", {"since": outage.since, "until": outage.until}


def why_down(outage: Outage) -> list[tuple[str, dict[str, Any]]]:
    return [("and_why_down", {"reason": outage.reason})] if outage.reason else []


CAUSES: Final = (
    *("ran", "running", "waiting", "not_a_slot", "overlap", "failure", "backoff", "circuit_open", "concurrency"),
    *("queue_full", "rate_limited", "queue_paused", "no_worker", "misfire", "catchup_cap", "disabled", "completed"),
    *("error", "deleted", "canceled", "lost", "planner_late", "store_down"),
    "paused",
    *("operator", "cleaned", "missing", "upstream", "upstream_missing", "key_full", "expired", "calendar", "quiet"),
    "store_went_back",
)
"""Those of the contract; everything was paused; then a skip that an operator asked for, what retention removed, what
must never be, an upstream that did not end as it had to, a join whose time ran out, a key of which as many runs as
may be are under way, a run that no worker had claimed by its time, a slot whose day is closed, quiet hours, and what
a store that lost its last commits may have delivered.
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


def was_held(history: TaskHistory, stretch: VersionSpan, run: Run) -> list[tuple[str, dict[str, Any]]]:
    """The note that quiet hours of its task held a run that has started since, if they did: the version of the task
    says so, where no later one changed them meanwhile. What the quiet hours of its queue held is not recorded.
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


def paused(key: str, pause: InstallationPause, **facts: Any) -> SlotFinding:
    return SlotFinding(
        "paused",
        key,
        actor=pause.by,
        since=pause.since,
        facts={**facts, **of_pause(pause)},
        more=why_paused(pause),
    )


def off(history: TaskHistory, stretch: VersionSpan) -> SlotFinding:
    found = SlotFinding(str(stretch.state), since=stretch.since, actor=stretch.by)
    found.facts = {"actor": stretch.by, "since": stretch.since}
    if stretch.state is State.OFF:
        found.more += _of_task_pause(history, stretch)
    return found


def _of_task_pause(history: TaskHistory, stretch: VersionSpan) -> list[tuple[str, dict[str, Any]]]:
    """Why a task was paused, and how that ended or will end. The last word on it counts: an operator may have changed it."""
    place = history.stretches.index(stretch)
    later = history.stretches[place:]
    back = next((number for number, one in enumerate(later) if one.state is State.ON), None)
    last = [one for one in later[:back] if one.state is State.OFF][-1].pause
    told: list[tuple[str, dict[str, Any]]] = []
    if last is not None and last.reason:
        told.append(("and_pause_reason", {"reason": last.reason}))
    if back is not None:
        until, on = None if last is None else last.until, later[back]
        if until is not None and on.by == SCHEDULER_ACTOR:
            return [*told, ("and_pause_over", {"until": until})]
        return [*told, ("and_back_on", {"actor": on.by, "since": on.since})]
    if last is not None and last.until is not None and stretch.state is history.stretches[-1].state:
        told.append(("and_pause_until", {"until": last.until}))
    return told


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
        found.facts["calendar"] = calendar_name(stretch)
    if run.skip_reason is SkipReason.EXPIRED:
        found.since = run.end_time
        found.key = "expired_call" if run.origin is Origin.CALL else ""
        found.facts |= {"span": ((run.expires_at or run.run_at) - run.run_at) / SECOND, "until": run.expires_at}
    if run.skip_reason is SkipReason.UPSTREAM_MISSING:
        found.key = "upstream_changed" if details.get("changed") else ""
        found.facts |= {"missing": _named(details.get("missing") or {}), "span": _waited(run, details)}
    return found


def _named(missing: Mapping[str, str | None]) -> str:
    """`load, extract (FAILED)`: a task with the status of its run, if it had one."""
    return ", ".join(name if status is None else f"{name} ({status})" for name, status in missing.items())


def _waited(run: Run, details: Mapping[str, Any]) -> float:
    since = details.get("since", run.created_at)
    return (run.created_at - (since if isinstance(since, int) else read_moment(since))) / SECOND


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


def blocked_reason(wait: Wait, run: Run, workers: Sequence[WorkerInfo], now: Instant) -> SlotFinding:
    """A pause first, then a worker that is missing: while these last, no limit matters."""
    if wait.until is not None and wait.is_quiet:
        return SlotFinding("quiet", "quiet_held", since=run.run_at, facts={"until": wait.until})
    if wait.until is not None and wait.rated_until is None:
        return SlotFinding("waiting", "waiting_until", facts={"until": wait.until})
    if wait.all_paused is not None:
        return paused("", wait.all_paused)
    if wait.paused is not None:
        pause = wait.paused
        facts = {"queue": pause.queue, "actor": pause.by, "since": pause.since}
        return SlotFinding("queue_paused", actor=pause.by, since=pause.since, facts=facts, more=why_paused(pause))
    missing = lack(workers, _wanted(wait, run.queue))
    if missing is not None:
        return _no_worker(missing, wait, run.queue, workers)
    if wait.key is not None:
        held = {"key": wait.key, "limit": wait.key_limit, "count": wait.key_running, "ahead": wait.key_before}
        sentence = "key_full" if wait.key else "key_full_empty"
        return SlotFinding("key_full", sentence, blocking_run_id=wait.blocking_run_id, facts=held)
    if wait.limit is not None:
        key = "concurrency_wait" if wait.limit else "concurrency_shut"
        if wait.is_of_queue:
            key = "concurrency_queue" if wait.limit else "concurrency_queue_shut"
        taken: dict[str, Any] = {"limit": wait.limit, "blocking": wait.blocking_run_id, "queue": run.queue}
        return SlotFinding("concurrency", key, blocking_run_id=wait.blocking_run_id, facts=taken)
    if wait.rated_until is not None and wait.rated_until > now:
        facts = {"until": wait.rated_until, **({} if wait.rate_key is None else {"key": wait.rate_key})}
        sentence = "rate_limited" if wait.rate_key is None else "rate_limited_key"
        return SlotFinding("rate_limited", sentence, since=None, facts=facts)
    return SlotFinding("waiting")


def _wanted(wait: Wait, queue: str) -> WorkerNeeds:
    return WorkerNeeds(
        queue=queue,
        job_type=wait.job_type,
        min_version=wait.min_version,
        workers=frozenset(wait.workers) if wait.workers else None,
        labels=frozenset(wait.labels),
        had=frozenset(wait.had),
    )


def _no_worker(missing: Lack, wait: Wait, queue: str, workers: Sequence[WorkerInfo]) -> SlotFinding:
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
        return SlotFinding("no_worker", "no_worker_commands", facts=facts)
    if missing is Lack.QUEUE and kind is not None and kind.extra is not None:
        facts |= {"kind": kind.name, "install": kind.how_to_install}
        return SlotFinding("no_worker", "no_worker_client", facts=facts)
    found = SlotFinding("no_worker", _SENTENCES[missing], facts=facts)
    if missing is Lack.LABELS:
        found.facts["names"] = named(_missing_labels(wait.labels, queue, workers))
    if missing is Lack.JOB_TYPE and scope.current() is None:  # the names of other jobs are not for a token with a scope
        known = {name for one in workers if takes_runs(one) and queue in one.queues for name in one.job_types or ()}
        known.discard(CALL_TYPE)
        found.more.append(("and_known", {"types": named(sorted(known))}))
    return found


def _missing_labels(wanted: Sequence[str], queue: str, workers: Sequence[WorkerInfo]) -> list[str]:
    """The labels that no worker of the queue has; all of them, where each is there but no worker has them together."""
    there = {pair for one in workers if takes_runs(one) and queue in one.queues for pair in label_pairs(one.labels)}
    return [pair for pair in wanted if pair not in there] or list(wanted)


def named(names: Sequence[str]) -> str | None:
    """The first few names, for a sentence; None where there are none."""
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown}, …" if len(names) > _MOST_NAMED else shown or None
