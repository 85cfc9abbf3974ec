"""The table of pages, and the routes that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.routing import BaseRoute

from noonbell.web import assets, login, overview, palette, preferences, settings, suggest, workers
from noonbell.web.activity import log as activity
from noonbell.web.page import Page, page_routes
from noonbell.web.queues import acts as queue_acts
from noonbell.web.queues import index as queues
from noonbell.web.runs import acts as run_acts
from noonbell.web.runs import bulk as run_bulk
from noonbell.web.runs import compare as run_compare
from noonbell.web.runs import files as run_files
from noonbell.web.runs import index as runs
from noonbell.web.runs import run
from noonbell.web.site import Site
from noonbell.web.tasks import acts as task_acts
from noonbell.web.tasks import as_yaml as task_yaml
from noonbell.web.tasks import bulk as task_bulk
from noonbell.web.tasks import edit as task_edit
from noonbell.web.tasks import files as task_files
from noonbell.web.tasks import index as tasks
from noonbell.web.tasks import preview as task_preview
from noonbell.web.tasks import task
from noonbell.web.timeline import backfill
from noonbell.web.timeline import page as timeline

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
