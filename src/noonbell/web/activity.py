"""Activity: the audit log, who changed what. For admins, as in the API."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from noonbell.model.access import Role
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import Visit, merged

_SIZE: Final = 50


async def show(visit: Visit) -> Response:
    access, text = visit.site.access, visit.query.get("before", "")
    before = int(text) if text.isdecimal() and len(text) < 18 else None
    actor = visit.query.get("actor")
    entries = [] if access is None else await access.log(before, _SIZE, actor)
    return visit.page(
        "activity.html",
        entries=entries,
        actor=actor or "",
        older=merged(visit.query, before=entries[-1]["id"]) if len(entries) == _SIZE else None,
        newest=merged(visit.query, before=None) if before is not None else None,
        is_kept=access is not None,
    )


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/activity", show, role=Role.ADMIN)]
