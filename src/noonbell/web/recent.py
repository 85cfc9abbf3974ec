"""Figures from the newest runs: failing tasks, health of a task, groups of equal errors; and the doctor's findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noonbell.clock import SECOND, Instant, SystemClock
from noonbell.model.request import RunQuery
from noonbell.model.rollup import Figures, Scope, stretch_of
from noonbell.model.run import SUCCEEDED, Origin, Run, RunStatus
from noonbell.model.task import TaskId, TaskVersion
from noonbell.service import Services
from noonbell.service.doctor import CheckStatus, Finding, look_at_store, said
from noonbell.service.filters import from_the_top
from noonbell.service.stats import milliseconds
from noonbell.service.translation import Translator
from noonbell.version import __version__
from noonbell.web.error_text import headline

FAILURES: Final = (RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.FAILED_TIMEOUT)
DAY: Final = 86_400 * SECOND
_MOST_LOOKED_AT: Final = 1_000
"""Tasks that failed within 24 hours."""
_RUNS_READ: Final = 20
"""The newest of a task, among which the last one that succeeded or failed is looked for."""
MOST_FAILING: Final = 10
"""Failing tasks that are listed."""


async def newest_runs(
    services: Services, task_id: TaskId | None, count: int, *, status: tuple[RunStatus, ...] = ()
) -> list[Run]:
    """Newest first, without a total."""
    query = RunQuery(task_id=task_id, status=status, page_size=count, cursor=from_the_top("-id"))
    return (await services.runs.page(query)).items


@dataclass(frozen=True, slots=True)
class Trouble:
    failing: list[Run] = field(default_factory=list)
    """The last run of each task that `failing` finds."""
    failures: dict[TaskId, int] = field(default_factory=dict)
    """Of the last 24 hours, for the first of them."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.failing) + len(self.findings)

    @property
    def unlisted(self) -> int:
        return len(self.failing) - len(self.failures)


async def failing(services: Services, now: Instant) -> list[Run]:
    """The last run that succeeded or failed of each task where that failed within 24 hours; the newest first.

    A run after it that is skipped or not over changes nothing: a task does not come and go with each attempt.
    """
    store, since = services.store, Instant(now - DAY)
    tasks = await store.tasks_by_id(await store.failed_tasks(since, Instant(now + 1), _MOST_LOOKED_AT))
    doing = await store.activity([task.id for task in tasks if task.deleted_at is None])
    known = [each.last_run_id for each in doing.values() if each.last_run_status in FAILURES]
    others = [task_id for task_id, each in doing.items() if each.last_run_status not in (*FAILURES, *SUCCEEDED)]
    found = await store.runs_by_id([run_id for run_id in known if run_id is not None])
    for runs in (await store.newest_runs(others, _RUNS_READ)).values() if others else ():
        found += [run for run in runs if run.status in FAILURES or run.status in SUCCEEDED][:1]
    failed = [run for run in found if run.status in FAILURES and (run.end_time or run.scheduled_time) >= since]
    return sorted(failed, key=lambda run: -run.id)


async def trouble(services: Services, now: Instant) -> Trouble:
    looked_at = look_at_store(services.store, SystemClock().now, sizes=False)
    findings = [each async for each in looked_at if each.mark is not CheckStatus.WELL]
    failed = await failing(services, now)
    names = [str(run.task_id) for run in failed[:MOST_FAILING]]
    rows = await services.store.rollups(Scope.TASK, stretch_of(now - DAY, now + 1, now), names=names) if names else []
    counts = {int(row.name): row.figures.failed for row in rows}
    failures = {run.task_id: counts.get(run.task_id, 0) for run in failed[:MOST_FAILING]}
    return Trouble(failed, failures, findings)


_OF_FAILURES: Final = ("failed", "failures", "callback_timeout", "lost")
"""The kinds of alert rules that say of a task what the list of failing tasks says."""


def rules_by_task(failing: Sequence[Run], alerts: Sequence[Mapping[str, Any]]) -> dict[TaskId, list[str]]:
    """For each failing task the rules that have raised an alert for it: those alerts are not listed once more."""
    listed = {each.task_id for each in failing}
    found: dict[TaskId, list[str]] = {}
    for alert in alerts:
        if alert["kind"] in _OF_FAILURES and alert["task_id"] in listed:
            found.setdefault(alert["task_id"], []).append(str(alert["rule"]))
    return found


@dataclass(frozen=True, slots=True)
class FindingText:
    mark: str
    check: str
    says: str
    fix: str


def finding_text(finding: Finding, words: Translator) -> FindingText:
    """A finding without a code has no other words than its own."""
    check = f"doctor.check.{finding.check.replace(' ', '_')}"
    says, fix = said(finding.code, finding.facts, words) if finding.code else (finding.says, finding.fix)
    return FindingText(str(finding.mark), words.get(check, finding.check), says, fix)


def findings_report(findings: Iterable[Finding], store: str) -> str:
    """The findings as text for a support request: in English, as the command line prints them, with the version."""
    lines = [f"Noonbell {__version__}, store {store}"]
    for finding in findings:
        lines.append(f"[{finding.mark}] {finding.check}: {finding.says}")
        if finding.fix:
            lines.append(f"    -> {finding.fix}")
    return "\n".join(lines)


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


def health_of(rollups: Iterable[Figures]) -> Health:
    """The same of all runs that ended, however many: percentiles are within 2 %."""
    figures = Figures()
    for each in rollups:
        figures.merge(each)
    return Health(
        ended=figures.succeeded + figures.failed,
        failed=figures.failed,
        success=None if figures.success is None else round(100 * figures.success, 1),
        median_ms=milliseconds(figures.duration.percentile(0.5)),
        p95_ms=milliseconds(figures.duration.percentile(0.95)),
        lag_ms=milliseconds(figures.start_delay.percentile(0.5)),
        lag_p95_ms=milliseconds(figures.start_delay.percentile(0.95)),
    )


def share(ordered: Sequence[int], part: float) -> int | None:
    """The value below which that part of them lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def start_delay(run: Run) -> int | None:
    """Milliseconds; None for a retry, which starts later by intent. A run on demand is late from its creation on."""
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
            groups.setdefault((kind_of(run), error_fingerprint(run.error_message or "")), []).append(run)
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
    text = headline(newest.error_message) or str(newest.status)
    return Reason(text, kind, len(same), first, newest, before, change, is_new)


def began_at(run: Run) -> int:
    return run.start_time or run.run_at


_LONGEST_FINGERPRINT: Final = 200
_MOST_CHARACTERS: Final = 2_000
"""Characters of a message that are looked at: a text of megabytes is no better sign than its beginning."""

_REPLACED: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), sign)
    for pattern, sign in (
        (r"([a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>)\]]{0,500})(?:[?#][^\s\"'<>)\]]*)", r"\1"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "#"),
        (r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?", "#"),
        (r"\b0x[0-9a-f]+\b", "#"),
        (r"\b[a-z]{2,8}_(?=[a-z0-9_-]{0,64}\d)[a-z0-9-]{6,}\b", "#"),
        (r"\b(?=[0-9a-z]*\d)(?=[0-9a-z]*[a-z])[0-9a-z]{16,}\b", "#"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "#"),
        (r"\d+(?:[.,:]\d+)*", "#"),
        (r"\s+", " "),
    )
)
"""In this order: queries of addresses, UUIDs, times, pointers, ids with a prefix (`run_01JC9F`), long words with digits,
hashes, any other number, line ends.
"""


def error_fingerprint(text: str) -> str:
    """`GET https://a.example/x?id=7 took 31 ms` and `… ?id=8 took 44 ms` have the same one."""
    said = text[:_MOST_CHARACTERS]
    for pattern, sign in _REPLACED:
        said = pattern.sub(sign, said)
    return said.strip()[:_LONGEST_FINGERPRINT]
