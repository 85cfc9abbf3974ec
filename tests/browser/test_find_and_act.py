"""Finding one among many, acting on several, and doing it from a phone."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from acceptance.harness import Nodes, ServerNode
from browser.conftest import address
from noonbell.model.task import TaskSpec
from noonbell.stores import open_store

MANY = 5_000


@pytest.fixture(scope="module")
async def crowded(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> ServerNode:
    """A node with 5,000 tasks."""
    url = f"sqlite:///{tmp_path_factory.mktemp('crowd') / 'noonbell.db'}"
    store = open_store(url, connections=4)
    await store.open()
    specs = [TaskSpec(name=f"task-{number:04}", target_url="http://127.0.0.1:9/x") for number in range(MANY)]
    for start in range(0, MANY, 500):
        await asyncio.gather(*(store.create_task(spec) for spec in specs[start : start + 500]))
    await store.close()
    return nodes.start(url)


async def test_one_of_5000_tasks_is_found_by_part_of_its_name_and_run_in_three_actions(crowded, open_page):
    page = await open_page(address(crowded))
    await page.keyboard.press("/")
    await page.keyboard.type("3917")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="task-3917")).to_be_visible()
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator("[data-live=runs] tbody tr")).to_have_count(1)


async def test_all_that_a_filter_finds_are_paused_after_a_look_and_no_other(crowded, open_page):
    page = await open_page(address(crowded, "/tasks"))
    await page.get_by_label("Name", exact=True).fill("task-12")
    await page.get_by_label("Name", exact=True).press("Enter")
    await expect(page.locator("h1 .count")).to_have_text("100")
    await page.get_by_role("link", name="Pause all").click()
    await expect(page.get_by_role("heading", name="Pause 100 tasks?")).to_be_visible()
    await page.get_by_role("button", name="Pause 100").click()
    await expect(page.locator(".toast")).to_contain_text("100 tasks are paused")
    assert "name=task-12" in page.url
    assert crowded.ask("GET", "/tasks?status=DISABLED")["total"] == 100


async def test_a_filter_without_a_match_says_how_many_there_are_without_it(crowded, open_page):
    page = await open_page(address(crowded, "/tasks?name=nothing-like-it"))
    await expect(page.get_by_text("Without it there are 5000.")).to_be_visible()
    await page.get_by_role("link", name="Clear the filter").last.click()
    await expect(page.locator("h1 .count")).to_have_text("5000")


async def test_from_a_link_on_a_phone_a_task_is_paused_in_one_tap_and_that_is_taken_back_in_one_more(
    node, target, open_page
):
    task = node.create(name="loud", cron_expr="* * * * * *", target_url=target.url("/status/500"))
    page = await open_page(address(node, f"/tasks/{task}"), width=390)
    await page.get_by_role("button", name="Pause").tap()
    await expect(page.locator("[data-live=badges]")).to_contain_text("Paused")
    assert node.ask("GET", f"/tasks/{task}")["status"] == "DISABLED"
    await page.get_by_role("button", name="Undo").tap()
    await expect(page.locator("[data-live=badges]")).to_contain_text("Enabled")


async def test_no_page_is_wider_than_a_phone(node, target, open_page):
    task = node.create(name="w" * 200, target_url=target.url("/status/500"), labels={"l" * 60: "v" * 60})
    run = node.trigger(task)
    node.wait_for_run(run)
    page = await open_page(address(node), width=390)
    for path in (
        *("/", "/tasks", f"/tasks/{task}", f"/tasks/{task}/edit", "/runs", f"/runs/{run}", "/timeline"),
        *("/queues", "/workers", "/activity", "/settings", "/nowhere"),
    ):
        await page.goto(address(node, path))
        assert await page.evaluate("document.documentElement.scrollWidth") == 390, path
