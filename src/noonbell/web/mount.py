"""The table of pages, and the routes that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.routing import BaseRoute

from noonbell.web import (
    activity,
    assets,
    login,
    overview,
    preferences,
    queues,
    run,
    run_acts,
    runs,
    settings_page,
    task,
    task_acts,
    task_bulk,
    task_edit,
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
    task_edit.pages,
    task.pages,
    task_acts.pages,
    runs.pages,
    run.pages,
    run_acts.pages,
    timeline.pages,
    queues.pages,
    workers.pages,
    activity.pages,
    settings_page.pages,
    login.pages,
    preferences.pages,
)
"""In the order in which addresses are tried: `/tasks/new` before `/tasks/{id}`."""


def routes(site: Site) -> list[BaseRoute]:
    """What to add to the application, behind the API's own routes."""
    return [assets.route(), *page_routes(site, [page for pages in PAGES for page in pages(site)])]
