"""Language, theme, zone, density and the page to begin with: kept in cookies, so that a visitor needs no account for them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from noonbell.errors import InvalidArgument
from noonbell.web.lists import DENSITIES
from noonbell.web.page import Page
from noonbell.web.site import Site
from noonbell.web.visit import THEMES, Visit
from noonbell.web.words import LANGUAGES
from noonbell.when import zones

_YEAR: Final = 365 * 86_400
LANDINGS: Final = ("overview", "tasks", "runs", "timeline", "queues", "workers", "activity")
"""What somebody may want to begin with. The overview is at the root, the others at their names."""


async def choose(visit: Visit) -> Response:
    chosen = await visit.fields()
    answer = visit.redirect(safe_path(chosen.get("next", "/")))
    for name, value in checked(chosen).items():
        visit.keep(answer, f"noonbell_{name}", quote(value), _YEAR, secret=False)
    return answer


def checked(chosen: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if (lang := chosen.get("lang")) is not None:
        found["lang"] = _one_of("lang", lang, tuple(LANGUAGES))
    if (theme := chosen.get("theme")) is not None:
        found["theme"] = _one_of("theme", theme, THEMES)
    if (density := chosen.get("density")) is not None:
        found["density"] = _one_of("density", density, DENSITIES)
    if (zone := chosen.get("zone")) is not None:
        found["zone"] = zones.find(zone.strip()).name
    if (landing := chosen.get("landing")) is not None:
        found["landing"] = _one_of("landing", landing, LANDINGS)
    return found


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidArgument.field(name, f"is {value[:40]!r}; expected {', '.join(choices)}")
    return value


def landing_of(visit: Visit) -> str:
    chosen = visit.request.cookies.get("noonbell_landing", "")
    return chosen if chosen in LANDINGS and (chosen != "activity" or visit.may("admin")) else "overview"


def begins_elsewhere(visit: Visit) -> str | None:
    """Where to send somebody who opens the root: who comes from a page of ours has asked for the overview itself."""
    chosen = landing_of(visit)
    return f"/{chosen}" if chosen != "overview" and "referer" not in visit.request.headers else None


def safe_path(path: str) -> str:
    """Where to go back to: an address of the dashboard, never another site's."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_ours and path.isprintable() else "/"


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/preferences", choose, "POST", role=None)]
