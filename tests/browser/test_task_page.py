"""The page of one task: its parts, its charts, why it fails, why it did not run; by mouse, by keyboard, on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from acceptance.harness import ServerNode, Target
from browser.conftest import address

PARTS = ("Overview", "Runs", "Schedule", "Configuration", "Versions", "Activity")


@pytest.fixture(scope="module")
def failing(node: ServerNode, target: Target) -> int:
    """A task that ran well, was changed by somebody, and fails since."""
    task = node.create(name="reports", cron_expr="0 2 * * *", target_url=target.url("/ok"))
    for _ in range(3):
        node.wait_for_run(node.trigger(task))
    node.ask("PATCH", f"/tasks/{task}", {"target_url": target.url("/status/503"), "timeout_seconds": 7})
    for _ in range(2):
        node.wait_for_run(node.trigger(task))
    return task


async def test_each_part_has_an_address_and_the_back_button_leads_back(node, failing, open_page):
    page = await open_page(address(node, f"/tasks/{failing}"))
    tabs = page.get_by_role("navigation", name="Parts of this task")
    for name in PARTS:
        await tabs.get_by_role("link", name=name).click()
        await expect(tabs.locator("[aria-current=page]")).to_have_text(name)
        assert page.url.endswith(f"/tasks/{failing}" if name == "Overview" else f"/{name.lower()}")
    await page.go_back()
    await expect(tabs.locator("[aria-current=page]")).to_have_text("Versions")


async def test_no_figure_stands_alone_in_a_row(node, failing, open_page):
    page = await open_page(address(node, f"/tasks/{failing}"))
    await page.set_viewport_size({"width": 1280, "height": 900})
    tops = await page.locator("[data-live=health] .figures > div").evaluate_all(
        "all => all.map(one => Math.round(one.getBoundingClientRect().top))"
    )
    assert sorted(tops.count(top) for top in set(tops)) == [3, 3]


async def test_why_it_fails_leads_to_what_was_changed_before(node, failing, open_page):
    page = await open_page(address(node, f"/tasks/{failing}"))
    why = page.locator("[data-live=why]")
    await expect(why).to_contain_text("2×")
    await expect(why).to_contain_text("503")
    await expect(why).to_contain_text("Began with v2")
    await why.get_by_role("link", name="What changed").click()
    row = page.locator("#v2 table.diff tr", has_text="timeout_seconds")
    await expect(row).to_be_visible()
    await expect(row.locator("td").last).to_have_text("7")


async def test_each_dot_leads_to_its_run_and_the_chart_is_a_table_too(node, failing, open_page):
    page = await open_page(address(node, f"/tasks/{failing}"))
    chart = page.locator("svg.dots")
    await expect(chart.locator("a[data-run]")).to_have_count(5)
    await expect(chart.locator("a[data-run] .cross")).to_have_count(2)
    await expect(chart.locator(".p95")).to_have_count(1)
    await expect(chart.locator(".changed")).to_have_count(1)
    await page.get_by_text("As a table").click()
    await expect(page.locator("[data-live=health] table tbody tr")).to_have_count(5)
    await expect(page.locator("[data-live=health] details")).to_contain_text("5 runs ended, 2 of them failed")
    run = await chart.locator("a[data-run]:has(.cross)").first.get_attribute("data-run")
    await chart.locator(f'a[data-run="{run}"] .cross').click(force=True)
    await expect(page.locator("h1")).to_contain_text(run)


async def test_the_heat_map_counts_failures_in_words(node, failing, open_page):
    page = await open_page(address(node, f"/tasks/{failing}"), zone="Asia/Tokyo")
    cells = page.locator("table.heat td.bad")
    await expect(cells).not_to_have_count(0)
    told = " ".join(await cells.all_inner_texts())
    assert re.search(r"\d of \d failed", told)
    await expect(page.locator("[data-live=heat]")).to_contain_text("Asia/Tokyo")


async def test_a_paused_task_shows_the_slots_that_pass_and_who_paused_it(node, target, open_page):
    task = node.create(name="resting", cron_expr="0 2 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"))
    await expect(page.locator(".slots li")).to_have_count(5)
    await page.get_by_label("Skip the next").fill("2")
    await page.get_by_role("button", name="Skip", exact=True).click()
    await expect(page.locator(".slots li [data-why=operator]")).to_have_count(2)
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".slots li [data-why=paused]")).to_have_count(5)
    await expect(page.locator("[data-live=next]")).to_contain_text("will not run: the task is paused")


async def test_why_it_did_not_run_is_answered_in_the_language_and_zone_of_the_page(node, target, open_page):
    task = node.create(name="asked", cron_expr="0 2 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"), lang="zh", zone="Asia/Shanghai")
    await page.locator("#at").fill("2026-01-02T03:04:05")
    await page.get_by_role("button", name="说明原因").click()
    answer = page.locator("#explained p").first
    await expect(answer).to_contain_text("该任务尚不存在")
    await expect(answer.locator("time").first).to_have_attribute("datetime", re.compile("^2026-01-01T19:04:05"))


async def test_an_earlier_version_is_restored_after_a_question(node, target, open_page):
    task = node.create(name="changed", target_url=target.url("/ok"), timeout_seconds=11)
    node.ask("PATCH", f"/tasks/{task}", {"timeout_seconds": 22})
    page = await open_page(address(node, f"/tasks/{task}/versions?v=1"))
    await page.locator("#v1").get_by_role("button", name="Restore this version").click()
    await page.locator("#confirm").get_by_role("button", name="Restore this version").click()
    await expect(page.locator("#v3")).to_be_visible()
    assert node.ask("GET", f"/tasks/{task}")["timeout_seconds"] == 11


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_no_part_is_wider_than_a_phone_in_either_language(node, failing, open_page, lang):
    page = await open_page(address(node, f"/tasks/{failing}"), width=390, lang=lang)
    for part in ("", "/runs", "/schedule", "/configuration", "/versions", "/activity"):
        await page.goto(address(node, f"/tasks/{failing}{part}"))
        assert await page.evaluate("document.documentElement.scrollWidth") == 390, part


async def test_a_task_is_paused_with_a_reason_for_a_while_and_the_end_is_changed_and_shown(node, target, open_page):
    task = node.create(name="rested", cron_expr="0 2 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}"))
    await page.get_by_text("Pause until…").click()
    await page.get_by_label("Reason").fill("the vendor mends its API")
    await page.get_by_label("For how long").select_option("7200")
    await page.get_by_role("button", name="Pause until", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("rested paused until")
    await expect(page.locator("[data-live=next]")).to_contain_text("the vendor mends its API")
    pause = node.ask("GET", f"/tasks/{task}")["pause"]
    shown = page.locator("[data-live=next] .note time").nth(1)
    await expect(shown).to_have_attribute("datetime", re.compile(f"^{pause['until'][:16]}"))

    await expect(page.get_by_label("Reason")).to_be_hidden()
    await page.get_by_text("Change pause…").click()
    await expect(page.get_by_label("Reason")).to_have_value("the vendor mends its API")
    await expect(page.get_by_label("Or until")).to_have_value(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))
    await page.get_by_label("Reason").fill("it takes longer")
    await page.get_by_role("button", name="Change pause", exact=True).click()
    await expect(page.locator("[data-live=next]")).to_contain_text("it takes longer")
    longer = node.ask("GET", f"/tasks/{task}")["pause"]
    assert (longer["reason"], longer["until"][:19]) == ("it takes longer", pause["until"][:19])
    await page.get_by_text("Change pause…").click()
    await page.get_by_label("Or until").fill("")
    await page.get_by_role("button", name="Change pause", exact=True).click()
    await expect(page.locator("[data-live=next] .note time")).to_have_count(1)
    assert node.ask("GET", f"/tasks/{task}")["pause"]["until"] is None
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("[data-live=badges]")).to_contain_text("Enabled")
    await expect(page.locator("[data-live=next]")).not_to_contain_text("it takes longer")
