"""The form of a task in a real browser: words that become a schedule, the field under the caret, text and form as one,
a draft that survives, and two people who change the same task."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from browser.conftest import address


async def test_plain_words_are_proposed_and_only_what_was_taken_is_saved(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("in-words")
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    cron = page.get_by_label("Cron expression")
    await cron.fill("every weekday at 2:30")
    await expect(page.locator("#preview .meant code")).to_have_text("30 2 * * 1-5")
    await expect(page.locator("#preview .meant .sentence")).to_contain_text("Monday")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#p-cron_expr")).to_contain_text("30 2 * * 1-5")
    assert node.ask("GET", "/tasks?name=in-words")["total"] == 0, "a guess was saved"
    await page.get_by_role("button", name="Use it").click()
    await expect(cron).to_have_value("30 2 * * 1-5")
    await expect(page.locator("#preview .slots li")).to_have_count(5)
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="in-words")).to_be_visible()
    assert node.ask("GET", "/tasks?name=in-words")["items"][0]["cron_expr"] == "0 30 2 * * 1-5"


async def test_words_that_cron_has_no_even_expression_for_become_an_interval_in_chinese_too(node, open_page):
    page = await open_page(address(node, "/tasks/new"), lang="zh")
    await page.get_by_label("Cron 表达式").fill("每45分钟")
    await page.get_by_role("button", name="采用").click()
    await expect(page.get_by_label("每隔", exact=True)).to_have_value("45")
    await expect(page.get_by_label("每隔…")).to_be_checked()
    await expect(page.locator("#preview .sentence")).to_contain_text("45 分钟")


async def test_the_field_under_the_caret_is_named_with_what_it_may_say(node, open_page):
    page = await open_page(address(node, "/tasks/new"))
    cron = page.get_by_label("Cron expression")
    await cron.fill("30 2 * * 1-5")
    here = page.locator("#cron-names .here")
    await expect(here).to_have_text("weekday")
    await page.keyboard.press("Home")
    await expect(here).to_have_text("minute")
    await expect(page.locator("#cron-here")).to_contain_text("0–59")
    await expect(page.locator("#preview")).to_contain_text("5 fields")
    await cron.fill("0 30 2 ? * 2-6")
    await page.keyboard.press("Home")
    await expect(here).to_have_text("second")
    await expect(page.locator("#preview")).to_contain_text("Quartz")
    await expect(page.locator("#preview .meant code")).to_have_text("0 30 2 ? * MON-FRI")


async def test_what_is_wrong_is_said_at_its_field_before_anything_is_sent(node, open_page):
    page = await open_page(address(node, "/tasks/new"))
    url = page.get_by_label("URL", exact=True)
    await url.fill("ftp://nowhere")
    await page.keyboard.press("Tab")
    await expect(page.locator("#p-target_url")).to_contain_text("http or https")
    await expect(page.locator("#p-name")).to_have_count(0, timeout=1_000)
    await expect(url).to_have_attribute("aria-invalid", "true")
    await url.fill("http://somewhere/x")
    await expect(page.locator("#p-target_url")).to_have_count(0)


async def test_text_and_form_are_two_views_of_one_task(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("as-text")
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    await page.get_by_label("Cron expression").fill("0 2 * * *")
    await page.get_by_role("button", name="As YAML").click()
    text = page.get_by_label("The task as YAML")
    written = await text.input_value()
    assert "name: as-text" in written
    await text.fill(written.replace("0 2 * * *", "61 2 * * *"))
    await page.get_by_role("button", name="As a form").first.click()
    await expect(page.get_by_role("alert")).to_contain_text("61")
    await text.fill(written.replace("0 2 * * *", "15 2 * * *").replace("labels: {}", "labels:\n  team: billing"))
    await page.get_by_role("button", name="As a form").first.click()
    await expect(page.get_by_label("Cron expression")).to_have_value("15 2 * * *")
    await expect(page.get_by_label("Labels")).to_have_value("team=billing")
    await page.get_by_role("button", name="As YAML").click()
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="as-text")).to_be_visible()
    (task,) = node.ask("GET", "/tasks?name=as-text")["items"]
    assert (task["cron_expr"], task["labels"]) == ("0 15 2 * * *", {"team": "billing"})


async def test_a_draft_survives_leaving_and_is_forgotten_when_it_is_saved(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("drafted")
    await page.get_by_label("Headers").fill("Authorization: s3cret")
    await page.get_by_label("No schedule").check()
    await page.evaluate(
        """() => new Promise((done) => {
            const look = () => JSON.stringify(localStorage).includes('drafted') ? done() : setTimeout(look, 50);
            look();
        })"""
    )
    assert "s3cret" not in await page.evaluate("JSON.stringify(localStorage)")
    await page.goto(address(node, "/tasks"))
    await page.goto(address(node, "/tasks/new"))
    await expect(page.get_by_label("Name", exact=True)).to_have_value("")
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("drafted")
    await expect(page.get_by_label("No schedule")).to_be_checked()
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="drafted")).to_be_visible()
    await page.goto(address(node, "/tasks/new"))
    await expect(page.get_by_label("Name", exact=True)).to_be_focused()
    await expect(page.locator("#draft")).to_be_hidden()


async def conflict(node, target, page: Page, name: str) -> int:
    """Somebody changes what the page shows, while it is open; then the page is saved."""
    task = node.create(name=name, cron_expr="0 1 * * *", target_url=target.url("/ok"), description="base")
    await page.goto(address(node, f"/tasks/{task}/edit"))
    await page.get_by_label("Cron expression").fill("0 2 * * *")
    await page.get_by_label("Description").fill("mine")
    node.ask("PATCH", f"/tasks/{task}", {"description": "theirs", "timeout_seconds": 44})
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("alert").first).to_contain_text("Someone else changed this task")
    return task


async def test_two_changes_meet_field_by_field_and_nobody_is_overwritten_unasked(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    task = await conflict(node, target, page, "contested")
    rows = page.locator(".three tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.filter(has_text="changed by both")).to_contain_text("Description")
    await expect(rows.filter(has_text="Description").locator("td").first).to_contain_text("base")
    await rows.filter(has_text="Description").get_by_label("theirs").check()
    await expect(page.get_by_label("Description")).to_have_value("theirs")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("heading", name="contested")).to_be_visible()
    saved = node.ask("GET", f"/tasks/{task}")
    assert (saved["cron_expr"], saved["description"], saved["timeout_seconds"]) == ("0 0 2 * * *", "theirs", 44)


async def test_the_same_without_scripts(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"), java_script_enabled=False)
    task = await conflict(node, target, page, "contested-plainly")
    row = page.locator(".three tbody tr").filter(has_text="Description")
    await row.get_by_label("theirs").check()
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("heading", name="contested-plainly")).to_be_visible()
    saved = node.ask("GET", f"/tasks/{task}")
    assert (saved["cron_expr"], saved["description"], saved["timeout_seconds"]) == ("0 0 2 * * *", "theirs", 44)


async def test_what_saving_changes_is_seen_before_it_is_saved(node, target, open_page):
    task = node.create(name="reviewed", cron_expr="0 1 * * *", target_url=target.url("/ok"))
    page = await open_page(address(node, f"/tasks/{task}/edit"))
    await page.get_by_label("Cron expression").fill("0 2 * * *")
    await page.get_by_label("How many times").evaluate("field => { field.closest('details').open = true; }")
    await page.get_by_label("How many times").fill("12")
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.get_by_role("heading", name="Saving changes 2 fields.")).to_be_visible()
    await expect(page.locator(".diff tbody tr").first).to_contain_text("0 1 * * *")
    assert node.ask("GET", f"/tasks/{task}")["version"] == 1
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page).to_have_url(re.compile(rf"/tasks/{task}$"))
    assert node.ask("GET", f"/tasks/{task}")["schedule"]["repeat"] == 12


async def test_no_field_that_has_the_focus_lies_under_the_bar_of_buttons(node, target, open_page):
    for width in (1280, 390):
        page = await open_page(address(node, "/tasks/new"), width=width)
        await page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        covered = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            covered += await page.evaluate(
                """() => {
                    const here = document.activeElement, box = here.getBoundingClientRect();
                    const bar = document.querySelector('.save').getBoundingClientRect();
                    if (!here.closest('#task-form') || here.closest('.save')) return [];
                    return box.bottom > bar.top + 1 && box.top < bar.bottom ? [here.name || here.textContent] : [];
                }"""
            )
        assert covered == []


async def test_a_refused_form_moves_the_focus_to_what_is_wrong_and_from_there_to_the_field(node, target, open_page):
    page = await open_page(address(node, "/tasks/new"))
    await page.get_by_label("Name", exact=True).fill("refused")
    await page.get_by_label("URL", exact=True).fill(target.url("/ok"))
    await page.get_by_label("Cron expression").fill("99 * * * *")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#problems")).to_be_focused()
    await expect(page.locator("#problems")).to_be_in_viewport()
    await page.locator("#problems").get_by_role("link", name="Cron expression").click()
    await expect(page.get_by_label("Cron expression")).to_be_focused()
