"""The jobs of an App as tasks in the store: every job has one, so that it can be published by its name."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from noonbell.errors import AlreadyExists, InvalidArgument
from noonbell.service import Services
from noonbell.service.reconcile import Report, reconcile

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonbell.app.job import Job

log = logging.getLogger("noonbell.app")


async def declare(services: Services, owner: str, jobs: Collection[Job[..., Any]], *, prune: bool = False) -> Report:
    """Bring the tasks of `owner` to what the code says. With `prune`, those that it no longer says are deleted.

    A task of the same name that somebody else manages is used as it is, if it runs this job; otherwise AlreadyExists.
    """
    for job in jobs:
        missing = sorted(job.signature.required)
        if job.declared.has_schedule and job.declared.task.get("payload") is None and missing:
            log.warning(
                "job %s has a schedule but no payload=; its scheduled runs will fail, for they lack %s",
                *(job.name, ", ".join(missing)),
            )
    report = await reconcile(services, owner, [job.declared.task for job in jobs], by=owner, prune=prune, path="jobs")
    for name, other in report.foreign.items():
        task = await services.tasks.get(name)
        if task.spec.job_type != name:
            raise AlreadyExists(
                f"a task {name!r} that does something else is there already, managed by {other};"
                " give the job another name: @app.job(name=…)",
                details={"name": name},
            )
        log.warning("task %s is managed by %s, not by %s: it is used as it is", name, other, owner)
    return report


def check_owner(name: str) -> str:
    """What `managed_by` says of the tasks of an App with this name."""
    if not 1 <= len(name) <= 200 or not name.isprintable() or name != name.strip():
        raise InvalidArgument.field("name", f"is {name!r}; expected 1 to 200 printable characters")
    return f"code:{name}"
