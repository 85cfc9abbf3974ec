"""What all sections share: the list of them, as far as a visitor may see it, and problems at their fields."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from noonbell.errors import AlreadyExists, InvalidArgument, NoonbellError
from noonbell.model.access import Role
from noonbell.web.visit import Visit

SECTIONS: Final[dict[str, tuple[str, Role]]] = {
    "general": ("/settings", Role.VIEWER),
    "tokens": ("/settings/tokens", Role.ADMIN),
    "alerts": ("/settings/alerts", Role.VIEWER),
    "secrets": ("/settings/secrets", Role.VIEWER),
    "retention": ("/settings/retention", Role.VIEWER),
    "diagnostics": ("/settings/diagnostics", Role.VIEWER),
    "about": ("/settings/about", Role.VIEWER),
}
"""Where each is, and who may see it."""


def section(visit: Visit, name: str, template: str, status: int = 200, /, **view: Any) -> Response:
    shown = {each: path for each, (path, role) in SECTIONS.items() if visit.may(role)}
    return visit.page(template, status, section=name, sections=shown, **view)


def removal(visit: Visit, name: str, path: str, problem: str, /, **told: Any) -> Response:
    """The question whether it may go, to be answered by its name."""
    status = 400 if problem else 200
    return section(visit, "alerts", "settings_remove.html", status, name=name, path=path, problem=problem, **told)


async def mistyped(visit: Visit, name: str) -> str:
    """What to say to somebody who did not type the name; empty if they did."""
    typed = (await visit.fields()).get("typed", "").strip()
    return "" if typed == name else visit.words("confirm.mistyped", name=name)


def problems_of(error: NoonbellError, fields: tuple[str, ...]) -> dict[str, str]:
    """By the field of the form that it is about; what has no field is said on top, under the empty name."""
    if isinstance(error, AlreadyExists):
        return {"name": error.message}
    if not isinstance(error, InvalidArgument) or not error.details:
        return {"": error.message}
    found: dict[str, str] = {}
    for name, problem in error.details.items():
        field = name.partition(".")[0].partition("[")[0]
        text = str(problem) if field == name else f"{name}: {problem}"
        found.setdefault(field if field in fields else "", text if field in fields else f"{name}: {problem}")
    return found
