"""One task: what it does, when it fires next, how its runs went, why they fail, and what was changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from noonbell.clock import Instant
from noonbell.errors import InvalidArgument
from noonbell.model.run import SUCCEEDED, Run
from noonbell.model.task import Task, TaskSpec, TaskVersion
from noonbell.service.reader import Problems, Reader
from noonbell.service.secrets import MASK, masked
from noonbell.service.task_json import written
from noonbell.web import charts, schedules
from noonbell.web.lately import FAILURES, newest_runs
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.task_acts import found
from noonbell.web.visit import Visit, as_json

_RUNS: Final = 100
_SHOWN: Final = 12
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+(?:\.\d+)?")


async def show(visit: Visit) -> Response:
    services = visit.site.services
    task = await found(visit, deleted=True)
    runs = await newest_runs(services, task.id, _RUNS)
    versions = await services.tasks.versions(task)
    shown = await services.tasks.show(task)
    return visit.page(
        "task.html",
        task=shown,
        is_deleted=task.deleted_at is not None,
        is_on=task.status == "ENABLED" and task.deleted_at is None,
        next=await services.previews.next(task, 5, visit.words.lang),
        written=schedules.written(task.spec.schedule),
        runs=runs[:_SHOWN],
        strip=charts.strip(runs, 60, width=8, gap=2),
        health=health(runs),
        reasons=reasons(runs, versions),
        explained=await explained(visit, task),
        at=visit.query.get("at", ""),
        changes=changes(versions),
        definition=as_json(definition(shown)),
    )


async def explained(visit: Visit, task: Task) -> dict[str, Any]:
    """Why did, or didn't, it run: at the moment that was asked for, or lately."""
    text = visit.query.get("at")
    try:
        return await visit.site.services.explain.of_task(task, _moment(visit, text), visit.words.lang)
    except InvalidArgument as error:
        return {"cause": "", "message": error.message, "run_id": None, "blocking_run_id": None}


def _moment(visit: Visit, text: str | None) -> Instant | None:
    """RFC 3339, or what a browser's field for date and time says, on the clock of the chosen zone."""
    if text is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text):
        text = text if len(text) == 19 else f"{text}:00"
        offset = visit.zone.local(int(visit.now // 1_000_000)).isoformat()[19:]
        text += offset
    problems = Problems()
    moment = Reader({"at": text}, problems).moment("at")
    problems.finish()
    return moment


@dataclass(frozen=True, slots=True)
class Health:
    """Of the newest runs that have ended."""

    ended: int
    success: float | None
    """In per cent."""
    median_ms: int | None
    p95_ms: int | None


def health(runs: Sequence[Run]) -> Health:
    decided = [run for run in runs if run.status in SUCCEEDED or run.status in FAILURES]
    times = sorted(run.duration_ms for run in decided if run.duration_ms is not None)
    good = sum(run.status in SUCCEEDED for run in decided)
    return Health(
        ended=len(decided),
        success=round(100 * good / len(decided), 1) if decided else None,
        median_ms=times[len(times) // 2] if times else None,
        p95_ms=times[min(len(times) - 1, int(len(times) * 0.95))] if times else None,
    )


@dataclass(frozen=True, slots=True)
class Reason:
    """Failures that say the same, but for numbers."""

    text: str
    count: int
    first: Run
    newest: Run
    after: TaskVersion | None
    """The change of the task that came shortly before the first of them."""


def reasons(runs: Sequence[Run], versions: Sequence[TaskVersion]) -> list[Reason]:
    """Why it fails: the commonest first. `runs` newest first."""
    failed = [run for run in runs if run.status in FAILURES]
    counted = Counter(signature(run) for run in failed)
    return [
        _reason(sign, count, [run for run in failed if signature(run) == sign], versions)
        for sign, count in counted.most_common(5)
    ]


def signature(run: Run) -> str:
    kind = (run.error_details or {}).get("kind") or run.status
    return f"{kind} {_NUMBERS.sub('#', run.error_message or '')[:200]}"


def _reason(sign: str, count: int, same: Sequence[Run], versions: Sequence[TaskVersion]) -> Reason:
    del sign
    first = same[-1]
    changed = [version for version in versions if version.version > 1 and version.version == first.task_version]
    return Reason(same[0].error_message or str(same[0].status), count, first, same[0], changed[-1] if changed else None)


@dataclass(frozen=True, slots=True)
class Change:
    """A version, and what was different in it from the one before."""

    version: TaskVersion
    fields: list[tuple[str, str, str]]
    """Name, before, after."""


def changes(versions: Sequence[TaskVersion]) -> list[Change]:
    """Newest first; the first version has nothing before it."""
    told = [_told(version) for version in versions]
    found = [Change(versions[0], [])] if versions else []
    for before, after, version in zip(told, told[1:], versions[1:], strict=False):
        names = [name for name in after if before.get(name) != after[name]]
        found.append(Change(version, [(name, _brief(before.get(name)), _brief(after[name])) for name in names]))
    return found[::-1]


def _told(version: TaskVersion) -> dict[str, Any]:
    return {"status": "DELETED" if version.deleted else str(version.status), **told(version.spec)}


def told(spec: TaskSpec) -> dict[str, Any]:
    """What somebody wrote, secrets masked."""
    fields = written(spec)
    fields["headers"] = masked(spec.headers)
    fields["secret"] = None if spec.secret is None else MASK
    return fields


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else as_json(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def definition(task: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something: those that are not what they would be anyway."""
    plain = told(TaskSpec(name="x", exec_type=task["exec_type"], job_type=task["job_type"]))
    kept = {name: task[name] for name in plain if name in task and task[name] != plain[name]}
    return {"name": task["name"], "exec_type": task["exec_type"], **kept}


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/tasks/{id}", show)]
