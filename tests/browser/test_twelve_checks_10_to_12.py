"""The usability checks of UX.md, section 9, each a user's sentence: ten to twelve. The others are in the files beside this."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from acceptance.harness import until
from browser.conftest import address
from browser.hands import Hands
from integration.targets.test_addresses import unshare

# 10


async def test_check_10_by_keyboard_alone_a_task_is_made_and_run_its_failure_read_and_retried(node, target, open_page):
    """Keyboard only: create a task, run it, read the failure, retry it."""
    page = await open_page(address(node))
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page).to_have_url(address(node, "/tasks"))
    await tab_to(page, "New task")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Name", exact=True)).to_be_focused()
    await page.keyboard.type("by-keys")
    await tab_to(page, "target_url")
    await page.keyboard.type(target.url("/status/500"))
    await tab_to(page, "when")
    await page.keyboard.press("ArrowLeft")  # from the first choice to the last: only by hand
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="by-keys")).to_be_visible()

    await tab_to(page, "Run now")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "FAILED")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/runs/\d+$"))
    first = page.url
    await expect(page.locator("[data-live=cause]")).to_contain_text("500")
    await tab_to(page, "Retry")
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(first)
    await expect(page.locator("h1 .badge")).to_have_attribute("data-status", "FAILED")
    (task,) = node.ask("GET", "/tasks?name=by-keys")["items"]
    assert [run["origin"] for run in node.runs_of(task["id"])] == ["retry", "trigger"]


async def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until what has the focus is called so: by its name, or by its text. What has it must be seen to have it."""
    for _ in range(120):
        await page.keyboard.press("Tab")
        here = await page.evaluate("[document.activeElement.name, document.activeElement.textContent.trim()]")
        if wanted in here:
            assert await page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"Tab does not lead to {wanted!r}")


# 11


@pytest.mark.parametrize("link", ["task", "run"])
async def test_check_11_from_an_alert_link_on_a_phone_the_task_is_paused_in_4_taps(
    link, nodes, sqlite_url, target, open_page
):
    """From an alert link on a phone: pause the task in ≤ 4 taps."""
    hook = f"/hook-{link}"
    node = nodes.start(sqlite_url)
    node.ask("POST", "/alerts/channels", {"name": "phone", "url": target.url(hook)}, expect=201)
    node.ask("POST", "/alerts/rules", {"name": "failed", "kind": "failed"}, expect=201)
    task = node.create(name="loud", cron_expr="* * * * * *", target_url=target.url("/status/500"))
    (alert,) = await asyncio.to_thread(lambda: target.wait_for(hook)[:1])
    told = json.loads(alert.body)
    assert told["title"] == "loud failed"

    page = await open_page(told["links"][link], width=390)
    hands = Hands(page)
    if link == "run":
        await expect(page.get_by_role("main")).to_contain_text("500")
        await hands.tap(page.get_by_role("main").get_by_role("link", name="loud", exact=True).first)
    await hands.tap(page.get_by_role("button", name="Pause"))
    await expect(page.get_by_role("main").get_by_text("Paused", exact=True).first).to_be_visible()
    assert node.ask("GET", f"/tasks/{task}")["status"] == "DISABLED"
    assert len(hands.actions) <= 4
    await hands.tap(page.get_by_role("button", name="Undo"))
    await expect(page.get_by_role("main").get_by_text("Enabled", exact=True).first).to_be_visible()
    until(lambda: node.ask("GET", f"/tasks/{task}")["status"] == "ENABLED", "the pause to be taken back")


# 12


def test_check_12_on_a_fresh_machine_without_a_network_dev_comes_to_a_green_run_within_60_seconds(
    chromium_path, tmp_path
):
    """Fresh machine, no network: `noonbell dev` to first green run in ≤ 60 s."""
    script = Path(__file__).with_name("fresh_machine.py")
    done = subprocess.run(
        [*unshare(), sys.executable, str(script), chromium_path, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(done.stdout) < 60
