"""How the runs of a task went lately, and why those failed that did. Pure: of the newest runs, however many there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from noonbell.model.run import SUCCEEDED, Origin, Run
from noonbell.model.task import TaskVersion
from noonbell.web.lately import FAILURES
from noonbell.web.tasks.signatures import signature

_MOST_REASONS: Final = 6


@dataclass(frozen=True, slots=True)
class Health:
    """Of the runs that have ended one way or the other; skipped and canceled ones say nothing."""

    ended: int
    failed: int
    success: float | None
    """In per cent."""
    median_ms: int | None
    p95_ms: int | None
    lag_ms: int | None
    """The median delay, from when a run could have started to its start."""
    lag_p95_ms: int | None


def health(runs: Sequence[Run]) -> Health:
    decided = [run for run in runs if run.status in SUCCEEDED or run.status in FAILURES]
    times = sorted(run.duration_ms for run in decided if run.duration_ms is not None)
    lags = sorted(lag for run in runs if (lag := start_delay(run)) is not None)
    good = sum(run.status in SUCCEEDED for run in decided)
    return Health(
        ended=len(decided),
        failed=len(decided) - good,
        success=round(100 * good / len(decided), 1) if decided else None,
        median_ms=share(times, 0.5),
        p95_ms=share(times, 0.95),
        lag_ms=share(lags, 0.5),
        lag_p95_ms=share(lags, 0.95),
    )


def share(ordered: Sequence[int], part: float) -> int | None:
    """The value below which that part of them lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def start_delay(run: Run) -> int | None:
    """Milliseconds. A retry starts later by intent; a moment before somebody asked for the run is no delay of ours."""
    if run.start_time is None or run.attempt > 1:
        return None
    due = run.run_at if run.origin is Origin.SCHEDULE else max(run.run_at, run.created_at)
    return max(0, run.start_time - due) // 1000


@dataclass(frozen=True, slots=True)
class Reason:
    """Failures that say the same, but for numbers, ids and times."""

    text: str
    """As the newest of them says it."""
    kind: str
    count: int
    first: Run
    newest: Run
    before: Run | None
    """The newest run that was looked at and is older than the first; None: they may have begun earlier still."""
    change: TaskVersion | None
    """The last change of the task before the first of them."""
    is_new: bool
    """The first of them is of that very version, and the run before it of an older one."""


def reasons(runs: Sequence[Run], versions: Sequence[TaskVersion]) -> list[Reason]:
    """Why it fails: the commonest first, and of those the newest. `runs` newest first, `versions` oldest first."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.status in FAILURES:
            groups.setdefault((kind_of(run), signature(run.error_message or "")), []).append(run)
    found = [_reason(kind, same, runs, versions) for (kind, _), same in groups.items()]
    return sorted(found, key=lambda reason: (-reason.count, -reason.newest.id))[:_MOST_REASONS]


def kind_of(run: Run) -> str:
    """What `error_details` calls it, or else its status."""
    return str((run.error_details or {}).get("kind") or run.status)


def _reason(kind: str, same: Sequence[Run], runs: Sequence[Run], versions: Sequence[TaskVersion]) -> Reason:
    first, newest = same[-1], same[0]
    before = next((run for run in runs if run.id < first.id), None)
    changed = [version for version in versions if version.version > 1 and version.valid_from <= began_at(first)]
    change = changed[-1] if changed else None
    is_new = change is not None and before is not None and before.task_version < change.version <= first.task_version
    text = newest.error_message or str(newest.status)
    return Reason(text, kind, len(same), first, newest, before, change, is_new)


def began_at(run: Run) -> int:
    return run.start_time or run.run_at
