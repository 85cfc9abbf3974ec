"""Pages that everybody can use: axe finds nothing (WCAG 2.2 AA) in either theme and language, and no word is missing."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

from acceptance.harness import ServerNode, Target
from browser.conftest import address

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


@pytest.fixture(scope="module")
def furnished(node: ServerNode, target: Target) -> list[str]:
    """Pages of a node on which something of every kind has happened."""
    good = node.create(name="good", cron_expr="0 2 * * *", target_url=target.url("/ok"), labels={"team": "a"})
    bad = node.create(name="bad", cron_expr="30 2 * * *", target_url=target.url("/status/503"))
    late = node.create(name="calls-back", exec_type="ASYNC", target_url=target.url("/accept/1"))
    off = node.create(name="off", cron_expr="0 * * * *", target_url=target.url("/ok"), status="DISABLED")
    job = node.create(name="job", job_type="resize", queue="pdf", payload={"a": 1})
    node.ask("PATCH", f"/tasks/{good}", {"timeout_seconds": 7})
    runs = [node.trigger(task) for task in (good, bad, late)]
    node.trigger(job)
    for run in runs[:2]:
        node.wait_for_run(run)
    node.wait_for_run(runs[2], "CALLBACK_PENDING")
    return [
        *("/", "/tasks", "/tasks/new", f"/tasks/{good}", f"/tasks/{bad}", f"/tasks/{off}/edit", f"/tasks/{job}/delete"),
        *("/tasks?name=nothing", "/tasks/bulk?act=disable", "/runs", "/runs/bulk?act=retry"),
        *(f"/runs/{runs[1]}", f"/runs/{runs[2]}", f"/runs/{runs[0]}/replay"),
        *("/timeline", "/queues", "/workers", "/activity", "/settings", "/nowhere"),
    ]


async def test_axe_finds_nothing_wrong_on_any_page(node, furnished, open_page):
    page = await open_page(address(node))
    await check(page, [address(node, path) for path in furnished])


@pytest.mark.parametrize(("theme", "lang", "width"), [("dark", "zh", 1280), ("light", "zh", 390)])
async def test_axe_finds_nothing_wrong_in_the_dark_in_chinese_and_on_a_phone(
    theme, lang, width, node, furnished, open_page
):
    page = await open_page(address(node), theme=theme, lang=lang, width=width)
    kinds = [path for path in furnished if "bulk" not in path and "delete" not in path and "replay" not in path]
    await check(page, [address(node, path) for path in kinds[:: 2 if width > 500 else 3]])


async def check(page: Page, addresses: list[str]) -> None:
    wrong: list[str] = []
    for each in addresses:
        await page.goto(each)
        wrong += [f"{each}: {problem}" for problem in await problems_of(page)]
    assert not wrong, "\n".join(wrong)


async def problems_of(page: Page) -> list[str]:
    found = (await Axe().run(page, options=RULES)).response
    return [
        f"{rule['id']} at {node['target']}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
