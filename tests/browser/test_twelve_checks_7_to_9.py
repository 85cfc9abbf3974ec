"""The usability checks of UX.md, section 9, each a user's sentence: seven to nine. The others are in the files beside this."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import Browser, Page, async_playwright, expect

from acceptance.harness import ServerNode, Target, until
from browser.conftest import PATIENCE, address, listen
from browser.proxying import serving, under_prefix

# 7


EXACT = (
    '{"id":9223372036854775807,"below":-9223372036854775808,"more":123456789012345678901234567890,"one":1.0,"whole":1}'
)
AS_TEXT = EXACT[:-1] + ',"huge":1e400,"cents":0.10,"long":0.1234567890123456789012345}'
"""What no number of a programming language holds; a body is text, and stays as it was sent."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


@pytest.fixture(scope="module")
async def exact_target() -> AsyncIterator[str]:
    """Answers with the very bytes that it was sent."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    async with serving(echo) as port:
        yield f"http://127.0.0.1:{port}/echo"


async def test_check_07_a_payload_with_2_to_the_63_less_1_shows_and_copies_exactly(node, exact_target, open_page):
    """Payload with 2^63-1 shows and copies exactly."""
    task = node.create(name="exact", http_method="POST", target_url=exact_target, body_template=AS_TEXT)
    run = node.trigger(task)
    await asyncio.to_thread(node.wait_for_run, run)
    job = await exact_job(node)
    page = await open_page(address(node), permissions=["clipboard-read", "clipboard-write"])
    shown, copied = await of_every_pane(page, address(node, f"/runs/{run}"))
    assert copied.count(AS_TEXT) == 2, "request and response, as they went over the wire"
    assert sum(NUMBER.findall(text) == NUMBER.findall(AS_TEXT) for text in shown) >= 2
    shown, copied = await of_every_pane(page, address(node, f"/runs/{job}"))
    same = [text for text in copied if NUMBER.findall(text) == NUMBER.findall(EXACT)]
    assert [json.loads(text) for text in same] == [json.loads(EXACT)] * 2, "payload and result"
    assert sum(NUMBER.findall(text) == NUMBER.findall(EXACT) for text in shown) >= 2


async def exact_job(node: ServerNode) -> int:
    """A job with those numbers in its payload and in its result; the number that none can hold is refused by its name."""
    task = node.create(name="exact-job", job_type="exact", queue="exact")
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

        async def post(path: str, content: str) -> tuple[int, Any]:
            async with session.post(address(node, f"/api/v1{path}"), data=content.encode()) as answer:
                return answer.status, await answer.json()

        assert (await post(f"/tasks/{task}/trigger", f'{{"payload": {AS_TEXT}}}'))[0] == 400
        status, told = await post(f"/tasks/{task}/trigger", f'{{"payload": {EXACT}}}')
        assert status == 200, told
        asked = {"queues": ["exact"], "job_types": ["exact"], "max": 1, "wait_seconds": 10, "version": 0}
        _, claimed = await post("/workers/exact-1/claim", json.dumps(asked))
        (held,) = claimed["runs"]
        said = f'{{"worker_id": "exact-1", "token": {held["token"]}, "outcome": "success", "result": {EXACT}}}'
        status, told = await post(f"/runs/{held['run_id']}/settle", said)
        assert status == 200, told
        return int(held["run_id"])


async def of_every_pane(page: Page, run: str) -> tuple[list[str], list[str]]:
    """What the page of a run shows as text that is somebody else's, and what its buttons copy; each once."""
    await page.goto(run)
    links = page.get_by_role("main").locator("[data-pane]")
    shown: list[str] = []
    copied: list[str] = []
    for pane in [await link.get_attribute("data-pane") for link in await links.all()]:
        await page.goto(f"{run}?show={pane}")
        shown += await page.get_by_role("main").locator("pre:visible").all_inner_texts()
        for button in await page.get_by_role("main").get_by_role("button", name="Copy", exact=True).all():
            await page.evaluate("navigator.clipboard.writeText('nothing yet')")
            await button.click()
            await page.wait_for_function("async () => await navigator.clipboard.readText() !== 'nothing yet'")
            copied.append(await page.evaluate("navigator.clipboard.readText()"))
    return shown, copied


# 8


async def test_check_08_the_same_run_opened_from_the_list_and_by_link_has_the_same_status(node, target, open_page):
    """Open the same run from list and by link: same status."""
    wanted = await asyncio.to_thread(of_every_status, node, target)
    page, by_link = await open_page(address(node, "/runs")), await open_page("about:blank")
    told: dict[int, tuple[str, str, str]] = {}
    for run in wanted:
        await page.goto(address(node, "/runs"))
        row = page.locator(f'tr[data-row="{run}"]')
        listed = await row.locator(".badge").inner_text()
        await row.get_by_role("link", name=str(run), exact=True).click()
        await expect(page).to_have_url(address(node, f"/runs/{run}"))
        from_list = await page.locator("h1 .badge").inner_text()
        await by_link.goto(address(node, f"/runs/{run}"))
        told[run] = (listed, from_list, await by_link.locator("h1 .badge").inner_text())
    assert {run: len(set(words)) for run, words in told.items()} == dict.fromkeys(wanted, 1), told
    assert {run: node.run(run)["status"] for run in wanted} == wanted
    assert len({words[0] for words in told.values()}) == len(set(wanted.values())), told
    target.release("kept")


def of_every_status(node: ServerNode, target: Target) -> dict[int, str]:
    """A run of each; none of them changes while the test looks."""

    def started(status: str, path: str = "/ok", **fields: Any) -> int:
        task = node.create(name=f"is {status}", target_url=target.url(path), **fields)
        run = node.trigger(task)
        node.wait_for_run(run, status)
        return run

    retries = {"max_retries": 1, "initial_delay": 3_000}
    found = {
        started("SUCCESS"): "SUCCESS",
        started("FAILED", "/status/500"): "FAILED",
        started("TIMEOUT", "/hold/kept", timeout_seconds=0.2): "TIMEOUT",
        started("RETRYING", "/status/503", retry_policy=retries): "RETRYING",
        started("CALLBACK_PENDING", "/accept/8", exec_type="ASYNC"): "CALLBACK_PENDING",
        started("FAILED_TIMEOUT", "/accept/8", exec_type="ASYNC", callback_timeout_sec=1): "FAILED_TIMEOUT",
    }
    waiting = node.trigger(node.create(name="is waiting", job_type="nobody's", queue="nobody"))
    skips = {"cron_expr": "* * * * * *", "overlap_action": "SKIP", "timeout_seconds": 600}
    busy = node.create(name="is RUNNING", target_url=target.url("/hold/kept"), **skips)
    both = until(lambda: found if len(found := node.runs_of(busy)) > 1 else None, "a slot to be skipped")
    node.ask("POST", f"/tasks/{busy}/disable")
    running, skipped = both[-1]["id"], both[0]["id"]
    called = node.trigger(node.create(name="is called", exec_type="ASYNC", target_url=target.url("/accept/called")))
    node.wait_for_run(called, "CALLBACK_PENDING")
    token = target.at("/accept/called")[-1].headers["X-Callback-Token"]
    node.ask("POST", f"/callbacks/{token}", {"status": "SUCCESS"})
    canceled = node.trigger(node.create(name="is canceled", job_type="nobody's", queue="nobody"))
    node.ask("POST", f"/runs/{canceled}/cancel")
    found |= {waiting: "SCHEDULED", running: "RUNNING", skipped: "SKIPPED"}
    return found | {called: "CALLBACK_SUCCESS", canceled: "CANCELED"}


# 9


NOT_LOOPBACK = "192.0.2.7"
"""An address for examples, which leads to no machine: this browser alone takes it for 127.0.0.1. Loopback itself will not
do, because browsers trust it: they give it a clipboard."""


@pytest.fixture
async def trusting_nobody(chromium_path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", f"--host-resolver-rules=MAP {NOT_LOOPBACK} 127.0.0.1"]
        started = await playwright.chromium.launch(executable_path=chromium_path, args=arguments)
        yield started
        await started.close()


async def test_check_09_over_plain_http_on_an_ip_address_under_a_prefix_copy_sse_and_deep_links_work(
    node, target, trusting_nobody
):
    """Plain HTTP on an IP address under `/x/`: copy, SSE and deep links work."""
    task = node.create(name="behind-a-proxy", target_url=target.url("/hold/proxied"))
    complaints: list[str] = []
    async with under_prefix(node.port, "/x") as port:
        root = f"http://{NOT_LOOPBACK}:{port}/x"
        context = await trusting_nobody.new_context(locale="en-GB", timezone_id="UTC")
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        listen(page, complaints)
        await page.goto(f"{root}/")
        assert await page.evaluate("[isSecureContext, typeof navigator.clipboard]") == [False, "undefined"]
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page).to_have_url(f"{root}/tasks")
        await page.get_by_role("link", name="behind-a-proxy", exact=True).click()
        await expect(page).to_have_url(f"{root}/tasks/{task}")
        await expect(page.locator("#live")).to_have_attribute("data-state", "on")
        await page.get_by_role("button", name="Run now").click()
        runs = page.locator("[data-live=runs]")
        await expect(runs.get_by_text("Running", exact=True)).to_be_visible()
        target.release("proxied")
        await expect(runs.get_by_text("Succeeded", exact=True)).to_be_visible()
        (run,) = node.runs_of(task)
        await page.goto(f"{root}/runs/{run['id']}")  # as a link that somebody was sent
        await expect(page.locator("h1")).to_contain_text("Succeeded")
        await page.get_by_role("button", name="Copy as curl").click()
        assert f"X-Noonbell-Run: {run['id']}" in await pasted(page)
        for path in ("/runs?status=SUCCESS", "/timeline?span=6h", "/tasks?name=behind"):
            await page.goto(root + path)
            await expect(page).to_have_url(root + path)
            await expect(page.get_by_text("behind-a-proxy", exact=True).first).to_be_visible()
        await page.get_by_role("combobox", name="Language").select_option("zh")
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        await expect(page).to_have_url(f"{root}/tasks?name=behind")
        await page.goto("about:blank")
    # That it is plain HTTP, the browser says of every page.
    assert [each for each in complaints if "Opener-Policy header has been ignored" not in each] == []


async def pasted(page: Page) -> str:
    """What is on the clipboard, put into the search box by hand: a page that is not trusted cannot read it."""
    await page.locator("#search").focus()
    await page.keyboard.press("Control+v")
    return str(await page.locator("#search").input_value())
