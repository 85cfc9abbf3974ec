"""General: what this browser is shown, and where it begins."""

from __future__ import annotations

from starlette.responses import Response

from noonbell.web.page import Page
from noonbell.web.preferences import LANDINGS, landing_of
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import THEMES, Visit


async def show(visit: Visit) -> Response:
    return section(
        visit,
        "general",
        "settings_general.html",
        themes=THEMES,
        landing=landing_of(visit),
        landings=[name for name in LANDINGS if name != "activity" or visit.may("admin")],
    )


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/settings", show)]
