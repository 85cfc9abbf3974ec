"""The dashboard: no page shows a secret (S7), and after login nobody is sent elsewhere (S30)."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit

import pytest

from integration.api.serving import Api, serving
from noonbell.model.access import Role
from noonbell.settings import Auth, Executor, Secrets
from security.planting import Planted, ended, parrots
from security.routes import CAREFUL

LINK = re.compile(r'(?:href|src|action|data-[a-z-]+)="([^"]+)"')
MOST_PAGES = 250


@pytest.fixture(params=["sealed", "plain"])
async def house(request, sqlite_url, key_file) -> AsyncIterator[tuple[Api, Planted]]:
    planted = Planted()
    sections = {
        "executor": Executor(global_headers={"X-Secret-Everywhere": planted.everywhere}),
        "secrets": Secrets(key_file=str(key_file) if request.param == "sealed" else None),
    }
    async with parrots() as sink, serving(sqlite_url, **sections) as api:
        for name, path in (("good", "/good"), ("bad", "/fail")):
            await api.good("POST", "/tasks", planted.task(sink.url(path), name=name), 201)
        for channel in planted.channels(sink.url()):
            await api.good("POST", "/alerts/channels", channel, 201)
        await api.parts.node.start()
        try:
            for task in (1, 2):
                await ended(api, await api.trigger(task))
                await api.good("PATCH", f"/tasks/{task}", {"priority": 1})
            yield api, planted
        finally:
            await api.parts.node.stop(1)


async def crawled(api: Api) -> dict[str, tuple[int, dict[str, str], str]]:
    """Every page that a link leads to, and the pages of each task and run."""
    runs = (await api.good("GET", "/runs"))["items"]
    waiting = ["/", "/tasks/1/edit", *(f"/runs/{run['id']}" for run in runs)]
    seen: dict[str, tuple[int, dict[str, str], str]] = {}
    while waiting and len(seen) < MOST_PAGES:
        path = waiting.pop(0)
        if path in seen:
            continue
        async with api.session.get(api.root + path) as response:
            kind = response.content_type
            text = await response.text() if kind.startswith(("text/html", "application/json")) else ""
            seen[path] = (response.status, {k.lower(): v for k, v in response.headers.items()}, text)
        if kind != "text/html":
            continue
        for link in LINK.findall(text):
            parts = urlsplit(urljoin(f"{api.root}{path}", html.unescape(link)))
            if f"{parts.scheme}://{parts.netloc}" == api.root and not parts.path.endswith("/events"):
                waiting.append(parts.path + (f"?{parts.query}" if parts.query else ""))
    return seen


async def test_no_page_shows_a_secret(house):
    api, planted = house
    pages = await crawled(api)
    assert len(pages) > 20
    assert any(path.startswith("/runs/") and "***" in text for path, (_, _, text) in pages.items())
    assert [(path, status) for path, (status, _, _) in pages.items() if status >= 500] == []
    assert [(path, found) for path, (_, _, text) in pages.items() if (found := planted.found_in(text))] == []
    assert [path for path, (_, _, text) in pages.items() if "sealed:v1:" in text] == []
    for path, (_, headers, _) in pages.items():
        assert "frame-ancestors 'none'" in headers["content-security-policy"] or path.startswith("/static"), path
        assert headers.keys() >= CAREFUL.keys(), path


@pytest.mark.parametrize(
    "to",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:x",
    ],
)
async def test_after_login_nobody_is_sent_to_another_site(to):
    """S30."""
    async with serving("memory://", auth=Auth(enabled=True)) as api:
        _, token = await api.parts.access.create("ada", Role.VIEWER)
        async with api.session.post(
            f"{api.root}/login",
            data={"token": token, "next": to},
            headers={"Origin": api.root},
            allow_redirects=False,
        ) as response:
            assert response.status == 303
            assert urljoin(api.root, response.headers["location"]).startswith(f"{api.root}/")
            cookie = response.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert token not in str(response.headers)
