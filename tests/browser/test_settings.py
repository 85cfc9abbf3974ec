"""The settings in a real browser: each section by its address, a token once, a channel that really sends."""

from __future__ import annotations

import re

from playwright.async_api import expect

from browser.conftest import address
from browser.guarding import guarded_node, sign_in


async def test_sections_have_addresses_and_the_back_button_leads_through_them(node, open_page):
    page = await open_page(address(node, "/settings"))
    for name, path in (("Alerts", "/settings/alerts"), ("Diagnostics", "/settings/diagnostics")):
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page).to_have_url(address(node, path))
        await expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")
    await page.go_back()
    await expect(page).to_have_url(address(node, "/settings/alerts"))
    await page.go_back()
    await expect(page).to_have_url(address(node, "/settings"))


async def test_a_token_is_shown_once_copied_and_revoked_after_a_question(nodes, tmp_path, open_page):
    node, tokens = await guarded_node(nodes, tmp_path)
    page = await open_page(address(node, "/settings/tokens"), permissions=["clipboard-read", "clipboard-write"])
    await sign_in(page, tokens["admin"])
    await page.get_by_label("Name", exact=True).fill("ci runner")
    await page.get_by_label("Role", exact=True).select_option("operator")
    await page.get_by_role("button", name="Create token").click()
    secret = await page.locator(".secret").inner_text()
    await page.locator("[role=alert]").get_by_role("button", name="Copy").click()
    await expect(page.locator(".toast")).to_contain_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == secret
    await page.goto(address(node, "/settings/tokens"))
    row = page.locator("tr", has_text="ci runner")
    await expect(row).to_contain_text("operator")
    await expect(page.locator("body")).not_to_contain_text(secret)
    await row.get_by_role("button", name="Revoke").click()
    await page.locator("#confirm button[value=no]").click()
    await expect(row).not_to_contain_text("revoked")
    await row.get_by_role("button", name="Revoke").click()
    await page.locator("#confirm button[value=yes]").click()
    await expect(row).to_contain_text("revoked")


async def test_a_channel_is_made_tried_for_real_and_deleted_by_its_name(node, target, open_page):
    page = await open_page(address(node, "/settings/alerts"))
    await page.get_by_role("link", name="New channel").click()
    await page.get_by_label("Name", exact=True).fill("ops")
    await page.get_by_label("URL").fill("not an address")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#p-url")).to_contain_text("expected http://HOST/")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("ops")
    await page.get_by_label("URL").fill(target.url("/hook"))
    await page.get_by_label("Signing secret").fill("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    await page.get_by_role("button", name="Save").click()
    await expect(page).to_have_url(address(node, "/settings/alerts"))
    row = page.locator("tr", has_text="ops")
    await row.get_by_role("button", name="Send a test").click()
    await expect(page.locator(".toast").last).to_contain_text(re.compile("delivered to ops. HTTP 2"))
    (arrived,) = target.at("/hook")
    assert "webhook-signature" in {name.lower() for name in arrived.headers}
    await expect(page.locator("[data-live=deliveries]")).to_contain_text("Noonbell: test alert")
    await row.get_by_role("link", name="Delete").click()
    await page.get_by_label("Type ops to confirm").fill("ops")
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("no one is notified")).to_be_visible()


async def test_a_test_that_does_not_arrive_says_why_and_stays(node, target, open_page):
    node.ask("POST", "/alerts/channels", {"name": "broken", "url": target.url("/status/500")}, expect=201)
    page = await open_page(address(node, "/settings/alerts"))
    await page.locator("tr", has_text="broken").get_by_role("button", name="Send a test").click()
    await expect(page.locator(".toast.bad")).to_contain_text("not delivered to broken")
    await expect(page.locator(".toast.bad")).to_contain_text("500")


async def test_diagnostics_are_live_in_chinese_and_their_report_is_copied(node, open_page):
    page = await open_page(
        address(node, "/settings/diagnostics"), lang="zh", permissions=["clipboard-read", "clipboard-write"]
    )
    await expect(page.locator("[data-live=doctor]")).to_contain_text("每个到期的执行都有可领取它的工作节点")
    task = node.create(name="unserved", job_type="nobody", queue="lonely")
    node.trigger(task)
    node.ask("POST", "/queues/other/pause")  # an event that the page listens to
    await expect(page.locator("[data-live=doctor]")).to_contain_text("没有工作节点处理队列 lonely（1 个等待中）")
    await page.get_by_role("button", name="复制报告").click()
    await expect(page.locator(".toast")).to_be_visible()
    assert "no worker serves queue lonely (1 waiting)" in await page.evaluate("navigator.clipboard.readText()")


async def test_the_page_to_begin_with_is_chosen_and_the_overview_stays_a_click_away(node, open_page):
    page = await open_page(address(node, "/settings"))
    await page.get_by_label("Start page").select_option("tasks")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_label("Start page")).to_have_value("tasks")
    fresh = await page.context.new_page()
    await fresh.goto(address(node))
    await expect(fresh).to_have_url(address(node, "/tasks"))
    await fresh.get_by_role("link", name="Overview", exact=True).first.click()
    await expect(fresh).to_have_url(address(node))
