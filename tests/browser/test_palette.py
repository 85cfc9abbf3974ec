"""The palette and the keys: everything without a mouse, and nothing while somebody types."""

from __future__ import annotations

import re

from playwright.async_api import Locator, Page, expect

from browser.conftest import address


async def ready(page: Page) -> None:
    """Its scripts have begun: the clock goes."""
    await expect(page.locator("#clock")).not_to_be_empty()


async def opened(page: Page, text: str) -> None:
    await ready(page)
    await page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Command palette")
    await expect(field).to_be_focused()
    await field.fill(text)


def offered(page: Page, **more: str) -> Locator:
    return page.locator("#palette").get_by_role("option", **more)


async def test_a_few_letters_lead_to_a_task_a_page_and_a_run(node, target, open_page):
    task = node.create(name="quarterly-report", target_url=target.url("/ok"))
    run = node.trigger(task)
    page = await open_page(address(node))
    await opened(page, "arterly")
    await expect(offered(page).first).to_contain_text("quarterly-report")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(address(node, f"/tasks/{task}"))
    await opened(page, "timel")
    await expect(offered(page)).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(address(node, "/timeline"))
    await opened(page, str(run))
    await expect(offered(page).first).to_contain_text(f"Run {run}")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(address(node, f"/runs/{run}"))


async def test_a_task_is_run_paused_and_resumed_from_any_page(node, target, open_page):
    task = node.create(name="palette-acts", cron_expr="0 2 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, "/queues"))
    await opened(page, "run palette-a")
    await offered(page, name="Run now: palette-acts").click()
    await expect(page.locator(".toast")).to_contain_text("palette-acts started")
    for verb, said, status in (("pause", "paused", "DISABLED"), ("resume", "resumed", "ENABLED")):
        await opened(page, f"{verb} palette-a")
        await expect(offered(page).first).to_contain_text("palette-acts")
        await page.keyboard.press("Enter")
        await expect(page.locator(".toast").last).to_contain_text(f"palette-acts {said}")
        assert node.ask("GET", f"/tasks/{task}")["status"] == status


async def test_theme_language_and_zone_are_chosen_and_the_page_stays_the_same(node, open_page):
    page = await open_page(address(node, "/queues"))
    await opened(page, "dark")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await opened(page, "shanghai")
    await expect(offered(page).first).to_contain_text("Asia/Shanghai")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-zone", "Asia/Shanghai")
    await opened(page, "中文")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    await expect(page).to_have_url(address(node, "/queues"))


async def test_the_focus_stays_inside_moves_with_the_arrows_and_comes_back(node, open_page):
    page = await open_page(address(node, "/runs"))
    await ready(page)
    await page.get_by_label("Contains", exact=True).focus()
    await page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Command palette")
    await expect(offered(page).nth(1)).to_be_visible()
    for _ in range(4):
        await page.keyboard.press("Tab")
    assert await page.evaluate(
        "document.activeElement === document.body || !!document.activeElement.closest('#palette')"
    )
    await field.focus()
    first = await field.get_attribute("aria-activedescendant")
    await page.keyboard.press("ArrowDown")
    assert await field.get_attribute("aria-activedescendant") != first
    await expect(page.locator("[aria-selected=true]")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(page.locator("#palette")).to_be_hidden()
    await expect(page.get_by_label("Contains", exact=True)).to_be_focused()


async def test_a_text_that_nothing_has_says_so(node, open_page):
    page = await open_page(address(node))
    await opened(page, "zzzz-nothing-like-it")
    await expect(page.locator("#palette")).to_contain_text("No matches.")


async def test_rows_are_walked_ticked_run_and_paused_by_keys(node, target, open_page):
    tasks = {name: node.create(name=name, target_url=target.url("/ok")) for name in ("key-1", "key-2")}
    page = await open_page(address(node, "/tasks?name=key-"))
    await ready(page)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator("tr.here .name")).to_contain_text("key-2")
    await page.keyboard.press("x")
    await expect(page.get_by_label("Select key-2")).to_be_checked()
    await expect(page.locator("[data-ticked]")).to_have_text("1 selected:")
    await page.keyboard.press("p")
    await expect(page.locator(".toast").last).to_contain_text("key-2 paused")
    assert node.ask("GET", f"/tasks/{tasks['key-2']}")["status"] == "DISABLED"
    await expect(page.locator("tr.here")).to_contain_text(
        "Resume"
    )  # the page was laid anew: the keys stay at their row
    await page.keyboard.press("k")
    await page.keyboard.press("r")
    confirm = page.locator("#confirm")
    await expect(confirm).to_contain_text("Run key-1 now?")
    await page.keyboard.press("Escape")
    await expect(confirm).to_be_hidden()
    await page.keyboard.press("r")
    await confirm.get_by_role("button", name="Run now").click()
    await expect(page.locator(".toast").last).to_contain_text("key-1 started")
    assert node.ask("GET", f"/runs?task={tasks['key-1']}")["total"] == 1, "what was not confirmed was run"
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(address(node, f"/tasks/{tasks['key-1']}"))
    for key, path in (("t", "/tasks"), ("r", "/runs"), ("l", "/timeline"), ("q", "/queues"), ("w", "/workers")):
        await ready(page)
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page).to_have_url(re.compile(f"{path}$"))


async def test_the_row_of_the_keys_stays_while_runs_come_and_a_late_letter_runs_nothing(node, target, open_page):
    names = [f"live-{number}" for number in range(1, 5)]
    tasks = {name: node.create(name=name, target_url=target.url("/ok")) for name in names}
    page = await open_page(address(node, "/tasks?name=live-"))
    await ready(page)
    for name in names:
        await page.keyboard.press("j")
        await expect(page.locator("tr.here .name")).to_contain_text(name)
        run = node.ask("POST", f"/tasks/{tasks[name]}/trigger")["run_id"]
        await expect(page.locator(f"tr[data-row='{tasks[name]}'] a[href*='{run}']").first).to_be_attached()
        await expect(page.locator("tr.here .name")).to_contain_text(name)
    await page.keyboard.press("g")
    await expect(page.locator("html")).to_have_attribute("data-going", "")
    await expect(page.locator("html")).not_to_have_attribute("data-going", "")  # it waits no longer for a second letter
    await page.keyboard.press("r")
    await expect(page.locator("#confirm")).to_contain_text("Run live-4 now?")
    await page.keyboard.press("Escape")
    assert node.ask("GET", f"/runs?task={tasks['live-4']}")["total"] == 1


async def test_keys_are_letters_while_somebody_types_and_off_for_who_wants_them_off(node, open_page):
    page = await open_page(address(node, "/runs"))
    await ready(page)
    await page.keyboard.press("/")
    await page.keyboard.type("gt.?")
    await expect(page.get_by_label("Search", exact=True)).to_have_value("gt.?")
    await expect(page.locator("#help")).to_be_hidden()
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await page.get_by_label("Keyboard shortcuts enabled").uncheck()
    await page.get_by_role("button", name="Close").click()
    await page.reload()
    await ready(page)
    await page.keyboard.press("?")
    await page.keyboard.press(".")
    await expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator("#help")).to_be_hidden()
    await opened(page, "overview")  # this one is no single letter, and stays
    await expect(offered(page)).to_have_count(1)
