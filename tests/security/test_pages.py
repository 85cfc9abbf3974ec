"""The dashboard: no page shows a secret (S7), and a login leads to no other site (S30)."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit

import pytest

from integration.api.serving import Api, serving
from noonbell.model.access import Role
from noonbell.settings import AuthSettings, ExecutorSettings, SecretSettings
from security.planting import Planted, ended, parrots
from security.role_table import PAGES
from security.routes import CAREFUL, address_of

LINK = re.compile(r'(?:href|src|action|data-[a-z-]+)="([^"]+)"')
MOST_LINKS = 100


@pytest.fixture(params=["sealed", "plain"])
async def house(request, sqlite_url, key_file) -> AsyncIterator[tuple[Api, Planted]]:
    planted = Planted()
    sections = {
        "executor": ExecutorSettings(global_headers={"X-Secret-Everywhere": planted.everywhere}),
        "secrets": SecretSettings(key_file=str(key_file) if request.param == "sealed" else None),
    }
    async with parrots() as sink, serving(sqlite_url, **sections) as api:
        for name, path in (("good", "/good"), ("bad", "/fail")):
            await api.good("POST", "/tasks", planted.task(sink.url(path), name=name), 201)
        for task in planted.others():
            await api.good("POST", "/tasks", task, 201)
        for channel in planted.channels(sink.url()):
            await api.good("POST", "/alerts/channels", channel, 201)
        await api.good("POST", "/subscriptions", planted.webhook(sink.url()), 201)
        await api.good("POST", "/subscriptions/hook/test")
        await api.parts.node.start()
        try:
            for task in (1, 2, 3, 4, 5):  # the sixth is a command, which no worker runs
                await ended(api, await api.trigger(task))
                await api.good("PATCH", f"/tasks/{task}", {"priority": 1})
            yield api, planted
        finally:
            await api.parts.node.stop(1)


async def crawled(api: Api) -> dict[str, tuple[int, dict[str, str], str]]:
    """Every page of the table, about things that are there, the page of each run, and what links of them lead to."""
    runs = [str(run["id"]) for run in (await api.good("GET", "/runs"))["items"]]
    values = {"name": "hook", "run_id": runs[0], "other": runs[1], "number": "1", "what": "response", "version": "1"}
    table = [address_of(line.removeprefix("GET "), **values) for line in PAGES if line.startswith("GET ")]
    waiting = [*table, *(f"/runs/{run}" for run in runs)]
    seen: dict[str, tuple[int, dict[str, str], str]] = {}
    while waiting and len(seen) < len(table) + MOST_LINKS:
        path = waiting.pop(0)
        if path in seen:
            continue
        async with api.session.get(api.root + path) as response:
            kind = response.content_type
            text = (await response.read()).decode("utf-8", "replace")  # files to be kept are looked through too
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
    assert len(pages) > len([line for line in PAGES if line.startswith("GET ")])
    assert all(pages[path][0] == 200 for path in ("/tasks/1/edit", "/settings/alerts", "/settings/channels/hook"))
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
async def test_a_login_leads_to_no_other_site(to):
    """S30."""
    async with serving("memory://", auth=AuthSettings(enabled=True)) as api:
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
