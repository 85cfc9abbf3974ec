"""Live pages: what changes is shown, what somebody points at stays where it is."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import expect

from acceptance.harness import Nodes
from browser.conftest import address


async def test_no_row_moves_under_the_pointer_and_new_ones_wait_to_be_asked_for(node, target, open_page):
    for name in ("m-1", "m-2", "m-3"):
        node.create(name=name, target_url=target.url("/ok"))
    page = await open_page(address(node, "/tasks"))
    row = page.locator("tr", has=page.get_by_role("link", name="m-2", exact=True))
    await row.hover()
    before = await row.bounding_box()
    node.create(name="a-new-one", target_url=target.url("/ok"))
    await expect(page.locator("[data-new=tasks]")).to_contain_text("1 new")
    assert await row.bounding_box() == before
    assert await page.get_by_role("link", name="a-new-one").count() == 0
    await page.get_by_role("button", name="1 new").click()
    await expect(page.get_by_role("link", name="a-new-one")).to_be_visible()


async def test_no_letter_is_lost_while_events_pour_in(node, target, open_page):
    task = node.create(name="busy", target_url=target.url("/ok"), max_concurrency=None)
    page = await open_page(address(node, "/tasks"))
    await asyncio.gather(
        asyncio.to_thread(lambda: [node.trigger(task) for _ in range(100)]),
        page.get_by_label("Name", exact=True).press_sequentially("twenty letters in all", delay=40),
    )
    await expect(page.get_by_label("Name", exact=True)).to_have_value("twenty letters in all")


async def test_a_lost_connection_is_said_and_made_up_for(nodes: Nodes, target, open_page, sqlite_url):
    node = nodes.start(sqlite_url)
    task = node.create(name="told", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    port = node.port
    node.kill()
    await expect(page.locator("#lost")).to_be_visible()
    again = nodes.start(sqlite_url, port=port)
    again.wait_for_run(again.trigger(task))
    await expect(page.locator("#lost")).to_be_hidden(timeout=30_000)
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "SUCCESS", timeout=30_000)


async def test_a_callback_that_is_refused_shows_its_reason_within_seconds(node, target, open_page):
    task = node.create(name="calls-back", exec_type="ASYNC", target_url=target.url("/accept/1"))
    run = node.trigger(task)
    node.wait_for_run(run, "CALLBACK_PENDING")
    page = await open_page(address(node, f"/runs/{run}"))
    await expect(page.locator("[data-live=status]")).to_contain_text("Waiting for callback")
    token = target.at("/accept/1")[-1].headers["X-Callback-Token"]
    body = {"status": "SUCCESS", "data": {"rows": 9007199254740993}}
    node.ask("POST", f"/callbacks/{token}", body)
    await expect(page.locator("[data-live=status] .badge")).to_have_attribute("data-status", "CALLBACK_SUCCESS")
    node.ask("POST", f"/callbacks/{token}", body)
    await expect(page.locator("[data-live=callbacks]")).to_contain_text("Refused")
    await expect(page.locator("[data-live=callbacks]")).to_contain_text("CALLBACK_SUCCESS already")
    await expect(page.locator("[data-live=callbacks]")).to_contain_text("9007199254740993")


async def test_every_time_on_a_page_is_on_the_clock_of_the_chosen_zone(node, target, open_page):
    task = node.create(name="zoned", cron_expr="0 2 * * *", timezone="Europe/Berlin", target_url=target.url("/ok"))
    node.wait_for_run(node.trigger(task))
    page = await open_page(address(node, f"/tasks/{task}"), zone="Asia/Tokyo")
    await expect(page.locator("#zone")).to_have_value("Asia/Tokyo")
    for path in (f"/tasks/{task}", "/", "/runs", "/workers", "/activity"):
        await page.goto(address(node, path))
        offsets = await page.locator("main .offset").all_inner_texts()
        assert set(offsets) == {"+09:00"}, path
    await page.locator("#zone").fill("America/New_York")
    await page.locator("#zone").press("Enter")
    await expect(page.locator("main .offset").first).to_have_text(re.compile(r"-0[45]:00"))
