"""Many at once: ticked or found by a filter, watched, taken back, and never deleted by a slip. And tasks as a file."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Page, expect

from acceptance.harness import Nodes, ServerNode
from browser.conftest import address


def made(node: ServerNode, target, prefix: str, count: int, **more) -> list[int]:
    return [node.create(name=f"{prefix}-{number:03}", target_url=target.url("/ok"), **more) for number in range(count)]


def statuses(node: ServerNode, prefix: str) -> set[str]:
    return {task["status"] for task in node.ask("GET", f"/tasks?name={prefix}&page_size=500")["items"]}


def text_in(path: Path) -> str:
    return path.read_text()


async def boxes(page: Page) -> list[bool]:
    return await page.locator("tbody .tick input").evaluate_all("all => all.map(each => each.checked)")


async def test_rows_are_ticked_by_range_and_by_page(node, target, open_page):
    made(node, target, "range", 6)
    page = await open_page(address(node, "/tasks?name=range-"))
    await page.get_by_label("Select range-001").click()
    await page.get_by_label("Select range-004").click(modifiers=["Shift"])
    assert await boxes(page) == [False, True, True, True, True, False]
    await expect(page.locator("[data-ticked]")).to_have_text("4 selected:")
    await page.get_by_label("Select all on this page").check()
    assert await boxes(page) == [True] * 6
    await page.get_by_label("Select all on this page").uncheck()
    assert await boxes(page) == [False] * 6


async def test_ticked_tasks_are_paused_and_that_is_taken_back_at_once(node, target, open_page):
    made(node, target, "back", 3)
    page = await open_page(address(node, "/tasks?name=back-"))
    await page.get_by_label("Select all on this page").check()
    await page.locator("[data-bulk]").get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("3 tasks paused.")
    assert statuses(node, "back-") == {"DISABLED"}
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".toast").last).to_contain_text("3 tasks resumed.")
    assert statuses(node, "back-") == {"ENABLED"}


async def test_a_change_of_many_is_told_with_what_was_left_out_and_taken_back(node, target, open_page):
    ids = made(node, target, "many", 210)
    node.ask("POST", f"/tasks/{ids[7]}/disable")
    page = await open_page(address(node, "/tasks/bulk?act=disable&name=many-"))
    await page.get_by_role("button", name="Pause 210").click()
    said = page.locator("[data-said]")
    await expect(said).to_have_text("209 of 210 paused, 1 skipped: already in that state (1)")
    await expect(page.locator("[data-whys]")).to_contain_text("many-007")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download the list").click()
    listed = text_in(await (await download.value).path())
    assert listed.splitlines()[1].split(",")[:2] == [str(ids[7]), "many-007"]
    assert statuses(node, "many-") == {"DISABLED"}
    await page.get_by_role("button", name="Undo").click()
    await expect(said).to_have_text("209 of 209 resumed")
    assert node.ask("GET", "/tasks?name=many-&status=DISABLED")["total"] == 1
    assert node.ask("GET", f"/tasks/{ids[7]}")["version"] == 2, "the one that was paused before stays as it was"


async def test_deleting_asks_for_the_number_and_deletes_no_other(node, target, open_page):
    made(node, target, "doomed", 3)
    page = await open_page(address(node, "/tasks?name=doomed-"))
    for number in (0, 2):
        await page.get_by_label(f"Select doomed-00{number}").check()
    await page.locator("[data-bulk]").get_by_role("button", name="Delete…", exact=True).click()
    await expect(page.get_by_role("heading", name="Delete 2 tasks?")).to_be_visible()
    await page.get_by_label("Type the number to confirm: 2").fill("3")
    await page.get_by_role("button", name="Delete 2").click()
    assert node.ask("GET", "/tasks?name=doomed-")["total"] == 3
    await page.get_by_label("Type the number to confirm: 2").fill("2")
    await page.get_by_role("button", name="Delete 2").click()
    await expect(page.locator("[data-said]")).to_have_text("2 of 2 deleted")
    assert [task["name"] for task in node.ask("GET", "/tasks?name=doomed-")["items"]] == ["doomed-001"]


async def test_without_scripts_the_page_of_an_operation_comes_again_until_it_is_over(node, target, open_page):
    made(node, target, "plain", 3)
    page = await open_page(address(node, "/tasks/bulk?act=delete&name=plain-"), java_script_enabled=False)
    await page.get_by_label("Type the number to confirm: 3").fill("3")
    await page.get_by_role("button", name="Delete 3").click()
    await expect(page.locator("[data-said]")).to_have_text("3 of 3 deleted")
    assert node.ask("GET", "/tasks?name=plain-")["total"] == 0


async def test_dead_runs_are_run_once_more_and_only_once(node, target, open_page):
    task = node.create(name="dead", target_url=target.url("/status/500"))
    for _ in range(2):
        node.wait_for_run(node.trigger(task))
    page = await open_page(address(node, f"/runs?task={task}"))
    await page.get_by_role("link", name="Retry dead-lettered runs").click()
    await expect(page.get_by_role("heading", name="Retry 2 dead-lettered runs?")).to_be_visible()
    await page.get_by_role("button", name="Retry 2").click()
    await expect(page.locator("[data-said]")).to_have_text("2 of 2 retried")
    for run in node.ask("GET", f"/runs?task={task}")["items"]:
        node.wait_for_run(run["id"])
    await page.goto(address(node, f"/runs/bulk?act=redrive&task={task}"))
    await page.get_by_role("button", name="Retry 4").click()
    await expect(page.locator("[data-said]")).to_have_text("2 of 4 retried, 2 skipped: already retried (2)")


async def test_an_operation_goes_on_when_its_page_is_closed_and_is_found_again_from_another_tab(
    node, target, open_page
):
    task = node.create(name="left-alone", target_url=target.url("/status/500"), max_concurrency=None)
    runs = [node.trigger(task) for _ in range(40)]
    for run in runs:
        node.wait_for_run(run)
    page = await open_page(address(node, f"/runs?task={task}&status=FAILED"))
    await page.get_by_role("link", name="Retry…", exact=True).click()
    await page.get_by_role("button", name="Retry 40").click()
    await expect(page).to_have_url(re.compile(r"/bulk/\d+$"))
    operation = page.url.rpartition("/")[2]
    await page.close()
    other = await open_page(address(node, "/runs"))
    await other.get_by_role("link", name=re.compile("[Bb]ulk operation")).click()
    await other.locator(f"[data-row='{operation}'] a").click()
    await expect(other.locator("[data-said]")).to_have_text("40 of 40 retried")
    await expect(other.locator("[data-live=bulk]")).to_contain_text("status:FAILED")
    await other.reload()
    await expect(other.locator("[data-said]")).to_have_text("40 of 40 retried")
    again = node.ask("GET", f"/runs?task={task}&origin=retry&page_size=100")["items"]
    assert sorted(run["retry_of_run_id"] for run in again) == sorted(runs)


async def test_ticked_runs_are_retried_and_what_is_not_over_is_left_out(node, target, open_page):
    task = node.create(name="held", target_url=target.url("/hold/bulk"), timeout_seconds=60)
    under_way = node.trigger(task)
    node.wait_for_run(under_way, "RUNNING")
    other = node.create(name="over", target_url=target.url("/ok"))
    node.wait_for_run(node.trigger(other))
    page = await open_page(address(node, "/runs?text=over"))
    await page.get_by_label("Select all on this page").check()
    await page.locator("[data-bulk]").get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".toast").last).to_contain_text("1 of 1 retried.")
    await page.goto(address(node, f"/runs?task={task}"))
    await page.get_by_label("Select all on this page").check()
    await page.locator("[data-bulk]").get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".toast").last).to_contain_text("0 of 1 retried. 1 skipped: not ended yet (1)")
    target.release("bulk")


async def test_what_failed_says_what_did_not_happen_and_stays_until_it_is_tried_again(node, target, open_page):
    task = node.create(name="gone-soon", target_url=target.url("/ok"))
    page = await open_page(address(node, "/tasks?name=gone-soon"))
    await page.route("**/disable", lambda route: route.abort())
    await page.get_by_role("button", name="Pause", exact=True).first.click()
    note = page.locator(".toast.bad")
    await expect(note).to_contain_text("Action failed: Pause gone-soon – the server cannot be reached")
    await page.unroute("**/disable")
    await note.get_by_role("button", name="Try again").click()
    await expect(page.locator(".toast")).to_contain_text("gone-soon paused")
    await expect(note).to_have_count(0)
    node.ask("DELETE", f"/tasks/{task}")
    await page.locator("[data-key=r]").first.click()
    await expect(page.locator(".toast.bad")).to_contain_text(
        re.compile(r"Action failed: Run now gone-soon – .*\([\w-]{8,}\)")
    )


async def test_the_first_task_lights_the_page_up(nodes: Nodes, target, open_page, sqlite_url):
    node = nodes.start(sqlite_url)
    page = await open_page(address(node, "/tasks"))
    await expect(page.get_by_role("link", name="Create one with the form")).to_be_visible()
    await page.get_by_label("curl").check()
    await expect(page.locator("[data-way=curl]")).to_contain_text(address(node, "/api/v1/tasks"))
    await expect(page.get_by_role("link", name="Create one with the form")).to_be_hidden()
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    node.create(name="the-first", target_url=target.url("/ok"))
    await expect(page.get_by_role("link", name="the-first")).to_be_visible()
    await page.get_by_role("button", name="Run now").first.click()
    await expect(page.locator(".toast")).to_contain_text("the-first started")


async def test_tasks_go_out_as_yaml_and_come_in_after_a_look_at_what_changes(node, target, open_page):
    node.create(name="filed", cron_expr="0 2 * * *", target_url=target.url("/ok"), labels={"filed": "yes"})
    page = await open_page(address(node, "/tasks?label=filed%3Dyes"))
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export YAML").click()
    text = text_in(await (await download.value).path())
    assert text.startswith("tasks:\n- name: filed\n")
    await page.get_by_role("link", name="Import").click()
    field, look = page.get_by_label("YAML"), page.get_by_role("button", name="Preview")
    await field.fill(text)
    await look.click()
    await expect(page.get_by_text("Nothing to change.")).to_be_visible()
    await field.fill(text.replace("0 2 * * *", "0 5 * * *") + "- name: filed-too\n  target_url: http://127.0.0.1:9/x\n")
    await look.click()
    await expect(page.locator(".diff")).to_contain_text("0 0 5 * * *")
    assert node.ask("GET", "/tasks?name=filed")["total"] == 1
    await page.get_by_role("button", name="Apply 2 changes").click()
    await expect(page.locator(".toast")).to_have_text("1 created, 1 changed.")
    found = {task["name"]: task for task in node.ask("GET", "/tasks?name=filed")["items"]}
    assert found["filed"]["cron_expr"] == "0 0 5 * * *"
    assert found["filed-too"]["managed_by"] == "api"
