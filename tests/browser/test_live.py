"""Live pages: what changes is shown, what somebody points at stays where it is."""

from __future__ import annotations

from playwright.async_api import expect

from acceptance.harness import Nodes
from browser.conftest import address
from browser.test_twelve_checks_1_to_3 import pouring


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


async def test_a_lost_connection_is_said_and_made_up_for(nodes: Nodes, target, open_page, sqlite_url, reserved):
    node = nodes.start(sqlite_url, port=reserved)
    task = node.create(name="told", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    node.kill()
    await expect(page.locator("#lost")).to_be_visible()
    again = nodes.start(sqlite_url, port=reserved)
    again.wait_for_run(again.trigger(task))
    await expect(page.locator("#lost")).to_be_hidden(timeout=30_000)
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "SUCCESS", timeout=30_000)


async def test_the_keys_walk_down_a_list_row_by_row_while_100_runs_a_second_arrive(node, target, open_page):
    busy = node.create(name="pours", target_url=target.url("/ok"), max_concurrency=None)
    node.ask("POST", "/runs/batch", {"runs": [{"task": busy}] * 25})
    page = await open_page(address(node, f"/runs?task={busy}"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    async with pouring(node, busy, 20):
        await page.keyboard.press("j")
        await expect(page.locator("tr.here")).to_have_count(1)
        order = await page.locator("main tr[data-row]").evaluate_all("all => all.map(each => each.dataset.row)")
        first = order.index(str(await page.locator("tr.here").get_attribute("data-row")))
        new = page.locator("[data-new=runs]")
        for step in range(1, 15):
            await page.keyboard.press("j")
            await expect(page.locator("tr.here")).to_have_attribute("data-row", order[first + step])
            if step % 5 == 0:  # the page has been drawn anew meanwhile, and says that there is more
                await expect(new).to_be_visible()
                await expect(page.locator("tr.here")).to_have_attribute("data-row", order[first + step])
        await page.keyboard.press("k")
        await expect(page.locator("tr.here")).to_have_attribute("data-row", order[first + 13])
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(address(node, f"/runs/{order[first + 13]}"))
