"""Tasks that are declared: built in, by the settings files, and by the App that a command names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import noonbell
from noonbell.app import App
from noonbell.dialects.jobs import JobsDialect
from noonbell.errors import InvalidArgument, NoonbellError, SettingsError
from noonbell.fields import counted
from noonbell.model.task import TaskStatus
from noonbell.service import Rules, Services
from noonbell.service import task_files as declaring
from noonbell.settings import Settings, StoreSettings
from noonbell.stores.wakeups import LocalWakeup
from noonbell.targets.http import template
from noonbell.targets.jobs import builtin
from noonbell.targets.jobs.handler import find_app
from noonbell.wiring.assemble import make_store

log = logging.getLogger("noonbell")

Fields = Mapping[str, Any]


async def reconcile(services: Services, settings: Settings) -> None:
    """Make what is missing, and bring the rest to what the files say now. Nothing is pruned.

    A task that belongs to another owner is left alone, and the log says so: what was made by the API must not keep
    a node from starting.
    """
    for fields in builtin.TASKS:
        if await services.tasks.create_built_in(fields) is None:
            log.warning("task %r is not the one that is built in: it is not run as such", fields["name"])
    tasks: dict[str, list[Fields]] = {}
    for declared in settings.tasks:
        tasks.setdefault(f"file:{declared.file}", []).append(declared.fields)
    jobs = {f"file:{settings.jobs_from}": await _jobs(services, settings)} if settings.jobs.jobs else {}
    try:
        await declaring.check(services, [fields for each in tasks.values() for fields in each])
        for path, owners in (("tasks", tasks), ("jobs.jobs", jobs)):
            for owner, fields_of in owners.items():
                report = await declaring.reconcile(
                    services, owner, fields_of, by=owner, adopt={*tasks, *jobs}, path=path
                )
                _tell(owner, report)
    except InvalidArgument as error:
        raise SettingsError.fields(error.details) from None


async def check_jobs(settings: Settings) -> None:
    """SettingsError names every problem of `jobs.jobs`. The store of the settings is not asked, but an empty one in memory."""
    store = make_store(replace(settings, store=StoreSettings(url="memory://")))
    await store.open()
    try:
        await _jobs(Services(store, LocalWakeup(), Rules.of(settings, template.check)), settings)
    finally:
        await store.close()


async def _jobs(services: Services, settings: Settings) -> list[Fields]:
    """The jobs of `jobs.jobs` as tasks; with `jobs.enabled` off, they are paused. Nothing is written."""
    jobs = JobsDialect(services)
    problems: dict[str, str] = {}
    found: list[Fields] = []
    names = {str(declared.fields["name"]) for declared in settings.tasks}
    for number, given in enumerate(settings.jobs.jobs):
        name = given.get("job_name")
        place = f"jobs.jobs[{name if isinstance(name, str) and name else number}]"
        try:
            fields = await jobs.declaration(given)
        except InvalidArgument as error:
            problems.update({f"{place}.{key}": str(text) for key, text in error.details.items()})
            continue
        if fields["name"] in names:
            problems[f"{place}.job_name"] = f"is {name!r} a second time; names must be unique, including those of tasks"
        names.add(fields["name"])
        found.append(fields if settings.jobs.enabled else {**fields, "status": TaskStatus.DISABLED})
    if problems:
        raise SettingsError.fields(problems)
    if not settings.jobs.enabled:
        log.info("jobs.enabled is off: the %d jobs of jobs.jobs are paused", len(found))
    return found


def _tell(owner: str, report: declaring.ReconcileReport) -> None:
    if report.created or report.changed:
        log.info("%s: %s created, %d changed", owner, counted(len(report.created), "task"), len(report.changed))
    for name, other in report.foreign.items():
        log.warning(
            "%s declares task %r, which belongs to %s and is not changed; rename one of them, or set its managed_by"
            " to %s",
            *(owner, name, other, owner),
        )


_OWN_FOLDER = str(Path(noonbell.__file__).parent)


def _of_user(frames: TracebackType | None) -> TracebackType | None:
    """Without the frames of Noonbell and of Python's import that lead to the first one of the user."""
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((_OWN_FOLDER, "<frozen importlib")):
        frames = frames.tb_next
    return frames


def load_app(location: str, field: str = "--app") -> App:
    """`location`: "module:attribute" or "path.py:attribute", either without the attribute. Raises SettingsError for `field`."""
    try:
        app = find_app(location, field)
    except InvalidArgument as error:
        raise SettingsError(error.message, details=error.details) from None
    except NoonbellError as error:  # a declaration that cannot be: it says itself which
        raise SettingsError.field(field, f"is {location!r}: {error.message}") from error
    except (Exception, SystemExit) as error:
        log.exception("%s cannot be imported", location, exc_info=error.with_traceback(_of_user(error.__traceback__)))
        raise SettingsError.field(
            field, f"is {location!r}, which cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not isinstance(app, App):
        raise SettingsError.field(field, f"is {location!r}, which is not an App but {app!r}")
    return app
