"""JSON on a page folds by mouse and by key, without a script of the page."""

from __future__ import annotations

from playwright.async_api import expect

from browser.conftest import address


async def test_json_of_a_run_folds_by_key(node, target, open_page):
    labels = {f"label{n}": "x" for n in range(15)}
    task = node.create(name="folding", target_url=target.url("/ok"), labels=labels)
    page = await open_page(address(node, f"/tasks/{task}/configuration"))
    view = page.locator(".json").first
    outer = view.locator("details").first
    await expect(outer).to_have_attribute("open", "")
    await outer.locator("summary").first.focus()
    await page.keyboard.press("Enter")
    await expect(outer).not_to_have_attribute("open", "")
    await expect(outer.locator(".json-more").first).to_be_visible()
    await page.keyboard.press("Space")
    await expect(outer).to_have_attribute("open", "")
    await expect(view.locator(".json-key").first).to_be_visible()
