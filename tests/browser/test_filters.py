"""The filter bar: typed, proposed, kept, shared, and asked for elsewhere; and what an empty list says."""

from __future__ import annotations

import re
import shlex
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.async_api import Locator, Page, expect

from acceptance.harness import ServerNode
from browser.conftest import address


@pytest.fixture(scope="module")
def stocked(node: ServerNode, target) -> dict[str, int]:
    """Tasks of two teams, some of them with runs; by name."""
    specs = {"invoices": "billing", "reminders": "billing", "backup": "ops"}
    made = {
        name: node.create(name=name, cron_expr="0 2 * * *", target_url=target.url("/ok"), labels={"team": team})
        for name, team in specs.items()
    }
    made["broken"] = node.create(name="broken", target_url=target.url("/status/500"), labels={"team": "ops"})
    node.ask("POST", f"/tasks/{made['reminders']}/disable")
    for name in ("invoices", "broken"):
        node.wait_for_run(node.trigger(made[name]))
    return made


def bar(page: Page) -> Locator:
    return page.locator("[data-filters] input[name=q]")


def query(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).query))


def names(page: Page) -> Locator:
    return page.locator("tr[data-href] .name > a")


async def test_what_is_typed_becomes_plain_parameters_of_the_address(node, stocked, open_page):
    page = await open_page(address(node, "/tasks"))
    await bar(page).fill("status:paused label:team=billing remind")
    await bar(page).press("Enter")
    await expect(page.locator(".chip")).to_have_count(3)
    assert query(page) == {"status": "DISABLED", "label": "team=billing", "name": "remind"}
    await expect(names(page)).to_have_text(["reminders"])
    await page.go_back()
    await expect(page.locator("h1 .count")).to_have_text("4")


async def test_it_works_without_scripts(node, stocked, open_page):
    page = await open_page(address(node, "/runs"), java_script_enabled=False)
    await bar(page).fill("status:failed label:team=ops after:1h")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator(".chip")).to_have_count(3)
    assert query(page).keys() == {"status", "label", "from"}
    assert query(page)["status"] == "FAILED,TIMEOUT,FAILED_TIMEOUT"
    await expect(names(page)).to_have_text(["broken"])


async def test_keys_and_values_are_proposed_and_taken_with_the_arrows(node, stocked, open_page):
    page = await open_page(address(node, "/tasks"))
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await bar(page).press_sequentially("la")
    await expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(1)
    await expect(page.get_by_role("listbox").get_by_role("option")).to_have_text(re.compile("label:"))
    await bar(page).press("ArrowDown")
    await bar(page).press("Enter")
    await expect(bar(page)).to_have_value("label:")
    await bar(page).press_sequentially("bill")
    await expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(1)
    await expect(page.get_by_role("listbox").get_by_role("option")).to_have_text(re.compile("team=billing"))
    await bar(page).press("ArrowDown")
    await bar(page).press("Enter")
    await expect(page.locator(".chip")).to_contain_text("team=billing")
    await expect(names(page)).to_have_text(["invoices", "reminders"])


async def test_a_filter_that_was_used_is_offered_again(node, stocked, open_page):
    page = await open_page(address(node, "/tasks?label=team%3Dops"))
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await page.goto(address(node, "/tasks"))
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await bar(page).focus()
    await page.get_by_role("listbox").get_by_role("option", name="label:team=ops").click()
    await expect(page).to_have_url(re.compile("label=team%3Dops"))


async def test_a_view_is_saved_opened_and_removed(node, stocked, open_page):
    page = await open_page(address(node, "/tasks?label=team%3Dbilling&sort=-name"))
    menu = page.locator("[data-views]")
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await menu.locator("summary").click()
    await menu.get_by_label("Name of the view").fill("Billing, from Z")
    await menu.get_by_role("button", name="Save").click()
    await page.goto(address(node, "/tasks"))
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await menu.locator("summary").click()
    await menu.get_by_role("link", name="Billing, from Z").click()
    await expect(page.locator(".chip")).to_contain_text("team=billing")
    await expect(names(page)).to_have_text(["reminders", "invoices"])
    await menu.locator("summary").click()
    await menu.get_by_role("button", name="Remove").click()
    await expect(menu).to_contain_text("None saved yet.")


async def test_a_shared_view_is_there_in_another_browser_until_it_is_removed(node, stocked, open_page):
    page = await open_page(address(node, "/tasks?label=team%3Dbilling&sort=-name"))
    menu = page.locator("[data-views]")
    await expect(bar(page)).to_have_attribute("role", "combobox")
    await menu.locator("summary").click()
    await menu.get_by_label("Name of the view").fill("For all")
    await menu.get_by_label("Share with everyone").check()
    await menu.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast")).to_contain_text("View For all saved")
    other = await open_page(address(node, "/tasks"))
    assert other.context is not page.context
    await other.locator("[data-views] summary").click()
    await other.get_by_role("link", name="For all").click()
    await expect(names(other)).to_have_text(["reminders", "invoices"])
    await other.locator("[data-views] summary").click()
    await expect(other.get_by_role("link", name="For all")).to_have_attribute("aria-current", "true")
    await other.get_by_role("button", name="Remove For all").click()
    await expect(other.locator(".toast")).to_contain_text("View For all removed")
    await expect(other.locator("[data-shared]")).to_have_count(0)


async def test_the_list_of_runs_is_turned_round_by_its_heading_with_the_keyboard(node, stocked, open_page):
    page = await open_page(address(node, "/runs"))
    heading = page.get_by_role("columnheader", name="Run", exact=True)
    await expect(heading).to_have_attribute("aria-sort", "descending")
    await heading.get_by_role("link").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("sort=id"))
    await expect(heading).to_have_attribute("aria-sort", "ascending")
    ids = [int(await row.get_attribute("data-row") or 0) for row in await page.locator("tr[data-row]").all()]
    assert ids == sorted(ids)
    assert len(ids) > 1


async def test_order_and_density_are_remembered_and_said(node, stocked, open_page):
    page = await open_page(address(node, "/tasks"))
    await page.get_by_role("link", name="Task", exact=True).click()
    await expect(page.locator("th", has_text="Task").first).to_have_attribute("aria-sort", "ascending")
    await page.get_by_role("link", name="Task", exact=True).click()
    await expect(page.locator("th", has_text="Task").first).to_have_attribute("aria-sort", "descending")
    await page.get_by_label("Density").select_option("compact")
    await expect(page.locator("table.tasks")).to_have_class(re.compile("compact"))
    await page.goto(address(node, "/tasks"))
    await expect(page.locator("table.tasks")).to_have_class(re.compile("compact"))
    await expect(names(page)).to_have_text(["reminders", "invoices", "broken", "backup"])


async def test_what_needs_somebody_comes_first_and_a_pause_says_by_whom_and_since_when(node, stocked, open_page):
    page = await open_page(address(node, "/tasks"))
    await expect(names(page)).to_have_text(["broken", "backup", "invoices", "reminders"])
    await expect(page.locator("tr.group").first).to_have_text("1 needs attention")
    paused = page.locator("tr", has=page.get_by_role("link", name="reminders", exact=True))
    await expect(paused).to_contain_text(re.compile(r"Paused.*ago", re.DOTALL))
    cell = page.locator("tr", has=page.get_by_role("link", name="broken", exact=True)).locator(".strip a")
    assert re.match(r"Failed · \d\d:\d\d:\d\d", await cell.locator("title").text_content())
    await cell.click()
    await expect(page).to_have_url(re.compile(r"/runs/\d+$"))


async def test_the_list_is_copied_as_a_call_and_as_a_command_that_find_the_same(node, stocked, open_page):
    page = await open_page(address(node, f"/runs?status=FAILED,TIMEOUT&task={stocked['broken']}"))
    texts = await page.locator(".menu-box pre").all_text_contents()
    called = shlex.split(texts[0])[-1]
    assert called.startswith(address(node, "/api/v1/runs?"))
    found = node.ask("GET", called.removeprefix(address(node, "/api/v1")))["items"]
    assert [run["task_name"] for run in found] == ["broken"]
    assert texts[1] == f"noonbell run list --status FAILED --status TIMEOUT --task {stocked['broken']}"


async def test_an_empty_list_says_which_filter_to_take_away(node, stocked, open_page):
    page = await open_page(address(node, "/runs?status=FAILED&label=team%3Dbilling"))
    await expect(page.locator(".empty")).to_contain_text("No runs match status:FAILED label:team=billing")
    await expect(page.locator(".empty")).to_contain_text("1 match without label:team=billing.")
    await page.get_by_role("link", name="Clear label:team=billing").click()
    await expect(names(page)).to_have_text(["broken"])


async def test_a_task_that_has_not_fired_says_when_it_will(node, stocked, open_page):
    page = await open_page(address(node, f"/runs?task={stocked['backup']}"))
    await expect(page.locator(".empty")).to_contain_text("backup has not run yet. First run in")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    await page.locator(".empty").get_by_role("button", name="Run now").click()
    await expect(page.locator("tr[data-href] .name")).to_have_text("backup")
