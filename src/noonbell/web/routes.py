"""The table of pages, and the routes that they become."""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute

from noonbell.web import (
    activity,
    alerts,
    bulk,
    calendars,
    lists,
    login,
    overview,
    queues,
    render,
    run_compare,
    run_form,
    run_list,
    run_page,
    search,
    service_levels,
    settings,
    subscriptions,
    task_form_page,
    task_list,
    task_page,
    timeline,
)
from noonbell.web.context import Deps
from noonbell.web.page import PageRoute, page_routes

PAGES: Final[tuple[PageRoute, ...]] = (
    *overview.PAGES,
    *task_list.PAGES,
    *task_form_page.PAGES,
    *task_page.PAGES,
    *run_form.PAGES,
    *bulk.PAGES,
    *lists.PAGES,
    *run_list.PAGES,
    *run_page.PAGES,
    *run_compare.PAGES,
    *timeline.PAGES,
    *queues.PAGES,
    *service_levels.PAGES,
    *calendars.PAGES,
    *activity.PAGES,
    *settings.PAGES,
    *alerts.PAGES,
    *subscriptions.PAGES,
    *login.PAGES,
    *search.PAGES,
)
"""In the order in which addresses are tried: `/tasks/new` before `/tasks/{id}`."""


def routes(deps: Deps) -> list[BaseRoute]:
    """What to add to the application, behind the API's own routes."""
    return [render.asset_route(), *page_routes(deps, PAGES)]
