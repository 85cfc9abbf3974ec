"""The table of pages, and the routes that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.routing import BaseRoute

from noonbell.web import (
    activity,
    assets,
    backfill,
    login,
    overview,
    palette,
    preferences,
    queue_acts,
    queues,
    run,
    run_acts,
    run_bulk,
    run_compare,
    run_files,
    runs,
    settings,
    suggest,
    task,
    task_acts,
    task_bulk,
    task_edit,
    task_files,
    task_preview,
    task_yaml,
    tasks,
    timeline,
    workers,
)
from noonbell.web.page import Page, page_routes
from noonbell.web.site import Site

PAGES: Final[tuple[Callable[[Site], list[Page]], ...]] = (
    overview.pages,
    tasks.pages,
    task_bulk.pages,
    task_files.pages,
    task_edit.pages,
    task_preview.pages,
    task_yaml.pages,
    task.pages,
    task_acts.pages,
    runs.pages,
    run_bulk.pages,
    run.pages,
    run_acts.pages,
    run_compare.pages,
    run_files.pages,
    timeline.pages,
    backfill.pages,
    queues.pages,
    queue_acts.pages,
    workers.pages,
    activity.pages,
    settings.pages,
    login.pages,
    preferences.pages,
    palette.pages,
    suggest.pages,
)
"""In the order in which addresses are tried: `/tasks/new` before `/tasks/{id}`."""


def routes(site: Site) -> list[BaseRoute]:
    """What to add to the application, behind the API's own routes."""
    return [assets.route(), *page_routes(site, [page for pages in PAGES for page in pages(site)])]
