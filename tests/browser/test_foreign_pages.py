"""A page of another site, in a browser with a session: it can change nothing here, read nothing and frame nothing, and a login
that it links to leads to no other site."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web
from playwright.async_api import Page, expect
from playwright.async_api import TimeoutError as NoAnswer

from acceptance.harness import ServerNode
from browser.conftest import address
from browser.guarding import guarded_node, sign_in
from noonbell.web.routes import PAGES
from services.size import size

SUBMIT = """
({ address, kind }) => {
  const form = Object.assign(document.createElement("form"), { action: address, method: "post", enctype: kind, target: "in" });
  const field = { name: '{"name": "a", "status": "DISABLED", "x": "', value: '"}' };
  form.append(Object.assign(document.createElement("input"), field));
  if (!document.querySelector("iframe")) document.body.append(Object.assign(document.createElement("iframe"), { name: "in" }));
  document.body.append(form);
  form.submit();
}
"""
"""A form, which needs nobody's leave; as text, its one field is JSON."""

FETCH = """
async (asked) => {
  const told = [];
  for (const { method, address, kind } of asked) {
    for (const mode of ["cors", "no-cors"]) {
      const more = { method, mode, credentials: "include", headers: { "content-type": kind }, body: '{"name": "a"}' };
      told.push([address, await fetch(address, more).then((answer) => `read ${answer.status}`, () => "refused")]);
    }
  }
  return told;
}
"""


@pytest.fixture(scope="module")
async def guarded(nodes, tmp_path_factory) -> tuple[ServerNode, dict[str, str]]:
    return await guarded_node(nodes, tmp_path_factory.mktemp("guarded"))


@contextlib.asynccontextmanager
async def another_site(host: str) -> AsyncIterator[str]:
    """A site with one empty page: on another name of this machine, or on another port of the same one."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>x</title><body></body>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield f"http://{host}:{site._server.sockets[0].getsockname()[1]}/"
    finally:
        await runner.cleanup()


def changing(node: ServerNode, token: str | None = None) -> list[dict[str, str]]:
    """Every request that would change something: of the dashboard by its table, of the API by its description."""
    form, text = "application/x-www-form-urlencoded", "text/plain"
    found = [(page.method, page.path, form) for page in PAGES if page.method != "GET"]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    document = node.call("GET", "/openapi.json", base="", headers=headers).json
    found += [(name.upper(), path, text) for path, item in document["paths"].items() for name in item if name != "get"]
    assert len(found) > 80
    return [{"method": method, "address": address(node, filled(path)), "kind": kind} for method, path, kind in found]


def filled(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path)


def state(node: ServerNode, token: str | None = None) -> list[Any]:
    """All that somebody could have changed, and the log of who did."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    paths = ("/tasks", "/runs", "/tokens", "/alerts/rules", "/alerts/channels", "/audit")
    told = [node.call("GET", path, headers=headers) for path in paths]
    assert {each.status for each in told} == {200}
    return [re.sub(r'"last_used_at":[^,}]+', "", each.text) for each in told]


@pytest.mark.longer
async def test_a_foreign_page_can_do_nothing_where_no_token_is_asked_for(node, open_page):
    """The browser is on this machine, which is all that this node asks; so where the page comes from must count."""
    node.create(name="a", target_url="http://127.0.0.1:9/x")
    for host in ("127.0.0.2", "127.0.0.1"):
        await nothing_comes_of_it(node, open_page, host, None)


@pytest.mark.longer
async def test_a_foreign_page_can_do_nothing_with_the_session_of_its_browser(guarded, open_page):
    """The second has the session's cookie sent along: to a browser, another port is the same site."""
    node, tokens = guarded
    admin = {"Authorization": f"Bearer {tokens['admin']}"}
    task = {"name": "a", "target_url": "http://127.0.0.1:9/x"}
    assert node.call("POST", "/tasks", task, headers=admin).status == 201
    for host in ("127.0.0.2", "127.0.0.1"):
        await nothing_comes_of_it(node, open_page, host, tokens["admin"])


async def nothing_comes_of_it(node: ServerNode, open_page: Any, host: str, token: str | None) -> None:
    async with another_site(host) as foreign:
        page = await open_page(address(node))
        if token is not None:
            await sign_in(page, token)
            await expect(page).to_have_url(address(node))
        before = await asyncio.to_thread(state, node, token)
        page = await page.context.new_page()  # refusals are in its console, which here is as it should be
        await page.goto(foreign)
        cookies = [cookie["name"] for cookie in await page.context.cookies(address(node))]
        assert ("noonbell_session" in cookies) == (token is not None)
        asked = await asyncio.to_thread(changing, node, token)
        # A page of another port tries everything: to it the cookie is sent along. One of another name gets less, and tries less.
        assert await let_in(page, asked if host == "127.0.0.1" else asked[:: size(5, 1)]) == []
        assert await asyncio.to_thread(state, node, token) == before


async def let_in(page: Page, asked: list[dict[str, str]]) -> list[tuple[str, Any]]:
    """What was not refused: forms by the node, all else by the browser, which asks the node before it sends it."""
    found: list[tuple[str, Any]] = []
    for each in asked:
        if each["method"] == "POST":
            found += [(each["address"], status)] if (status := await answer_to_form(page, each)) != 403 else []
    told = await page.evaluate(FETCH, asked)
    assert len(told) == 2 * len(asked)
    return found + [(address, answer) for address, answer in told if answer != "refused"]


async def answer_to_form(page: Page, each: dict[str, str]) -> int:
    """The frame changes its process for a foreign answer, which may then pass unseen; the same form again is seen."""
    for _ in range(5):
        with contextlib.suppress(NoAnswer):
            async with page.expect_response(each["address"], timeout=5_000) as coming:
                await page.evaluate(SUBMIT, each)
            return (await coming.value).status
    raise AssertionError(f"no answer to the form for {each['address']}")


async def test_a_foreign_page_can_read_nothing_and_frame_nothing(guarded, open_page):
    node, tokens = guarded
    async with another_site("127.0.0.1") as foreign:
        page = await open_page(address(node))
        await sign_in(page, tokens["viewer"])
        await expect(page).to_have_url(address(node))
        page = await page.context.new_page()
        await page.goto(foreign)
        for path in ("/", "/tasks", "/api/v1/tasks", "/openapi.json"):
            read = "(path) => fetch(path, { credentials: 'include' }).then(() => 'read', () => 'refused')"
            assert await page.evaluate(read, address(node, path)) == "refused", path
            await page.evaluate(
                "(src) => document.body.append(Object.assign(document.createElement('iframe'), { src }))",
                address(node, path),
            )
        stream = "(at) => new Promise((done) => { const s = new EventSource(at, { withCredentials: true });"
        stream += " s.onopen = () => done('open'); s.onerror = () => done('refused'); })"
        assert await page.evaluate(stream, address(node, "/api/v1/events")) == "refused"
        for frame in page.frames[1:]:
            await frame.wait_for_load_state()
            assert not frame.url.startswith(address(node)) or await frame.locator("body *").count() == 0
        opened = "(at) => { const other = open(at); return new Promise((done) => setTimeout(() => done(other.closed), 1000)); }"
        async with page.context.expect_page() as coming:
            closed = await page.evaluate(opened, address(node, "/tasks"))
        assert closed  # to who opened it: the policy has parted the two
        await (await coming.value).close()


def test_nothing_is_changed_by_an_address_alone():
    """What a picture or a link can ask for."""
    assert [page.path for page in PAGES if page.method == "GET" and page.action] == []


# The login


AWAY = (
    *(
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
    ),
    *("https://evil.example", "https:evil.example", "http:/\\evil.example", "javascript:alert(1)", "data:text/html,x"),
    *(
        "/..//evil.example",
        "/.//evil.example",
        "/%2F/evil.example",
        "/%5cevil.example",
        "@evil.example",
        "/@evil.example",
    ),
    *("/x?next=//evil.example", "?x", "#x", " //evil.example", "/ //evil.example", "evil.example", ""),
)


@pytest.mark.longer
async def test_a_login_leads_to_no_other_site(guarded, open_page):
    node, tokens = guarded
    page = await open_page("about:blank")
    for number, to in enumerate(AWAY):
        if number % size(4, 1) == 0:
            await page.context.clear_cookies()
            await page.goto(address(node, f"/login?{urlencode({'next': to})}"))
            await sign_in(page, tokens["viewer"])
            await expect(page.get_by_label("Token")).to_have_count(0)
            assert page.url.startswith(address(node)), to
        await page.goto(address(node, f"/login?{urlencode({'next': to})}"))  # who is in is led on at once
        assert page.url.startswith(address(node)), to


async def test_a_session_begins_with_a_login_and_ends_with_a_logout(guarded, open_page):
    """A cookie that somebody laid ready is not taken over; a copy of one is worth nothing after signing out."""
    node, tokens = guarded
    theirs = await open_page(address(node, "/login"))
    await sign_in(theirs, tokens["viewer"])
    await expect(theirs).to_have_url(address(node))
    laid = (await session_of(theirs))["value"]
    mine = await open_page("about:blank")
    await mine.goto(address(node, "/login"))
    await mine.context.add_cookies([{"name": "noonbell_session", "value": laid, "url": address(node)}])
    await sign_in(mine, tokens["admin"])
    await expect(mine).to_have_url(address(node))
    cookie = await session_of(mine)
    assert cookie["value"] != laid
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert "noonbell_session" not in await mine.evaluate("document.cookie")
    await mine.get_by_role("button", name="Sign out").click()
    await expect(mine).to_have_url(re.compile("/login$"))
    assert [each for each in await mine.context.cookies() if each["name"] == "noonbell_session"] == []
    await mine.context.add_cookies([{"name": "noonbell_session", "value": cookie["value"], "url": address(node)}])
    await mine.goto(address(node, "/tasks"))
    await expect(mine).to_have_url(re.compile("/login"))
    await theirs.goto(address(node, "/tasks"))
    await expect(theirs).to_have_url(address(node, "/tasks"))


async def session_of(page: Page) -> dict[str, Any]:
    (cookie,) = [each for each in await page.context.cookies() if each["name"] == "noonbell_session"]
    return dict(cookie)
