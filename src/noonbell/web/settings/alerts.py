"""Alerts: what is raised now, the rules that watch, the channels that tell, and what was sent."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import InvalidState
from noonbell.service.alerts import Alerts
from noonbell.web.page import Page
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import Visit, merged

PATH: Final = "/settings/alerts"
_SIZE: Final = 25


def alerts_of(visit: Visit) -> Alerts:
    if visit.site.alerts is None:
        raise InvalidState(visit.words("alerts.none_here"))
    return visit.site.alerts


async def show(visit: Visit) -> Response:
    alerts = visit.site.alerts
    before = visit.query.get("before", "")
    channel = visit.query.get("channel")
    deliveries: list[dict[str, Any]] = []
    if alerts is not None:
        number = int(before) if before.isdecimal() and len(before) < 18 else None
        deliveries = await alerts.deliveries(limit=_SIZE, before=number, channel=channel)
    return section(
        visit,
        "alerts",
        "settings_alerts.html",
        is_kept=alerts is not None,
        raised=[] if alerts is None else await alerts.open_alerts(),
        channels=[] if alerts is None else await alerts.channels(),
        rules=[] if alerts is None else await alerts.rules(),
        deliveries=deliveries,
        channel=channel or "",
        older=merged(visit.query, before=deliveries[-1]["id"]) if len(deliveries) == _SIZE else None,
        newest=merged(visit.query, before=None) if before else None,
    )


def has_apprise() -> bool:
    """The library is an extra."""
    return find_spec("apprise") is not None


def pages(site: Site) -> list[Page]:
    del site
    return [Page(PATH, show)]
