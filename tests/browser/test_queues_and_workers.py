"""Queues and workers in a real browser: what waits and nobody takes, pausing with a reason, emptying, places and draining."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from acceptance.harness import ServerNode
from browser.conftest import address


@pytest.fixture(scope="module")
def waiting(node: ServerNode) -> int:
    """A task whose runs nobody takes; one of them waits."""
    task = node.create(name="waits", job_type="nobody", queue="reports")
    node.trigger(task)
    return task


async def test_a_queue_that_nobody_works_on_says_how_to_start_somebody(node, waiting, open_page):
    page = await open_page(address(node, "/queues"), permissions=["clipboard-read", "clipboard-write"])
    card = page.locator("[data-live=alone] .card", has_text="reports")
    await expect(card).to_contain_text("1 run waits in reports; no worker serves it.")
    await card.get_by_role("button", name="Copy").click()
    await expect(page.locator(".toast")).to_be_visible()
    command = await page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("noonbell worker --app MODULE:APP --queues reports --store ")
    node.trigger(waiting)
    await expect(card).to_contain_text("2 runs wait in reports")


async def test_a_queue_is_paused_with_a_reason_and_that_is_taken_back(node, waiting, open_page):
    page = await open_page(address(node, "/queues"))
    row = page.locator("tr[data-row=reports]")
    await row.locator("summary").click()
    await row.get_by_label("Reason").fill("the disk is full")
    await row.get_by_role("button", name="Pause").click()
    await expect(row).to_contain_text("“the disk is full”")
    assert node.ask("GET", "/queues/reports")["paused"]
    await page.get_by_role("button", name="Undo").click()
    await expect(row).not_to_contain_text("the disk is full")
    assert not node.ask("GET", "/queues/reports")["paused"]


async def test_what_failed_is_run_again_and_removed_after_its_number_was_shown(node, target, open_page):
    failed = node.create(name="fails", target_url=target.url("/status/500"))
    for run in [node.trigger(failed) for _ in range(3)]:
        node.wait_for_run(run, "FAILED")
    page = await open_page(address(node, "/queues/http"))
    await page.get_by_role("link", name="Retry all").click()
    await expect(page.get_by_role("heading", name="Retry 3 runs?")).to_be_visible()
    await page.get_by_role("button", name="Retry 3").click()
    await expect(page.locator(".toast")).to_contain_text("3 of 3 retried")
    for run in node.runs_of(failed):
        node.wait_for_run(run["id"], "FAILED")
    await page.goto(address(node, "/queues/http/clean"))
    await page.get_by_label("Ended").select_option("0")
    await expect(page).to_have_url(address(node, "/queues/http/clean?kind=all&days=0"))
    await page.get_by_label("Type http to confirm").fill("no")
    await page.get_by_role("button", name="Delete 6").click()
    await expect(page.get_by_role("alert")).to_contain_text("That is not http")
    await page.get_by_label("Type http to confirm").fill("http")
    await page.get_by_role("button", name="Delete 6").click()
    await expect(page.locator(".toast")).to_contain_text("6 runs of http deleted")
    assert node.runs_of(failed) == []


async def test_places_are_changed_while_it_works_and_several_are_drained_at_once(node, open_page):
    for name in ("crew-1", "crew-2"):
        asked = {"queues": ["crew"], "job_types": ["x"], "max": 1, "wait_seconds": 0, "version": 0}
        node.ask("POST", f"/workers/{name}/claim", asked)
    page = await open_page(address(node, "/workers"))
    row = page.locator("tr[data-row=crew-1]")
    await row.locator("summary").click()
    await row.get_by_label("Capacity").last.fill("9")
    await row.get_by_role("button", name="Save").click()
    await expect(row.locator("summary")).to_contain_text("0 / 9")
    for name in ("crew-1", "crew-2"):
        await page.get_by_label(f"Select {name}").check()
    await page.locator("#ticked").get_by_role("button", name="Drain").click()
    await expect(page.locator(".toast").last).to_contain_text("2 workers draining")
    for name in ("crew-1", "crew-2"):
        await expect(page.locator(f"tr[data-row={name}] .badge")).to_have_attribute("data-status", "draining")


async def test_the_log_narrows_by_its_address_and_leads_to_what_changed(node, target, open_page):
    task = node.create(name="changes", target_url=target.url("/ok"))
    node.ask("PATCH", f"/tasks/{task}", {"timeout_seconds": 33})
    page = await open_page(address(node, "/activity"))
    await page.get_by_label("Task name or ID").fill("changes")
    await page.get_by_role("button", name="Filter").click()
    rows = page.locator("[data-live=entries] tbody tr")
    await expect(rows).to_have_count(2)
    assert "task=changes" in page.url
    await page.get_by_label("Action").select_option("access")
    await expect(page.get_by_text("Nothing in the log matches the filter.")).to_be_visible()
    await page.go_back()
    await expect(rows).to_have_count(2)
    await rows.first.get_by_role("link", name="What changed").click()
    await expect(page.locator(".diff")).to_contain_text("33")
    await page.goto(address(node, "/activity?view=system&kind=worker"))
    await expect(page.locator("[data-live=events]")).to_contain_text("Worker connected")
