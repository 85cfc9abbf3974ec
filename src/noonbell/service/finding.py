"""What is found of a moment: a cause, and all that is known of it. Pure: from what was read to what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.clock import Instant, instant_of, slot_of
from noonbell.model.run import Run, RunId, RunStatus
from noonbell.policy.past import State, Stretch
from noonbell.service.account import Fate, Life

CAUSES: Final = (
    *("ran", "running", "waiting", "not_a_slot", "overlap", "failure", "backoff", "circuit_open", "concurrency"),
    *("queue_full", "rate_limited", "queue_paused", "no_worker", "misfire", "catchup_cap", "disabled", "completed"),
    *("error", "deleted", "canceled", "lost", "planner_late", "store_down"),
    *("operator", "cleaned", "missing"),
)
"""Those of the contract; then a skip that an operator asked for, what retention removed, and what must never be."""


@dataclass(slots=True)
class Finding:
    """A cause and all that is known of it; `key` names the sentence where a cause has several."""

    cause: str
    key: str = ""
    slot: int | None = None
    run_id: RunId | None = None
    blocking_run_id: int | None = None
    actor: str | None = None
    since: Instant | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """For the sentence: an `Instant` is told as a time, a float as a span, anything else as it is."""
    more: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Sentences that follow."""


def is_timed(stretch: Stretch) -> bool:
    return stretch.schedule is not None and not stretch.is_chained


def off(life: Life, stretch: Stretch) -> Finding:
    found = Finding(str(stretch.state), since=stretch.since, actor=stretch.by)
    found.facts = {"actor": stretch.by, "since": stretch.since}
    later = life.stretches[life.stretches.index(stretch) + 1 :]
    back = next((one for one in later if one.state is State.ON), None)
    if stretch.state is State.OFF and back is not None:
        found.more.append(("and_back_on", {"actor": back.by, "since": back.since}))
    return found


def no_slot(life: Life, stretch: Stretch, slot: int) -> Finding:
    at = instant_of(slot)
    if stretch.schedule is None:
        return Finding("not_a_slot", "not_a_slot_on_demand")
    before, after = _neighbours(life, slot)
    found = Finding("not_a_slot", facts={"at": at, "before": before, "after": after, "rule": stretch})
    place = life.stretches.index(stretch)
    for number in range(place, 0, -1):
        old, new = life.stretches[number - 1], life.stretches[number]
        if old.spec.schedule == new.spec.schedule and old.spec.timezone == new.spec.timezone:
            continue
        version_since, by = new.valid_from, new.changed_by
        if old.would_name(slot):
            found.key, found.actor, found.since = "not_a_slot_changed", by, version_since
            found.facts |= {"actor": by, "since": version_since}
        break
    return found


def _neighbours(life: Life, slot: int) -> tuple[Instant | None, Instant | None]:
    before = next((at for one in reversed(life.stretches) if (at := one.previous(slot)) is not None), None)
    after = next((at for one in life.stretches if (at := next(one.slots(slot), None)) is not None), None)
    if after is None and life.task.next_fire_at is not None and life.task.next_fire_at > instant_of(slot):
        after = int(slot_of(life.task.next_fire_at))
    return (None if before is None else instant_of(before)), (None if after is None else instant_of(after))


def unrecorded(life: Life, stretch: Stretch, slot: int) -> Finding:
    if stretch.remaining is not None and stretch.count(stretch.after, slot) > stretch.remaining:
        later = life.stretches[life.stretches.index(stretch) + 1 :]
        return off(life, later[0]) if later else Finding("completed", facts={"since": life.now})
    if life.cleaned.count and instant_of(slot) <= life.cleaned.last:
        return Finding(str(Fate.CLEANED), facts={"last": life.cleaned.last})
    return Finding(str(Fate.MISSING))


def skipped(stretch: Stretch, run: Run, details: Mapping[str, Any]) -> Finding:
    spec, cause = stretch.spec, str(run.skip_reason)
    blocking = details.get("blocking_run_id")
    found = Finding(cause, blocking_run_id=blocking, actor=details.get("by"))
    if cause == "concurrency" and spec.max_concurrency == 0:
        found.key = "concurrency_none"
    found.facts = {
        "blocking": blocking,
        "actor": found.actor,
        "failures": spec.circuit.failures,
        "span": float(spec.circuit.cool_down_seconds),
        "limit": spec.queue_depth if cause == "queue_full" else spec.max_concurrency,
    }
    return found


def canceled(run: Run, details: Mapping[str, Any]) -> Finding:
    why = {"deleted": "deleted", "error": "error"}.get(details.get("why", ""), "canceled")
    key = "canceled_replaced" if details.get("why") == "replaced" else f"{why}_canceled" if why != "canceled" else why
    found = Finding(why, key, actor=details.get("by"), since=run.end_time, facts=ended(run))
    found.facts["actor"] = found.actor
    return found


def under_way(run: Run) -> Finding:
    facts: dict[str, Any] = {"attempt": run.attempt, "started": run.start_time, "worker": run.worker_id}
    if run.status is RunStatus.CALLBACK_PENDING:
        return Finding("running", "running_callback", since=run.start_time, facts={"until": run.callback_deadline})
    if run.status is RunStatus.RETRYING:
        facts |= {"until": run.next_retry_time, "error": run.error_message}
        return Finding("running", "running_retry", since=run.start_time, facts=facts)
    return Finding("running", since=run.start_time, facts=facts)


def ended(run: Run) -> dict[str, Any]:
    return {
        "started": run.start_time,
        "ended": run.end_time,
        "status": run.status,
        "error": (run.error_message or "").rstrip("."),
        "worker": run.worker_id,
    }
