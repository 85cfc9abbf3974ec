"""Notifications of the browser: asked for by a button, shown for failures of watched tasks and for alerts while the tab is hidden."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, expect

from browser.conftest import address

STUB = """
  window.shown = [];
  const kept = () => sessionStorage.getItem("permission") ?? "default";
  window.Notification = class {
    static get permission() { return kept(); }
    static async requestPermission() {
      sessionStorage.setItem("permission", window.answer ?? "granted");
      return kept();
    }
    constructor(title, more) {
      this.title = title;
      Object.assign(this, more);
      window.shown.push(this);
      document.documentElement.dataset.shown = this.body;
    }
    close() {}
  };
  window.covered = false;
  Object.defineProperty(document, "hidden", { get: () => window.covered });
"""
"""The browser's own would show nothing that a test can see, and a page in a test is never behind another."""


async def cover(page: Page, covered: bool) -> None:
    said = "window.covered = {}; document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(said.format("true" if covered else "false"))


async def shown(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await page.evaluate(
        "window.shown.map(({ title, body, tag }) => ({ title, body, tag }))"
    )
    return found


async def stubbed(page: Page) -> None:
    await page.add_init_script(STUB)
    await page.reload()


async def test_a_failure_of_a_watched_task_is_notified_while_the_tab_is_hidden_and_leads_to_its_run(
    node, target, open_page
):
    watched = node.create(name="watched", target_url=target.url("/status/500"))
    other = node.create(name="other", target_url=target.url("/status/500"))
    page = await open_page(address(node, f"/tasks/{watched}"))
    await stubbed(page)
    await page.get_by_role("button", name="Notify me of failures").click()
    button = page.get_by_role("button", name="You are notified of failures")
    await expect(button).to_have_attribute("aria-pressed", "true")
    node.wait_for_run(node.trigger(watched))  # the tab is seen: no notification
    await expect(page.locator("[data-live=badges] [data-status=FAILED]")).to_be_visible()
    assert await shown(page) == []
    await cover(page, True)
    await expect(page.locator("html")).to_have_attribute("data-notifying", "1")
    node.wait_for_run(node.trigger(other))
    run = node.trigger(watched)
    node.wait_for_run(run)
    await expect(page.locator("html")).to_have_attribute("data-shown", f"Run {run}")
    told = await shown(page)
    assert told[-1] == {"title": "watched failed", "body": f"Run {run}", "tag": f"noonbell-task-{watched}"}
    assert {each["title"] for each in told} == {"watched failed"}, "of the other task nothing is told"
    await page.evaluate("window.shown.at(-1).onclick()")
    await expect(page).to_have_url(address(node, f"/runs/{run}"))


async def test_an_alert_is_notified_and_nothing_is_after_notifications_were_turned_off(node, target, open_page):
    node.ask("POST", "/alerts/rules", {"name": "first-failure", "kind": "failed", "tasks": ["alarming"]}, expect=201)
    task = node.create(name="alarming", target_url=target.url("/status/500"))
    page = await open_page(address(node, "/settings"))
    await stubbed(page)
    card = page.locator("[data-notify]")
    await expect(card).to_contain_text("Notifications are off.")
    await card.get_by_role("button", name="Turn on").click()
    await expect(card).to_contain_text("Notifications are on.")
    await cover(page, True)
    await expect(page.locator("html")).to_have_attribute("data-notifying", "1")
    node.wait_for_run(node.trigger(task))
    await expect(page.locator("html")).to_have_attribute("data-shown", "alarming")
    assert {each["title"] for each in await shown(page)} == {"Alert: first-failure"}
    await cover(page, False)
    await expect(page.locator("html")).not_to_have_attribute("data-notifying", "1")
    await card.get_by_role("button", name="Turn off").click()
    await expect(card).to_contain_text("Notifications are off.")
    await cover(page, True)
    assert await page.locator("html").get_attribute("data-notifying") is None


async def test_a_browser_that_refuses_is_told_of_and_a_watched_task_is_removed_in_the_settings(node, target, open_page):
    task = node.create(name="listed", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"))
    await stubbed(page)
    await page.evaluate("window.answer = 'denied'")
    await page.get_by_role("button", name="Notify me of failures").click()
    await expect(page.locator(".toast.bad")).to_contain_text("does not allow notifications")
    await page.evaluate("window.answer = 'granted'")
    await page.get_by_role("button", name="Notify me of failures").click()
    await expect(page.get_by_role("button", name="You are notified of failures")).to_be_visible()
    await page.goto(address(node, "/settings"))
    card = page.locator("[data-notify]")
    await expect(card.get_by_role("link", name="listed")).to_be_visible()
    await card.get_by_role("button", name="Remove: listed").click()
    await expect(card).to_contain_text("None. Open a task")
