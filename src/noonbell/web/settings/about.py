"""About: what runs here, on what, and under which licences."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

from starlette.responses import Response

from noonbell.settings.masking import mask_addresses
from noonbell.web.page import Page
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import Visit

_NAME = re.compile(r"[A-Za-z0-9._-]+")


async def show(visit: Visit) -> Response:
    url, health = visit.site.settings.store.url, visit.site.health()
    return section(
        visit,
        "about",
        "settings_about.html",
        python=platform.python_version(),
        store_kind=url.partition(":")[0],
        store_url=mask_addresses(url) if visit.may("admin") else None,
        is_well=bool(health.get("ok", True)),
        role=role_of(visit.site, health),
        workers=health.get("workers") or [],
        libraries=libraries(),
    )


def role_of(site: Site, health: Mapping[str, Any]) -> list[str]:
    """What this node does beside answering."""
    does = ["serves"]
    if site.settings.scheduler.enabled and ("planner" not in health or health["planner"] is not None):
        does.append("plans")
    if health.get("workers"):
        does.append("works")
    return does


@cache
def libraries() -> list[tuple[str, str, str]]:
    """Name, version and licence of what it stands on, as the packages themselves say it."""
    found: list[tuple[str, str, str]] = []
    for name in sorted({*_required("noonbell")}, key=str.lower):
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        found.append((package.metadata["Name"], package.version, _licence(package.metadata)))
    return found


def _required(name: str) -> Iterator[str]:
    for requirement in metadata.requires(name) or []:
        match = _NAME.match(requirement)
        if match is not None and match[0] != name:  # an extra of all extras names itself
            yield match[0]


def _licence(package: Any) -> str:
    expression = package.get("License-Expression")
    if expression:
        return str(expression)
    classified = [
        str(each).rpartition(":: ")[2] for each in package.get_all("Classifier") or [] if "License ::" in each
    ]
    plain = str(package.get("License") or "").strip().partition("\n")[0]
    return ", ".join(classified) or plain[:60] or "–"


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/settings/about", show)]
