"""The page of a flow's run in a real browser: it follows the run, and the keyboard reaches every step."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from acceptance.harness import ServerNode, Target, until
from browser.conftest import address

WORKER = "flow-worker"


@pytest.fixture
def held(node: ServerNode, target: Target) -> tuple[int, dict[str, Any]]:
    """A run of a flow whose first step a worker holds, and that step's run."""
    steps = [
        {"id": "ask", "job_type": "ask", "queue": "held-flow"},
        {"id": "tell", "needs": ["ask"], "target_url": target.url("/ok")},
        {"id": "page", "needs": ["ask"], "on": "failure", "target_url": target.url("/ok")},
    ]
    run = node.trigger(node.create(name="followed", steps=steps))
    asked = {"queues": ["held-flow"], "job_types": ["ask"], "max": 1, "wait_seconds": 0, "version": 0}
    (step,) = until(lambda: node.ask("POST", f"/workers/{WORKER}/claim", asked)["runs"], "the step to be claimed")
    return run, step


async def test_the_graph_the_table_and_the_bars_follow_the_run_and_the_keyboard_reaches_each_step(
    node, held, open_page
):
    run, step = held
    page = await open_page(address(node, f"/runs/{run}"))
    graph, table = page.locator("svg.graph"), page.locator("[data-live=steps]")
    await expect(graph).to_contain_text("Running")
    await expect(table.locator("tr[data-row=tell]")).to_contain_text("Waiting")
    await page.evaluate("window.stayed = true")
    done = {"worker_id": WORKER, "token": step["token"], "outcome": "success", "result": 1}
    node.ask("POST", f"/runs/{step['run_id']}/settle", done)
    await expect(table.locator("tr[data-row=tell]")).to_contain_text("Succeeded", timeout=60_000)
    await expect(table.locator("tr[data-row=page]")).to_contain_text("Skipped")
    await expect(graph).not_to_contain_text("Running")
    await expect(page.locator("[data-step=tell]")).to_be_visible()
    assert await page.evaluate("window.stayed")

    await page.locator(".graph-frame").focus()
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "ask: Succeeded"
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "tell: Succeeded"
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).not_to_contain_text(str(run))
    await expect(page.locator("main")).to_contain_text(f"step tell of {run}")
    await page.get_by_role("link", name=f"step tell of {run}").click()
    await expect(page.locator("h1")).to_contain_text(str(run))
