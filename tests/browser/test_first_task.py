"""The first minutes: a task is made in the form, run, and seen to end well, without a reload. By mouse and by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from browser.conftest import address


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_task_made_in_the_form_runs_and_turns_green_without_a_reload(store, nodes, target, open_page, request):
    node = nodes.start(str(request.getfixturevalue(f"{store}_url")))
    page = await open_page(address(node))
    await page.get_by_role("link", name="Create your first task").click()
    await page.get_by_role("link", name="Create one with the form").click()
    await page.get_by_label("Name", exact=True).fill("hello")
    await page.get_by_label("URL", exact=True).fill(target.url(f"/hold/{store}"))
    await page.get_by_label("Cron expression").fill("0 2 * * *")
    await expect(page.locator("#preview")).to_contain_text("At 02:00 every day")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="hello")).to_be_visible()
    await expect(page.locator("[data-live=no-runs]")).to_be_visible()
    await expect(page.locator("[data-live=next] p").first).to_contain_text("every day, UTC 0 2 * * *")
    await mark(page)

    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator(".toast").last).to_contain_text("hello started")
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "RUNNING")
    target.release(store)
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "SUCCESS")
    assert await is_marked(page), "the page was loaded anew"
    await expect(page.locator("[data-live=no-runs]")).to_be_hidden()

    await page.locator("[data-live=runs] tbody a").first.click()
    await expect(page).to_have_url(re.compile(r"/runs/\d+$"))
    await expect(page.locator("[data-live=status]")).to_contain_text("Succeeded")
    await expect(page.locator(".attempt").first).to_contain_text('"ok": true')


async def test_a_wrong_form_says_so_at_its_fields_and_keeps_what_was_typed(node, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("wrong")
    await page.get_by_label("URL", exact=True).fill("ftp://nowhere")
    await page.get_by_label("Cron expression").fill("61 * * * *")
    await expect(page.locator("#preview .problem")).to_contain_text("minute")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#p-target_url")).to_contain_text("http or https")
    await expect(page.locator("#p-cron_expr")).to_contain_text("61")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("wrong")


async def test_a_change_of_schedule_shows_its_effect_before_it_is_saved(node, target, open_page):
    task = node.create(name="moved", cron_expr="0 2 1 1 *", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}/edit"))
    await page.get_by_label("Cron expression").fill("30 3 1 1 *")
    await expect(page.locator("#preview")).to_contain_text("The next slot moves")
    await expect(page.locator("#preview .note")).to_contain_text("03:30:00")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("[data-live=next]")).to_contain_text("03:30:00")
    assert node.ask("GET", f"/tasks/{task}")["version"] == 2


async def test_a_test_call_shows_the_answer_and_saves_nothing(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("only-tried")
    await page.get_by_label("URL", exact=True).fill(target.url("/status/418"))
    url = await page.locator("#f-target_url").input_value()
    await page.locator("#f-target_url").fill("localhost/coffee")
    await page.get_by_role("button", name="Test call").click()
    await expect(page.locator("#try-result .problem")).to_contain_text("it has to begin with http://")
    await expect(page.locator("#try-result a")).to_have_count(0)  # nothing that leads away from what was typed
    await page.locator("#f-target_url").fill(url)
    await page.get_by_role("button", name="Test call").click()
    await expect(page.locator("#try-result")).to_contain_text("418")
    assert len(target.at("/status/418")) == 1
    assert node.ask("GET", "/tasks?name=only-tried")["total"] == 0


async def mark(page: Page) -> None:
    await page.evaluate("window.marked = true")


async def is_marked(page: Page) -> bool:
    return bool(await page.evaluate("window.marked === true"))


async def test_without_scripts_a_task_is_made_run_and_paused_all_the_same(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"), java_script_enabled=False)
    await page.get_by_label("Name", exact=True).fill("plain")
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    await page.get_by_label("No schedule").check()
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator(".toast")).to_contain_text("plain created")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator(".toast")).to_contain_text("plain started")
    (run,) = node.ask("GET", "/runs?task=name:plain")["items"]
    node.wait_for_run(run["id"])
    await page.reload()
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "SUCCESS")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("[data-live=badges]")).to_contain_text("Paused")
