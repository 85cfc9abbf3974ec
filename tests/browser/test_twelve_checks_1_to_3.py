"""The usability checks of UX.md, section 9, each a user's sentence: one to three. The others are in the files beside this."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Page, expect

from acceptance.harness import ServerNode
from browser.conftest import address
from browser.hands import Hands


async def test_check_01_with_5000_tasks_one_is_found_by_part_of_its_name_and_run_in_3_actions(crowded, open_page):
    """With 5,000 tasks, find one by part of its name and run it: ≤ 3 actions, ≤ 10 s."""
    page = await open_page(address(crowded))
    hands = Hands(page)
    await hands.press("Control+k")
    await hands.type("run 3917")
    await hands.press("Enter")
    await expect(page.get_by_text("task-3917 started")).to_be_visible()
    assert len(hands.actions) <= 3
    assert [run["task_name"] for run in crowded.ask("GET", "/runs")["items"]] == ["task-3917"]


# 2


WATCH_ROWS = """() => {
    const layout = () => JSON.stringify([...document.querySelectorAll("main tr[data-row]")].map((row) => {
        const box = row.getBoundingClientRect();
        return [row.dataset.row, box.top, box.height];
    }));
    window.layouts = new Set();
    const look = () => { window.layouts.add(layout()); window.watching = requestAnimationFrame(look); };
    look();
}"""


@contextlib.asynccontextmanager
async def pouring(node: ServerNode, task_id: int, runs: int = 10) -> AsyncIterator[list[float]]:
    """That many runs every fifth of a second, each with three events; the list holds when each event has arrived."""
    batch = json.dumps({"runs": [{"task": task_id}] * runs})
    arrived: list[float] = []
    over = asyncio.Event()

    async def listen(listening: asyncio.Event) -> None:
        nonlocal arrived
        wait = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=wait) as session,
            session.get(address(node, "/api/v1/events?type=run")) as stream,
        ):
            listening.set()
            async for line in stream.content:
                arrived += [time.monotonic()] * line.startswith(b"event:")

    def trigger() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
        began, count = time.monotonic(), 0
        while not over.is_set():
            connection.request("POST", "/api/v1/runs/batch", batch, {"Content-Type": "application/json"})
            assert connection.getresponse().read().startswith(b'{"runs"')
            count += 1
            time.sleep(max(0.0, began + count / 5 - time.monotonic()))
        connection.close()

    listening = asyncio.Event()
    listener = asyncio.create_task(listen(listening))
    await listening.wait()
    triggering = asyncio.create_task(asyncio.to_thread(trigger))
    try:
        yield arrived
    finally:
        over.set()
        await triggering
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


@pytest.mark.parametrize("path", ["/tasks", "/runs"])
async def test_check_02_typing_a_filter_while_50_events_a_second_arrive_loses_no_letter_and_moves_no_row(
    node, target, open_page, path
):
    """Type a 20-character filter while 50 events/s arrive: no character is lost, no row moves."""
    busy = node.create(name=f"busy on {path}", target_url=target.url("/ok"), max_concurrency=None)
    for run in [node.trigger(busy) for _ in range(3)]:
        node.wait_for_run(run)
    page = await open_page(address(node, path))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    field, text = page.get_by_role("main").locator("input[type=search]").first, "twenty letters in it"
    assert len(text) == 20
    async with pouring(node, busy) as arrived:
        await field.click()
        await page.evaluate(WATCH_ROWS)
        before = len(arrived)
        await page.keyboard.type(text, delay=200)
        during = len(arrived) - before
        layouts = await page.evaluate("() => { cancelAnimationFrame(window.watching); return [...window.layouts]; }")
        await expect(field).to_have_value(text)
    assert during >= 50
    assert len(layouts) == 1, layouts
    assert layouts[0] != "[]"


# 3


TOPS = """[...document.querySelectorAll("main tr[data-row]")].map(
    (row) => [row.dataset.row, row.getBoundingClientRect().top + scrollY])"""


async def test_check_03_thirty_tasks_are_paused_by_mouse_one_after_another_without_a_mis_click(
    nodes, sqlite_url, target, open_page
):
    """Pause 30 tasks one after another by mouse: no mis-click because of layout shift."""
    node = nodes.start(sqlite_url)
    wanted = [node.create(name=f"pause-{n:02}", cron_expr="0 2 1 1 *", target_url=target.url("/ok")) for n in range(30)]
    others = [node.create(name=f"other-{n}", target_url=target.url(f"/status/50{n}")) for n in range(4)]
    node.wait_for_run(node.trigger(others[0]))
    page = await open_page(address(node, "/tasks"))
    rows = page.get_by_role("row").filter(has=page.get_by_role("link", name=re.compile("^pause-")))
    failing, next_page = iter(others), page.get_by_role("navigation", name="Pages").get_by_role("link", name="Next")
    async with pouring(node, others[0]):
        for is_last in (False, True):  # the list has two pages
            await expect(page.locator("#live")).to_have_attribute("data-state", "on")
            await rows.first.hover()  # from here on nothing may move
            before = await page.evaluate(TOPS)
            boxes = [await button.bounding_box() for button in await rows.get_by_role("button", name="Pause").all()]
            for number, box in enumerate(boxes):
                if number % 5 == 1:  # another task fails meanwhile: the list of what needs somebody may grow
                    node.trigger(next(failing, others[0]))
                await aim_and_click(page, box)
                assert await page.evaluate(TOPS) == before
            await expect(rows.get_by_role("button", name="Resume")).to_have_count(len(boxes))
            if not is_last:
                await next_page.click()
                await expect(next_page).to_have_count(0)
    paused = {task["id"] for task in node.ask("GET", "/tasks?status=DISABLED&page_size=100")["items"]}
    assert paused == set(wanted)


async def aim_and_click(page: Page, box: Any) -> None:
    """At the middle of a place of the page as it was first laid out; the wheel brings it into sight, as a hand would."""
    x, y, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, page.viewport_size["height"]
    scrolled = await page.evaluate("scrollY")
    if not 100 <= y - scrolled <= height - 100:
        await page.mouse.wheel(0, y - height / 2 - scrolled)
        await page.wait_for_function("(before) => scrollY !== before", arg=scrolled)
        scrolled = await page.evaluate("scrollY")
    await page.mouse.click(x, y - scrolled)
