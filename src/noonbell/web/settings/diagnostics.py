"""Diagnostics: what `noonbell doctor` looks at, as far as it can be seen from inside the server."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from noonbell.clock import SystemClock
from noonbell.errors import StoreUnavailable
from noonbell.service.doctor import (
    Finding,
    Mark,
    folder_of,
    look_at_machine,
    look_at_node,
    look_at_settings,
    look_at_store,
)
from noonbell.web.findings import report, said
from noonbell.web.lately import patient
from noonbell.web.page import Page
from noonbell.web.settings.frame import section
from noonbell.web.site import Site
from noonbell.web.visit import Visit


async def show(visit: Visit) -> Response:
    findings = await look(visit)
    return section(
        visit,
        "diagnostics",
        "settings_diagnostics.html",
        findings=[said(finding, visit.words) for finding in findings],
        report=report(findings, visit.site.settings.store.url.partition(":")[0]),
        ill=sum(finding.mark is Mark.ILL for finding in findings),
        care=sum(finding.mark is Mark.CARE for finding in findings),
    )


async def look(visit: Visit) -> list[Finding]:
    site = visit.site
    return [
        *look_at_settings(site.settings, (), asks_for_tokens=site.asks_for_tokens, exposed=site.exposed),
        *await asyncio.to_thread(look_at_machine, folder_of(site.settings.store.url)),
        look_at_node(site.health()),
        *await _store(site),
    ]


async def _store(site: Site) -> list[Finding]:
    try:
        return [finding async for finding in look_at_store(patient(site.services), SystemClock().now)]
    except StoreUnavailable as error:
        return [Finding("store", Mark.ILL, error.message)]


def pages(site: Site) -> list[Page]:
    del site
    return [Page("/settings/diagnostics", show)]
