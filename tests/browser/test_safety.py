"""Hostile texts, foreign pages, tokens and roles, a prefix, the weight of the first load."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import expect

from acceptance.harness import ServerNode
from browser.conftest import address
from noonbell.service.access import Access
from noonbell.stores import open_store

HOSTILE = (
    "<script>window.hit = 1</script>",
    '"><img src=x onerror="window.hit = 1">',
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.hit = 1//",
    "'-(window.hit = 1)-'",
    "</textarea></title><svg onload=window.hit=1>",
)


async def test_hostile_text_is_shown_as_text_wherever_it_stands(node, target, open_page):
    page = await open_page(address(node))
    for text in HOSTILE:
        plain = "x" if "{" in text else text
        task = node.create(
            name=f"x {text}",
            description=text,
            labels={"l": text},
            target_url=target.url("/status/500"),
            http_method="POST",
            headers={"X-Odd": plain},
            body_template=plain,
        )
        run = node.trigger(task)
        node.wait_for_run(run)
        for path in (f"/tasks/{task}/edit", f"/runs/{run}", f"/tasks/{task}"):
            await page.goto(address(node, path))
            assert await page.evaluate("window.hit") is None, (path, text)
        await expect(page.locator("h1")).to_have_text(f"x {text}")
        await page.goto(address(node, f"/tasks?{urlencode({'name': text, 'label': text})}"))
        assert await page.evaluate("window.hit") is None, text
    for path in ("/", "/tasks", "/runs", "/timeline", "/activity"):
        await page.goto(address(node, path))
        assert await page.evaluate("window.hit") is None, path


async def test_an_answer_that_is_a_page_is_shown_as_text(node, open_page, page_target):
    task = node.create(name="answers-with-a-page", target_url=page_target)
    run = node.trigger(task)
    await asyncio.to_thread(node.wait_for_run, run)
    page = await open_page(address(node, f"/runs/{run}"))
    await expect(page.locator(".attempt")).to_contain_text("<script>window.hit = 1</script>")
    assert await page.evaluate("window.hit") is None


@pytest.fixture
async def page_target() -> AsyncIterator[str]:
    """A target that answers with HTML."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html><script>window.hit = 1</script></html>", content_type="text/html")

    async with serving(answer) as port:
        yield f"http://127.0.0.1:{port}/page"


@contextlib.asynccontextmanager
async def serving(handler) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


async def test_under_a_prefix_of_a_proxy_links_live_updates_and_copying_work(node, target, open_page):
    async def forward(request: web.Request) -> web.StreamResponse:
        assert request.path.startswith("/x/")
        upstream = f"http://127.0.0.1:{node.port}{request.rel_url.raw_path[2:]}"
        if request.rel_url.raw_query_string:
            upstream += f"?{request.rel_url.raw_query_string}"
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, upstream, headers=headers, data=await request.read(), allow_redirects=False
            ) as told,
        ):
            answer = web.StreamResponse(status=told.status)
            for name, value in told.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    answer.headers.add(name, value)
            await answer.prepare(request)
            with contextlib.suppress(ConnectionResetError):
                async for piece in told.content.iter_any():
                    await answer.write(piece)
            return answer

    task = node.create(name="behind-a-proxy", target_url=target.url("/hold/proxied"))
    async with serving(forward) as port:
        page = await open_page(f"http://127.0.0.1:{port}/x/")
        await page.get_by_role("link", name="Tasks", exact=True).click()
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/x/tasks")
        await page.get_by_role("link", name="behind-a-proxy").click()
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/x/tasks/{task}")
        await expect(page.locator("#live")).to_have_attribute("data-state", "on")
        await page.get_by_role("button", name="Run now").click()
        await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "RUNNING")
        target.release("proxied")
        await expect(page.locator("[data-live=runs] .badge")).to_have_attribute("data-status", "SUCCESS")
        await page.get_by_label("Language").select_option("zh")
        await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/x/tasks/{task}")
        await page.goto("about:blank")


async def test_the_first_load_weighs_less_than_150_kilobytes_and_comes_from_here_alone(node, open_page):
    page = await open_page("about:blank")
    answers: list[Any] = []

    def note(answer: Any) -> None:
        answers.append(answer)

    page.on("response", note)
    await page.goto(address(node), wait_until="load")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    page.remove_listener("response", note)
    assert {re.sub(r"^(https?://[^/]+).*", r"\1", answer.url) for answer in answers} == {address(node, "")}
    weight = [len(await answer.body()) for answer in answers if "/events" not in answer.url]
    assert 10_000 < sum(weight) < 150_000


# Tokens


@pytest.fixture(scope="module")
async def guarded(nodes, tmp_path_factory) -> tuple[ServerNode, dict[str, str]]:
    """A node that asks for tokens, and one token for each role."""
    url = f"sqlite:///{tmp_path_factory.mktemp('guarded') / 'noonbell.db'}"
    store = open_store(url, connections=2)
    await store.open()
    access = Access(store)
    tokens = {role: (await access.create(role, role))[1] for role in ("viewer", "operator", "admin")}
    await access.create("gone", "admin")
    await store.close()
    return nodes.start(url, env={"NOONBELL_AUTH__ENABLED": "true"}), tokens


async def sign_in(page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_whoever_comes_without_a_token_is_asked_for_one_and_led_back(guarded, open_page):
    node, tokens = guarded
    page = await open_page(address(node, "/runs?status=FAILED"))
    await expect(page).to_have_url(re.compile(r"/login\?next="))
    await sign_in(page, "nb_wrong")
    await expect(page.get_by_role("alert")).to_contain_text("not known")
    await sign_in(page, tokens["viewer"])
    await expect(page).to_have_url(address(node, "/runs?status=FAILED"))
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    (cookie,) = [each for each in await page.context.cookies() if each["name"] == "noonbell_session"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert tokens["viewer"] not in cookie["value"]
    await page.get_by_role("button", name="Sign out").click()
    await page.goto(address(node, "/runs"))
    await expect(page).to_have_url(re.compile("/login"))


async def test_each_role_sees_what_it_may_do_and_no_more(guarded, open_page):
    node, tokens = guarded
    seen: dict[str, tuple[bool, bool, bool]] = {}
    for role, token in tokens.items():
        page = await open_page(address(node, "/tasks"))
        await sign_in(page, token)
        await expect(page.locator("h1")).to_contain_text("Tasks")
        new = await page.get_by_role("link", name="New task").count() > 0
        log = await page.get_by_role("link", name="Activity").count() > 0
        await page.goto(address(node, "/settings"))
        makes = await page.get_by_role("button", name="Make a token").count() > 0
        seen[role] = (new, log, makes)
    assert seen == {
        "viewer": (False, False, False),
        "operator": (True, False, False),
        "admin": (True, True, True),
    }


async def test_a_revoked_token_ends_its_sessions(guarded, open_page):
    node, tokens = guarded
    page = await open_page(address(node, "/settings"))
    await sign_in(page, tokens["admin"])
    await page.get_by_label("Name").last.fill("short-lived")
    await page.get_by_role("button", name="Make a token").click()
    secret = await page.locator(".secret").inner_text()
    other = await open_page(address(node, "/"))
    await sign_in(other, secret)
    await expect(other.get_by_role("heading", name="Overview")).to_be_visible()
    row = page.locator("tr", has_text="short-lived")
    await row.get_by_role("button", name="Revoke").click()
    await page.locator("#confirm button[value=yes]").click()
    await expect(page.locator(".toast").last).to_contain_text("revoked")
    await other.goto(address(node, "/"))
    await expect(other).to_have_url(re.compile("/login"))
