"""Retention: what is kept for how long, who says otherwise, and how much there is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from starlette.responses import Response

from noonbell.model.request import TaskQuery
from noonbell.service.retention import Keep
from noonbell.targets.jobs.builtin import cleanup
from noonbell.web.page import Page
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import Visit

TABLES: Final = ("tasks", "runs", "attempts", "bodies", "callbacks", "run_log", "events", "dropped", "workers")
_DELIVERIES_DAYS: Final = 30
_MOST: Final = 100


async def show(visit: Visit) -> Response:
    store, settings = visit.site.services.store, visit.site.settings
    keep = Keep(settings.jobs.history_retention_days)
    counts = await store.counts()
    own = await store.tasks(TaskQuery(meta_key="retention_", page_size=_MOST, sort="name"))
    cleaning = await store.tasks(TaskQuery(job_type=cleanup.JOB_TYPE, include_system=True, page_size=10))
    return section(
        visit,
        "retention",
        "settings_retention.html",
        days=keep.days,
        event_hours=settings.events.retention / 3_600,
        delivery_days=_DELIVERIES_DAYS,
        counts={name: counts[name] for name in TABLES if name in counts},
        size=await asyncio.to_thread(file_size, settings.store.url),
        own=[(task.id, task.name, keep.for_task(task.spec.meta)) for task in own.items],
        cleaning=cleaning.items,
    )


def file_size(url: str) -> int | None:
    """Bytes that SQLite takes, its journal included; None for other stores."""
    if not url.startswith("sqlite:///"):
        return None
    path = url.removeprefix("sqlite:///").partition("?")[0]
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/settings/retention", show)]
