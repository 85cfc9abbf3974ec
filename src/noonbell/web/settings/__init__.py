"""Settings: sections with an address each, so that one can be linked to, and the back button works."""

from __future__ import annotations

from noonbell.web.page import Page
from noonbell.web.settings import about, alerts, channels, diagnostics, general, retention, rules, secrets, tokens
from noonbell.web.site import Site


def pages(site: Site) -> list[Page]:
    sections = (general, tokens, alerts, channels, rules, secrets, retention, diagnostics, about)
    return [page for section in sections for page in section.pages(site)]
