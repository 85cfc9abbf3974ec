"""Finding one among many, acting on several, and doing it from a phone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.async_api import expect

from browser.conftest import address


async def test_all_that_a_filter_finds_are_paused_after_a_look_and_no_other(crowded, open_page):
    page = await open_page(address(crowded, "/tasks"))
    await page.get_by_label("Name", exact=True).fill("task-12")
    await page.get_by_label("Name", exact=True).press("Enter")
    await expect(page.locator("h1 .count")).to_have_text("100")
    await page.get_by_role("link", name="Pause all").click()
    await expect(page.get_by_role("heading", name="Pause 100 tasks?")).to_be_visible()
    await page.get_by_role("button", name="Pause 100").click()
    await expect(page.locator("[data-said]")).to_have_text("100 of 100 paused")
    await page.get_by_role("link", name="Back to the list").click()
    await expect(page.locator("h1 .count")).to_have_text("100")
    assert "name=task-12" in page.url
    assert crowded.ask("GET", "/tasks?status=DISABLED")["total"] == 100


async def test_a_filter_without_a_match_says_how_many_there_are_without_it(crowded, open_page):
    page = await open_page(address(crowded, "/tasks?name=nothing-like-it"))
    await expect(page.get_by_text("5,000 matches without nothing-like-it.")).to_be_visible()
    await page.get_by_role("link", name="Clear nothing-like-it").click()
    await expect(page.locator("h1 .count")).to_have_text("5,000")


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


async def test_compact_rows_are_36_pixels_high(node, target, open_page):
    for number in range(3):
        labels = {"team": "billing", "owner": f"person-{number}"}
        task = node.create(
            name=f"dense-{number}", cron_expr="30 2 * * 1-5", labels=labels, target_url=target.url("/ok")
        )
        node.wait_for_run(node.trigger(task))
    node.ask(
        "POST",
        f"/tasks/{task}/disable",
        {"reason": "the database moves", "until": f"{datetime.now(UTC) + timedelta(days=40):%Y-%m-%dT%H:%M:%SZ}"},
    )
    page = await open_page(address(node, "/tasks?name=dense-"), width=1440)
    for path in ("/tasks?name=dense-", "/runs"):
        await page.goto(address(node, path))
        async with page.expect_navigation():
            await page.get_by_label("Density").select_option("compact")
        heights = await page.evaluate(
            "[...document.querySelectorAll('tbody tr[data-href]')].map((row) => row.getBoundingClientRect().height)"
        )
        assert len(heights) >= 3
        assert max(heights) <= 37, (path, heights)
        cut = await page.evaluate(
            "[...document.querySelectorAll('tbody tr[data-href] button, tbody tr[data-href] .badge')]"
            ".filter((each) => { const a = each.getBoundingClientRect(), b = each.closest('td').getBoundingClientRect();"
            " return a.right > b.right + 1 || a.bottom > b.bottom + 1 }).map((each) => each.textContent)"
        )
        assert cut == [], path
        for width in (1440, 1024, 900, 820, 780):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth") == width, path
        await page.set_viewport_size({"width": 1440, "height": 900})
        async with page.expect_navigation():
            await page.get_by_label("Density").select_option("comfortable")
