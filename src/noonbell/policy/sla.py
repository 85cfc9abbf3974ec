"""Service levels: by when a run has to start and end, which levels it has broken, and which it will break. Pure.

A level is judged a second after its deadline: what happened before it is committed by then. A breach is foreseen from what is
usual for the task, its p50 and p95:

    it waits      it starts when those before it are through, or now; and takes its usual time
    it runs       it ends after its usual time; past that, after the time that 95 % of runs keep to
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import NamedTuple, TypeAlias

from noonbell import when
from noonbell.clock import SECOND, Instant, from_datetime, to_datetime
from noonbell.model.rollup import Figures
from noonbell.model.sla import Sla, SlaRule, SlaWatch

SlaDefaults: TypeAlias = Mapping[str, Sla]
"""By label, such as `tier=gold`."""

SETTLED = SECOND
"""How long after a moment Noonbell looks at what had happened by then."""
ENOUGH = 5
"""Fewer runs than this do not say what is usual."""


class Usual(NamedTuple):
    """How long runs of a task take, in microseconds."""

    p50: int
    p95: int


class RunFacts(NamedTuple):
    started_at: Instant | None
    """Of its first attempt."""
    ended_at: Instant | None
    expected_start: Instant | None = None
    """Of one that waits."""


class Miss(NamedTuple):
    rule: SlaRule
    deadline: Instant
    expected_at: Instant | None = None


class Judgement(NamedTuple):
    breached: list[Miss]
    foreseen: list[Miss]
    next_at: Instant | None
    """When to look again; None: no level is open."""


def default_sla(defaults: SlaDefaults, labels: Mapping[str, str]) -> Sla | None:
    """That of the first entry that one of the labels fits."""
    for wanted, sla in defaults.items():
        name, _, value = wanted.partition("=")
        if labels.get(name) == value:
            return sla
    return None


def watch_of(sla: Sla, run_id: int, task_id: int, zone: str, due_at: Instant) -> SlaWatch | None:
    if not sla.is_of_runs:
        return None
    return SlaWatch(
        run_id=run_id,
        task_id=task_id,
        due_at=due_at,
        start_by=_after(due_at, sla.start_within_seconds),
        finish_within=_after(due_at, sla.finish_within_seconds),
        finish_by=None if sla.finish_by is None else next_time_of_day(sla.finish_by, zone, due_at),
        on_breach=sla.on_breach,
    )


def _after(due_at: Instant, seconds: float | None) -> Instant | None:
    return None if seconds is None else Instant(due_at + round(seconds * SECOND))


def next_time_of_day(clock: str, zone: str, after: Instant) -> Instant:
    """The first moment later than `after` at which a clock in the zone shows it.

    A time that a change of the clocks leaves out is as much later as the change takes; of one that comes twice, the first.
    """
    own = when.zone(zone)
    today, of_day = to_datetime(after).astimezone(own).date(), time(int(clock[:2]), int(clock[3:]))
    moments = (from_datetime(datetime.combine(today + timedelta(days=n), of_day, own)) for n in range(-1, 3))
    return next(moment for moment in moments if moment > after)


def first_look(watch: SlaWatch) -> Instant:
    """A second after it is due: most runs have started by then, and a breach can be foreseen for the others."""
    return Instant(watch.due_at + SETTLED)


def usual_of(figures: Figures) -> Usual | None:
    p50, p95 = figures.duration.percentile(0.5), figures.duration.percentile(0.95)
    if p50 is None or p95 is None or figures.duration.count < ENOUGH:
        return None
    return Usual(p50, p95)


def expected_start(
    now: Instant, usual: Usual | None, *, ahead: int = 0, limit: int | None = None, started: Sequence[Instant] = ()
) -> Instant:
    """When a run starts that waits behind `ahead` runs of its task, of which `limit` run side by side; these started then."""
    if limit is None or usual is None or limit < 1:
        return now
    free = [Instant(max(now, at + usual.p50)) for at in started][:limit]
    free += [now] * (limit - len(free))
    heapq.heapify(free)
    for _ in range(ahead):
        heapq.heapreplace(free, Instant(free[0] + usual.p50))
    return free[0]


def judge(
    watch: SlaWatch, run: RunFacts, usual: Usual | None, now: Instant, told: Collection[SlaRule] = ()
) -> Judgement:
    """`told`: levels whose breach was foreseen before."""
    found = Judgement([], [], None)
    looks: list[int] = []
    for rule, deadline in watch.deadlines:
        kept_at = run.ended_at
        if rule is SlaRule.START_WITHIN and run.started_at is not None:
            kept_at = run.started_at
        if kept_at is not None or now >= deadline + SETTLED:
            if kept_at is None or kept_at > deadline:
                found.breached.append(Miss(rule, deadline))
            continue
        looks.append(deadline + SETTLED)
        if rule in told or now >= deadline:
            continue
        expected = _expected(rule, run, usual, now)
        if expected is not None and expected > deadline:
            found.foreseen.append(Miss(rule, deadline, expected))
        elif usual is not None and rule is not SlaRule.START_WITHIN:
            looks.append(_decisive(run, usual, deadline, now))
    return found._replace(next_at=Instant(min(looks)) if looks else None)


def _expected(rule: SlaRule, run: RunFacts, usual: Usual | None, now: Instant) -> Instant | None:
    """When the run will have kept the level, as far as anything can be said."""
    start = run.expected_start or now
    if rule is SlaRule.START_WITHIN:
        return start
    if usual is None:
        return None
    if run.started_at is None:
        return Instant(start + usual.p50)
    over = (run.started_at + usual.p50, run.started_at + usual.p95)
    return Instant(next((at for at in over if at >= now), now))


def _decisive(run: RunFacts, usual: Usual, deadline: Instant, now: Instant) -> int:
    """The moment from which on a breach would be foreseen: it has not started by then, or runs for longer than usual."""
    if run.started_at is None:
        at = deadline - usual.p50 + SETTLED
    else:
        is_close = run.started_at + usual.p95 > deadline
        at = run.started_at + usual.p50 + SETTLED if is_close else 0
    return at if at > now else deadline + SETTLED


class Budget(NamedTuple):
    """How much of the failures that `success_ratio` allows is left."""

    allowed: float
    """Failures that the runs of the window may have."""
    failed: int
    left: float
    """The share of them that is left: 1 is all, 0 none, below that the level is broken."""


def budget_of(ratio: float, figures: Figures) -> Budget:
    decided = figures.succeeded + figures.failed
    allowed = (1 - ratio) * decided
    failed = figures.failed
    if not failed:
        return Budget(allowed, 0, 1.0)
    # Counted in shares of the runs: (1 - 0.9) * 10 is a little less than 1.
    return Budget(allowed, failed, 1 - failed / allowed if allowed > 0 else -float(failed))


def is_broken(ratio: float, figures: Figures) -> bool:
    decided = figures.succeeded + figures.failed
    return decided > 0 and figures.succeeded < ratio * decided - 1e-9
