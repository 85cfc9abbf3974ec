"""The timeline in a real browser: bars that lead to their runs, a stretch chosen by hand, months, load, and a way back."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Page, expect

from browser.conftest import address


async def test_a_bar_leads_to_its_run_and_every_name_is_whole(node, target, open_page):
    long = "quarterly reconciliation of ledgers that nobody wants to see cut off in the middle of its name"
    task = node.create(name=long, target_url=target.url("/ok"), labels={"team": "billing"})
    run = node.trigger(task)
    node.wait_for_run(run)
    page = await open_page(address(node, "/timeline?span=1h&name=quarterly"))
    lane = page.locator(f'[data-lane="{task}"]')
    name = lane.get_by_role("link", name=long)
    await expect(name).to_be_visible()
    seen = await name.evaluate("link => [link.scrollHeight, link.parentElement.clientHeight]")
    assert seen[0] <= seen[1] + 1, "the name is cut"
    await lane.locator(f'a[href$="runs/{run}"]').dispatch_event("click")
    await expect(page).to_have_url(re.compile(rf"/runs/{run}$"))


async def test_a_stretch_is_chosen_by_dragging_and_shown(node, target, open_page):
    task = node.create(name="dragged", cron_expr="*/10 * * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, "/timeline?name=dragged"), zone="Asia/Tokyo")
    line = page.locator(f'[data-lane="{task}"] > svg')
    await expect(page.locator("html")).to_have_attribute("data-zone", "Asia/Tokyo")
    box = await line.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 5, steps=4)
    await expect(page.locator("#selection")).to_be_visible()
    await page.mouse.up()
    before = await page.evaluate("[...document.querySelectorAll('#stretch .moment > input')].map(i => i.value)")
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page).to_have_url(re.compile("from="))
    query = parse_qs(urlsplit(page.url).query)
    assert [query["from"][0], query["to"][0]] == before
    length = await page.evaluate("(a => a.dataset.until - a.dataset.since)(document.getElementById('timeline'))")
    assert abs(int(length) - 6 * 3_600_000) < 10 * 60_000, "a quarter of a day, to the width of a pixel"
    since = await page.evaluate("Number(document.getElementById('timeline').dataset.since)")
    now = await page.evaluate("Number(document.documentElement.dataset.now)")
    assert abs(now - since) < 10 * 60_000, "on the clock of the page's zone"


async def test_what_the_calendar_of_the_browser_says_is_written_on_a_clock_of_24_hours(node, target, open_page):
    page = await open_page(address(node, "/timeline"))
    field = page.get_by_label("From", exact=True)
    await expect(field).to_have_value(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d$"))
    await page.get_by_role("button", name="Choose date and time").first.click()
    picker = page.locator("#stretch .picker")
    assert (await picker.input_value())[:16] == (await field.input_value()).replace(" ", "T")
    await picker.evaluate("at => { at.value = '2026-11-19T16:05'; at.dispatchEvent(new Event('input')); }")
    await expect(field).to_have_value("2026-11-19 16:05")


async def test_one_goes_back_and_forth_by_links_that_the_back_button_knows(node, target, open_page):
    node.create(name="paged", cron_expr="0 * * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, "/timeline?name=paged"))
    chart = page.locator("#timeline")
    first = await since_of(page)
    await page.get_by_role("link", name="Later", exact=True).click()
    await expect(page).to_have_url(re.compile("from="))
    await expect(chart).to_be_visible()
    assert abs(await since_of(page) - first - 12 * 3_600_000) < 60_000
    await page.go_back()
    await expect(page).not_to_have_url(re.compile("from="))
    await page.goto(
        address(node, "/timeline?name=paged&zone=Europe/Berlin&from=2027-03-27T12:00:00&to=2027-03-28T12:00:00")
    )
    await expect(page.locator(".dst")).to_contain_text("+01:00 to +02:00")
    await expect(page.locator(".ticks")).to_contain_text("Europe/Berlin")


async def since_of(page: Page) -> int:
    return int(await page.locator("#timeline").get_attribute("data-since") or "0")


async def test_the_month_leads_to_a_day_and_the_table_says_the_same_without_a_picture(node, target, open_page):
    task = node.create(name="in-the-month", cron_expr="0 12 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, "/timeline?view=calendar"))
    await expect(page.locator(".month td a[aria-current=date]")).to_be_visible()
    await page.get_by_role("link", name="Later", exact=True).click()
    await page.locator(".month td:not(.other) a").nth(9).click()
    await expect(page.locator(f'[data-lane="{task}"] .planned')).to_have_count(1)
    await page.goto(address(node, "/timeline?view=table&name=in-the-month&span=7d"))
    rows = page.get_by_role("row").filter(has_text="in-the-month")
    assert await rows.count() in (3, 4)
    await expect(rows.first).to_contain_text("Planned")


async def test_tasks_that_start_together_are_spread_in_three_clicks(nodes, target, open_page, tmp_path):
    node = nodes.start(f"sqlite:///{tmp_path / 'crowd.db'}")
    soon = (datetime.now(UTC).hour + 2) % 24  # whatever the time of day, it is among what is shown
    for number in range(5):
        node.create(name=f"crowd-{number}", cron_expr=f"0 {soon} * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, "/timeline"))
    crowds = page.locator("[data-live=crowds]")
    await expect(crowds).to_contain_text("5 tasks in one minute")
    await crowds.get_by_text("Spread them?").click()
    await crowds.get_by_role("link", name="crowd-3").click()
    await expect(page.get_by_label("Jitter (seconds)")).to_have_value("30")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("heading", name="crowd-3")).to_be_visible()
    (task,) = node.ask("GET", "/tasks?name=crowd-3")["items"]
    assert task["jitter_seconds"] == 30
    await page.goto(address(node, "/timeline"))
    await crowds.get_by_text("Spread them?").click()
    await crowds.get_by_role("link", name=re.compile("^Spread these")).click()
    await expect(page.get_by_label("Jitter (seconds)")).to_have_value("30")
    await page.get_by_role("button", name="Change 4", exact=True).click()
    await expect(page.locator("[data-said]")).to_contain_text("4 of 4 changed")
    assert {task["jitter_seconds"] for task in node.ask("GET", "/tasks?name=crowd-")["items"]} == {30}
    await page.goto(address(node, "/timeline"))
    await expect(crowds).to_contain_text("None in this range.")


async def test_a_stretch_of_the_past_is_filled_after_it_was_looked_at(node, target, open_page):
    node.create(name="filled", cron_expr="0 * * * *", target_url=target.url("/ok"), max_concurrency=None)
    page = await open_page(address(node, "/timeline?name=filled&span=6h"))
    await page.get_by_role("link", name="Earlier", exact=True).click()
    await expect(page).to_have_url(re.compile("from="))
    await page.goto(address(node, "/timeline/backfill?from=2026-11-14T00:00:00Z&to=2026-11-14T05:30:00Z"))
    await page.get_by_label("Task", exact=True).fill("filled")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("heading", name="filled: 6 past slots")).to_be_visible()
    assert node.ask("GET", "/runs?task=name:filled&origin=backfill")["total"] == 0
    await page.get_by_role("button", name="Create 6 runs").click()
    await expect(page).to_have_url(re.compile("origin=backfill"))
    await expect(page.locator(".toast")).to_contain_text("6 runs created")
    assert node.ask("GET", "/runs?task=name:filled&origin=backfill")["total"] == 6


async def test_without_scripts_every_view_is_there(node, target, open_page):
    node.create(name="unscripted", cron_expr="*/20 * * * *", target_url=target.url("/ok"), labels={"team": "x"})
    page = await open_page(address(node, "/timeline?name=unscripted"), java_script_enabled=False)
    for view, there in (
        ("Week", ".lane .planned"),
        ("Load", ".lane.tall rect"),
        ("Month", ".month"),
        ("Day", ".lane"),
    ):
        await page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
        await expect(page.locator(there).first).to_be_visible()
    await page.goto(address(node, "/timeline?name=unscripted&group=team"))
    await expect(page.locator(".timeline .group")).to_have_text("x")
