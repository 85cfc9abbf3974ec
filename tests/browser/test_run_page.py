"""The page of one run: the cause first, what to do about it, what was sent and came back, exactly; live while it runs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

from browser.conftest import address
from browser.proxying import serving

BIG = 9_223_372_036_854_775_807
EXACT = '{"big":9223372036854775807,\r\n "bigger":123456789012345678901234567890, "float":1.10}'


@pytest.fixture
async def answers() -> AsyncIterator[str]:
    """A target whose answers have odd bytes, or very many."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/long":
            return web.Response(text="0123456789abcdef" * 20_000)
        return web.Response(text=EXACT, status=422, content_type="application/json")

    async with serving(answer) as port:
        yield f"http://127.0.0.1:{port}"


async def copied(page: Page) -> str:
    return await page.evaluate("navigator.clipboard.readText()")


async def test_the_cause_and_what_to_do_stand_first(node, target, open_page):
    task = node.create(name="broken", target_url=target.url("/status/503"))
    run = node.trigger(task)
    node.wait_for_run(run)
    page = await open_page(address(node, f"/runs/{run}"))
    cause = page.locator("[data-live=cause]")
    await expect(cause).to_contain_text("503")
    await expect(cause.locator("[data-advice]")).to_have_attribute("data-advice", "target_failed")
    above = await page.evaluate(
        "document.querySelector('[data-live=cause]').getBoundingClientRect().top <"
        " document.querySelector('[data-live=time]').getBoundingClientRect().top"
    )
    assert above
    page = await open_page(address(node, f"/runs/{run}"), lang="zh")
    await expect(page.locator("[data-advice]")).to_contain_text("待其恢复后重试")
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", await page.locator("[data-live=cause]").inner_text()) is None


async def test_what_is_copied_is_what_came_to_the_byte(node, answers, open_page):
    task = node.create(name="exact", target_url=f"{answers}/x", http_method="POST", body_template=f'{{"n": {BIG}}}')
    run = node.trigger(task)
    await asyncio.to_thread(node.wait_for_run, run)
    page = await open_page(address(node, f"/runs/{run}"), permissions=["clipboard-read", "clipboard-write"])
    pane = page.locator("[data-live=response]")
    await expect(pane).to_contain_text("123456789012345678901234567890")
    await pane.locator(".body-part").first.get_by_role("button", name="Copy").click()
    await expect(page.locator(".toast")).to_be_visible()
    assert await copied(page) == EXACT
    await page.locator("[data-pane=request]").click()
    await page.locator("[data-live=request]").get_by_role("button", name="Copy").click()
    await expect(page.locator(".toast")).to_be_visible()
    assert json.loads(await copied(page)) == {"n": BIG}


async def test_a_long_answer_says_how_much_is_shown_and_is_downloaded_whole(node, answers, open_page):
    task = node.create(name="long", target_url=f"{answers}/long")
    run = node.trigger(task)
    await asyncio.to_thread(node.wait_for_run, run)
    page = await open_page(address(node, f"/runs/{run}"))
    await expect(page.locator("[data-live=response]")).to_contain_text("The first 64 KB of 312 KB")
    async with page.expect_download() as started:
        await page.locator("[data-live=response]").get_by_role("link", name="Download").click()
    path = await (await started.value).path()
    assert path.read_text() == "0123456789abcdef" * 20_000


async def test_each_attempt_is_looked_at_by_itself_and_the_address_says_which(node, target, open_page):
    policy = {"max_retries": 2, "initial_delay": 0.05, "strategy": "fixed"}
    task = node.create(name="tries", target_url=target.url("/status/500"), retry_policy=policy)
    run = node.trigger(task)
    node.wait_for_run(run)
    page = await open_page(address(node, f"/runs/{run}?show=request"))
    attempts = page.get_by_role("navigation", name="Attempts")
    await expect(attempts.get_by_role("link")).to_have_count(3)
    await expect(page.locator("[data-live=request]")).to_contain_text("X-Noonbell-Attempt: 3")
    await attempts.get_by_role("link").last.click()
    await expect(page.locator("[data-live=request]")).to_contain_text("X-Noonbell-Attempt: 1")
    assert "attempt=1" in page.url
    await expect(page.locator('[data-bar="backoff"]')).to_have_count(2)
    await expect(page.locator('[data-bar="attempt"]')).to_have_count(3)


async def test_keys_expand_the_error_and_go_to_the_runs_beside(node, target, open_page):
    task = node.create(name="keyed", target_url=target.url("/status/500"))
    runs = [node.trigger(task) for _ in range(2)]
    for run in runs:
        node.wait_for_run(run)
    page = await open_page(address(node, f"/runs/{runs[1]}"))
    await expect(page.locator(".error-details")).not_to_have_attribute("open", "")
    await page.keyboard.press("e")
    await expect(page.locator(".error-details")).to_have_attribute("open", "")
    await expect(page.locator(".error-details pre")).to_contain_text("http_5xx")
    await page.keyboard.press("[")
    await expect(page.locator("h1")).to_contain_text(str(runs[0]))
    await page.keyboard.press("]")
    await expect(page.locator("h1")).to_contain_text(str(runs[1]))


async def test_a_callback_with_another_secret_is_refused_in_words_with_a_why(node, target, open_page):
    task = node.create(
        name="signed", exec_type="ASYNC", target_url=target.url("/accept/signed"), secret="whsec_" + "a" * 44
    )
    run = node.trigger(task)
    node.wait_for_run(run, "CALLBACK_PENDING")
    token = target.at("/accept/signed")[-1].headers["X-Callback-Token"]
    page = await open_page(address(node, f"/runs/{run}"))
    await expect(page.locator('[data-bar="waiting"]')).to_be_visible()
    node.ask("POST", f"/callbacks/{token}", {"status": "RUNNING"})
    await expect(page.locator('[data-bar="waiting"]')).to_contain_text("deadline extension")
    forged = {"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert node.call("POST", f"/callbacks/{token}", {"status": "SUCCESS"}, headers=forged).status >= 400
    row = page.locator('[data-bar="callback"]')
    await expect(row).to_contain_text("rejected: signature mismatch")
    await expect(row).to_contain_text("from 127.0.0.1")
    await expect(page.locator("[data-advice]")).to_have_attribute("data-advice", "callback_signature")
    await row.get_by_role("link", name="Why?").click()
    await expect(page.locator(".why")).to_contain_text("signed with another secret")
    node.call("POST", "/callbacks/nobody-was-given-this", {"status": "SUCCESS"})
    await expect(page.locator("[data-live=callbacks]")).to_contain_text("Unmatched callbacks")


async def test_a_failure_is_compared_with_the_last_success(node, target, open_page):
    task = node.create(name="compared", target_url=target.url("/ok"))
    good = node.trigger(task)
    node.wait_for_run(good)
    node.ask("PATCH", f"/tasks/{task}", {"target_url": target.url("/status/500")})
    bad = node.trigger(task)
    node.wait_for_run(bad)
    page = await open_page(address(node, f"/runs/{bad}"))
    await page.get_by_role("link", name="Compare with the last success").click()
    heads = page.locator("table.compare thead a")
    await expect(heads).to_have_text([str(good), str(bad)])
    await expect(page.get_by_role("row", name="Response code (differs) 200 500")).to_be_visible()
    await expect(page.locator('[data-text="compare.request_headers"]')).to_contain_text(str(bad))


async def test_progress_and_lines_of_the_log_come_while_it_runs(node, open_page):
    task = node.create(name="works", job_type="crunch", queue="far")
    run = node.trigger(task)
    page = await open_page(address(node, f"/runs/{run}?show=log"))
    await expect(page.locator("[data-advice]")).to_have_attribute("data-advice", "no_worker")
    await expect(page.locator("[data-live=cause]")).to_contain_text("--queues far")
    said = {"queues": ["far"], "job_types": ["crunch"], "max": 1, "wait_seconds": 5}
    claimed = node.ask("POST", "/workers/w-far/claim", said)["runs"][0]
    held = {"worker_id": "w-far", "token": claimed["token"]}
    node.ask("POST", f"/runs/{run}/progress", {**held, "current": 25, "total": 100, "message": "pages"})
    await expect(page.locator(".progress-line")).to_contain_text("25.0 %")
    await expect(page.locator(".progress-line")).to_contain_text("left")
    for number in (1, 2):
        node.ask("POST", f"/runs/{run}/log", {**held, "level": "info", "message": f"line {number}"})
        await expect(page.locator(".log li")).to_have_count(number)
    node.ask("POST", f"/runs/{run}/settle", {**held, "outcome": "success", "result": {"rows": BIG}})
    await expect(page.locator("[data-live=status] .badge")).to_have_attribute("data-status", "SUCCESS")
    await page.locator("[data-pane=response]").click()
    await expect(page.locator("[data-live=response]")).to_contain_text(str(BIG))


async def test_a_run_that_is_gone_says_so(node, open_page):
    page = await open_page(address(node, "/runs/123456789"))
    await expect(page.locator("main")).to_contain_text("This run does not exist.")


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_a_run_fits_on_a_phone(node, target, open_page, lang):
    task = node.create(name=f"narrow-{lang}", target_url=target.url("/status/404"))
    run = node.trigger(task)
    node.wait_for_run(run)
    page = await open_page(address(node, f"/runs/{run}"), width=390, lang=lang)
    for more in ("", "?show=request", "?show=raw", "/compare", "/replay"):
        await page.goto(address(node, f"/runs/{run}{more}"))
        assert await page.evaluate("document.documentElement.scrollWidth") == 390, more


async def test_a_long_log_opens_at_its_newest_line_and_leaves_no_blank_page(node, open_page):
    task = node.create(name="talks", job_type="talk", queue="talking")
    run = node.trigger(task)
    said = {"queues": ["talking"], "job_types": ["talk"], "max": 1, "wait_seconds": 5}
    claimed = node.ask("POST", "/workers/w-talks/claim", said)["runs"][0]
    held = {"worker_id": "w-talks", "token": claimed["token"]}
    for begin in (1, 101):
        lines = [{"level": "info", "message": f"line {number}"} for number in range(begin, begin + 100)]
        node.ask("POST", f"/runs/{run}/log", {**held, "lines": lines})
    page = await open_page(address(node, f"/runs/{run}?show=log"))
    last = page.locator(".log li").last
    await expect(last).to_contain_text("line 200")
    below = "document.documentElement.scrollHeight - scrollY - document.querySelector('footer').getBoundingClientRect().bottom"
    assert await page.evaluate(below) < 100, "blank space below the footer"
    inside = await page.evaluate(
        "(() => { const b = document.querySelector('.log-box').getBoundingClientRect();"
        " const l = document.querySelector('.log li:last-child').getBoundingClientRect();"
        " return l.bottom <= b.bottom + 1 && l.top >= b.top })()"
    )
    assert inside, "the newest line is not in view"
    node.ask("POST", f"/runs/{run}/settle", {**held, "outcome": "success"})


async def test_the_question_before_a_run_is_canceled_names_its_buttons_by_what_they_do(node, target, open_page):
    task = node.create(name="held", target_url=target.url("/hold/asked"))
    run = node.ask("POST", f"/tasks/{task}/trigger")["run_id"]
    page = await open_page(address(node, f"/runs/{run}"))
    question = page.locator("#confirm")
    await page.get_by_role("button", name="Cancel run").click()
    await expect(question.get_by_role("button")).to_have_text(["Keep the run", "Cancel run"])
    await question.get_by_role("button", name="Keep the run").click()
    await expect(question).to_be_hidden()
    assert node.ask("GET", f"/runs/{run}")["status"] != "CANCELED"
    await page.get_by_role("button", name="Cancel run").click()
    await question.get_by_role("button", name="Cancel run").click()
    await expect(page.locator("[data-live=status]")).to_contain_text("Canceled")
    target.release("asked")
