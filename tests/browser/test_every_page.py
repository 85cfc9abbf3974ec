"""Every page, for everybody: axe finds nothing (WCAG 2.2 AA), nothing is cut, nothing lies over something else, no page is
wider than its screen; in both themes, both languages, at a desk and on a phone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, Page
from starlette.routing import compile_path

from acceptance.harness import Nodes, ServerNode, Target
from browser.conftest import PATIENCE, address, listen
from browser.every_page import FIRST, GUARDED, PAGES, furnish
from noonbell.web import routes

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]},
    "resultTypes": ["violations"],
}
LAYOUT = (Path(__file__).parent / "layout.js").read_text()

DESK, PHONE = ("light", "en", (1440,), (1440,)), ("light", "en", (390,), (390,))
LOOKS = (DESK, PHONE, ("light", "en", (1280, 768, 320), (320,)), ("dark", "zh", (1440, 390), (1440, 390)))
"""Theme, language, the widths that the layout is judged at, and those that axe judges as well."""

NAMES = [place.name for place in (*PAGES, *FIRST, *GUARDED)]


def every_look() -> list[Any]:
    """`make test` judges each page in one of them: two at a desk, the third on a phone."""
    often = {name: PHONE if number % 3 == 2 else DESK for number, name in enumerate(NAMES)}
    return [
        pytest.param(name, *look, marks=() if look == often[name] else pytest.mark.full)
        for name in NAMES
        for look in LOOKS
    ]


@pytest.fixture(scope="module")
def everywhere(node: ServerNode, nodes: Nodes, target: Target) -> dict[str, str]:
    """The address of every page, by its name."""
    made = furnish(node, target)
    first = nodes.start("memory://")
    guarded = nodes.start("memory://", env={"NOONBELL_AUTH__ENABLED": "true"})
    return (
        {place.name: address(node, place.on(made)) for place in PAGES}
        | {place.name: address(first, place.path) for place in FIRST}
        | {place.name: address(guarded, place.path) for place in GUARDED}
    )


@pytest.fixture(scope="module")
async def windows(chromium: Browser) -> AsyncIterator[Callable[[str, str], Awaitable[tuple[Page, list[str]]]]]:
    """For each look a window that goes from page to page, and what its pages complain of. A window costs as much as a page."""
    opened: dict[tuple[str, str], tuple[Page, list[str]]] = {}

    async def window(theme: str, lang: str) -> tuple[Page, list[str]]:
        if (theme, lang) not in opened:
            context = await chromium.new_context(
                locale="zh-CN" if lang == "zh" else "en-GB", timezone_id="UTC", color_scheme=theme
            )
            page, complaints = await context.new_page(), []
            page.set_default_timeout(PATIENCE)
            listen(page, complaints)
            opened[theme, lang] = page, complaints
        return opened[theme, lang]

    yield window
    for page, _ in opened.values():
        await page.context.close()


@pytest.mark.parametrize(("name", "theme", "lang", "widths", "axe_at"), every_look())
async def test_nothing_is_wrong_cut_covered_or_wider_than_the_screen(
    name, theme, lang, widths, axe_at, everywhere, windows
):
    """In both themes and languages. 320 is what a screen of 1280 has left at a zoom of 400 %."""
    wrong: list[str] = []
    page, complaints = await windows(theme, lang)
    complaints.clear()
    await page.set_viewport_size({"width": widths[0], "height": 844 if widths[0] < 500 else 900})
    await page.goto(everywhere[name])
    for width in widths:
        await page.set_viewport_size({"width": width, "height": 844})
        found = await page.evaluate(LAYOUT)
        if width in axe_at:
            found += await problems_of(page)
        wrong += [f"{width}: {problem}" for problem in found]
    assert not wrong, "\n".join(wrong)
    assert complaints == []


async def problems_of(page: Page) -> list[str]:
    await page.evaluate(AXE_SCRIPT)
    found = await page.evaluate("async (rules) => (await axe.run(rules)).violations", RULES)
    return [f"{rule['id']} at {node['target']}: {node['failureSummary']}" for rule in found for node in rule["nodes"]]


NOT_SEEN = {
    "/activity.csv",
    "/bulk/{bulk_id}/skipped",
    "/oidc",
    "/oidc-callback",
    "/palette",
    "/runs/export",
    "/runs/{run_id}/download/{what}",
    "/search",
    "/sla.csv",
    "/suggest",
    "/tasks/export",
    "/timeline.ics",
}
"""What is asked for by a page or saved as a file, and never looked at."""


def test_no_page_is_left_out():
    there = {page.path for page in routes.PAGES if page.method == "GET"} - NOT_SEEN
    known = [place.path.partition("?")[0] for place in (*PAGES, *FIRST, *GUARDED)]
    assert {path for path in there if not any(compile_path(path)[0].match(each) for each in known)} == set()


@pytest.mark.parametrize(
    ("spoiled", "complaint"),
    [
        ("<div style='width: 3000px'>wide</div>", "wider than the screen"),
        ("<p style='width: 40px; white-space: nowrap; overflow: hidden'>words that do not fit</p>", "is cut"),
        ("<button>one</button><button style='margin-left: -20px'>two</button>", "covers"),
    ],
    ids=["wide", "cut", "covered"],
)
async def test_what_is_looked_for_is_found(spoiled, complaint, chromium):
    """A check that cannot fail checks nothing."""
    page = await chromium.new_page()
    await page.set_content(f"<main>{spoiled}</main>")
    assert complaint in " ".join(await page.evaluate(LAYOUT))
    await page.close()
